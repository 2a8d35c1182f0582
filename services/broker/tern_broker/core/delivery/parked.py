"""Messages of one queue that a consumer group has looked at and that wait for an earlier one of their message group.

Looked at once, never again: when the earlier one is settled, the next is at hand without a scan. 8 bytes and a bit each, however many
message groups there are.

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
# What was taken from the front of a line is given back to the allocator when it is at least this much, and half of the line.
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
    """What waits in one queue for one consumer group, at most FIFO_PARKED_PER_QUEUE_MAX offsets. Owner: its FifoDelivery."""

    __slots__ = ("_lines", "_pages", "count")

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}
        # In order of their first offset, since offsets come ascending.
        self._pages: dict[int, int] = {}
        self.count = 0

    def __contains__(self, offset: int) -> bool:
        return bool(self._pages.get(offset >> _PAGE_BITS, 0) >> (offset & _PAGE_MASK) & 1)

    @property
    def room(self) -> int:
        """How many more may wait."""
        return max(0, FIFO_PARKED_PER_QUEUE_MAX - self.count)

    def message_groups(self) -> Iterator[int]:
        """Those that wait."""
        return iter(self._lines)

    def append(self, message_group: int, offset: int) -> None:
        """*offset*, larger than every one before, waits behind the others of its message group."""
        line = self._lines.get(message_group)
        if line is None:
            self._lines[message_group] = _Line(array("q", (offset,)))
        else:
            line.offsets.append(offset)
        page = offset >> _PAGE_BITS
        self._pages[page] = self._pages.get(page, 0) | 1 << (offset & _PAGE_MASK)
        self.count += 1

    def insert(self, message_group: int, offset: int) -> None:
        """*offset* waits before all larger ones of its message group: it was settled, and is delivered again."""
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
        """The first that waits; None if none does."""
        line = self._lines.get(message_group)
        return None if line is None else line.head()

    def take(self, message_group: int) -> int:
        """Take out the first that waits; KeyError if none does."""
        line = self._lines[message_group]
        offset = line.head()
        line.drop(1)
        if not len(line):
            del self._lines[message_group]
        self._forget(offset)
        return offset

    def lowest(self) -> int | None:
        """The lowest offset that waits; None if none does."""
        for page, bits in self._pages.items():
            return (page << _PAGE_BITS) + (bits & -bits).bit_length() - 1
        return None

    def drop_below(self, offset: int) -> tuple[int, list[int]]:
        """Nothing below *offset* waits any more: how many did, and the message groups of which none waits now."""
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
        """Everything that waits, ascending, in stretches of at most 1,024 offsets: start, count, bits; the first and the last bit are set."""
        for page, bits in self._pages.items():
            first = (bits & -bits).bit_length() - 1
            yield (page << _PAGE_BITS) + first, bits.bit_length() - first, bits >> first

    def clear(self) -> None:
        """Nothing waits any more."""
        self._lines.clear()
        self._pages.clear()
        self.count = 0

    def pack(self) -> list[list[Any]]:
        """A frozen copy: [message group, offsets (8 bytes each, little-endian)], in the order in which they began to wait."""
        return [[message_group, line.offsets[line.first :].tobytes()] for message_group, line in self._lines.items()]

    def unpack(self, packed: list[list[Any]]) -> None:
        """Become what was packed."""
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
