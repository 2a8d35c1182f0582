"""Java's `String.hashCode` of many texts at once: tag codes of consume queues, key hashes of index files.

A hash is the sum of unit[i] * 31^(n-1-i), modulo 2^32, read as signed. Texts are segments of one array, worked off in blocks,
so that the memory used does not depend on how many there are. Reference: java.lang.String; IndexFile.indexKeyHashMethod.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_wire.records.record import tag_hash

Numbers = npt.NDArray[np.int64]
# Units in one block: some 2 MB of temporary arrays, and no loop that the arrays do not pay for.
BLOCK_UNITS = 1 << 15
_FACTOR = 31
# ASCII is one byte and one UTF-16 unit; above it the two part ways.
_ASCII_MAX = 0x7F


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


def unit_hashes(units: npt.NDArray[Any], starts: Numbers, sizes: Numbers) -> Numbers:
    """The hash of each segment of *units* (UTF-16 units, or bytes if ASCII), shape as *starts*, sign-extended."""
    hashes = np.zeros(len(starts), np.uint32)
    for run in blocks(sizes):
        lengths = sizes[run]
        positions, within = unit_positions(starts[run], lengths)
        if not len(positions):
            continue
        powers = powers_of_31(int(lengths.max()))
        terms = units[positions].astype(np.uint32) * powers[np.repeat(lengths, lengths) - 1 - within]
        filled = np.flatnonzero(lengths)
        firsts = (np.cumsum(lengths) - lengths)[filled]
        hashes[run.start + filled] = np.add.reduceat(terms, firsts, dtype=np.uint32)
    return hashes.view(np.int32).astype(np.int64)


def text_hashes(data: npt.NDArray[np.uint8], starts: Numbers, sizes: Numbers) -> Numbers:
    """The hash of each UTF-8 segment of *data*: ASCII together, other texts one by one."""
    hashes = unit_hashes(data, starts, sizes)
    for at in np.flatnonzero(has_wide(data, starts, sizes)):
        text = data[starts[at] : starts[at] + sizes[at]].tobytes().decode("utf-8", "replace")
        hashes[at] = tag_hash(text)
    return hashes


def has_wide(data: npt.NDArray[np.uint8], starts: Numbers, sizes: Numbers) -> npt.NDArray[np.bool_]:
    """Whether each segment holds a byte that is not ASCII."""
    wide = np.zeros(len(starts), np.bool_)
    for run in blocks(sizes):
        lengths = sizes[run]
        filled = np.flatnonzero(lengths)
        if len(filled):
            found = data[unit_positions(starts[run], lengths)[0]] > _ASCII_MAX
            wide[run.start + filled] = np.logical_or.reduceat(found, (np.cumsum(lengths) - lengths)[filled])
    return wide


def powers_of_31(count: int) -> npt.NDArray[np.uint32]:
    """31^0 to 31^(count-1), modulo 2^32."""
    powers = np.full(max(count, 1), _FACTOR, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)


def slot_hash(text: str) -> int:
    """The hash under which an index file keeps *text* (`topic#key`): |hashCode|, 0 for the smallest int, which has none."""
    value = abs(tag_hash(text))
    return 0 if value > 0x7FFFFFFF else value
