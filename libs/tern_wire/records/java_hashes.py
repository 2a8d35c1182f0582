"""Java's `String.hashCode`: the sum of unit[i] * 31^(n-1-i), modulo 2^32, read as signed; and what its columns are made of.

Many texts are segments of one array. They are worked off in blocks, so that the memory used does not depend on their number.
Reference: java.lang.String; IndexFile.indexKeyHashMethod.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
# Units in one block: some 2 MB of temporary arrays, and no loop that the arrays do not pay for.
BLOCK_UNITS = 1 << 15
_FACTOR = 31


def blocks(sizes: Numbers) -> Iterator[slice]:
    """Runs of segments with at most `BLOCK_UNITS` units together (or one segment that is larger)."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + BLOCK_UNITS, "right")))
        # Empty segments cost rows of arrays too.
        end = min(end, begin + BLOCK_UNITS)
        yield slice(begin, end)
        begin = end


def unit_positions(starts: Numbers, sizes: Numbers) -> tuple[Numbers, Numbers]:
    """Where each unit of the segments lies, segment after segment, and which place it has inside its own."""
    within = np.arange(int(sizes.sum()), dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(starts, sizes) + within, within


def powers_of_31(count: int) -> npt.NDArray[np.uint32]:
    """31^0 to 31^(count-1), modulo 2^32."""
    powers = np.full(max(count, 1), _FACTOR, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)


def tag_hash(tag: str) -> int:
    """Java's `String.hashCode` of *tag* (over UTF-16 units), sign-extended; 0 for no tag. Reference: java.lang.String."""
    value = 0
    units = tag.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def slot_hash(text: str) -> int:
    """The hash under which an index file keeps *text* (`topic#key`): |hashCode|, 0 for the smallest int, which has none."""
    value = abs(tag_hash(text))
    return 0 if value > 0x7FFFFFFF else value
