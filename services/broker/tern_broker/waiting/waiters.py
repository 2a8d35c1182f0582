"""Parked notifications: proxies that wait until a group has something to receive. A parked
notification holds no lease.

Law: the work for an entry, and for each look at the clock, is bounded by the number of woken
requests, not of parked ones: tens of thousands of topics may have parked requests.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

from tern_broker.core.applied import Applied
from tern_broker.core.machine import StateMachine
from tern_broker.waiting.completion import tell, wake
from tern_wire.errors import Overloaded, TernError, TopicNotFound
from tern_wire.limits import PARKED_POLLS_MAX

# Called with the number of messages that could be leased now (0: the deadline has passed), or an
# error.
Wake = Callable[[int | TernError], None]
# Deadlines of requests that were woken earlier stay in the heap until their time; above this number
# the heap is rebuilt.
_STALE_MAX = 1_024


@dataclass(slots=True, eq=False)
class Waiter:
    """One parked notification, for a group in a topic."""

    group_id: int
    topic_id: int
    wake: Wake
    is_over: bool = False


class Waiters:
    """Notifications by topic and group. Owner: the core loop; swept every few ms, only while one is
    parked.
    """

    def __init__(self, state: Callable[[], StateMachine]) -> None:
        self._state = state
        # Topic id -> group id -> waiters, oldest first.
        self._parked: dict[int, dict[int, dict[Waiter, None]]] = {}
        # (deadline in seconds, number, waiter); the number keeps waiters of one deadline in order.
        self._deadlines: list[tuple[float, int, Waiter]] = []
        self._numbers = count()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def park(self, group_id: int, topic_id: int, deadline_s: float, wake: Wake) -> None:
        """Call *wake* at once if a message is visible, else park it."""
        available = self.available(group_id, topic_id)
        if available:
            wake(available)
        elif self._count >= PARKED_POLLS_MAX:
            wake(Overloaded(what="parked polls"))
        else:
            waiter = Waiter(group_id, topic_id, wake)
            self._parked.setdefault(topic_id, {}).setdefault(group_id, {})[waiter] = None
            self._count += 1
            if len(self._deadlines) > 2 * self._count + _STALE_MAX:
                self._deadlines = [entry for entry in self._deadlines if not entry[2].is_over]
                heapq.heapify(self._deadlines)
            heapq.heappush(self._deadlines, (deadline_s, next(self._numbers), waiter))

    def applied(self, applied: Applied) -> None:
        """Wake the requests that can receive now, and those whose topic or group was deleted."""
        if not self._parked:
            return
        if applied.dropped_topics or applied.dropped_groups:
            self._refuse_dropped(applied)
        for topic_id in self._parked.keys() & applied.woken_topics:
            for group_id in list(self._parked[topic_id]):
                tell(partial(self._look, group_id, topic_id), partial(self._wake_all, group_id, topic_id))

    def sweep(self, now_s: float) -> None:
        """Answer requests whose deadline has passed."""
        while self._deadlines and self._deadlines[0][0] <= now_s:
            waiter = heapq.heappop(self._deadlines)[2]
            if not waiter.is_over:
                waiters = self._parked[waiter.topic_id][waiter.group_id]
                del waiters[waiter]
                if not waiters:
                    self._forget(waiter.group_id, waiter.topic_id)
                self._end(waiter, 0)

    def refuse_all(self, error: TernError) -> None:
        """Refuse all requests: this node no longer leads, and proxies continue at the new
        leader.
        """
        for topic_id, groups in list(self._parked.items()):
            for group_id in list(groups):
                self._wake_all(group_id, topic_id, error)

    def available(self, group_id: int, topic_id: int) -> int:
        """Return how many messages of the topic *group_id* could lease now."""
        state = self._state()
        topic, group = state.names.topics_by_id[topic_id], state.names.groups_by_id[group_id]
        row = state.leasing.deliveries.get((group_id, topic_id), [])
        total = 0
        for queue, end in enumerate(topic.ends):
            delivery = row[queue] if queue < len(row) else None
            if delivery is not None:
                total += delivery.available(end)
            elif group.starts_at_min:
                total += end - topic.mins[queue]
        return total

    def _look(self, group_id: int, topic_id: int) -> None:
        available = self.available(group_id, topic_id)
        if available:
            self._wake_all(group_id, topic_id, available)

    def _refuse_dropped(self, applied: Applied) -> None:
        """A proxy that is woken by an error asks again, and gets the name of the deleted topic or
        group.
        """
        for topic_id, groups in list(self._parked.items()):
            for group_id in list(groups):
                if topic_id in applied.dropped_topics or group_id in applied.dropped_groups:
                    self._wake_all(group_id, topic_id, TopicNotFound(topic=f"(deleted, id {topic_id})"))

    def _wake_all(self, group_id: int, topic_id: int, answer: int | TernError) -> None:
        waiters = self._parked[topic_id][group_id]
        self._forget(group_id, topic_id)
        for waiter in waiters:
            self._end(waiter, answer)

    def _forget(self, group_id: int, topic_id: int) -> None:
        groups = self._parked[topic_id]
        del groups[group_id]
        if not groups:
            del self._parked[topic_id]

    def _end(self, waiter: Waiter, answer: int | TernError) -> None:
        waiter.is_over = True
        self._count -= 1
        wake(waiter.wake, answer)
