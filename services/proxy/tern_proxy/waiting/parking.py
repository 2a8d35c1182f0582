"""Parked long polls: they wait here, and the broker gets one request for all polls of a topic,
group and broker group.

    poll: RECEIVE -> nothing -> park ................................. woken -> RECEIVE -> answer
    one NOTIFY for all parked polls -> "n available" -> the n oldest wake

The next NOTIFY follows only when these have received; an earlier one would count the same messages
again. Owner of all state: one event loop.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from tern_proxy.waiting.interrupts import Interrupt
from tern_remoting import problem_of
from tern_routing import GroupLink
from tern_wire.errors import Overloaded, TernError
from tern_wire.limits import PARKED_POLLS_MAX, PARKED_POLLS_PER_PRINCIPAL_MAX
from tern_wire.link.receives import AwaitMessages

# Delay beyond the requested wait after which a broker without an answer to NOTIFY counts as gone.
NOTIFY_SLACK_MS = 2_000
# Longer polls are repeated, so a leader that hangs is detected within this time and the slack.
NOTIFY_WAIT_MAX_MS = 10_000
# Pause between two NOTIFYs of which the first returned nothing: a broker in trouble must not be
# asked in a loop.
PAUSE_S = 0.05


class ParkedPoll:
    """One parked poll.

    It may wait at several broker groups, in one poll_queue each; the first to wake it wins.
    """

    __slots__ = ("future", "gone", "until")

    def __init__(self, until: float, gone: Interrupt) -> None:
        # Who woke it; None at its deadline, at a disconnect and when the proxy stops.
        self.future: asyncio.Future[PollQueue | None] = asyncio.get_running_loop().create_future()
        self.until, self.gone = until, gone

    def end(self, poll_queue: "PollQueue | None" = None) -> None:
        """Wake the poll, once."""
        if not self.future.done():
            self.future.set_result(poll_queue)

    def interrupt(self, _: object) -> None:
        """Wake the poll because its client is gone or has lost its rights."""
        self.end()

    def fail(self, error: TernError) -> None:
        """End the wait with *error*, unless it has ended."""
        if not self.future.done():
            self.future.set_exception(error)


class PollQueue:
    """Polls of one topic and group that wait for one broker group."""

    __slots__ = ("_group", "_on_idle", "_receiving", "_task", "_topic", "link", "polls")

    def __init__(self, link: GroupLink, topic: str, group: str, on_idle: Callable[[], None]) -> None:
        self.link = link
        self._topic, self._group = topic, group
        self._on_idle = on_idle
        # Oldest first; a dictionary, since at a deadline thousands leave from any position.
        self.polls: OrderedDict[ParkedPoll, None] = OrderedDict()
        # Polls that were woken and have not received yet.
        self._receiving = 0
        self._task: asyncio.Task[None] | None = None

    def park(self, poll: ParkedPoll, *, first: bool) -> None:
        """Add a poll. *first*: it was woken in vain, so it keeps its place in front."""
        self.polls[poll] = None
        if first:
            self.polls.move_to_end(poll, last=False)
        self._ask()

    def leave(self, poll: ParkedPoll) -> None:
        """Remove *poll*. A poll that was woken is no longer in the queue."""
        self.polls.pop(poll, None)
        self._rest()

    def received(self) -> None:
        """Record that a woken poll has received, or never will."""
        self._receiving -= 1
        self._ask()
        self._rest()

    def close(self) -> None:
        """Cancel the NOTIFY in flight."""
        if self._task is not None:
            self._task.cancel()

    def _ask(self) -> None:
        if self.polls and not self._receiving and self._task is None:
            self._task = asyncio.create_task(self._notify())
            self._task.add_done_callback(self._asked)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            if isinstance(error := task.exception(), Exception):
                # A bug: no NOTIFY will wake the waiting polls, so they fail now.
                problem = problem_of(error)
                while self.polls:
                    self.polls.popitem(last=False)[0].fail(problem)
            self._ask()
        self._rest()

    def _rest(self) -> None:
        if not self.polls and not self._receiving and self._task is None:
            self._on_idle()

    async def _notify(self) -> None:
        now = asyncio.get_running_loop().time()
        wait_ms = min(NOTIFY_WAIT_MAX_MS, max(1, int((max(poll.until for poll in self.polls) - now) * 1_000)))
        asked = AwaitMessages(topic=self._topic, group=self._group, wait_ms=wait_ms)
        try:
            found, _ = await self.link.ask(asked, is_repeatable=True, deadline_ms=wait_ms + NOTIFY_SLACK_MS)
        except TernError as error:
            if error.retryable:
                # An election or a busy broker: polls continue to wait, each until its own deadline.
                await asyncio.sleep(PAUSE_S)
            else:
                # Each poll gets the cause from its own receive.
                self._wake(len(self.polls))
            return
        if found.available <= 0 and asyncio.get_running_loop().time() < now + PAUSE_S:
            await asyncio.sleep(PAUSE_S)
        self._wake(found.available)

    def _wake(self, count: int) -> None:
        while count > 0 and self.polls:
            poll, _ = self.polls.popitem(last=False)
            if not poll.future.done():
                self._receiving += 1
                poll.end(self)
                count -= 1


class ParkedPolls:
    """All parked polls of this proxy."""

    def __init__(
        self, polls_max: int = PARKED_POLLS_MAX, polls_per_principal_max: int = PARKED_POLLS_PER_PRINCIPAL_MAX
    ) -> None:
        self._polls_max, self._polls_per_principal_max = polls_max, polls_per_principal_max
        # Requests that wait, or may wait, by owner; bounded by the number of connections.
        self._by_owner: dict[str, int] = {}
        self._poll_queues: dict[tuple[str, str, str], PollQueue] = {}
        self._parked: set[ParkedPoll] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def has_room(self) -> bool:
        """Whether one more poll may wait."""
        return len(self._parked) < self._polls_max and not self._is_closed

    def claim(self, owner: str) -> None:
        """Claim a place for a request of *owner* until `give_back`.

        Raise Overloaded at the owner's limit.
        """
        count = self._by_owner.get(owner, 0)
        if count >= self._polls_per_principal_max:
            raise Overloaded(what="long polls of one principal at this proxy", limit=self._polls_per_principal_max)
        self._by_owner[owner] = count + 1

    def give_back(self, owner: str) -> None:
        """Release the place of a request that has ended."""
        count = self._by_owner.get(owner, 0) - 1
        if count > 0:
            self._by_owner[owner] = count
        else:
            self._by_owner.pop(owner, None)

    def claimed(self, owner: str) -> int:
        """Return the number of requests of *owner* that wait or may wait."""
        return self._by_owner.get(owner, 0)

    @property
    def is_closed(self) -> bool:
        """Whether the proxy is stopping, so that no poll may wait."""
        return self._is_closed

    async def wait(
        self,
        links: list[GroupLink],
        topic: str,
        group: str,
        until: float,
        *,
        gone: Interrupt,
        again: bool,
    ) -> PollQueue | None:
        """Return the queue that woke this poll, or None: deadline *until* (loop time), *gone*,
        or the proxy stops.

        The caller receives and then calls that queue's `received` in every case.
        """
        loop = asyncio.get_running_loop()
        if self._is_closed:
            return None
        poll = self.enter(until, gone)
        poll_queues = [self._poll_queue(link, topic, group) for link in links]
        timer = loop.call_at(until, poll.end)
        for poll_queue in poll_queues:
            poll_queue.park(poll, first=again)
        try:
            return await poll.future
        except asyncio.CancelledError:
            is_woken = poll.future.done() and not poll.future.cancelled() and poll.future.exception() is None
            woken_by = poll.future.result() if is_woken else None
            if woken_by is not None:
                woken_by.received()
            raise
        finally:
            timer.cancel()
            self.leave(poll)
            for poll_queue in poll_queues:
                poll_queue.leave(poll)

    def enter(self, until: float, gone: Interrupt) -> ParkedPoll:
        """Register a poll that waits elsewhere, such as a pull at its queue's broker.

        It counts here, and ends at *gone* and when the proxy stops.
        """
        poll = ParkedPoll(until, gone)
        gone.call(poll.interrupt)
        self._parked.add(poll)
        if self._is_closed:
            poll.end()
        return poll

    def leave(self, poll: ParkedPoll) -> None:
        """Remove a registered poll."""
        poll.gone.call_no_more(poll.interrupt)
        self._parked.discard(poll)

    def _poll_queue(self, link: GroupLink, topic: str, group: str) -> PollQueue:
        key = (link.broker_group, topic, group)
        poll_queue = self._poll_queues.get(key)
        if poll_queue is None:

            def forget() -> None:
                if self._poll_queues.get(key) is poll_queue:
                    del self._poll_queues[key]

            poll_queue = self._poll_queues[key] = PollQueue(link, topic, group, forget)
        return poll_queue

    def close(self) -> None:
        """End all polls without messages, present and future ones."""
        self._is_closed = True
        for poll in list(self._parked):
            poll.end()
        for poll_queue in list(self._poll_queues.values()):
            poll_queue.close()
