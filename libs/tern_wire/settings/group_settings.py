"""Settings of a consumer group: invisible time, initial position, attempts and retries, and flags.

A change is a map, in the form of the link and the log. Fields that are absent stay as they are, or
get their defaults in a new group:

    {group, mode: declare | create | alter, invisible_ms, start: earliest | latest | time, start_ms,
     max_attempts, retry: {policy ...}, fifo, consume, broadcast,
     attributes: {name: text, or nil to remove it}}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tern_wire.errors import InvalidField
from tern_wire.limits import ATTEMPTS_MAX, INVISIBLE_MAX_MS
from tern_wire.names import check_group
from tern_wire.settings.attributes import check_attributes
from tern_wire.settings.retry_policy import RetryPolicy, read_retry_policy
from tern_wire.settings.topic_settings import is_whole, mode_of, named_only, text_of

EARLIEST, LATEST, TIME = "earliest", "latest", "time"
STARTS = (EARLIEST, LATEST, TIME)
# The year 9999, the end of RFC 3339.
TIME_MAX_MS = 253_402_300_799_999


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """Change of one group; None marks absent fields. `start_ms` is 0 unless `start` is `time`."""

    group: str
    mode: str
    invisible_ms: int | None
    start: str | None
    start_ms: int
    max_attempts: int | None
    retry: RetryPolicy | None
    is_fifo: bool | None
    consume_enabled: bool | None
    is_broadcast: bool | None
    attributes: dict[str, str | None]

    def packed(self) -> dict[str, Any]:
        """Return the change as a map of its present fields."""
        named = {
            "invisible_ms": self.invisible_ms,
            "start": self.start,
            "start_ms": self.start_ms or None,
            "max_attempts": self.max_attempts,
            "retry": self.retry.packed() if self.retry is not None else None,
            "fifo": self.is_fifo,
            "consume": self.consume_enabled,
            "broadcast": self.is_broadcast,
            "attributes": self.attributes or None,
        }
        return {"group": self.group, "mode": self.mode, **named_only(named)}


def read_group_change(request: Mapping[str, Any]) -> GroupChange:
    """Parse the change in the map *request*.

    Raise IllegalGroup, or InvalidField with a pointer to the illegal field.
    """
    invisible_ms, start, attempts = (request.get(name) for name in ("invisible_ms", "start", "max_attempts"))
    start_ms, retry = request.get("start_ms", 0), request.get("retry")
    if invisible_ms is not None and not is_whole(invisible_ms, 1, INVISIBLE_MAX_MS):
        raise InvalidField(reason="An invisible time is 1 s to 12 h", pointer="/invisible")
    if start is not None and start not in STARTS:
        raise InvalidField(reason="'start' is earliest, latest, or a time", pointer="/start")
    if not is_whole(start_ms, 0, TIME_MAX_MS) or (start_ms and start != TIME):
        raise InvalidField(reason="A time to start from is in milliseconds since 1970", pointer="/start")
    if attempts is not None and not is_whole(attempts, 1, ATTEMPTS_MAX):
        raise InvalidField(reason=f"A group tries 1 to {ATTEMPTS_MAX} times", pointer="/max_attempts")
    return GroupChange(
        group=check_group(text_of(request, "group")),
        mode=mode_of(request),
        invisible_ms=invisible_ms,
        start=start,
        start_ms=start_ms,
        max_attempts=attempts,
        retry=None if retry is None else read_retry_policy(retry),
        is_fifo=_flag(request, "fifo"),
        consume_enabled=_flag(request, "consume"),
        is_broadcast=_flag(request, "broadcast"),
        attributes=check_attributes(request.get("attributes") or {}),
    )


def _flag(request: Mapping[str, Any], name: str) -> bool | None:
    value = request.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidField(reason=f"'{name}' is true or false", pointer=f"/{name}")
    return value
