"""Documents of messages: sent, received, settled and read by offset."""

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from tern_proxy.core.documents.values import OFFSET_MAX, Count, MessageId, Offset, ProblemMap, Queue, Time, words
from tern_wire import limits
from tern_wire.handles import HANDLE_SIZE_MAX_CHARS
from tern_wire.recall_handles import RECALL_HANDLE_SIZE_MAX_CHARS
from tern_wire.records.compression import ENCODINGS

SentOffset = Annotated[
    int, Meta(ge=-1, le=OFFSET_MAX, description="Index in the queue; -1 while it waits for its delivery time.")
]
RecallHandle = Annotated[
    str, Meta(max_length=RECALL_HANDLE_SIZE_MAX_CHARS, description="Opaque; DELETE it to recall the message.")
]
ReceiptHandle = Annotated[
    str, Meta(max_length=HANDLE_SIZE_MAX_CHARS, description="Opaque; names one lease of a message.")
]
ContentEncoding = Annotated[
    str, words(*ENCODINGS, text="How the producer has compressed the body, which is given as it is stored.")
]
if TYPE_CHECKING:
    # Raw: a text that is already JSON. Bytes: for MessagePack and raw answers.
    Body: TypeAlias = str | Raw | bytes
else:
    Body = str


class SendReceipt(Struct, kw_only=True, gc=False):
    """The place of a stored message, which is on the disks of a majority.

    With `deliver_at` and `recall_handle`, it waits for its delivery time.
    """

    message_id: MessageId
    queue: Queue
    offset: SentOffset
    born_at: Time
    deliver_at: Time | UnsetType = UNSET
    recall_handle: RecallHandle | UnsetType = UNSET


class SendResult(Struct, kw_only=True, gc=False):
    """Result of one message of a batch: a receipt, or `error`."""

    index: Annotated[int, Meta(ge=0, description="The message's place in the request.")]
    message_id: MessageId | UnsetType = UNSET
    queue: Queue | UnsetType = UNSET
    offset: SentOffset | UnsetType = UNSET
    born_at: Time | UnsetType = UNSET
    deliver_at: Time | UnsetType = UNSET
    recall_handle: RecallHandle | UnsetType = UNSET
    replayed: (
        Annotated[bool, Meta(description="Whether an earlier send with its idempotency key stored it.")] | UnsetType
    ) = UNSET
    error: ProblemMap | UnsetType = UNSET


class BatchResults(Struct, kw_only=True):
    """One result a message, in input order."""

    results: Annotated[list[SendResult], Meta(max_length=limits.BATCH_MESSAGES_MAX)]
    failed: Count


class Message(Struct, kw_only=True, gc=False):
    """A stored message.

    Exactly one of `body`, `json`, `body_base64` carries it; in MessagePack always `body`, binary.
    """

    message_id: str
    topic: str
    queue: Queue
    offset: Offset
    body: Body | UnsetType = UNSET
    json: Any | UnsetType = UNSET
    body_base64: Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})] | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    content_encoding: ContentEncoding | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    keys: list[str] | UnsetType = UNSET
    properties: dict[str, str] | UnsetType = UNSET
    message_group: str | UnsetType = UNSET
    deliver_at: Time | UnsetType = UNSET
    correlation_id: Annotated[str, Meta(description="Of a request or a reply.")] | UnsetType = UNSET
    reply_to: Annotated[str, Meta(description="Of a request: the address of the reply.")] | UnsetType = UNSET
    expires_at: Annotated[int, Meta(description="Of a request: until when its sender waits.")] | UnsetType = UNSET
    born_at: Time
    stored_at: Time


class ReadMessage(Message, kw_only=True, gc=False):
    """A message as stored in its record; each route shows a part of it.

    `offset` is -1 while it is not visible. `body_size` replaces the body for principals that may
    not see it.
    """

    body_size: Count | UnsetType = UNSET


class LeasedMessage(Message, kw_only=True, gc=False):
    """A message under lease: no other consumer of the group receives it until `invisible_until`."""

    attempt: Annotated[int, Meta(ge=1, description="1 at the first delivery.")]
    receipt_handle: ReceiptHandle
    invisible_until: Time


class SettleResult(Struct, kw_only=True, gc=False):
    """Result of one receipt handle."""

    receipt_handle: str
    status: Annotated[str, words("ok")] | UnsetType = UNSET
    error: ProblemMap | UnsetType = UNSET


class SettleResults(Struct, kw_only=True):
    """One result a receipt handle, in input order."""

    results: Annotated[list[SettleResult], Meta(max_length=limits.SETTLE_ENTRIES_MAX)]
    failed: Count


class Received(Struct, kw_only=True):
    """Messages, possibly none, and the results of `settle`."""

    messages: Annotated[list[LeasedMessage], Meta(max_length=limits.RECEIVE_MESSAGES_MAX)]
    settled: Annotated[list[SettleResult], Meta(max_length=limits.SETTLE_ENTRIES_MAX)]


class SettledLine(Struct, kw_only=True):
    """The last line of a receive in NDJSON with settles."""

    settled: list[SettleResult]


class Pulled(Struct, kw_only=True):
    """Messages of one queue, possibly none; continue at `next_offset`."""

    messages: Annotated[list[Message], Meta(max_length=limits.PULL_MESSAGES_MAX)]
    next_offset: Offset
    min_offset: Offset
    max_offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="The offset of the next message.")]
