"""Times as text in reports."""

from datetime import UTC, datetime


def moment(time_ms: int) -> str:
    """Return a time in UTC to the second: `2026-11-26T01:02:03Z`."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
