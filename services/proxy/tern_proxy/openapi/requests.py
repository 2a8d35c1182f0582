"""Request-reply in the API document: the three operations. Data, not behaviour; imported as late as operations.py.

Replies come first, so that the examples work in the document's order: who asks then finds one.
"""

from tern_proxy.openapi import schemas
from tern_proxy.openapi.messages import MESSAGES, SEND_PARAMETERS, SENT
from tern_proxy.openapi.operations import ASKED, BROKER, TOPIC, Operation, gives, in_header, in_query
from tern_proxy.openapi.schemas import Schema, ref
from tern_wire import limits, paths
from tern_wire.paths import OCTETS
from tern_wire.replies import CLIENT_PATTERN, CORRELATION_PATTERN

_CORRELATION: Schema = {"type": "string", "pattern": CORRELATION_PATTERN}
_CLIENT: Schema = {"type": "string", "pattern": CLIENT_PATTERN}
_ADDRESS: Schema = {"type": "string", "description": "Opaque."}
_TIMEOUT: Schema = {
    "anyOf": [
        {"type": "string", "pattern": schemas.DURATION_PATTERN},
        {"type": "integer", "minimum": 1, "maximum": limits.REPLY_TIMEOUT_MAX_MS},
    ],
    "default": limits.REPLY_TIMEOUT_DEFAULT_MS,
}
_ASKED_FOR = (
    ("timeout", paths.HEADER_TIMEOUT, _TIMEOUT, "How long to wait for the reply."),
    (
        *("correlation_id", paths.HEADER_CORRELATION_ID, _CORRELATION),
        "Names this request among the client's; by default it follows from the idempotency key, or is made.",
    ),
    ("client", paths.HEADER_CLIENT, _CLIENT, "Who asks; by default the correlation id."),
)
_REPLIED_TO = (
    ("reply_to", paths.HEADER_REPLY_TO, _ADDRESS, "The request's `reply_to`, as it is. Parameter or header is needed."),
    (
        *("correlation_id", paths.HEADER_CORRELATION_ID, _CORRELATION),
        "The request's `correlation_id`. Parameter or header is needed.",
    ),
)
_OF_REPLY = {
    *("key", "idempotency_key", paths.HEADER_KEY, paths.HEADER_PROPERTIES, paths.HEADER_IDEMPOTENCY_KEY),
}
_BODY: dict[str, Schema] = {
    "*/*": {
        "schema": {
            "type": "string",
            "contentMediaType": OCTETS,
            "maxLength": limits.MESSAGE_BODY_SIZE_MAX_BYTES,
        }
    }
}
_RAW: Schema = {"schema": {"type": "string", "contentMediaType": OCTETS}}
_REPLY = {
    "message_id": "7F3A9C01D2E4B5A6978800000000002B",
    "topic": "dev_REPLY_TOPIC",
    "queue": "broker-a:3",
    "offset": 7,
    "body": "42",
    "tag": "invoice-7",
    "keys": ["invoice-7"],
    "correlation_id": "invoice-7",
    "reply_to": "broker-a:shop-7",
    "born_at": 1_767_225_600_000,
    "stored_at": 1_767_225_600_003,
}
_RECEIPT = {"message_id": _REPLY["message_id"], "queue": "broker-a:3", "offset": 7, "born_at": 1_767_225_600_000}
_ANSWER = gives(schemas.Message, "The reply.", _REPLY, "MQ-Message-Id", "MQ-Queue", "MQ-Offset")
_FOUND: Schema = {**_ANSWER, "content": {OCTETS: _RAW, **_ANSWER["content"], "*/*": _RAW}}


def _given(*fields: tuple[str, str, Schema, str]) -> tuple[Schema, ...]:
    """Each as a query parameter and as a header."""
    return (
        *(in_query(name, schema, text) for name, _, schema, text in fields),
        *(in_header(header, schema, text) for _, header, schema, text in fields),
    )


REQUESTS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path=paths.replies_path("{topic}"),
        id="sendReply",
        tag="messages",
        summary="Reply to a request",
        description=(
            "The body is the reply. It is stored in the cluster's reply topic, whether anybody still waits or not; of several replies to "
            "one request the first one is the requester's. The request itself is acked as any message."
        ),
        parameters=(
            *_given(*_REPLIED_TO),
            *(parameter for parameter in SEND_PARAMETERS if parameter["name"] in _OF_REPLY),
        ),
        body=_BODY,
        answers={
            200: gives(schemas.SendReceipt, "Stored before: the first receipt.", _RECEIPT, paths.HEADER_REPLAYED),
            201: gives(schemas.SendReceipt, "Stored.", _RECEIPT, "Location"),
        },
        errors=(*SENT, "illegal-correlation-id", "illegal-reply-address", "broker-group-not-found"),
        query="?correlation_id=invoice-7&reply_to=broker-a:shop-7",
        bodies=((OCTETS, "42"),),
        extensions=MESSAGES[0].extensions,
    ),
    Operation(
        method="GET",
        path=paths.requests_path("{topic}", "{correlation_id}"),
        id="findReply",
        tag="messages",
        summary="Ask for a reply again",
        description=(
            "The reply to a request that was stored before, at any proxy. The body and content type are the reply's, all else is in "
            "MQ-* headers; or it is a document, by Accept."
        ),
        parameters=(
            in_query("client", _CLIENT, "Whose request it was; by default the correlation id."),
            in_query("wait", ref("Wait"), "How long to wait when there is none yet."),
        ),
        answers={200: _FOUND},
        errors=(*ASKED, *TOPIC, *BROKER, "illegal-correlation-id", "illegal-wait", "no-reply"),
        query="?client=shop-7",
    ),
    Operation(
        method="POST",
        path=paths.requests_path("{topic}"),
        id="sendRequest",
        tag="messages",
        summary="Send a request and wait for its reply",
        description=(
            "The body is the message, as in a send. Consumers see `correlation_id`, `reply_to` and `expires_at` in it. The answer is the "
            "reply as for `findReply`. A `reply-timeout` says that the request is stored, and how to ask again."
        ),
        parameters=(
            *_given(*_ASKED_FOR),
            *(parameter for parameter in SEND_PARAMETERS if parameter["name"] != "Prefer"),
        ),
        body=_BODY,
        answers={200: _FOUND},
        errors=(*SENT, "illegal-correlation-id", "illegal-timeout", "reply-timeout"),
        query="?timeout=5s&correlation_id=invoice-7&client=shop-7",
        bodies=(("text/plain", "how much?"),),
        extensions=MESSAGES[0].extensions,
    ),
)
