"""Values formatted for people, in tables and sentences. All such formatting is here.

Times have their zone, durations their unit, booleans are `yes` and `no`, lists have no brackets.
The field's name gives the type, since units come last everywhere: `..._at` and `..._until` are
points in time (ms since 1970), `..._ms` a duration. Programs get raw values, with `-o json`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tern_wire.times import duration_text

NOTHING = "-"


def shown_time(time_ms: int) -> str:
    """Return a time in the local zone, as options such as --from accept it; "" for none (0)."""
    if not time_ms:
        return ""
    try:
        text = datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        # Beyond the year 9999. Such a value is a mistake, and is shown unchanged.
        return f"{time_ms:,} ms after 1970"
    return f"{text.removesuffix('+00:00')}Z" if text.endswith("+00:00") else text


def shown(name: str, value: Any) -> str:
    """Return *value* of the field *name*, formatted for people."""
    if value is None or (is_time(name) and value == 0):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and is_time(name):
        return shown_time(value)
    if isinstance(value, int | float) and name.endswith("_ms"):
        return duration_text(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={shown(str(key), each)}" for key, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(shown("", each) for each in value)
    return str(value)


def is_time(name: str) -> bool:
    """Return whether the field *name* holds a point in time."""
    return name.endswith(("_at", "_until")) or name == "until"


def head(name: str) -> str:
    """Return the heading of the field *name*."""
    return name.removesuffix("_ms").replace("_", " ")
