"""Rows of single messages. The right to read a topic includes the search for single messages."""

from tern_proxy.core.documents.queries import FoundMessage, FoundMessages, GroupTrace, MessageTrace
from tern_proxy.core.documents.values import TOPIC_PATTERN
from tern_proxy.core.reading.searching import CURSOR_LENGTH_MAX
from tern_proxy.routes.failures import ASKED, BROKER, TOPIC
from tern_proxy.routes.lists import continued, moment
from tern_proxy.routes.messages.bodies import ENCODING_IN_JSON
from tern_proxy.routes.queries.messages import MESSAGES_DEFAULT, get_message, get_messages, get_trace
from tern_proxy.routes.reference.examples import EXAMPLE_NAMES
from tern_proxy.routes.route import Route, gives, in_query, number
from tern_wire.errors import MessageNotFound
from tern_wire.limits import QUERY_MESSAGES_MAX
from tern_wire.paths import JSON, message_path, messages_path, trace_path

_STORED = FoundMessage(
    message_id=EXAMPLE_NAMES["message_id"],
    topic="orders",
    queue="broker-a:3",
    offset=42,
    json={"total": 9.5},
    content_type=JSON,
    tag="created",
    keys=["order-7"],
    born_at=1_767_225_600_000,
    stored_at=1_767_225_600_003,
)
_TRACE = MessageTrace(
    message_id=EXAMPLE_NAMES["message_id"],
    topic="orders",
    queue="broker-a:3",
    offset=42,
    body_size=14,
    content_type=JSON,
    tag="created",
    keys=["order-7"],
    born_at=1_767_225_600_000,
    stored_at=1_767_225_600_003,
    visible_at=1_767_225_600_003,
    groups=[
        GroupTrace(group="billing", state="leased", attempts=2, until=1_767_225_660_003),
        GroupTrace(group="shipping", state="waiting"),
    ],
)
_OF_TOPIC = (*ASKED, *TOPIC, *BROKER)
_READ = ("SUB topic {topic}",)

ROUTES = (
    Route(
        "GET",
        messages_path("{topic}"),
        get_messages,
        id="findMessages",
        tag="queries",
        summary="Find messages by key",
        asks=_READ,
        parameters=(
            in_query("key", {"type": "string", "minLength": 1}, "A whole key, or a message's id.", required=True),
            moment("from", "Stored then or later."),
            moment("to", "Stored then or before."),
            number("limit", 1, QUERY_MESSAGES_MAX, MESSAGES_DEFAULT, "Largest number of messages."),
            continued(maxLength=CURSOR_LENGTH_MAX),
            ENCODING_IN_JSON,
        ),
        gives={200: gives(FoundMessages(messages=[_STORED], truncated=False), "Newest first.")},
        errors=_OF_TOPIC,
        query="?key=order-7",
    ),
    Route(
        "GET",
        message_path("{topic}", "{message_id}"),
        get_message,
        id="getMessage",
        tag="queries",
        summary="One message by its id",
        asks=_READ,
        parameters=(ENCODING_IN_JSON,),
        gives={200: gives(_STORED, "The message.")},
        errors=(*_OF_TOPIC, MessageNotFound),
    ),
    Route(
        "GET",
        trace_path("{message_id}"),
        get_trace,
        id="traceMessage",
        tag="queries",
        summary="Trace of one message",
        asks=("DESCRIBE topic of the query",),
        parameters=(in_query("topic", {"type": "string", "pattern": TOPIC_PATTERN}, "Its topic.", required=True),),
        gives={200: gives(_TRACE, "For every group that has begun the topic.")},
        errors=(*_OF_TOPIC, MessageNotFound),
        query="?topic=orders",
    ),
)
