"""One broadcast of a worker: reads all messages of a topic by offset, each worker for itself.

    page of a queue --> up to `concurrency` handlers --> all ended --> place kept
                             '-- an exception is logged and counted; there is no retry

Law: a place passes a message when its handler has ended. A worker that dies sees the messages since
its last kept place again. Queues are read one after the other, so one page is in memory at a time.
"""

import asyncio
import logging
import random

from tern_client.asynchronous.pulling import PullCalls
from tern_client.calls.pulling import PulledMessage, PulledPage
from tern_client.transport.clock import now_ms
from tern_client.worker.handler_calls import HandlerCalls
from tern_client.worker.memory import MemoryShare, WorkerMemory
from tern_client.worker.options import SubscriptionOptions
from tern_client.worker.outcomes import BodyRefused, DeadlinePassed
from tern_client.worker.stats import Counters, SubscriptionStats, snapshot
from tern_wire.errors import TernError
from tern_wire.limits import RECEIVE_SIZE_MAX_BYTES

logger = logging.getLogger("tern_client.worker")
PAGE_MESSAGES_MAX = 64
# The longest wait at one queue before the others are read; all wait so long at most.
WAIT_AT_QUEUE_MS = 250
# Places are kept this often, and at the end.
KEEP_PERIOD_MS = 1_000
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.25, 10.0


class BroadcastSource(PullCalls):
    """The queues of one topic, and the places of one reader."""

    __slots__ = ("_queues", "_turn")

    _queues: list[str]
    _turn: int

    async def next_page(self) -> tuple[str, PulledPage]:
        """Return the next page of any queue: after a whole round without a message it waits at one
        queue.
        """
        if now_ms() >= self._queues_due_ms:
            self._queues, self._turn = await self._find_queues(), 0
        queue = self._queues.pop(0)
        self._queues.append(queue)
        page = await self._next_page(queue, WAIT_AT_QUEUE_MS if self._turn >= len(self._queues) else 0)
        found = page.messages or page.next_offset < page.max_offset
        self._turn = 0 if found else self._turn + 1
        return queue, page

    def passed(self, queue: str, page: PulledPage, number: int) -> None:
        """Note that message *number* of *page* is handled, -1 for a page without messages."""
        self._places.hand(page, queue, number)


