"""What a client asks of a tail, from its query and headers. Pure: the time is an argument."""

from dataclasses import dataclass

from tern_proxy.core.sending.parameters import number_of, time_of
from tern_proxy.core.tailing.event_ids import GroupPlace, read_id
from tern_wire.errors import InvalidField
from tern_wire.filters import Filter, compile_filter
from tern_wire.limits_tails import TAIL_IDLE_MAX_MS, TAIL_MESSAGES_MAX
from tern_wire.paths import HEADER_LAST_EVENT_ID
from tern_wire.times import parse_duration_ms

EARLIEST, LATEST = "earliest", "latest"
PARAMETERS = ("from", "since", "last_event_id", "max_messages", "idle", "tags", "sql", "encoding")


@dataclass(frozen=True, slots=True, kw_only=True)
class TailAsked:
    """*places*: of an event id; None without one, and then *time_ms* since 1970 if it is not -1, or
    else *start*. *max_messages*: 0 for no end; *idle_ms*: -1 for none.
    """

    places: dict[str, GroupPlace] | None
    start: str
    time_ms: int
    max_messages: int
    idle_ms: int
    wanted: Filter


def read_asked(topic: str, query: dict[str, str], last_event_id: str, now_ms: int) -> TailAsked:
    """Return what is asked of *topic* (its full name). *last_event_id*: the header, "" without one.

    The header overrides the parameter, which a client that connects again repeats from its first
    request; both override `from` and `since`. Raise InvalidField, IllegalFilter.
    """
    if "from" in query and "since" in query:
        raise InvalidField(reason="Give 'from' or 'since'", pointer="query/since")
    start, time_ms = query.get("from", LATEST), -1
    if "since" in query:
        time_ms = _since_of(query["since"], now_ms)
    elif start.startswith("@"):
        time_ms = time_of(start[1:], "query/from")
    elif start not in {EARLIEST, LATEST}:
        reason = f"'from' is '{start[:40]}'; use earliest, latest, or @ and a time"
        raise InvalidField(reason=reason, pointer="query/from")
    max_messages = query.get("max_messages", "")
    return TailAsked(
        places=_places_of(topic, last_event_id, query.get("last_event_id", "")),
        start=start,
        time_ms=time_ms,
        max_messages=number_of(max_messages, "max_messages", 1, TAIL_MESSAGES_MAX) if max_messages else 0,
        idle_ms=_idle_of(query["idle"]) if "idle" in query else -1,
        wanted=compile_filter(query.get("tags"), query.get("sql")),
    )


def _places_of(topic: str, of_header: str, of_query: str) -> dict[str, GroupPlace] | None:
    text, pointer = (of_header, f"header/{HEADER_LAST_EVENT_ID}") if of_header else (of_query, "query/last_event_id")
    if not text:
        return None
    try:
        return read_id(topic, text)
    except ValueError as error:
        raise InvalidField(reason=f"The last event id cannot be used: {error}", pointer=pointer) from error


def _since_of(text: str, now_ms: int) -> int:
    """Return the time of `10m`, which is so long ago, or of a time."""
    try:
        return max(0, now_ms - parse_duration_ms(text)) if text[-1:] in {"s", "m", "h", "d"} else _moment(text)
    except ValueError as error:
        reason = f"'since' is '{text[:40]}'; use a duration such as 10m, ms since 1970, or 2026-01-31T12:00:00Z"
        raise InvalidField(reason=reason, pointer="query/since") from error


def _moment(text: str) -> int:
    return time_of(text, "query/since")


def _idle_of(text: str) -> int:
    try:
        idle_ms = parse_duration_ms(text)
    except ValueError as error:
        reason = f"'idle' is '{text[:40]}'; it is a duration such as 500ms or 30s"
        raise InvalidField(reason=reason, pointer="query/idle") from error
    if idle_ms > TAIL_IDLE_MAX_MS:
        raise InvalidField(reason="'idle' is a day at most", pointer="query/idle")
    return idle_ms
