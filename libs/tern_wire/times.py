"""Durations in text form (`500ms`, `10s`, `5m`, `2h`, or a plain number of milliseconds), and
points in time.
"""

import re

_DURATION = re.compile(r"(\d{1,12})(?:\.(\d{1,3}))?(ms|s|m|h|d)?", re.ASCII)
_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?:([Zz])|([+-])(\d\d):?(\d\d))?)?",
    re.ASCII,
)
_DAYS_OF_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DIGITS_MAX, _GIVEN_MAX = 15, 40
# Units of a duration, each with the count from which larger units are used as well.
_SPOKEN_MS = (("d", 86_400_000, 1 << 40), ("h", 3_600_000, 100), ("min", 60_000, 120), ("s", 1_000, 120))
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}


def parse_duration_ms(value: str | int) -> int:
    """Return the milliseconds of `"1.5s"`, `"2h"` or `1500`. Raise ValueError on other values and
    on negative ones.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"{value} is negative")
        return value
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"'{value}' is not a duration such as '30s' or '1500ms'")
    unit_ms = _UNIT_MS[match[3]]
    return int(match[1]) * unit_ms + int((match[2] or "0").ljust(3, "0")) * unit_ms // 1_000


def duration_text(duration_ms: float) -> str:
    """Format a duration for display: `60 s`, `12 h`, `2 min 5 s`, `1.5 s`, `20 ms`.

    One unit is used where the number stays whole and is more than 1.
    """
    if duration_ms < 0:
        return f"-{duration_text(-duration_ms)}"
    if duration_ms < 1_000:
        return f"{duration_ms:.3g} ms"
    for unit, unit_ms, below in _SPOKEN_MS:
        if duration_ms % unit_ms == 0 and (duration_ms > unit_ms or unit == "s") and duration_ms < below * unit_ms:
            return f"{duration_ms // unit_ms:.0f} {unit}"
    if duration_ms < 120_000:
        return f"{duration_ms / 1_000:.3f}".rstrip("0").rstrip(".") + " s"
    parts, left_ms = [], round(duration_ms / 1_000) * 1_000
    for unit, unit_ms, _ in _SPOKEN_MS:
        count, left_ms = divmod(left_ms, unit_ms)
        parts += [f"{count} {unit}"] if count else []
    return " ".join(parts)


def given_duration(value: str | int) -> str:
    """Format a given duration for an error message: as written, with a unit added where it has
    none.
    """
    text = str(value).strip()
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX:
        return f"{duration_text(int(text))} ({text})"
    return text[:_GIVEN_MAX]


def parse_time_ms(value: str | int) -> int:
    """Return the milliseconds since 1970 of such a number, or of RFC 3339 such as
    `2026-01-31T12:00:00Z`.

    A time without a zone is UTC. A date alone is its midnight. Raise ValueError on other values and
    on times before 1970.
    """
    if isinstance(value, bool):
        raise ValueError("a time is a number or a text")
    if isinstance(value, int) or (value.isascii() and value.isdecimal() and len(value) <= 19):
        time_ms = int(value)
    else:
        time_ms = _moment_ms(value)
    if time_ms < 0:
        raise ValueError(f"'{str(value)[:40]}' lies before 1970")
    return time_ms


def _moment_ms(text: str) -> int:
    refused = ValueError(f"'{text[:40]}' is not a time such as 2026-01-31T12:00:00Z, nor ms since 1970")
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise refused
    year, month, day, hour, minute, second = (int(part or 0) for part in match.group(1, 2, 3, 4, 5, 6))
    away_hours, away_minutes = (int(part or 0) for part in match.group(10, 11))
    if not 1 <= month <= 12:
        raise refused
    days_of_month = _DAYS_OF_MONTHS[month - 1] + (month == 2 and _is_leap(year))
    # A leap second counts as the first second of the next minute.
    if not 1 <= day <= days_of_month or hour > 23 or minute > 59 or second > 60 or away_hours > 23 or away_minutes > 59:
        raise refused
    days = 365 * (year - 1970) + _leap_years_before(year) - _leap_years_before(1970)
    days += sum(_DAYS_OF_MONTHS[: month - 1]) + (month > 2 and _is_leap(year)) + day - 1
    away_s = (away_hours * 60 + away_minutes) * 60 * (-1 if match[9] == "-" else 1)
    time_s = ((days * 24 + hour) * 60 + minute) * 60 + second - away_s
    return time_s * 1_000 + int((match[7] or "0").ljust(3, "0")[:3])


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _leap_years_before(year: int) -> int:
    return (year - 1) // 4 - (year - 1) // 100 + (year - 1) // 400
