"""Parked notifications: proxies that wait until a group has something to receive. A parked one carries no lease."""

from collections.abc import Callable
from dataclasses import dataclass

from tern_broker.core.machine import Applied, StateMachine
from tern_wire.errors import ProxyOverloaded, TernError
from tern_wire.limits import PARKED_POLLS_MAX

# Told how many messages could be leased now (0: the deadline has come), or an error.
Wake = Callable[[int | TernError], None]


@dataclass(frozen=True, slots=True)
class Waiter:
    """One parked notification."""

    deadline_s: float
    wake: Wake


class Waiters:
    """By (group id, topic id). Owner: the core loop; swept every few ms, only while something is parked."""

    def __init__(self, state: Callable[[], StateMachine]) -> None:
        self._state = state
        self._parked: dict[tuple[int, int], list[Waiter]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def park(self, group_id: int, topic_id: int, deadline_s: float, wake: Wake) -> None:
        """Wake at once when something is visible, else later."""
        available = self.available(group_id, topic_id)
        if available:
            wake(available)
        elif self._count >= PARKED_POLLS_MAX:
            wake(ProxyOverloaded(what="parked polls"))
        else:
            self._parked.setdefault((group_id, topic_id), []).append(Waiter(deadline_s, wake))
            self._count += 1

    def applied(self, applied: Applied) -> None:
        """An entry was applied: wake those who have something now."""
        if not applied.woken_topics or not self._parked:
            return
        for key in [key for key in self._parked if key[1] in applied.woken_topics]:
            available = self.available(*key)
            if available:
                self._wake_all(key, available)

    def sweep(self, now_s: float) -> None:
        """Answer those whose deadline has come."""
        for key, waiters in list(self._parked.items()):
            over = [waiter for waiter in waiters if waiter.deadline_s <= now_s]
            if over:
                left = [waiter for waiter in waiters if waiter.deadline_s > now_s]
                self._count -= len(over)
                if left:
                    self._parked[key] = left
                else:
                    del self._parked[key]
                for waiter in over:
                    waiter.wake(0)

    def refuse_all(self, error: TernError) -> None:
        """Not the leader any more: proxies go on at the new one."""
        for key in list(self._parked):
            self._wake_all(key, error)

    def available(self, group_id: int, topic_id: int) -> int:
        """How many messages *group_id* could lease of the topic now."""
        state = self._state()
        topic, group = state.names.topics_by_id[topic_id], state.names.groups_by_id[group_id]
        row = state.deliveries.get((group_id, topic_id), [])
        total = 0
        for queue, end in enumerate(topic.ends):
            delivery = row[queue] if queue < len(row) else None
            if delivery is not None:
                total += delivery.available(end)
            elif not group.start_latest:
                total += end - topic.mins[queue]
        return total

    def _wake_all(self, key: tuple[int, int], answer: int | TernError) -> None:
        waiters = self._parked.pop(key)
        self._count -= len(waiters)
        for waiter in waiters:
            waiter.wake(answer)
