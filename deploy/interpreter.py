"""`python deploy/interpreter.py`: say which Python this is, and whether it is a slow build.

`make install` runs it with the Python that `.venv/` gets. A Python without profile-guided
optimisation, as pyenv and a plain `./configure` make it, sends up to 1.3 times fewer messages
with the same cores. Distributions and the official images have an optimised one. Standard library
only.
"""

import platform
import sys
import sysconfig

VERSION_MIN = (3, 11)
_OPTIMISED = "--enable-optimizations"
# Distributions optimise by rules of their own, which their configuration does not show.
_SYSTEM_PREFIX = "/usr"


def is_optimised(configured_with: str, prefix: str) -> bool:
    """Return whether a build is optimised, by the arguments of its configure and its prefix."""
    return _OPTIMISED in configured_with or prefix == _SYSTEM_PREFIX


def describe(version: str, configured_with: str, prefix: str) -> str:
    """Return the line for the user."""
    line = f"install: making .venv/ with Python {version}"
    if is_optimised(configured_with, prefix):
        return line
    return (
        f"{line}, built without {_OPTIMISED}: up to 1.3 times slower. "
        "A distribution's Python, or PYTHON_CONFIGURE_OPTS=--enable-optimizations for pyenv, is faster: "
        "make PYTHON=/usr/bin/python3 ..."
    )


def main() -> int:
    """Print the line; return 1 for a Python that is too old."""
    if sys.version_info < VERSION_MIN:
        print("Python 3.11 or newer is needed: make PYTHON=python3.11 ...", file=sys.stderr)
        return 1
    print(describe(platform.python_version(), sysconfig.get_config_var("CONFIG_ARGS") or "", sys.base_prefix))
    return 0


if __name__ == "__main__":
    sys.exit(main())
