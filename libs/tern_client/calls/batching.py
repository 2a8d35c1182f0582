"""When waiting messages become a batch: 5 ms after the first, or at 256 KiB, or at 1,024 messages. Pure: time is an argument.

Measured reason: a request costs a client and a proxy 50 to 100 times what one more message in it costs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tern_client.calls.models import OutgoingMessage
from tern_wire.limits import BATCH_MESSAGES_MAX, BATCH_SIZE_MAX_BYTES, LANE_SIZE_MAX_BYTES

# What a message adds around its body, tag, keys and properties in MessagePack, rounded up.
MESSAGE_OVERHEAD_SIZE_BYTES = 128
# What its record adds to that: the head, the message id, the names of properties, and a namespace before the topic.
RECORD_OVERHEAD_SIZE_BYTES = 256

Token = TypeVar("Token")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """When a batch is full, and how long a message may wait for company."""

    linger_ms: float = 5.0
    size_max_bytes: int = 256 * 1024
    messages_max: int = BATCH_MESSAGES_MAX


@dataclass(slots=True)
class Batch(Generic[Token]):
    """Messages for one topic that travel together; a token per message says who waits for its receipt."""

    topic: str
    due_ms: float
    messages: list[OutgoingMessage] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    size_bytes: int = 0


class Accumulator(Generic[Token]):
    """Gathers messages per topic. Owned by one Producer, which asks it for what is full or due."""

    __slots__ = ("_limits", "_open")

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._open: dict[str, Batch[Token]] = {}

    def add(self, topic: str, message: OutgoingMessage, token: Token, now_ms: float) -> list[Batch[Token]]:
        """Take *message*; the batches that are full because of it, oldest first."""
        size_bytes = size_of(message)
        ready: list[Batch[Token]] = []
        batch = self._open.get(topic)
        if batch and batch.size_bytes + size_bytes > self._limits.size_max_bytes:
            ready.append(self._open.pop(topic))
            batch = None
        if batch is None:
            batch = self._open[topic] = Batch(topic, now_ms + self._limits.linger_ms)
        batch.messages.append(message)
        batch.tokens.append(token)
        batch.size_bytes += size_bytes
        if batch.size_bytes >= self._limits.size_max_bytes or len(batch.messages) >= self._limits.messages_max:
            ready.append(self._open.pop(topic))
        return ready

    def due(self, now_ms: float) -> list[Batch[Token]]:
        """The batches whose first message has waited long enough."""
        topics = [topic for topic, batch in self._open.items() if batch.due_ms <= now_ms]
        return [self._open.pop(topic) for topic in topics]

    def all(self) -> list[Batch[Token]]:
        """Everything that waits, full or not."""
        batches, self._open = list(self._open.values()), {}
        return batches

    @property
    def next_due_ms(self) -> float | None:
        """When `due` will next have something; None when nothing waits."""
        return min((batch.due_ms for batch in self._open.values()), default=None)


def size_of(message: OutgoingMessage) -> int:
    """About how many bytes *message* takes in a batch; never less than it does for ASCII names and values."""
    extra = sum(map(len, message.keys)) + sum(len(name) + len(value) + 10 for name, value in message.properties.items())
    if message.message_group:
        extra += len(message.message_group) + 16
    if message.delay is not None or message.deliver_at is not None or message.delay_level is not None:
        extra += 64
    return len(message.body) + len(message.tag) + extra + len(message.content_type) + MESSAGE_OVERHEAD_SIZE_BYTES


def stored_size_of(topic: str, message: OutgoingMessage) -> int:
    """As many bytes as the record of *message* may have: what `size_of` leaves out, and letters that take four bytes."""
    texts = (message.tag, message.message_group, *message.keys, *message.properties, *message.properties.values())
    return (
        size_of(message) + RECORD_OVERHEAD_SIZE_BYTES + len(topic) + sum(3 * len(t) for t in texts if not t.isascii())
    )


def split(topic: str, messages: Sequence[OutgoingMessage]) -> Iterator[range]:
    """Ranges of *messages* that each fit one request: at most 1,024 messages and 16 MiB with a margin of an eighth.

    With a message group among them, ranges that a proxy passes on in one piece for each broker group, so that all of a message group in one
    request is stored or none is: of several pieces, an earlier one may fail for now and a later one be stored. Whether they have keys
    decides what is repeated, so those with and without are not mixed.
    """
    is_ordered = any(message.message_group for message in messages)
    size_max_bytes = LANE_SIZE_MAX_BYTES if is_ordered else BATCH_SIZE_MAX_BYTES - BATCH_SIZE_MAX_BYTES // 8
    start = size_bytes = 0
    for at, message in enumerate(messages):
        size = stored_size_of(topic, message) if is_ordered else size_of(message)
        is_other = is_ordered and bool(message.idempotency_key) != bool(messages[start].idempotency_key)
        if at > start and (at - start == BATCH_MESSAGES_MAX or size_bytes + size > size_max_bytes or is_other):
            yield range(start, at)
            start, size_bytes = at, 0
        size_bytes += size
    if start < len(messages):
        yield range(start, len(messages))
