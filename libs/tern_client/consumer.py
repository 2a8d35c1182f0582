"""The async Consumer: receives with a lease, settles with the next receive, and closes without losing what was confirmed."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from tern_client.calling import call
from tern_client.documents import Settle, read_received, read_settled, receive_request, settle_request
from tern_client.models import ReceivedMessage
from tern_client.retrying import RetryPolicy
from tern_client.settling import PendingSettles
from tern_client.transport import AsyncCaller, Transport, now_ms
from tern_wire.errors import TernError
from tern_wire.limits import INVISIBLE_MIN_MS, RECEIVE_SIZE_DEFAULT_BYTES

WAIT_DEFAULT_MS = 20_000
# A confirmed message whose next receive does not come is acked after this: far below any lease, far above a batch's work.
SETTLE_LINGER_MS = 500
IN_FLIGHT_MAX = 1_024


class Consumer:
    """Messages of one topic for one group: `async for message in consumer`, then `consumer.confirm(message)`.

    Owns its connections, the messages it has not handed out yet, and the confirmations it has not sent yet. At most
    *in_flight_max* messages are received and neither confirmed nor acked; beyond that the loop waits for a confirmation.
    """

    __slots__ = (
        *("_caller", "_closed", "_flushing", "_group", "_in_flight", "_in_flight_max", "_invisible_ms", "_max_bytes"),
        *("_max_messages", "_pending", "_received", "_room", "_timer", "_topic", "_wait_ms"),
    )

    def __init__(
        self,
        endpoints: str | Sequence[str],
        topic: str,
        group: str,
        *,
        max_messages: int = 32,
        max_bytes: int = RECEIVE_SIZE_DEFAULT_BYTES,
        wait_ms: int = WAIT_DEFAULT_MS,
        invisible_ms: int | None = None,
        in_flight_max: int = IN_FLIGHT_MAX,
        policy: RetryPolicy | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._caller = AsyncCaller(endpoints, policy=policy, transport=transport)
        self._topic, self._group = topic, group
        self._max_messages, self._max_bytes = max_messages, max_bytes
        self._wait_ms, self._invisible_ms = wait_ms, invisible_ms
        self._in_flight_max = in_flight_max
        self._in_flight: set[str] = set()
        self._received: deque[ReceivedMessage] = deque()
        self._pending = PendingSettles()
        self._room = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def expired(self) -> int:
        """How many confirmations came too late: those messages are delivered again."""
        return self._pending.expired

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        while not self._received:
            if self._closed:
                raise StopAsyncIteration
            self._received.extend(await self.receive())
        return self._received.popleft()

    async def receive(self, max_messages: int = 0, wait_ms: int | None = None) -> list[ReceivedMessage]:
        """One receive: up to *max_messages* (0: the consumer's), [] when the wait passed without any. Confirmations go along."""
        while len(self._in_flight) >= self._in_flight_max:
            self._room.clear()
            await self._room.wait()
        settles = self._pending.take()
        request = receive_request(
            self._topic,
            self._group,
            max_messages=min(max_messages or self._max_messages, self._in_flight_max - len(self._in_flight)),
            max_bytes=self._max_bytes,
            wait_ms=self._wait_ms if wait_ms is None else wait_ms,
            invisible_ms=self._invisible_ms,
            settles=settles,
        )
        try:
            response = await self._caller.drive(call(self._caller.course, request, now_ms()))
        except BaseException:
            self._pending.give_back(settles)
            raise
        messages, errors = read_received(response)
        self._pending.settled(settles, errors)
        self._in_flight.update(message.receipt_handle for message in messages)
        return messages

    def confirm(self, *messages: ReceivedMessage) -> None:
        """These are done: they are acked with the next receive, or 500 ms from now. Use `ack` to know that it happened."""
        self._pending.add(Settle(message.receipt_handle) for message in messages)
        self._release(messages)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SETTLE_LINGER_MS / 1000, self._on_timer)

    async def ack(self, *messages: ReceivedMessage) -> dict[str, TernError]:
        """Ack now; the errors by receipt handle, {} when the group will not see any of these again."""
        errors = await self._settle([Settle(message.receipt_handle) for message in messages])
        self._release(messages)
        return errors

    async def extend(self, invisible_ms: int, *messages: ReceivedMessage) -> dict[str, TernError]:
        """Keep the leases for *invisible_ms* from now; the errors by receipt handle. The handles stay the same."""
        return await self._settle([Settle(message.receipt_handle, "extend", invisible_ms) for message in messages])

    async def close(self) -> None:
        """Ack what was confirmed and let the messages that were not handed out become visible in a second."""
        self._closed = True
        if self._timer:
            self._timer.cancel()
        unread = [Settle(message.receipt_handle, "extend", INVISIBLE_MIN_MS) for message in self._received]
        self._received.clear()
        try:
            if self._flushing:
                await self._flushing
            self._pending.add(unread)
            await self._flush()
        finally:
            await self._caller.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _release(self, messages: Iterable[ReceivedMessage]) -> None:
        self._in_flight.difference_update(message.receipt_handle for message in messages)
        self._room.set()

    def _on_timer(self) -> None:
        self._timer = None
        if self._pending and (self._flushing is None or self._flushing.done()):
            self._flushing = asyncio.get_running_loop().create_task(self._flush_quietly())

    async def _flush_quietly(self) -> None:
        """In the background an error only means later: the confirmations are kept and go with the next receive or close."""
        try:
            await self._flush()
        except TernError:
            return

    async def _flush(self) -> None:
        """Settle what waits; what fails for now waits on, for the next receive."""
        later: list[Settle] = []
        while self._pending:
            settles = self._pending.take()
            try:
                errors = await self._settle(settles)
            except BaseException:
                self._pending.give_back([*later, *settles])
                raise
            failed = {handle for handle, error in errors.items() if error.retryable}
            later += [settle for settle in settles if settle.receipt_handle in failed]
        self._pending.give_back(later)

    async def _settle(self, settles: list[Settle]) -> dict[str, TernError]:
        """Settle now; the errors by receipt handle. Raises when it is not known what became of them."""
        if not settles:
            return {}
        try:
            request = settle_request(self._topic, self._group, settles)
            response = await self._caller.drive(call(self._caller.course, request, now_ms()))
        except TernError as error:
            if error.retryable:
                raise
            return self._pending.refused(settles, dict.fromkeys(range(len(settles)), error))
        return self._pending.refused(settles, read_settled(response))
