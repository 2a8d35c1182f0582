"""Parked pulls: readers that wait for the next message of one queue. Woken at apply, by appends to
that queue; no polling.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tern_broker.core.applied import Applied
from tern_broker.waiting.completion import wake
from tern_broker.waiting.deadlines import Deadlines
from tern_wire.errors import Overloaded, TernError
from tern_wire.limits import PARKED_POLLS_MAX

# Called with True when there may be new messages, False at the deadline, or the error that ends the
# wait.
Wake = Callable[[bool | TernError], None]


@dataclass(frozen=True, slots=True, eq=False)
class QueueWaiter:
    """One parked pull of a queue (topic id << 32 | queue); its deadline is in seconds,
    monotonic.
    """

    code: int
    deadline_s: float
    wake: Wake


class QueueWaiters:
    """Pulls by topic id << 32 | queue. Owner: the core loop; swept every few ms, only while one is
    parked.
    """

    def __init__(self) -> None:
        self._parked: dict[int, dict[QueueWaiter, None]] = {}
        self._deadlines = Deadlines[QueueWaiter]()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def park(self, topic_id: int, queue: int, deadline_s: float, wake: Wake) -> None:
        """Park until the queue grows. The caller has read everything up to its end in this very
        turn.
        """
        if self._count >= PARKED_POLLS_MAX:
            wake(Overloaded(what="parked pulls"))
            return
        waiter = QueueWaiter(topic_id << 32 | queue, deadline_s, wake)
        self._parked.setdefault(waiter.code, {})[waiter] = None
        self._deadlines.add(waiter)
        self._count += 1

    def applied(self, applied: Applied) -> None:
        """Wake the pulls of queues to which the entry has appended."""
        if not self._parked:
            return
        for appends in applied.appends:
            for code in self._parked.keys() & set(appends.codes.tolist()):
                self._wake_all(code, True)

    def sweep(self, now_s: float) -> None:
        """Answer pulls whose deadline has passed."""
        over = self._deadlines.over(now_s)
        for waiter in over:
            self._deadlines.remove(waiter)
            waiters = self._parked[waiter.code]
            del waiters[waiter]
            if not waiters:
                del self._parked[waiter.code]
        self._count -= len(over)
        for waiter in over:
            wake(waiter.wake, False)

    def refuse_all(self, error: TernError) -> None:
        """Refuse all pulls: this node no longer leads, and proxies continue at the new leader."""
        for code in list(self._parked):
            self._wake_all(code, error)

    def refuse_gone(self, is_there: Callable[[int], bool]) -> None:
        """Wake the pulls of deleted topics: each looks again, and gets the error."""
        for code in [code for code in self._parked if not is_there(code >> 32)]:
            self._wake_all(code, True)

    def _wake_all(self, code: int, answer: bool | TernError) -> None:
        waiters = self._parked.pop(code)
        self._count -= len(waiters)
        for waiter in waiters:
            self._deadlines.remove(waiter)
        for waiter in waiters:
            wake(waiter.wake, answer)
