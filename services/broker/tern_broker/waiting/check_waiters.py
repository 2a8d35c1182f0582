"""Parked claims: checkers that wait until somebody is to be asked. Woken at apply, by what came due; no polling.

Law: who is woken claims, and parks again if others were faster. No more are woken than there are checks, oldest first.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tern_broker.waiting.deadlines import Deadlines
from tern_broker.waiting.telling import wake
from tern_wire.errors import Overloaded, TernError
from tern_wire.limits import PARKED_POLLS_MAX

# Told True when there may be something to claim, False at the deadline, or why it must not wait any longer.
Wake = Callable[[bool | TernError], None]


@dataclass(frozen=True, slots=True, eq=False)
class CheckWaiter:
    """One parked claim, of a producer group ("": of all that have a check URL); its deadline is in seconds, monotonic.

    *is_gone*: whether nobody waits for the answer any more: then nothing is claimed for it.
    """

    producer_group: str
    deadline_s: float
    wake: Wake
    is_gone: Callable[[], bool]


class CheckWaiters:
    """By producer group. Owner: the core loop; swept every few ms, only while something is parked."""

    def __init__(self) -> None:
        self._parked: dict[str, dict[CheckWaiter, None]] = {}
        self._deadlines = Deadlines[CheckWaiter]()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def park(self, waiter: CheckWaiter) -> None:
        """Wait; whoever parks has seen in this very turn that there is nothing to claim."""
        if self._count >= PARKED_POLLS_MAX:
            waiter.wake(Overloaded(what="parked claims"))
            return
        self._parked.setdefault(waiter.producer_group, {})[waiter] = None
        self._deadlines.add(waiter)
        self._count += 1

    def due(self, available: Callable[[str], int]) -> None:
        """Something came due: *available* tells how much there is to claim for a producer group, or for ""."""
        woken: list[CheckWaiter] = []
        gone: list[CheckWaiter] = []
        for name, waiters in self._parked.items():
            left = available(name)
            for waiter in waiters:
                if not left:
                    break
                is_gone = waiter.is_gone()
                (gone if is_gone else woken).append(waiter)
                left -= not is_gone
        for waiter in (*gone, *woken):
            self._remove(waiter)
        for waiter in woken:
            wake(waiter.wake, True)

    def sweep(self, now_s: float) -> None:
        """Answer those whose deadline has come."""
        over = self._deadlines.over(now_s)
        for waiter in over:
            self._remove(waiter)
        for waiter in over:
            wake(waiter.wake, False)

    def refuse_all(self, error: TernError) -> None:
        """Not the leader any more: proxies go on at the new one."""
        parked = list(self._deadlines)
        for waiter in parked:
            self._remove(waiter)
        for waiter in parked:
            wake(waiter.wake, error)

    def _remove(self, waiter: CheckWaiter) -> None:
        waiters = self._parked[waiter.producer_group]
        del waiters[waiter]
        if not waiters:
            del self._parked[waiter.producer_group]
        self._deadlines.remove(waiter)
        self._count -= 1
