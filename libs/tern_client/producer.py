"""The async Producer: single sends, batches, and `send_soon`, which gathers messages for a few milliseconds and sends them together.

     send_soon -> room in the buffer ┬-> no message group: batch of its topic ─────────────────────────> 4 on the way -> receipts
                                     └-> message group:    run -> its turn -> batch of what may leave -> 4 on the way -> receipts -> next turns
     send, send_batch, request ------> with message groups: its turn -> sent

The turns are in `turns.py`, the runs of message groups in `ordered_buffer.py`.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tern_client.asynchronous.sending import PlainProducer
from tern_client.calls.batching import Accumulator, Batch, BatchLimits, size_of
from tern_client.calls.models import BatchOutcome, OutgoingMessage, SendReceipt
from tern_client.calls.sending import none_stored, send_many, with_key
from tern_client.calls.turns import Key, Turn, TurnNotReached
from tern_client.closing import ClientClosed
from tern_client.ordered_buffer import OrderedBatch, OrderedBuffer, Run
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport
from tern_wire.errors import TernError

# What send_soon may hold before it waits: a second or two of a fast producer, and nothing for the memory of a small machine.
BUFFER_SIZE_MAX_BYTES = 16 * 1024 * 1024
# Batches on the way at a time: enough to fill a proxy's lane while another is being made durable.
BATCHES_IN_FLIGHT_MAX = 4

Receipt = asyncio.Future[SendReceipt]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A message that the buffer has no room for yet."""

    topic: str
    message: OutgoingMessage
    size_bytes: int
    taken: asyncio.Future[Receipt]


