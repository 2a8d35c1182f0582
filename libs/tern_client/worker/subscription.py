"""One consumer group of a worker: receives, hands out, extends leases and settles.

    receive --> waiting --> handler --> settling --> settled
       |           |            '-- lease lost: no result is sent
       |           '-- stop: released, uncounted
       '-- reserves messages and bytes of the worker before it asks

Law: a delivery attempt counts when a handler begins. Everything in hand keeps its lease, and its
place in the worker's memory, until it is settled.
"""

import asyncio
import logging
from collections.abc import Sequence

from tern_client.calls.models import ReceivedMessage
from tern_client.prefetch import Suspects
from tern_client.transport.clock import epoch_ms, now_ms
from tern_client.worker.handler_calls import HandlerCalls
from tern_client.worker.lease_keeping import LeaseKeeping
from tern_client.worker.memory import MemoryShare, WorkerMemory
from tern_client.worker.options import SubscriptionOptions
from tern_client.worker.outcomes import (
    STOPPED,
    BodyRefused,
    DeadlinePassed,
    Outcome,
    error_of_message,
    is_unhandled,
    outcome_of,
)
from tern_client.worker.pace import WorkerPace
from tern_client.worker.receiving import Receiving
from tern_client.worker.source import GroupSource, Settling
from tern_client.worker.stats import Counters, SubscriptionStats, snapshot
from tern_client.worker.waiting import InHand, Waiting
from tern_wire.errors import TernError

logger = logging.getLogger("tern_client.worker")


