"""Rows of requests and replies.

Replies come first, so that the examples work in the document's order: the request then finds one.
"""

from tern_proxy.core.documents.messages import Message, SendReceipt
from tern_proxy.core.documents.values import DURATION_PATTERN
from tern_proxy.routes.failures import ASKED, BROKER, TOPIC
from tern_proxy.routes.messages.examples import RAW, document
from tern_proxy.routes.messages.parameters import MESSAGE_BODY, SEND_EXTENSIONS, SEND_PARAMETERS, SENT
from tern_proxy.routes.requests.replies import get_reply, post_reply, post_request
from tern_proxy.routes.route import Gives, Route, Schema, Takes, gives, in_header, in_query, ref
from tern_wire import limits, paths
from tern_wire.errors import (
    BrokerGroupNotFound,
    IllegalCorrelationId,
    IllegalReplyAddress,
    IllegalTimeout,
    IllegalWait,
    NoReply,
    ReplyTimeout,
)
from tern_wire.paths import OCTETS
from tern_wire.replies import CLIENT_PATTERN, CORRELATION_PATTERN

_CORRELATION: Schema = {"type": "string", "pattern": CORRELATION_PATTERN}
_CLIENT: Schema = {"type": "string", "pattern": CLIENT_PATTERN}
_ADDRESS: Schema = {"type": "string", "description": "Opaque."}
_TIMEOUT: Schema = {
    "anyOf": [
        {"type": "string", "pattern": DURATION_PATTERN},
        {"type": "integer", "minimum": 1, "maximum": limits.REPLY_TIMEOUT_MAX_MS},
    ],
    "default": limits.REPLY_TIMEOUT_DEFAULT_MS,
}
_ASKED_FOR = (
    ("timeout", paths.HEADER_TIMEOUT, _TIMEOUT, "Longest wait for the reply."),
    (
        *("correlation_id", paths.HEADER_CORRELATION_ID, _CORRELATION),
        "Identifies this request of the client; by default derived from the idempotency key, or generated.",
    ),
    ("client", paths.HEADER_CLIENT, _CLIENT, "The requesting client; by default the correlation id."),
)
_REPLIED_TO = (
    (
        "reply_to",
        paths.HEADER_REPLY_TO,
        _ADDRESS,
        "The request's `reply_to`, unchanged. Parameter or header is needed.",
    ),
    (
        *("correlation_id", paths.HEADER_CORRELATION_ID, _CORRELATION),
        "The request's `correlation_id`. Parameter or header is needed.",
    ),
)
_OF_REPLY = {
    *("key", "idempotency_key", paths.HEADER_KEY, paths.HEADER_PROPERTIES, paths.HEADER_IDEMPOTENCY_KEY),
}
_BODY = Takes(content={"*/*": {"schema": MESSAGE_BODY}})
_REPLY = Message(
    message_id="7F3A9C01D2E4B5A6978800000000002B",
    topic="dev_REPLY_TOPIC",
    queue="broker-a:3",
    offset=7,
    body="42",
    tag="invoice-7",
    keys=["invoice-7"],
    correlation_id="invoice-7",
    reply_to="broker-a:shop-7",
    born_at=1_767_225_600_000,
    stored_at=1_767_225_600_003,
)
_RECEIPT = SendReceipt(message_id=_REPLY.message_id, queue="broker-a:3", offset=7, born_at=1_767_225_600_000)
_FOUND = Gives(
    text="The reply.",
    content={OCTETS: RAW, **document(_REPLY), "*/*": RAW},
    kinds=(Message,),
    headers=("MQ-Message-Id", "MQ-Queue", "MQ-Offset"),
)


def _given(*fields: tuple[str, str, Schema, str]) -> tuple[Schema, ...]:
    """Return each field as a query parameter and as a header."""
    return (
        *(in_query(name, schema, text) for name, _, schema, text in fields),
        *(in_header(header, schema, text) for _, header, schema, text in fields),
    )


ROUTES = (
    Route(
        "POST",
        paths.replies_path("{topic}"),
        post_reply,
        id="sendReply",
        tag="messages",
        summary="Reply to a request",
        about=(
            "The body is the reply. It is stored in the cluster's reply topic, with or without a waiting requester; of several replies to "
            "one request the first one is the requester's. The request itself is acked like any message."
        ),
        hot="reply",
        asks=("SUB topic {topic}",),
        parameters=(
            *_given(*_REPLIED_TO),
            *(parameter for parameter in SEND_PARAMETERS if parameter["name"] in _OF_REPLY),
        ),
        takes=_BODY,
        gives={
            200: gives(_RECEIPT, "Stored before: the first receipt.", paths.HEADER_REPLAYED),
            201: gives(_RECEIPT, "Stored.", "Location"),
        },
        errors=(*SENT, IllegalCorrelationId, IllegalReplyAddress, BrokerGroupNotFound),
        query="?correlation_id=invoice-7&reply_to=broker-a:shop-7",
        bodies=((OCTETS, "42"),),
        extensions=SEND_EXTENSIONS,
    ),
    Route(
        "GET",
        paths.requests_path("{topic}", "{correlation_id}"),
        get_reply,
        id="findReply",
        tag="messages",
        summary="Get a reply",
        about=(
            "The reply to a request that was stored before, at any proxy. The body and content type are the reply's, all else is in "
            "MQ-* headers; or it is a document, by Accept."
        ),
        hot="find_reply",
        # A reply is for its requester: the address contains the principal, so no other principal
        # finds it.
        asks=("PUB topic {topic}",),
        parameters=(
            in_query("client", _CLIENT, "The client of the request; by default the correlation id."),
            in_query("wait", ref("Wait"), "Longest wait if there is none yet."),
        ),
        gives={200: _FOUND},
        errors=(*ASKED, *TOPIC, *BROKER, IllegalCorrelationId, IllegalWait, NoReply),
        query="?client=shop-7",
    ),
    Route(
        "POST",
        paths.requests_path("{topic}"),
        post_request,
        id="sendRequest",
        tag="messages",
        summary="Send a request and wait for its reply",
        about=(
            "The body is the message, as in a send. Consumers see `correlation_id`, `reply_to` and `expires_at` in it. The answer is the "
            "reply as for `findReply`. A `reply-timeout` means that the request is stored, and contains the path of the reply."
        ),
        hot="request",
        asks=("PUB topic {topic}", "CREATE topic {topic} if it is created by its first use"),
        parameters=(
            *_given(*_ASKED_FOR),
            *(parameter for parameter in SEND_PARAMETERS if parameter["name"] != "Prefer"),
        ),
        takes=_BODY,
        gives={200: _FOUND},
        errors=(*SENT, IllegalCorrelationId, IllegalTimeout, ReplyTimeout),
        query="?timeout=5s&correlation_id=invoice-7&client=shop-7",
        bodies=(("text/plain", "how much?"),),
        extensions=SEND_EXTENSIONS,
    ),
)
