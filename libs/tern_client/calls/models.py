"""What goes in and comes out of the SDK: messages, receipts, queue ranges. Frozen; times are ms since the epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tern_wire.errors import TernError


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """One message to send. `queue` pins it (`broker-a:3`); an empty `idempotency_key` is filled in by the Producer.

    Messages of one `message_group` are delivered in order: that in which one producer's methods were called. At most one of `delay` (`"30s"`, ms, timedelta), `deliver_at` (RFC 3339, ms
    since 1970, datetime) and `delay_level` (1 to 18) says when it is delivered.
    """

    body: bytes
    tag: str = ""
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    queue: str = ""
    idempotency_key: str = ""
    message_group: str = ""
    delay: str | int | timedelta | None = None
    deliver_at: str | int | datetime | None = None
    delay_level: int | None = None

    def timing(self) -> dict[str, str | int]:
        """The fields that say when and in which order it is delivered, as the API takes them. A naive datetime is local time."""
        fields: dict[str, str | int] = {"message_group": self.message_group} if self.message_group else {}
        if self.delay is not None:
            span = self.delay
            fields["delay"] = span // timedelta(milliseconds=1) if isinstance(span, timedelta) else span
        if self.deliver_at is not None:
            moment = self.deliver_at
            fields["deliver_at"] = round(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
        if self.delay_level is not None:
            fields["delay_level"] = self.delay_level
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReceipt:
    """Where a message is stored, durable on a majority. `replayed`: an earlier send with the same key had stored it.

    One that waits for its delivery time, `deliver_at`, has no offset yet (-1); `recall_handle` takes it back.
    """

    message_id: str
    queue: str
    offset: int
    born_at: int
    replayed: bool = False
    deliver_at: int = 0
    recall_handle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """The outcome of a batch, in input order: a receipt, or None and an error under the same index."""

    receipts: tuple[SendReceipt | None, ...]
    errors: Mapping[int, TernError] = field(default_factory=dict)

    def confirmed(self) -> list[SendReceipt]:
        """All receipts; raises the first error when a message was not stored."""
        if self.errors:
            raise self.errors[min(self.errors)]
        return [receipt for receipt in self.receipts if receipt is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """One message under lease: yours until `invisible_until`, then delivered again unless it was acked. `attempt` is 1-based."""

    message_id: str
    topic: str
    queue: str
    offset: int
    body: bytes
    content_type: str
    tag: str
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    born_at: int
    stored_at: int
    attempt: int
    receipt_handle: str
    invisible_until: int
    message_group: str = ""
    deliver_at: int = 0
    # Of a request: somebody waits until `expires_at` for the reply; see Consumer.reply.
    correlation_id: str = ""
    reply_to: str = ""
    expires_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyMessage:
    """The reply to a request, as it is stored in the cluster's reply topic."""

    message_id: str
    topic: str
    queue: str
    offset: int
    body: bytes
    content_type: str
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    born_at: int
    stored_at: int
    correlation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOffsets:
    """Offsets of one queue: the oldest message's, and the one that the next message will get."""

    queue: str
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    """Concatenated records of one queue as they lie in the log (tern_wire.records.record reads them), and where the next page begins."""

    data: bytes
    next_offset: int
    max_offset: int
