"""Durations as people write them: `500ms`, `10s`, `5m`, `2h`, or a plain number of milliseconds."""

import re

_DURATION = re.compile(r"(\d{1,12})(?:\.(\d{1,3}))?(ms|s|m|h|d)?", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}


def parse_duration_ms(value: str | int) -> int:
    """Milliseconds of `"1.5s"`, `"2h"` or `1500`; ValueError on anything else, negatives included."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"{value} is negative")
        return value
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"'{value}' is not a duration such as '30s' or '1500ms'")
    unit_ms = _UNIT_MS[match[3]]
    return int(match[1]) * unit_ms + int((match[2] or "0").ljust(3, "0")) * unit_ms // 1_000
