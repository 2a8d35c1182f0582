"""What goes in and comes out of the SDK: messages, receipts, queue ranges. Frozen; times are ms since the epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tern_wire.errors import TernError


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """One message to send. `queue` pins it (`broker-a:3`); an empty `idempotency_key` is filled in by the Producer."""

    body: bytes
    tag: str = ""
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    queue: str = ""
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReceipt:
    """Where a message is stored, durable on a majority. `replayed`: an earlier send with the same key had stored it."""

    message_id: str
    queue: str
    offset: int
    born_at: int
    replayed: bool = False


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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOffsets:
    """Offsets of one queue: the oldest message's, and the one that the next message will get."""

    queue: str
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    """Concatenated records of one queue as they lie in the log (tern_wire.record reads them), and where the next page begins."""

    data: bytes
    next_offset: int
    max_offset: int
