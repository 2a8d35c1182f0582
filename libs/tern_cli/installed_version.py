"""Which TernMQ this is."""

from importlib import metadata


def installed_version() -> str:
    """The version of the installation, such as 0.1.0; `unknown` where it runs from a folder that was never installed."""
    try:
        return metadata.version("ternmq")
    except metadata.PackageNotFoundError:
        return "unknown"
