"""Java's `String.hashCode`: the sum of unit[i] * 31^(n-1-i), modulo 2^32, as a signed number.

For many texts in columns, the texts are segments of one array. They are hashed in blocks, so that
memory does not grow with their number.

Reference: java.lang.String; IndexFile.indexKeyHashMethod.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
# Units in one block: some 2 MB of temporary arrays, and large enough that arrays are faster than a
# loop.
BLOCK_UNITS = 1 << 15
_FACTOR = 31


def blocks(sizes: Numbers) -> Iterator[slice]:
    """Yield runs of segments with at most `BLOCK_UNITS` units together, or one larger segment."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + BLOCK_UNITS, "right")))
        # Empty segments cost rows of arrays, too.
        end = min(end, begin + BLOCK_UNITS)
        yield slice(begin, end)
        begin = end


def unit_positions(starts: Numbers, sizes: Numbers) -> tuple[Numbers, Numbers]:
    """Return the position of each unit of the segments, in order, and its place in its segment."""
    within = np.arange(int(sizes.sum()), dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(starts, sizes) + within, within


def powers_of_31(count: int) -> npt.NDArray[np.uint32]:
    """Return 31^0 to 31^(count-1), modulo 2^32."""
    powers = np.full(max(count, 1), _FACTOR, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)


def tag_hash(tag: str) -> int:
    """Return Java's `String.hashCode` of *tag* (over UTF-16 units), sign-extended; 0 for no tag.

    Reference: java.lang.String.
    """
    value = 0
    units = tag.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def slot_hash(text: str) -> int:
    """Return the hash of *text* (`topic#key`) in an index file: |hashCode|.

    0 for the smallest int, which has no absolute value.
    """
    value = abs(tag_hash(text))
    return 0 if value > 0x7FFFFFFF else value
