"""The async Consumer: receives with leases, settles with the next receive, and releases what its
loops have not handed out.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from tern_client.asynchronous.settling import SettleCalls
from tern_client.calls.documents import Settle
from tern_client.calls.leases import Leases
from tern_client.calls.models import ReceivedMessage
from tern_client.calls.subscription import Subscription
from tern_client.closing import ClientClosed
from tern_client.prefetch import Prefetch
from tern_client.transport.clock import epoch_ms, now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport
from tern_wire.errors import TernError
from tern_wire.limits import RECEIVE_SIZE_DEFAULT_BYTES

logger = logging.getLogger("tern_client.consumer")
T = TypeVar("T")
WAIT_DEFAULT_MS = 20_000
# The pause of a loop before it receives again at once: its consumer, or a proxy without room, does
# not wait.
EMPTY_PAUSE_MS = 250
# A confirmed message is acked after this time without a receive: far below any lease, far above the
# work of a batch.
SETTLE_LINGER_MS = 500
IN_FLIGHT_MAX = 1_024


class Consumer(SettleCalls):
    """Receives the messages of one topic for one consumer group: `async for message in consumer`,
    then `consumer.confirm(message)`.

    - *max_messages*, *max_bytes*: the most messages and bytes of one receive (32, 1 MiB).
    - *wait_ms*: the wait of a long poll, up to 30,000 (20,000). *invisible_ms*: the visibility
      timeout; None: the group's.
    - *tags* (`A || B`) or *sql* filters messages; by default the group's members' subscription
      does.
    - *in_flight_max*: the most messages that are received and neither settled nor past the end of
      their lease. At that number the loop waits.
    - *clock* returns milliseconds since 1970; it decides when a lease is over. A message whose
      lease ends before the loop takes it is not handed out: the broker delivers it again.
    - *endpoints*, *namespace*, *policy*, *key_file*, *ca_file*: as for the Producer.

    A loop receives ahead what its handler processes in a moment: one message at first, at most
    *max_messages*. A delivery attempt counts when the loop hands its message out. When a loop ends
    by `break`, an exception, a cancellation or `close`, the messages that it has not handed out are
    released: visible at once, uncounted. A killed process releases nothing.

    `close` acks the confirmed messages. A receive that waits then, and every later use, raises
    ClientClosed.

    Example:

        import asyncio

        from tern_client import Consumer, Producer


        async def main() -> None:
            async with Producer("http://127.0.0.1:8080") as producer:
                await producer.send("orders", b"order 1")
            async with Consumer("http://127.0.0.1:8080", "orders", "billing") as consumer:
                async for message in consumer:
                    print(message.body, message.attempt)  # -> b'order 1' 1
                    consumer.confirm(message)  # acked with the next receive, or by close
                    break


        asyncio.run(main())
    """

    __slots__ = (
        "_background",
        "_can_release",
        "_clock",
        "_flushing",
        "_leases",
        "_loops",
        "_prefetch",
        "_receiving",
        "_room",
        "_timer",
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
        tags: str = "",
        sql: str = "",
        in_flight_max: int = IN_FLIGHT_MAX,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: Transport | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._subscription = Subscription(
            topic=topic,
            group=group,
            max_messages=max_messages,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            invisible_ms=invisible_ms,
            tags=tags,
            sql=sql,
        )
        self._clock = clock or epoch_ms
        self._leases = Leases(in_flight_max)
        self._prefetch = Prefetch(max_messages)
        # Running loops, releases in the background, and whether the proxy supports releases.
        self._loops = 0
        self._background: set[asyncio.Task[Any]] = set()
        self._can_release = True
        self._receiving: set[asyncio.Task[list[ReceivedMessage]]] = set()
        self._room = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def __aiter__(self) -> AsyncGenerator[ReceivedMessage, None]:
        """Iterate over messages without end. Several tasks may iterate at a time."""
        self._loops += 1
        try:
            while True:
                yield await anext(self)
        finally:
            # Any end of the loop. The event loop closes one that is dropped.
            self._loops -= 1
            if not self._loops and not self._is_closed:
                await self._give_back(self._prefetch.clear())

    async def __anext__(self) -> ReceivedMessage:
        while (message := self._prefetch.take(self._clock())) is None:
            began_ms = self._clock()
            messages = await self.receive(self._prefetch.ask(began_ms))
            now_ms = self._clock()
            suspects = self._prefetch.add(messages, began_ms, now_ms, may_return=self._can_release)
            if not await self._release_unseen(suspects):
                self._prefetch.keep(suspects, now_ms)
            if not messages and now_ms - began_ms < EMPTY_PAUSE_MS:
                await asyncio.sleep(EMPTY_PAUSE_MS / 1000)
        return message

    async def receive(
        self, max_messages: int = 0, wait_ms: int | None = None, attempt_id: str = ""
    ) -> list[ReceivedMessage]:
        """Receive up to *max_messages* (0: the consumer's) with leases; [] when *wait_ms* (None:
        the consumer's) passes without any.

        Confirmations are sent along. A repeat with the same *attempt_id* (at most 64 characters)
        returns the same messages while their leases last. The call first waits while
        *in_flight_max* messages are in flight. ClientClosed when the consumer is closed before or
        meanwhile.
        """
        self._check_open()
        # A task of its own, so that closing can end the receive without cancelling the caller.
        receiving = asyncio.get_running_loop().create_task(self._receive(max_messages, wait_ms, attempt_id))
        self._receiving.add(receiving)
        try:
            messages = await receiving
        except asyncio.CancelledError:
            if not self._is_closed and _has_come(receiving):
                # The answer came at the moment of the cancellation: release its messages.
                self._in_background(self._give_back(receiving.result()))
            caller = asyncio.current_task()
            if self._is_closed and caller and not caller.cancelling():
                raise ClientClosed(client=type(self).__name__) from None
            raise
        finally:
            self._receiving.discard(receiving)
        self._check_open()  # closing has released them already
        return messages

    def confirm(self, *messages: ReceivedMessage) -> None:
        """Mark *messages* as done: they are acked with the next receive, or within 500 ms. Use
        `ack` for an ack with a result.
        """
        self._check_open()
        self._subscription.pending.add(Settle(message.receipt_handle) for message in messages)
        self._done([message.receipt_handle for message in messages])
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SETTLE_LINGER_MS / 1000, self._on_timer)

    async def flush(self) -> None:
        """Ack the confirmed messages now. What fails for now is sent with the next receive.
        ClientClosed.
        """
        self._check_open()
        await self._flush_quietly()

    async def _finish(self) -> None:
        if self._timer:
            self._timer.cancel()
        unread, receiving = self._prefetch.clear(), set(self._receiving)
        for task in receiving:
            task.cancel()
        if receiving:
            done, _ = await asyncio.wait(receiving)
            for task in done:
                # The answer came at the moment of the cancellation. The caller gets ClientClosed.
                if _has_come(task):
                    unread += task.result()
        if self._flushing:
            await self._flushing
        if self._background:
            await asyncio.wait(self._background)
        await self._flush()
        await self._give_back(unread)

    async def _receive(self, max_messages: int, wait_ms: int | None, attempt_id: str) -> list[ReceivedMessage]:
        while not (room := self._leases.room(self._clock())):
            await self._wait_for_room()
        subscription = self._subscription
        count = min(max_messages or subscription.max_messages, room)
        messages = await self._drive(subscription.receive(self._course, count, wait_ms, now_ms(), attempt_id))
        self._leases.add(messages)
        return messages

    async def _wait_for_room(self) -> None:
        """Wait until a message is done, or the first lease should be over."""
        self._room.clear()
        end_ms = self._leases.first_end_ms
        timer = None
        if end_ms is not None:
            left_ms = max(end_ms - self._clock(), 1)
            timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._room.set)
        try:
            await self._room.wait()
        finally:
            if timer:
                timer.cancel()

    def _done(self, handles: list[str]) -> None:
        self._leases.release(handles)
        self._room.set()

    def _extended(self, settles: list[Settle]) -> None:
        began_ms = self._clock()
        for settle in settles:
            self._leases.extend([settle.receipt_handle], began_ms + settle.invisible_ms)

    # Messages that no handler has seen ---------------------------------------------------------
    async def _give_back(self, unseen: list[ReceivedMessage]) -> None:
        """Release *unseen*, or shorten their leases. Where that fails they come again when their
        leases end, and this attempt counts.
        """
        try:
            if not await self._release_unseen(unseen):
                await self._caller.drive(self._subscription.shorten(self._course, unseen, now_ms()))
        except TernError as error:
            logger.warning("%d messages that no handler has seen could not be released: %s", len(unseen), error)

    async def _release_unseen(self, unseen: list[ReceivedMessage]) -> bool:
        """Release *unseen*; False when the proxy is of a release without that action, and nothing
        has happened.
        """
        self._done([message.receipt_handle for message in unseen])
        if unseen and self._can_release:
            steps = self._subscription.release(self._course, unseen, now_ms())
            # The release continues when its caller is cancelled: a cancellation is the usual reason
            # for one.
            releasing = self._in_background(self._caller.drive(steps))
            self._can_release = await asyncio.shield(releasing)
        return self._can_release or not unseen

    def _in_background(self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        """Start *work* as a task that closing waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        _has_come(task)  # its caller may be gone; the error is retrieved here

    def _on_timer(self) -> None:
        self._timer = None
        if self._subscription.pending and (self._flushing is None or self._flushing.done()):
            self._flushing = asyncio.get_running_loop().create_task(self._flush_quietly())

    async def _flush_quietly(self) -> None:
        """Flush in the background. After an error the confirmations are kept for the next receive
        or close.
        """
        try:
            await self._flush()
        except TernError:
            return

    async def _flush(self) -> None:
        """Settle what waits. Settles that fail for now wait for the next receive."""
        pending = self._subscription.pending
        later: list[Settle] = []
        while pending:
            settles = pending.take()
            try:
                errors = await self._settle(settles)
            except BaseException:
                pending.give_back([*later, *settles])
                raise
            failed = {handle for handle, error in errors.items() if error.retryable}
            later += [settle for settle in settles if settle.receipt_handle in failed]
        pending.give_back(later)

    async def _settle(self, settles: list[Settle]) -> dict[str, TernError]:
        """Settle now, also during close."""
        return await self._caller.drive(self._subscription.settle(self._course, settles, now_ms()))


def _has_come(task: asyncio.Task[Any]) -> bool:
    """Whether *task* has a result. Its error is marked as retrieved."""
    return task.done() and not task.cancelled() and not task.exception()
