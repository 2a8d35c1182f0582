"""The row of tails."""

from tern_proxy.core.documents.tails import MESSAGE, Ended, Skipped, TailEvent
from tern_proxy.core.documents.values import DURATION_PATTERN
from tern_proxy.core.tailing.event_ids import GroupPlace, write_id
from tern_proxy.core.tailing.events import data_of, format_of
from tern_proxy.routes.failures import ASKED, BROKER, TOPIC
from tern_proxy.routes.messages.bodies import ENCODING
from tern_proxy.routes.messages.examples import STORED
from tern_proxy.routes.messages.parameters import FILTER, TERMS
from tern_proxy.routes.route import MOMENT, Gives, Route, Schema, in_header, in_query, number, ref
from tern_proxy.routes.tails.tail import get_tail
from tern_wire.errors import IllegalFilter, LimitReached, TooManyTails, TopicNotReadable
from tern_wire.limits_tails import TAIL_HEARTBEAT_MS, TAIL_ID_LENGTH_MAX, TAIL_MESSAGES_MAX
from tern_wire.paths import EVENT_STREAM, HEADER_LAST_EVENT_ID, NDJSON, tail_path

_ID: Schema = {"type": "string", "pattern": "^1-[A-Za-z0-9_-]*$", "maxLength": TAIL_ID_LENGTH_MAX}
_FROM: Schema = {
    "anyOf": [
        {"type": "string", "enum": ["earliest", "latest"]},
        {"type": "string", "pattern": "^@", "description": "`@` and a time: ms since 1970, or RFC 3339."},
    ],
    "default": "latest",
}
_DURATION: Schema = {"type": "string", "pattern": DURATION_PATTERN}
_EXAMPLE_ID = write_id("orders", {"broker-a": GroupPlace(4, (0, 0, 0, 43, 0, 0, 0, 0))})
_SENT_EVENT = format_of(EVENT_STREAM).event(MESSAGE, data_of(STORED), _EXAMPLE_ID).decode()
_LINE = format_of(NDJSON).event(MESSAGE, data_of(STORED), _EXAMPLE_ID).decode()

ROUTES = (
    Route(
        "GET",
        tail_path("{topic}"),
        get_tail,
        id="tailTopic",
        tag="messages",
        summary="Follow a topic live",
        about=(
            "All messages of all queues, from the end on, as server-sent events or lines of NDJSON; nothing is leased and no group is "
            f"needed. Each event has an id: hand the last one back in `{HEADER_LAST_EVENT_ID}`, as EventSource does, and any proxy continues "
            "behind it, without a gap or a repeat. In a queue, messages come by offset; across queues as they arrive. What retention dropped "
            "before it was read is told by an event `skipped`. "
            f"A silent stream is kept alive every {TAIL_HEARTBEAT_MS // 1_000} s. A stream ends with `end`, or with `error` and a problem, such as "
            "after the loss of the key or the right that it needs."
        ),
        hot="tail",
        is_stream=True,
        asks=("SUB topic {topic}",),
        parameters=(
            in_query("from", _FROM, "Where to begin without an event id."),
            in_query(
                "since", {"anyOf": [_DURATION, MOMENT]}, "Instead of `from`: a time, or how long ago, such as `10m`."
            ),
            in_query(
                "last_event_id",
                _ID,
                f"As `{HEADER_LAST_EVENT_ID}`, which overrides it; both override `from` and `since`.",
            ),
            in_header(HEADER_LAST_EVENT_ID, _ID, "The id of the last event that the client has seen."),
            number("max_messages", 1, TAIL_MESSAGES_MAX, None, "End after so many messages; by default never."),
            in_query(
                "idle",
                _DURATION,
                "End when no message has come for so long; by default never. `0`: at the present end.",
            ),
            in_query("tags", FILTER, f"Only messages with one of these tags: `A || B`. {TERMS}"),
            in_query("sql", FILTER, f"Only messages whose properties make this SQL92 condition true. {TERMS}"),
            ENCODING,
        ),
        gives={
            200: Gives(
                text="Events, until the client leaves or the stream ends.",
                content={
                    EVENT_STREAM: {"schema": {"type": "string"}, "example": _SENT_EVENT},
                    NDJSON: {"schema": {"type": "string"}, "example": _LINE, "x-itemSchema": ref(TailEvent)},
                },
                kinds=(TailEvent, Skipped, Ended),
            ),
        },
        errors=(*ASKED, *TOPIC, *BROKER, IllegalFilter, LimitReached, TooManyTails, TopicNotReadable),
        query="?from=earliest&max_messages=10&idle=0s",
    ),
)
