"""The option `context`: a named mesh of the user who runs the driver, as other options.

It is looked up in the driver. Tasks get endpoints, namespace and names of files, which must be at
the executors too.
"""

from collections.abc import Mapping, MutableMapping

from tern_client.settings.contexts import ContextUnusable
from tern_client.settings.settings import Settings
from tern_spark.options.values import OptionError


def replace_context(texts: MutableMapping[str, str], environ: Mapping[str, str]) -> None:
    """Replace `context` in *texts* by the options that it stands for; one that is given stays.
    OptionError when it is unknown, or an endpoint is given too.
    """
    name = texts.pop("context", None)
    if name is None:
        return
    if "endpoint" in texts:
        raise OptionError("context and endpoint are given; give one of them.")
    try:
        settings = Settings.from_env(environ, context=name.strip() or " ")
    except ContextUnusable as error:
        raise OptionError(f"context: {error.detail}") from error
    texts["endpoint"] = ",".join(settings.endpoints)
    # "" is said too: the environment's key belongs to another mesh.
    for option, text in (("keyFile", settings.key_file), ("caFile", settings.ca_file)):
        texts.setdefault(option, text)
    if settings.namespace:
        texts.setdefault("namespace", settings.namespace)
