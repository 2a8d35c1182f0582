"""Examples of messages, receipts and results for the API document."""

from msgspec import Struct

from tern_proxy.core.documents.messages import (
    LeasedMessage,
    Message,
    SendReceipt,
    SendResult,
    SettleResult,
    SettleResults,
)
from tern_proxy.core.documents.values import extended
from tern_proxy.exchange import encode_lines
from tern_proxy.routes.route import Gives, Schema, gives, plain, ref
from tern_wire.paths import JSON, MSGPACK, OCTETS

EXAMPLE_HANDLE = "AQABAAAAAQAAAAEAAAADAAAAAAAAACoAAAAAAAAAB2Jyb2tlci1hb3JkZXJzYmlsbGlu"
_MESSAGE_ID = "7F3A9C01D2E4B5A6978800000000002A"
BATCH = {"messages": [{"json": {"total": 9.5}, "tag": "created"}, {"body": "plain text", "keys": ["order-7"]}]}
PACKED = {"messages": [{"body": "bytes, as MessagePack's bin", "tag": "created"}]}
LINES = '{"json": {"total": 9.5}, "tag": "created"}\n{"body": "plain text", "keys": ["order-7"]}\n'
JSON_BATCH = '{"messages": [{"json": {"total": 9.5}, "tag": "created"}, {"body": "plain text", "keys": ["order-7"]}]}'
RECEIPT = SendReceipt(message_id=_MESSAGE_ID, queue="broker-a:3", offset=42, born_at=1_767_225_600_000)
RESULT = SendResult(index=0, message_id=_MESSAGE_ID, queue="broker-a:3", offset=42, born_at=1_767_225_600_000)
REUSED = {
    "type": "/problems/idempotency-key-reused",
    "status": 422,
    "code": "idempotency-key-reused",
    "retryable": False,
    "title": "The idempotency key belongs to another message",
    "detail": "Use a new key for a new message.",
}
STORED = Message(
    message_id=_MESSAGE_ID,
    topic="orders",
    queue="broker-a:3",
    offset=42,
    json={"total": 9.5},
    content_type=JSON,
    tag="created",
    born_at=1_767_225_600_000,
    stored_at=1_767_225_600_003,
)
LEASED = extended(STORED, LeasedMessage, attempt=1, receipt_handle=EXAMPLE_HANDLE, invisible_until=1_767_225_660_003)
_OK = SettleResult(receipt_handle=EXAMPLE_HANDLE, status="ok")
_FAILED = {
    "type": "/problems/receipt-expired",
    "title": "The lease is over",
    "status": 410,
    "code": "receipt-expired",
    "detail": "The message became visible again before it was settled.",
    "retryable": False,
}
RAW: Schema = {"schema": {"type": "string", "contentMediaType": OCTETS}}


def lines(kind: type[Struct], example: str) -> Schema:
    """Return a body with one *kind* on each line."""
    # One document a line: OpenAPI 3.2 has itemSchema for this, 3.1 has not.
    return {"schema": {"type": "string"}, "example": example, "x-itemSchema": ref(kind)}


def line(example: Struct) -> Schema:
    """Return a body of lines with *example* as the only one."""
    return lines(type(example), encode_lines([example]).decode())


def document(example: Struct) -> dict[str, Schema]:
    """Return a body that is a document, in JSON or MessagePack."""
    media = {"schema": ref(type(example)), "example": plain(example)}
    return {JSON: media, MSGPACK: media}


def settled(done: str) -> dict[int, Gives]:
    """Return the answers of routes that settle."""
    partly = [_OK, SettleResult(receipt_handle="AQAB", error=_FAILED)]
    return {
        200: gives(SettleResults(results=[_OK], failed=0), f"All are {done}."),
        207: gives(SettleResults(results=partly, failed=1), "Some failed; each has its result."),
    }
