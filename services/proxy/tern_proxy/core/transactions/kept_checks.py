"""Checks that came when nobody waited for them any more: kept for the next poll of their producer group, as long as it could answer.

What is late or does not fit is forgotten here, and comes again by itself: a broker group hands a check out again when its claim is over.
"""

from collections import deque
from collections.abc import Iterable

from tern_proxy.core.transactions.checks import Check
from tern_wire.limits import MIB

# Who gets a kept check must have time to answer it.
ANSWER_MIN_MS = 2_000
KEPT_SIZE_MAX_BYTES = 8 * MIB


class KeptChecks:
    """By producer group, the oldest first. Times are wall time, as brokers have it. Owner: the CheckDesk that made it."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[Check]] = {}
        self._size_bytes = 0

    def __len__(self) -> int:
        return sum(len(kept) for kept in self._kept.values())

    def keep(self, checks: Iterable[Check]) -> None:
        """As many of *checks* as fit."""
        for check in checks:
            if self._size_bytes + len(check.records) <= KEPT_SIZE_MAX_BYTES:
                self._size_bytes += len(check.records)
                self._kept.setdefault(check.producer_group, deque()).append(check)

    def take(self, producer_group: str, count: int, now_ms: int) -> list[Check]:
        """At most *count* checks of *producer_group* that can still be answered; they are kept no longer."""
        self.drop_late(now_ms)
        kept = self._kept.get(producer_group)
        if kept is None:
            return []
        found = [kept.popleft() for _ in range(min(count, len(kept)))]
        self._size_bytes -= sum(len(check.records) for check in found)
        if not kept:
            del self._kept[producer_group]
        return found

    def drop_late(self, now_ms: int) -> None:
        """Forget what nobody could answer in time any more."""
        for producer_group, kept in list(self._kept.items()):
            left = deque(check for check in kept if check.claimed_until_ms >= now_ms + ANSWER_MIN_MS)
            self._size_bytes -= sum(len(check.records) for check in kept) - sum(len(check.records) for check in left)
            if left:
                self._kept[producer_group] = left
            else:
                del self._kept[producer_group]
