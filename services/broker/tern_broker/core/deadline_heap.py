"""Items that come due at a time, earliest first: leases, rests, members. Its size is bounded by the
number of live items, however often a time changes.

Law: an item has one time. The order in which items come up depends on times and items alone, not on
earlier puts and removals, so it is the same on every node and after a load. A pair in the heap
whose time differs from the item's time is stale, and is skipped.
"""

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

# Items of one time come up in their own order.
Item = TypeVar("Item", bound=tuple[object, ...])
# Below this number of stale pairs a sweep is not worth its cost. It also keeps a small heap from
# being swept at every change.
STALE_MAX = 1_024


class DeadlineHeap(Generic[Item]):
    """Owner: the code that puts items in and removes them when they end."""

    __slots__ = ("_pairs", "_times")

    def __init__(self) -> None:
        self._times: dict[Item, int] = {}
        self._pairs: list[tuple[int, Item]] = []

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[Item]:
        """Iterate over all live items, in no meaningful order."""
        return iter(self._times)

    @property
    def pairs(self) -> int:
        """Number of pairs in the heap, stale ones included: a measure of its memory."""
        return len(self._pairs)

    def put(self, item: Item, at_ms: int) -> None:
        """Set the time of *item* to *at_ms*, in place of any earlier time."""
        if self._times.get(item) != at_ms:
            self._times[item] = at_ms
            heapq.heappush(self._pairs, (at_ms, item))
            self._sweep_if_due()

    def remove(self, item: Item) -> None:
        """Remove *item*, if it is present."""
        if self._times.pop(item, None) is not None:
            self._sweep_if_due()

    def first(self) -> tuple[int, Item] | None:
        """Return the earliest (time, item); None if there is none."""
        pairs, times = self._pairs, self._times
        while pairs:
            at_ms, item = pairs[0]
            if times.get(item) == at_ms:
                return pairs[0]
            heapq.heappop(pairs)
        return None

    def _sweep_if_due(self) -> None:
        # A sweep removes at least half of the pairs that it visits, so each change pays for its own
        # pair.
        if len(self._pairs) > 2 * len(self._times) + STALE_MAX:
            self._pairs = [(at_ms, item) for item, at_ms in self._times.items()]
            heapq.heapify(self._pairs)
