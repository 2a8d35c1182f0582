"""Checks that arrived without a waiting poll: kept for the next poll of their producer group while
it can answer.

Late or excess checks are dropped here and return by themselves: a broker group issues a check again
when its claim ends.
"""

from collections import deque
from collections.abc import Iterable

from tern_proxy.core.transactions.checks import Check
from tern_wire.limits import MIB

# Remaining time that a kept check must have for its answer.
ANSWER_MIN_MS = 2_000
KEPT_SIZE_MAX_BYTES = 8 * MIB


class UndeliveredChecks:
    """Kept checks by producer group, oldest first. Owner: the CheckPolls that made it.

    Times are wall time, as at the brokers.
    """

    def __init__(self) -> None:
        self._kept: dict[str, deque[Check]] = {}
        self._size_bytes = 0

    def __len__(self) -> int:
        return sum(len(kept) for kept in self._kept.values())

    def keep(self, checks: Iterable[Check]) -> None:
        """Keep as many of *checks* as fit."""
        for check in checks:
            if self._size_bytes + len(check.records) <= KEPT_SIZE_MAX_BYTES:
                self._size_bytes += len(check.records)
                self._kept.setdefault(check.producer_group, deque()).append(check)

    def take(self, producer_group: str, count: int, now_ms: int) -> list[Check]:
        """Remove and return at most *count* checks of *producer_group* that can be answered in
        time.
        """
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
        """Drop checks that can no longer be answered in time."""
        for producer_group, kept in list(self._kept.items()):
            left = deque(check for check in kept if check.claimed_until_ms >= now_ms + ANSWER_MIN_MS)
            self._size_bytes -= sum(len(check.records) for check in kept) - sum(len(check.records) for check in left)
            if left:
                self._kept[producer_group] = left
            else:
                del self._kept[producer_group]
