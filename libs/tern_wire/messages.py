"""The HTTP API's data-plane documents: what a message looks like in JSON and MessagePack, in and out.

Input documents refuse unknown fields. Exactly one of `body`, `json`, `body_base64` carries the message in JSON; in MessagePack
`body` is binary.
"""

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType


class JsonMessage(Struct, forbid_unknown_fields=True, gc=False):
    """One message in a JSON or NDJSON batch."""

    body: str | None = None
    json: Raw | UnsetType = UNSET
    body_base64: bytes | None = None
    content_type: str = ""
    tag: str = ""
    keys: list[str] = []
    properties: dict[str, str] = {}
    queue: str = ""
    idempotency_key: str = ""


class JsonBatch(Struct, forbid_unknown_fields=True):
    """The body of a JSON batch."""

    messages: list[JsonMessage]


class PackedMessage(Struct, forbid_unknown_fields=True, gc=False):
    """One message in a MessagePack batch."""

    body: bytes
    content_type: str = ""
    tag: str = ""
    keys: list[str] = []
    properties: dict[str, str] = {}
    queue: str = ""
    idempotency_key: str = ""


class PackedBatch(Struct, forbid_unknown_fields=True):
    """The body of a MessagePack batch."""

    messages: list[PackedMessage]


class SettleEntry(Struct, forbid_unknown_fields=True):
    """One settle: `ack`, or `extend` with a new `invisible` time counted from now."""

    receipt_handle: str
    action: str = "ack"
    invisible: str | int | None = None


class SettleRequest(Struct, forbid_unknown_fields=True):
    """The body of settle."""

    entries: list[SettleEntry]


class AckRequest(Struct, forbid_unknown_fields=True):
    """The body of ack."""

    receipt_handles: list[str]


class ReceiveRequest(Struct, forbid_unknown_fields=True):
    """The body of receive; every field has a default. `settle` is applied before the wait begins."""

    max_messages: int = 32
    max_bytes: int = 1024 * 1024
    wait: str | int = 0
    invisible: str | int | None = None
    settle: list[SettleEntry] = []


class TopicSettings(Struct, forbid_unknown_fields=True):
    """The body of PUT /v1/topics/{topic}; an empty body means all defaults."""

    queues: int = 8


class GroupSettings(Struct, forbid_unknown_fields=True):
    """The body of PUT /v1/groups/{group}. `start` (earliest or latest) is where the group begins in a queue it has never read."""

    invisible: str | int = "60s"
    start: str = "earliest"


class OffsetsCommit(Struct, forbid_unknown_fields=True):
    """The body of PUT /v1/groups/{group}/offsets; keys are queues written `broker-a:3`."""

    topic: str
    offsets: dict[str, int]
    expected: dict[str, int] = {}


Document = dict[str, Any]
