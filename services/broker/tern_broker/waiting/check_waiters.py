"""Parked claims: checkers that wait until a check is due. Woken at apply, by due checks; no
polling.

Law: a woken claim is proposed, and parked again if others were faster. At most as many are woken as
there are checks, oldest first.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tern_broker.waiting.completion import wake
from tern_broker.waiting.deadlines import Deadlines
from tern_wire.errors import Overloaded, TernError
from tern_wire.limits import PARKED_POLLS_MAX

# Called with True when there may be a check to claim, False at the deadline, or the error that ends
# the wait.
Wake = Callable[[bool | TernError], None]


@dataclass(frozen=True, slots=True, eq=False)
class CheckWaiter:
    """One parked claim, of a producer group ("": all with a check URL); its deadline is in seconds,
    monotonic.

    *is_gone*: whether the requester has gone: then nothing is claimed for it.
    """

    producer_group: str
    deadline_s: float
    wake: Wake
    is_gone: Callable[[], bool]


class CheckWaiters:
    """Claims by producer group. Owner: the core loop; swept every few ms, only while one is
    parked.
    """

    def __init__(self) -> None:
        self._parked: dict[str, dict[CheckWaiter, None]] = {}
        self._deadlines = Deadlines[CheckWaiter]()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def park(self, waiter: CheckWaiter) -> None:
        """Park *waiter*. The caller has checked in this very turn that there is nothing to
        claim.
        """
        if self._count >= PARKED_POLLS_MAX:
            waiter.wake(Overloaded(what="parked claims"))
            return
        self._parked.setdefault(waiter.producer_group, {})[waiter] = None
        self._deadlines.add(waiter)
        self._count += 1

    def due(self, available: Callable[[str], int]) -> None:
        """Wake claims for due checks: *available* returns how many there are for a producer group,
        or for "".
        """
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
        """Answer claims whose deadline has passed."""
        over = self._deadlines.over(now_s)
        for waiter in over:
            self._remove(waiter)
        for waiter in over:
            wake(waiter.wake, False)

    def refuse_all(self, error: TernError) -> None:
        """Refuse all claims: this node no longer leads, and proxies continue at the new leader."""
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