class Producer(PlainProducer):
    """Sends messages, and requests that wait for their reply. Every message gets an idempotency key unless *idempotent* is off, so that repeats are stored once.

    Messages of one message group are stored in the order in which they were given to this producer, by whichever of its methods: the next
    ones are sent when the earlier ones are settled, repeats and all. One that fails for good leaves a gap: those behind it are sent all the
    same, as Kafka's idempotent producer does. If its error is OutcomeUnknown it may still be stored, late and once; whoever must not
    have it behind the later ones waits for each receipt. What has waited for longer than the deadline when the one before it is given up fails
    with TurnNotReached, unsent.

    Owns its connections and its buffer. Use it as an async context manager, or call `close`, which flushes first; after that
    sends are refused (ClientClosed). *endpoints* are proxies' URLs, such as http://127.0.0.1:8080 (EndpointMalformed when they are
    not); the next one is used when one fails. Errors are TernError: what it raises was not stored, but for OutcomeUnknown.
    """

    __slots__ = (
        "_batches",
        "_buffer",
        "_buffered_bytes",
        "_buffered_max",
        "_ordered",
        "_ordered_in_flight",
        "_room",
        "_timer",
    )

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        idempotent: bool = True,
        limits: BatchLimits | None = None,
        buffer_size_max_bytes: int = BUFFER_SIZE_MAX_BYTES,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: Transport | None = None,
    ) -> None:
        super().__init__(
            endpoints,
            idempotent=idempotent,
            namespace=namespace,
            policy=policy,
            key_file=key_file,
            ca_file=ca_file,
            transport=transport,
        )
        self._buffer: Accumulator[Receipt] = Accumulator(limits or BatchLimits())
        self._buffered_bytes = 0
        self._buffered_max = buffer_size_max_bytes
        self._ordered: OrderedBuffer[Receipt] = OrderedBuffer(limits or BatchLimits(), self._turns)
        self._ordered_in_flight = 0
        # Who waits until the buffer has room for a message, in the order of coming.
        self._room: deque[_Waiting] = deque()
        self._batches = asyncio.Semaphore(BATCHES_IN_FLIGHT_MAX)
        self._timer: asyncio.TimerHandle | None = None

    async def send_soon(self, topic: str, message: OutgoingMessage) -> Receipt:
        """Put *message* into the buffer; await the returned future for its receipt. Waits only while the buffer is full.

        It is sent 5 ms after the first of its batch, or when 256 KiB or 1,024 messages have come together; with a message group, not
        before the earlier ones of that are settled. ClientClosed when this is closed while it waits: the message was not taken.
        """
        self._check_open()
        keyed, size_bytes = with_key(message, self._keys), size_of(message)
        if not self._room and self._has_room(size_bytes):
            return self._take(topic, keyed, size_bytes)
        waiting = _Waiting(topic, keyed, size_bytes, asyncio.get_running_loop().create_future())
        self._room.append(waiting)
        try:
            return await waiting.taken
        except asyncio.CancelledError:
            if waiting in self._room:
                self._room.remove(waiting)
                self._make_room()
            raise

    async def flush(self) -> None:
        """Send what waits and return when every batch has its outcome; outcomes are in the futures of `send_soon`."""
        for batch in self._buffer.all():
            self._start(batch)
        self._start_ordered(is_hurried=True)
        while self._sending:
            await asyncio.wait(set(self._sending), return_when=asyncio.FIRST_COMPLETED)
            self._start_ordered(is_hurried=True)

    async def _finish(self) -> None:
        for waiting in self._room:
            if not waiting.taken.done():
                waiting.taken.set_exception(ClientClosed(client=type(self).__name__))
        self._room.clear()
        await self.flush()
        if self._timer:
            self._timer.cancel()

    # The buffer --------------------------------------------------------------------------------------------------------
    def _has_room(self, size_bytes: int) -> bool:
        return not self._buffered_bytes or self._buffered_bytes + size_bytes <= self._buffered_max

    def _take(self, topic: str, message: OutgoingMessage, size_bytes: int) -> Receipt:
        self._buffered_bytes += size_bytes
        receipt: Receipt = asyncio.get_running_loop().create_future()
        if message.message_group:
            self._ordered.add(topic, message, receipt, now_ms())
            self._start_ordered()
        else:
            for batch in self._buffer.add(topic, message, receipt, now_ms()):
                self._start(batch)
        self._set_timer()
        return receipt

    def _make_room(self) -> None:
        """Take messages in the order in which they came: a small one must not overtake a large one of its message group."""
        while self._room and self._has_room(self._room[0].size_bytes):
            self._admit(self._room.popleft())

    def _admit(self, waiting: _Waiting) -> None:
        if not waiting.taken.done():
            waiting.taken.set_result(self._take(waiting.topic, waiting.message, waiting.size_bytes))

    def _set_timer(self) -> None:
        if self._timer is not None:
            return
        dues = [self._buffer.next_due_ms, self._ordered.next_due_ms if self._can_start_ordered else None]
        due_ms = min((due for due in dues if due is not None), default=None)
        if due_ms is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due_ms - now_ms()) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        for batch in self._buffer.due(now_ms()):
            self._start(batch)
        self._start_ordered()
        self._set_timer()

    # Batches on the way ------------------------------------------------------------------------------------------------
    def _start(self, batch: Batch[Receipt]) -> None:
        self._keep(self._send(batch))

    async def _send(self, batch: Batch[Receipt]) -> None:
        async with self._batches:
            await self._settle(batch)

    @property
    def _can_start_ordered(self) -> bool:
        return self._ordered_in_flight < BATCHES_IN_FLIGHT_MAX

    def _start_ordered(self, *, is_hurried: bool = False) -> None:
        while self._can_start_ordered and (batch := self._ordered.take(now_ms(), is_hurried=is_hurried)):
            self._ordered_in_flight += 1
            self._keep(self._send_ordered(batch))

    async def _send_ordered(self, batch: OrderedBatch[Receipt]) -> None:
        try:
            for token, waited_ms in batch.drop_overdue(now_ms(), self._course.policy.deadline_ms):
                if not token.done():
                    token.set_exception(TurnNotReached(waited_ms=round(waited_ms)))
            batch.note(await self._settle(batch))
        finally:
            self._ordered_in_flight -= 1
            for run in batch.runs:
                self._leave(run)
            self._start_ordered()
            self._set_timer()

    def _begin_run(self, turn: Turn) -> None:
        assert isinstance(turn, Run)
        self._ordered.ready(turn)
        self._start_ordered()
        self._set_timer()

    def _hurry(self, keys: Iterable[Key]) -> None:
        # What waits for room was asked for before. Its bytes are its caller's already, so it may be taken beyond the limit.
        before = [each for each in self._room if (each.topic, each.message.message_group) in keys]
        for each in before:
            self._room.remove(each)
            self._admit(each)
        for key in keys:
            self._ordered.hurry(self._turns.of(key))
        self._start_ordered()

    async def _settle(self, batch: Batch[Receipt]) -> Mapping[int, TernError]:
        """Send one batch and hand out its receipts; the errors by number. An error of ours is an outcome, not a failure of this task."""
        try:
            outcome = BatchOutcome(receipts=())
            if batch.messages:
                steps = send_many(self._course, batch.topic, batch.messages, now_ms())
                outcome = await self._caller.drive(steps)
        except TernError as error:
            outcome = none_stored(len(batch.tokens), error)
        except BaseException:
            for token in batch.tokens:
                token.cancel()
            raise
        finally:
            self._buffered_bytes -= batch.size_bytes
            self._make_room()
        for at, token in enumerate(batch.tokens):
            receipt = outcome.receipts[at]
            if token.done():
                continue
            if receipt is not None:
                token.set_result(receipt)
            else:
                token.set_exception(outcome.errors[at])
        return outcome.errors