class Subscription:
    """Owner of one group's source, and of all messages that it has in hand."""

    __slots__ = (
        "_batch_timer",
        "_calls",
        "_counters",
        "_is_batch_due",
        "_is_stopping",
        "_keeping",
        "_pace",
        "_receiving",
        "_running",
        "_settling",
        "_share",
        "_source",
        "_suspects",
        "_task",
        "_unsettled",
        "_waiting",
        "_was_unordered",
        "options",
    )

    def __init__(self, options: SubscriptionOptions, source: GroupSource, memory: WorkerMemory, number: int) -> None:
        self.options, self._source = options, source
        self._share: MemoryShare = memory.share(number, self._on_room)
        self._pace, self._suspects = WorkerPace(), Suspects()
        self._receiving = Receiving(source, options.name, self._share, self._pace, self._places, self._take_in)
        self._waiting = Waiting(is_ordered=options.is_ordered)
        self._settling = Settling(source, self._on_settled)
        self._keeping = LeaseKeeping(source, self._on_lost)
        self._calls = HandlerCalls(options.handler, options.deadline_ms)
        self._counters = Counters()
        # By receipt handle; from the receive to the settlement, or to the end of a lost one.
        self._unsettled: dict[str, InHand] = {}
        self._running: dict[asyncio.Task[None], list[InHand]] = {}
        self._task: asyncio.Task[None] | None = None
        self._batch_timer: asyncio.TimerHandle | None = None
        self._is_batch_due = self._is_stopping = self._was_unordered = False

    # Begin and end ---------------------------------------------------------------------------
    def start(self) -> asyncio.Task[None]:
        """Begin to receive; the task ends only with an error."""
        self._task = asyncio.get_running_loop().create_task(self._receiving.run())
        return self._task

    async def stop_receiving(self) -> None:
        """Receive and begin nothing more, and release what has not begun."""
        self._is_stopping = True
        if self._batch_timer is not None:
            self._batch_timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        unbegun = [*self._waiting.clear(), *self._hold(await self._receiving.collect())]
        await self._release(unbegun)

    async def drain(self) -> None:
        """Wait until all handlers have ended and their results are sent."""
        while self._running:
            await asyncio.wait(set(self._running))
        await self._settling.finish()

    def force(self) -> None:
        """End all handlers: their messages are visible again at once."""
        for task, messages in self._running.items():
            for message in messages:
                self._finish(message, STOPPED)
            task.cancel()

    async def close(self) -> None:
        """Close the connections. What is not settled is visible again when its lease ends."""
        await self._settling.cancel()
        await self._keeping.close()
        self._calls.close()
        await self._source.close()

    @property
    def is_busy(self) -> bool:
        """Whether a handler runs, or a message is not settled."""
        return bool(self._running or self._unsettled)

    @property
    def problem(self) -> str:
        """Why it cannot receive; "" while it can."""
        return self._receiving.problem and f"{self.options.name}: {self._receiving.problem}"

    def stats(self) -> SubscriptionStats:
        """Return its counters, and what is in hand now."""
        return snapshot(
            self.options.topic,
            self.options.group,
            self._counters,
            running=sum(map(len, self._running.values())),
            in_flight_messages=len(self._unsettled),
            in_flight_bytes=sum(message.size_bytes for message in self._unsettled.values()),
        )

    # From the receive to the handler ---------------------------------------------------------
    def _places(self) -> tuple[int, int]:
        free = (self.options.concurrency - len(self._running)) * self.options.batch_max
        return free, len(self._waiting)

    def _take_in(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        kept, surplus, is_anew = self._suspects.split(messages)
        if is_anew:
            self._pace.begin_again()
        if surplus:
            self._source.give_back_soon(surplus)
            self._counters.received += len(surplus)
            self._counters.released += len(surplus)
        if self._waiting.add(self._hold(kept)) and not self._was_unordered:
            self._was_unordered = True
            logger.warning(
                "%s: several messages of one message group came at a time, so the group does not keep order itself; "
                "they are handled one at a time here, but not across processes or failures. Declare the group with "
                "fifo=True for that",
                self.options.name,
            )
        self._begin_what_may()
        return kept

    def _hold(self, messages: Sequence[ReceivedMessage]) -> list[InHand]:
        held = [InHand(message, len(message.body)) for message in messages]
        self._counters.received += len(held)
        self._unsettled.update((each.handle, each) for each in held)
        epoch = epoch_ms()
        self._keeping.add([(message.receipt_handle, message.invisible_until - epoch) for message in messages])
        return held

    def _begin_what_may(self) -> None:
        if self._is_stopping:
            return
        while len(self._running) < self.options.concurrency and self._is_next_complete():
            batch: list[InHand] = []
            while len(batch) < self.options.batch_max and (found := self._waiting.take()) is not None:
                if found.is_lost or not self._keeping.lasts(found.handle):
                    self._drop(found)
                else:
                    batch.append(found)
            if batch:
                self._begin(batch)
        if self.options.batch_wait_ms and self._waiting.ready and self._batch_timer is None and not self._is_batch_due:
            loop = asyncio.get_running_loop()
            self._batch_timer = loop.call_later(self.options.batch_wait_ms / 1000, self._on_batch_due)

    def _is_next_complete(self) -> bool:
        """Whether a handler may begin: with a message, a full batch, or what has waited."""
        ready = self._waiting.ready
        return ready >= self.options.batch_max or (ready > 0 and (self._is_batch_due or not self.options.batch_wait_ms))

    def _on_batch_due(self) -> None:
        self._batch_timer = None
        self._is_batch_due = True
        self._begin_what_may()

    def _begin(self, batch: list[InHand]) -> None:
        if self._batch_timer is not None:
            self._batch_timer.cancel()
            self._batch_timer = None
        self._is_batch_due = False
        task = asyncio.get_running_loop().create_task(self._handle(batch))
        self._running[task] = batch
        task.add_done_callback(self._on_ended)

    def _on_room(self) -> None:
        self._receiving.changed()

    # From the handler to the settlement ------------------------------------------------------
    async def _handle(self, batch: list[InHand]) -> None:
        began_ms = now_ms()
        handler, arguments, taken = self.options.handler, list[object](), list[InHand]()
        for message in batch:
            try:
                arguments.append(handler.one(message.message))
                taken.append(message)
            except BodyRefused as error:
                self._end(message, error)
        if not taken:
            return

        def end(error: BaseException | None) -> None:
            self._tell(taken, error)
            for message in taken:
                self._end(message, error_of_message(error, message.handle))

        ended = await self._calls.run(arguments if handler.is_batch else arguments[0], end)
        self._counters.handled += len(taken)
        self._counters.handler_ms += now_ms() - began_ms
        failure = ended.error
        if failure is None and ended.value is not None and not handler.is_batch:
            failure = await self._reply(taken[0], ended.value)
        end(failure)

    async def _reply(self, message: InHand, value: object) -> BaseException | None:
        """Reply with *value* if *message* is a request; return what went wrong. A message that is
        over was given back, and another handler replies.
        """
        if not message.message.reply_to or message.is_over or message.is_lost:
            return None
        try:
            await self._source.reply(message.message, value)
        except (TernError, TypeError, ValueError) as error:
            return error
        return None

    def _tell(self, batch: list[InHand], error: BaseException | None) -> None:
        """Log and count a failure, once."""
        if not is_unhandled(error) or all(message.is_over for message in batch):
            return
        self._counters.failed += 1
        self._counters.deadline_passed += isinstance(error, DeadlinePassed)
        first, more = batch[0].message, f" and {len(batch) - 1} more" if len(batch) > 1 else ""
        logger.error(
            "handler of topic %s for group %s failed: message %s%s, attempt %d: %s: %s",
            *(self.options.topic, self.options.group, first.message_id, more, first.attempt),
            *(type(error).__name__, error),
            exc_info=None if isinstance(error, DeadlinePassed) else error,
        )

    def _end(self, message: InHand, error: BaseException | None) -> None:
        if isinstance(error, BodyRefused) and not message.is_over:
            logger.warning(
                "%s: message %s becomes a dead letter: %s", self.options.name, message.message.message_id, error
            )
        self._finish(message, outcome_of(error, self.options.retry_in_ms))

    def _finish(self, message: InHand, outcome: Outcome) -> None:
        if message.is_over:
            return
        message.is_over = True
        if message.is_lost:
            self._forget([message])
        else:
            self._settling.add(message, outcome)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        batch = self._running.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # a mistake of ours: the event loop reports it
        for message in batch:
            self._waiting.done(message)
        self._pace.ended(len(batch), int(now_ms()))
        self._begin_what_may()
        self._receiving.changed()

    def _on_settled(self, message: InHand, outcome: Outcome, error: TernError | None) -> None:
        counters = self._counters
        if error is not None:
            self._count_lost(message, error.title)
        elif outcome.action == "ack":
            counters.acked += 1
        elif outcome.action == "nack":
            counters.nacked += 1
        else:
            counters.dead_lettered += 1
        self._keeping.remove(message.handle)
        self._forget([message])

    def _on_lost(self, handle: str) -> None:
        """Note that a lease cannot be extended any more. A result that is known goes out all the
        same: the broker decides.
        """
        message = self._unsettled.get(handle)
        if message is not None and not message.is_over:
            message.is_lost = True
            self._count_lost(message, "its lease could not be extended")

    def _drop(self, message: InHand) -> None:
        """A message whose lease is over before its handler could begin comes again."""
        if not message.is_lost:
            self._count_lost(message, "its lease ended before its handler could begin")
        self._keeping.remove(message.handle)
        self._waiting.done(message)
        self._forget([message])

    def _count_lost(self, message: InHand, reason: str) -> None:
        self._counters.lease_lost += 1
        logger.warning(
            "%s: message %s, attempt %d, is delivered again: %s",
            self.options.name,
            *(message.message.message_id, message.message.attempt, reason),
        )

    async def _release(self, unbegun: list[InHand]) -> None:
        held = [message.message for message in unbegun if not message.is_lost]
        if held:
            await self._source.give_back(held)
        self._counters.released += len(held)
        for message in unbegun:
            self._keeping.remove(message.handle)
        self._forget(unbegun)

    def _forget(self, messages: Sequence[InHand]) -> None:
        for message in messages:
            del self._unsettled[message.handle]
        if messages:
            self._share.give_back(len(messages), sum(message.size_bytes for message in messages))
