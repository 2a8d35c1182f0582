"""Values as people read them in a table or a sentence: times with their zone, durations with their unit, `yes` and `no`, lists without brackets.

The one place that decides so. A name says what its value is, as units come last everywhere: `..._at` and `..._until` are points in time (ms since 1970), `..._ms` a
duration. Programs get raw values, by `-o json`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tern_wire.times import duration_text

NOTHING = "-"


def shown_time(time_ms: int) -> str:
    """A time for people, in their own zone, as options such as --from take it; "" for none (0)."""
    if not time_ms:
        return ""
    try:
        text = datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        # Beyond the year 9999: somebody's mistake, which is shown as it is.
        return f"{time_ms:,} ms after 1970"
    return f"{text.removesuffix('+00:00')}Z" if text.endswith("+00:00") else text


def shown(name: str, value: Any) -> str:
    """*value* of the field *name* for people."""
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
    """Whether a field of that name is a point in time."""
    return name.endswith(("_at", "_until")) or name == "until"


def head(name: str) -> str:
    """What stands above a column, or before a value, of the field *name*."""
    return name.removesuffix("_ms").replace("_", " ")
