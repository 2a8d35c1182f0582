"""Visited messages of one queue that wait for an earlier message of their message group.

A message is visited once: when the earlier one is settled, the next is available without a scan. 8
bytes and a bit each, independent of the number of message groups.

     message group -> | offset | offset | ... ascending
     page (offset / 1,024) -> bits of the offsets that wait in it
"""

from array import array
from bisect import insort
from collections.abc import Iterator
from typing import Any

from tern_wire.limits import FIFO_PARKED_PER_QUEUE_MAX

_PAGE_BITS = 10
_PAGE_MASK = (1 << _PAGE_BITS) - 1
# Taken offsets at the front of a line are freed when they are at least this many, and half of the
# line.
_SLACK = 32


class _Line:
    """The waiting offsets of one message group. Owner: Parked."""

    __slots__ = ("first", "offsets")

    def __init__(self, offsets: "array[int]") -> None:
        self.offsets = offsets
        self.first = 0

    def __len__(self) -> int:
        return len(self.offsets) - self.first

    def head(self) -> int:
        return self.offsets[self.first]

    def drop(self, count: int) -> None:
        self.first += count
        if self.first >= _SLACK and 2 * self.first >= len(self.offsets):
            del self.offsets[: self.first]
            self.first = 0


class Parked:
    """Waiting messages of one queue for one consumer group, at most FIFO_PARKED_PER_QUEUE_MAX.
    Owner: its FifoDelivery.
    """

    __slots__ = ("_lines", "_pages", "count")

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}
        # In order of their first offset, since offsets are added in ascending order.
        self._pages: dict[int, int] = {}
        self.count = 0

    def __contains__(self, offset: int) -> bool:
        return bool(self._pages.get(offset >> _PAGE_BITS, 0) >> (offset & _PAGE_MASK) & 1)

    @property
    def room(self) -> int:
        """How many more messages may wait."""
        return max(0, FIFO_PARKED_PER_QUEUE_MAX - self.count)

    def message_groups(self) -> Iterator[int]:
        """Iterate over the message groups with waiting messages."""
        return iter(self._lines)

    def append(self, message_group: int, offset: int) -> None:
        """Add *offset*, larger than all before, behind the others of its message group."""
        line = self._lines.get(message_group)
        if line is None:
            self._lines[message_group] = _Line(array("q", (offset,)))
        else:
            line.offsets.append(offset)
        page = offset >> _PAGE_BITS
        self._pages[page] = self._pages.get(page, 0) | 1 << (offset & _PAGE_MASK)
        self.count += 1

    def insert(self, message_group: int, offset: int) -> None:
        """Insert *offset* before all larger ones of its message group: it was settled, and is
        delivered again.
        """
        line = self._lines.get(message_group)
        if line is None:
            self._lines[message_group] = _Line(array("q", (offset,)))
        else:
            insort(line.offsets, offset, line.first)
        page = offset >> _PAGE_BITS
        if page not in self._pages:
            self._pages = {number: self._pages.get(number, 0) for number in sorted((*self._pages, page))}
        self._pages[page] |= 1 << (offset & _PAGE_MASK)
        self.count += 1

    def head(self, message_group: int) -> int | None:
        """Return the first waiting offset; None if there is none."""
        line = self._lines.get(message_group)
        return None if line is None else line.head()

    def take(self, message_group: int) -> int:
        """Remove and return the first waiting offset; KeyError if there is none."""
        line = self._lines[message_group]
        offset = line.head()
        line.drop(1)
        if not len(line):
            del self._lines[message_group]
        self._forget(offset)
        return offset

    def lowest(self) -> int | None:
        """Return the lowest waiting offset; None if there is none."""
        for page, bits in self._pages.items():
            return (page << _PAGE_BITS) + (bits & -bits).bit_length() - 1
        return None

    def drop_below(self, offset: int) -> tuple[int, list[int]]:
        """Drop waiting offsets below *offset*; return their number and the message groups that have
        none left.
        """
        lowest = self.lowest()
        if lowest is None or lowest >= offset:
            return 0, []
        before, ended = self.count, []
        for message_group, line in self._lines.items():
            while len(line) and line.head() < offset:
                self._forget(line.head())
                line.drop(1)
            if not len(line):
                ended.append(message_group)
        for message_group in ended:
            del self._lines[message_group]
        return before - self.count, ended

    def stretches(self) -> Iterator[tuple[int, int, int]]:
        """Yield all waiting offsets, ascending, in stretches of at most 1,024: start, count, bits.

        The first and the last bit are set.
        """
        for page, bits in self._pages.items():
            first = (bits & -bits).bit_length() - 1
            yield (page << _PAGE_BITS) + first, bits.bit_length() - first, bits >> first

    def clear(self) -> None:
        """Drop all parked messages."""
        self._lines.clear()
        self._pages.clear()
        self.count = 0

    def pack(self) -> list[list[Any]]:
        """Return a frozen copy: [message group, offsets (8 bytes each, little-endian)], in the
        order in which they began to wait.
        """
        return [[message_group, line.offsets[line.first :].tobytes()] for message_group, line in self._lines.items()]

    def unpack(self, packed: list[list[Any]]) -> None:
        """Restore the state from *packed*."""
        bits: dict[int, int] = {}
        for message_group, data in packed:
            offsets = array("q")
            offsets.frombytes(data)
            self._lines[message_group] = _Line(offsets)
            self.count += len(offsets)
            for offset in offsets:
                page = offset >> _PAGE_BITS
                bits[page] = bits.get(page, 0) | 1 << (offset & _PAGE_MASK)
        self._pages = {page: bits[page] for page in sorted(bits)}

    def _forget(self, offset: int) -> None:
        page = offset >> _PAGE_BITS
        bits = self._pages[page] & ~(1 << (offset & _PAGE_MASK))
        if bits:
            self._pages[page] = bits
        else:
            del self._pages[page]
        self.count -= 1
