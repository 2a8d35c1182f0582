"""The async Producer: single sends, batches, and `send_soon`, which gathers messages for a few
milliseconds and sends them together.

    send_soon -> room in the buffer
                  |-> no message group: batch of its topic ----------------> 4 in flight -> receipts
                  '-> message group: run -> its turn -> batch of runs -----> 4 in flight -> receipts
                                             ^                                   |
                                             '------------ next turns -----------'
    send, send_batch, request ------> with message groups: its turn -> sent

The turns are in `turns.py`, the runs of message groups in `ordered_buffer.py`.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tern_client.asynchronous.sending import PlainProducer
from tern_client.bodies.serializers import Serializer
from tern_client.calls.batching import Accumulator, Batch, BatchLimits, size_of
from tern_client.calls.compressed_bodies import COMPRESS_MIN_BYTES, CompressionName
from tern_client.calls.models import BatchOutcome, OutgoingMessage, SendReceipt
from tern_client.calls.sending import none_stored, prepared, send_many
from tern_client.calls.turns import Key, Turn, TurnNotReached
from tern_client.closing import ClientClosed
from tern_client.ordered_buffer import OrderedBatch, OrderedBuffer, Run
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport
from tern_wire.errors import TernError

# The most bytes that send_soon buffers before it waits: a second or two of a fast producer, and
# little memory for a small machine.
BUFFER_SIZE_MAX_BYTES = 16 * 1024 * 1024
# Batches in flight at a time: enough to fill a proxy's lane while another batch is made durable.
BATCHES_IN_FLIGHT_MAX = 4

Receipt = asyncio.Future[SendReceipt]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A message that waits for room in the buffer."""

    topic: str
    message: OutgoingMessage
    size_bytes: int
    taken: asyncio.Future[Receipt]


class Producer(PlainProducer):
    """Sends messages, and requests that wait for a reply. Tasks of one event loop may share a
    producer.

    - *endpoints*: URLs of proxies, such as http://127.0.0.1:8080; EndpointMalformed. When one
      fails, the next one is used.
    - *idempotent*: every message gets an idempotency key, so that a repeat is stored once.
    - *serializer* makes bytes of other bodies: `"auto"` by their type, `"json"`, `"cloudevents"`
      (structured mode), `"bytes"` (no other bodies), or a function that returns an EncodedBody.
    - *compression* (`"zlib"`, `"zstd"`, `"lz4"`; None: none) of bodies of *compress_min_bytes* and
      more, over 64 KiB in a thread. Consumers of this release decompress.
    - *limits*, *buffer_size_max_bytes*: batches of `send_soon`, and the most bytes that it buffers
      (16 MiB).
    - *namespace*: all topics are in it. *policy*: patience and pauses. *key_file*, *ca_file*:
      credentials.

    Use the producer as an async context manager, or call `close`, which flushes first. Later sends
    are refused with ClientClosed.

    Errors are TernError. A send that raises was not stored, with one exception: after
    OutcomeUnknown the message may be stored, late and once.

    Messages of one message group are stored in the order of the calls, whichever methods send them.
    The next message is sent when the earlier ones are stored or have failed for good, all repeats
    included. A failed message leaves a gap, and those behind it are sent, as Kafka's idempotent
    producer does. A program that cannot accept a late message behind later ones waits for each
    receipt. After a failure, a message that has waited for longer than the deadline fails with
    TurnNotReached, unsent.

    Example:

        import asyncio

        from tern_client import OutgoingMessage, Producer


        async def main() -> None:
            async with Producer("http://127.0.0.1:8080") as producer:
                receipt = await producer.send("orders", b"order 1", tag="new", keys=["1"])
                print(receipt.offset)  # -> 0
                batch = [OutgoingMessage(body=b"order 2"), OutgoingMessage(body=b"order 3")]
                outcome = await producer.send_batch("orders", batch)
                print(len(outcome.confirmed()))  # -> 2
                soon = await producer.send_soon("orders", OutgoingMessage(body=b"order 4"))
                print((await soon).offset)  # -> 3


        asyncio.run(main())
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
        serializer: Serializer = "auto",
        compression: CompressionName | None = None,
        compress_min_bytes: int = COMPRESS_MIN_BYTES,
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
            serializer=serializer,
            compression=compression,
            compress_min_bytes=compress_min_bytes,
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
        # Messages that wait for room in the buffer, in the order of the calls.
        self._room: deque[_Waiting] = deque()
        self._batches = asyncio.Semaphore(BATCHES_IN_FLIGHT_MAX)
        self._timer: asyncio.TimerHandle | None = None

    async def send_soon(self, topic: str, message: OutgoingMessage) -> Receipt:
        """Put *message* into the buffer; await the returned future for its receipt. Waits only
        while the buffer is full.

        The message is sent 5 ms after the first one of its batch, or when 256 KiB or 1,024 messages
        have gathered. With a message group, it is sent after the earlier messages of that group are
        settled. ClientClosed when the producer is closed during the wait: the message was not
        taken.
        """
        self._check_open()
        keyed = prepared(message, self._encode, self._keys)
        size_bytes = size_of(keyed)
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
        """Send the buffered messages; return when every batch has its outcome. The outcomes are in
        the futures of `send_soon`.
        """
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

    # The buffer -------------------------------------------------------------------------------
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
        """Take messages in the order of the calls: a small one must not overtake a large one of its
        message group.
        """
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

    # Batches in flight --------------------------------------------------------------------------
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
        # Messages that wait for room belong to earlier calls. Their callers hold the bytes already,
        # so they may be taken beyond the limit.
        before = [each for each in self._room if (each.topic, each.message.message_group) in keys]
        for each in before:
            self._room.remove(each)
            self._admit(each)
        for key in keys:
            self._ordered.hurry(self._turns.of(key))
        self._start_ordered()

    async def _settle(self, batch: Batch[Receipt]) -> Mapping[int, TernError]:
        """Send one batch and hand out its receipts; return the errors by number. A TernError is an
        outcome, not a failure of this task.
        """
        try:
            outcome = BatchOutcome(receipts=())
            if batch.messages:
                steps = send_many(self._course, batch.topic, batch.messages, now_ms(), self._compressor)
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
