"""The async Producer: single sends, batches, and `send_soon`, which gathers messages for a few milliseconds and sends them together."""

import asyncio
import os
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from tern_client.batching import Accumulator, Batch, BatchLimits, size_of
from tern_client.credentials import FileName
from tern_client.models import BatchOutcome, OutgoingMessage, SendReceipt
from tern_client.requesting import RequestCalls
from tern_client.retrying import RetryPolicy
from tern_client.sending import send_many, send_one, unique_keys, with_key
from tern_client.transport import Transport, now_ms
from tern_wire.errors import TernError

# What send_soon may hold before it waits: a second or two of a fast producer, and nothing for the memory of a small machine.
BUFFER_SIZE_MAX_BYTES = 16 * 1024 * 1024
# Batches on the way at a time: enough to fill a proxy's lane while another is being made durable.
BATCHES_IN_FLIGHT_MAX = 4

Receipt = asyncio.Future[SendReceipt]


class Producer(RequestCalls):
    """Sends messages, and requests that wait for their reply. Every message gets an idempotency key unless *idempotent* is off, so that repeats are stored once.

    Owns its connections and its buffer. Use it as an async context manager, or call `close`, which flushes first; after that
    sends are refused (ClientClosed). *endpoints* are proxies' URLs, such as http://127.0.0.1:8080 (EndpointMalformed when they are
    not); the next one is used when one fails. Errors are TernError: what it raises was not stored, but for OutcomeUnknown.
    """

    __slots__ = (
        "_batches",
        "_buffer",
        "_buffered_bytes",
        "_buffered_max",
        "_keys",
        "_room",
        "_sending",
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
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._keys = unique_keys(os.urandom(8).hex()) if idempotent else None
        self._buffer: Accumulator[Receipt] = Accumulator(limits or BatchLimits())
        self._buffered_bytes = 0
        self._buffered_max = buffer_size_max_bytes
        self._room: deque[asyncio.Future[None]] = deque()
        self._sending: set[asyncio.Task[None]] = set()
        self._batches = asyncio.Semaphore(BATCHES_IN_FLIGHT_MAX)
        self._timer: asyncio.TimerHandle | None = None

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        content_type: str = "",
        queue: str = "",
        idempotency_key: str = "",
        message_group: str = "",
        delay: str | int | timedelta | None = None,
        deliver_at: str | int | datetime | None = None,
        delay_level: int | None = None,
    ) -> SendReceipt:
        """Send one message now; returns when it is durable on a majority. MessageTooLarge for a body over 4 MiB."""
        message = OutgoingMessage(
            body=body,
            tag=tag,
            keys=keys,
            properties=properties or {},
            content_type=content_type,
            queue=queue,
            idempotency_key=idempotency_key,
            message_group=message_group,
            delay=delay,
            deliver_at=deliver_at,
            delay_level=delay_level,
        )
        return await self.send_message(topic, message)

    async def send_message(self, topic: str, message: OutgoingMessage) -> SendReceipt:
        """As `send`, with the message as one value."""
        return await self._drive(send_one(self._course, topic, with_key(message, self._keys), now_ms()))

    async def send_batch(self, topic: str, messages: Sequence[OutgoingMessage]) -> BatchOutcome:
        """Send many messages now, in as few requests as fit; what fails for now is repeated, each message once."""
        keyed = [with_key(message, self._keys) for message in messages]
        return await self._drive(send_many(self._course, topic, keyed, now_ms()))

    async def send_soon(self, topic: str, message: OutgoingMessage) -> Receipt:
        """Put *message* into the buffer; await the returned future for its receipt. Waits only while the buffer is full.

        It is sent 5 ms after the first of its batch, or when 256 KiB or 1,024 messages have come together. ClientClosed when this
        is closed while it waits: the message was not taken.
        """
        self._check_open()
        size_bytes = size_of(message)
        while self._buffered_bytes and self._buffered_bytes + size_bytes > self._buffered_max:
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(room)
            await room
            self._check_open()
        self._buffered_bytes += size_bytes
        receipt: Receipt = asyncio.get_running_loop().create_future()
        for batch in self._buffer.add(topic, with_key(message, self._keys), receipt, now_ms()):
            self._start(batch)
        self._set_timer()
        return receipt

    async def flush(self) -> None:
        """Send what waits and return when every batch has its outcome; outcomes are in the futures of `send_soon`."""
        for batch in self._buffer.all():
            self._start(batch)
        while self._sending:
            await asyncio.wait(set(self._sending))

    async def _finish(self) -> None:
        await self.flush()
        if self._timer:
            self._timer.cancel()

    def _set_timer(self) -> None:
        due_ms = self._buffer.next_due_ms
        if due_ms is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due_ms - now_ms()) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        for batch in self._buffer.due(now_ms()):
            self._start(batch)
        self._set_timer()

    def _start(self, batch: Batch[Receipt]) -> None:
        task = asyncio.get_running_loop().create_task(self._send(batch))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, batch: Batch[Receipt]) -> None:
        """Send one batch and hand out its receipts. An error of ours is an outcome, not a failure of this task."""
        try:
            async with self._batches:
                steps = send_many(self._course, batch.topic, batch.messages, now_ms())
                outcome = await self._caller.drive(steps)
        except TernError as error:
            outcome = BatchOutcome(
                receipts=(None,) * len(batch.tokens), errors=dict.fromkeys(range(len(batch.tokens)), error)
            )
        except BaseException:
            for token in batch.tokens:
                token.cancel()
            raise
        finally:
            self._buffered_bytes -= batch.size_bytes
            while self._room:
                room = self._room.popleft()
                if not room.done():
                    room.set_result(None)
        for at, token in enumerate(batch.tokens):
            receipt = outcome.receipts[at]
            if token.done():
                continue
            if receipt is not None:
                token.set_result(receipt)
            else:
                token.set_exception(outcome.errors[at])