class Broadcast:
    """Owner of one topic's reader. It has the methods of a Subscription."""

    __slots__ = (
        "_calls",
        "_counters",
        "_held",
        "_is_stopping",
        "_kept_ms",
        "_page_max",
        "_running",
        "_share",
        "_source",
        "_task",
        "_wake",
        "options",
        "problem",
    )

    def __init__(
        self, options: SubscriptionOptions, source: BroadcastSource, memory: WorkerMemory, number: int, page_max: int
    ) -> None:
        """*page_max*: the most messages of one page of *source*."""
        self.options, self._source, self._page_max = options, source, page_max
        self._wake = asyncio.Event()
        self._share: MemoryShare = memory.share(number, self._wake.set)
        self._calls = HandlerCalls(options.handler, options.deadline_ms)
        self._counters = Counters()
        self._held: tuple[PulledMessage, ...] = ()
        self._running: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._kept_ms = now_ms()
        self.problem = ""

    def start(self) -> asyncio.Task[None]:
        """Begin to read; the task ends only with an error, or after `stop_receiving`."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self._task

    async def stop_receiving(self) -> None:
        """Begin nothing more."""
        self._is_stopping = True
        if self._task is not None and not self._held:
            self._task.cancel()

    async def drain(self) -> None:
        """Wait until all handlers have ended and their places are kept."""
        if self._task is not None:
            await asyncio.wait({self._task})
        await self._keep_places()

    def force(self) -> None:
        """End all handlers. Their messages are read again by the next run."""
        for task in self._running:
            task.cancel()

    async def close(self) -> None:
        """Close the connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._calls.close()
        await self._source.close()

    @property
    def is_busy(self) -> bool:
        """Whether a handler runs."""
        return bool(self._running)

    def stats(self) -> SubscriptionStats:
        """Return its counters, and what is in hand now."""
        return snapshot(
            self.options.topic,
            self.options.group,
            self._counters,
            running=len(self._running) * self.options.batch_max,
            in_flight_messages=len(self._held),
            in_flight_bytes=sum(len(message.body) for message in self._held),
        )

    async def _run(self) -> None:
        failures, has_read = 0, False
        while not self._is_stopping:
            self._wake.clear()
            room = self._share.room()
            if room.messages < self._page_max or room.size_bytes < RECEIVE_SIZE_MAX_BYTES:
                await self._wake.wait()
                continue
            try:
                await self._read_page()
                failures, has_read, self.problem = 0, True, ""
            except TernError as error:
                if not has_read and not error.retryable:
                    raise
                self.problem = f"{self.options.name}: {error.detail}"
                if not failures:
                    logger.warning("%s: nothing can be read: %s", self.options.name, error)
                pause_s = min(_PAUSE_FIRST_S * 2 ** min(failures, 16), _PAUSE_MAX_S)
                failures += 1
                await asyncio.sleep(pause_s * (0.5 + random.random() / 2))  # noqa: S311 - spreads clients, no secret

    async def _read_page(self) -> None:
        self._share.reserve(self._page_max, RECEIVE_SIZE_MAX_BYTES)
        try:
            queue, page = await self._source.next_page()
            self._held = tuple(page.messages)
            self._counters.received += len(self._held)
            if not page.messages:
                self._source.passed(queue, page, -1)
            await self._handle_page(queue, page)
        finally:
            self._held = ()
            self._share.give_back(self._page_max, RECEIVE_SIZE_MAX_BYTES)
        if now_ms() - self._kept_ms >= KEEP_PERIOD_MS:
            await self._keep_places()

    async def _handle_page(self, queue: str, page: PulledPage) -> None:
        loop, size = asyncio.get_running_loop(), self.options.batch_max
        step = self.options.concurrency * size
        for first in range(0, len(page.messages), step):
            if self._is_stopping:
                return
            part = page.messages[first : first + step]
            self._running = {loop.create_task(self._handle(part[at : at + size])) for at in range(0, len(part), size)}
            try:
                done, _ = await asyncio.wait(self._running)
            finally:
                self._running = set()
            if any(task.cancelled() for task in done):
                return
            self._source.passed(queue, page, first + len(part) - 1)

    async def _handle(self, batch: list[PulledMessage]) -> None:
        began_ms = now_ms()
        handler = self.options.handler
        arguments = []
        for message in batch:
            try:
                arguments.append(handler.one(message))
            except BodyRefused as error:
                self._tell(message, error)
        if not arguments:
            return
        is_told = False

        def end(error: BaseException | None) -> None:
            nonlocal is_told
            if error is not None and not is_told:
                is_told = True
                self._tell(batch[0], error)

        end((await self._calls.run(arguments if handler.is_batch else arguments[0], end)).error)
        self._counters.handled += len(arguments)
        self._counters.handler_ms += now_ms() - began_ms

    def _tell(self, message: PulledMessage, error: BaseException) -> None:
        self._counters.failed += 1
        self._counters.deadline_passed += isinstance(error, DeadlinePassed)
        logger.error(
            "handler of topic %s failed in a broadcast, which has no retry: message %s at %s, offset %d: %s: %s",
            *(self.options.topic, message.message_id, message.queue, message.offset, type(error).__name__, error),
            exc_info=None if isinstance(error, DeadlinePassed | BodyRefused) else error,
        )

    async def _keep_places(self) -> None:
        self._kept_ms = now_ms()
        try:
            await self._source.commit()
        except TernError as error:
            logger.warning("%s: places could not be kept: %s", self.options.name, error)
