"""What comes due at a time, earliest first: leases, rests, members. Bounded by what is alive, however often a time changes.

Law: an item has one time. The order in which items come up depends on times and items alone, not on what was put or removed before, so
it is the same on every node and after a load. A pair in the heap that says another time than the item has is stale, and is skipped.
"""

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

# Items of one time come up in their own order.
Item = TypeVar("Item", bound=tuple[object, ...])
# So many stale pairs are too few to be worth a look at all of them; it is also what keeps a small heap from being swept at every change.
STALE_MAX = 1_024


class DeadlineHeap(Generic[Item]):
    """Owner: who puts items in, and removes them when they end."""

    __slots__ = ("_pairs", "_times")

    def __init__(self) -> None:
        self._times: dict[Item, int] = {}
        self._pairs: list[tuple[int, Item]] = []

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[Item]:
        """All that is alive, in no order that means anything."""
        return iter(self._times)

    @property
    def pairs(self) -> int:
        """How many pairs the heap holds, with the stale ones: what it costs of memory."""
        return len(self._pairs)

    def put(self, item: Item, at_ms: int) -> None:
        """*item* comes due at *at_ms*, whatever was said of it before."""
        if self._times.get(item) != at_ms:
            self._times[item] = at_ms
            heapq.heappush(self._pairs, (at_ms, item))
            self._sweep_if_due()

    def remove(self, item: Item) -> None:
        """*item* does not come due any more, if it was to."""
        if self._times.pop(item, None) is not None:
            self._sweep_if_due()

    def first(self) -> tuple[int, Item] | None:
        """The earliest (time, item); None if there is none."""
        pairs, times = self._pairs, self._times
        while pairs:
            at_ms, item = pairs[0]
            if times.get(item) == at_ms:
                return pairs[0]
            heapq.heappop(pairs)
        return None

    def _sweep_if_due(self) -> None:
        # Half of what is looked at goes at least, so each change pays for its own pair.
        if len(self._pairs) > 2 * len(self._times) + STALE_MAX:
            self._pairs = [(at_ms, item) for item, at_ms in self._times.items()]
            heapq.heapify(self._pairs)
