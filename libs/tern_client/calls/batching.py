"""When waiting messages become a batch: 5 ms after the first one, at 256 KiB, or at 1,024 messages.
Pure: time is an argument.

Measured reason: a request costs a client and a proxy 50 to 100 times as much as one more message in
it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tern_client.calls.models import OutgoingMessage
from tern_wire.limits import BATCH_MESSAGES_MAX, BATCH_SIZE_MAX_BYTES, LANE_SIZE_MAX_BYTES

# Bytes that a message adds to its body, tag, keys and properties in MessagePack, rounded up.
MESSAGE_OVERHEAD_SIZE_BYTES = 128
# Bytes that the record adds to that: the head, the message id, the names of properties, and a
# namespace before the topic.
RECORD_OVERHEAD_SIZE_BYTES = 256

Token = TypeVar("Token")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """When a batch of `send_soon` is full, and how long a message may wait for others.

    - `linger_ms`: the longest wait of the first message of a batch.
    - `size_max_bytes`, `messages_max`: a batch that reaches either is sent at once.

    Example:

        import asyncio

        from tern_client import BatchLimits, OutgoingMessage, Producer


        async def main() -> None:
            limits = BatchLimits(linger_ms=20, messages_max=100)
            async with Producer("http://127.0.0.1:8080", limits=limits) as producer:
                waiting = [
                    await producer.send_soon("orders", OutgoingMessage(body=b"order %d" % number))
                    for number in range(100)
                ]
                receipts = await asyncio.gather(*waiting)
            print(len(receipts))  # -> 100


        asyncio.run(main())
    """

    linger_ms: float = 5.0
    size_max_bytes: int = 256 * 1024
    messages_max: int = BATCH_MESSAGES_MAX


@dataclass(slots=True)
class Batch(Generic[Token]):
    """Messages of one topic that are sent together. The token of each message stands for its
    receipt.
    """

    topic: str
    due_ms: float
    messages: list[OutgoingMessage] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    size_bytes: int = 0


class Accumulator(Generic[Token]):
    """Messages that wait for a batch, by topic. Owner: one Producer, which takes the batches that
    are full or due.
    """

    __slots__ = ("_limits", "_open")

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._open: dict[str, Batch[Token]] = {}

    def add(self, topic: str, message: OutgoingMessage, token: Token, now_ms: float) -> list[Batch[Token]]:
        """Add *message*; return the batches that are full because of it, oldest first."""
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
        """Take the batches whose first message has waited for its linger time."""
        topics = [topic for topic, batch in self._open.items() if batch.due_ms <= now_ms]
        return [self._open.pop(topic) for topic in topics]

    def all(self) -> list[Batch[Token]]:
        """Take all batches, full or not."""
        batches, self._open = list(self._open.values()), {}
        return batches

    @property
    def next_due_ms(self) -> float | None:
        """When `due` will next return a batch; None when no message waits."""
        return min((batch.due_ms for batch in self._open.values()), default=None)


def size_of(message: OutgoingMessage) -> int:
    """Estimate the bytes that *message* takes in a batch. The estimate is never too small for ASCII
    names and values.
    """
    extra = sum(map(len, message.keys)) + sum(len(name) + len(value) + 10 for name, value in message.properties.items())
    if message.message_group:
        extra += len(message.message_group) + 16
    if message.delay is not None or message.deliver_at is not None or message.delay_level is not None:
        extra += 64
    return len(message.body) + len(message.tag) + extra + len(message.content_type) + MESSAGE_OVERHEAD_SIZE_BYTES


def stored_size_of(topic: str, message: OutgoingMessage) -> int:
    """Return the most bytes that the record of *message* may have: adds what `size_of` leaves out,
    and four bytes for each letter outside ASCII.
    """
    texts = (message.tag, message.message_group, *message.keys, *message.properties, *message.properties.values())
    return (
        size_of(message) + RECORD_OVERHEAD_SIZE_BYTES + len(topic) + sum(3 * len(t) for t in texts if not t.isascii())
    )


def split(topic: str, messages: Sequence[OutgoingMessage]) -> Iterator[range]:
    """Divide *messages* into ranges that each fit one request: at most 1,024 messages, and 16 MiB
    less a margin of an eighth.

    With a message group among the messages, a range is small enough for the proxy to pass it on in
    one piece to each broker group. All messages of a message group in one request are then stored,
    or none is. Of several pieces an earlier one could fail for now while a later one is stored.

    Only messages with idempotency keys may be repeated, so a range of ordered messages has either
    all of them with keys or none.
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
