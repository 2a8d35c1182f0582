"""Assign offsets to messages: entries for queues, in any order, become appends. Serves sends and
commands that point at records stored earlier.
"""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.topics import Names
from tern_wire.link.rows import QUEUE_ENTRIES, QueueAppends

Numbers = npt.NDArray[np.int64]
_PLACE = struct.Struct(">qiq")
assert _PLACE.size == QUEUE_ENTRIES.itemsize


def append(names: Names, codes: Numbers, entries: npt.NDArray[Any]) -> tuple[QueueAppends, Numbers]:
    """Append *entries* (QUEUE_ENTRIES, at least one) to the existing queues *codes* (topic id << 32
    | queue).

    Return the appends and the offset of each entry. Entries of one queue keep their order.
    """
    count = len(codes)
    if count == 1 or (codes == codes[0]).all():
        (first,) = move_ends(names, [int(codes[0])], [count])
        appends = QueueAppends(codes[:1], np.array([first]), np.array([0, count]), entries)
        return appends, np.arange(first, first + count)
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    bounds = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1], [True])))
    queues, counts = codes[bounds[:-1]], np.diff(bounds)
    firsts = np.array(move_ends(names, queues.tolist(), counts.tolist()), np.int64)
    offsets = np.empty(count, np.int64)
    offsets[order] = np.arange(count) + np.repeat(firsts - bounds[:-1], counts)
    return QueueAppends(queues, firsts, bounds, entries[order]), offsets


def append_few(names: Names, codes: list[int], places: list[tuple[int, int, int]]) -> tuple[QueueAppends, list[int]]:
    """Append a few entries, given as (position, size, tag hash) each, without arrays, which cost
    more than they save here.

    Return the same as `append`.
    """
    count = len(codes)
    order = list(range(count))
    if count == 1 or codes.count(codes[0]) == count:
        queues, counts = codes[:1], [count]
    else:
        order.sort(key=codes.__getitem__)
        queues = sorted(set(codes))
        counts = [codes.count(code) for code in queues]
    firsts = move_ends(names, queues, counts)
    bounds, offsets = [0], [0] * count
    for first, behind in zip(firsts, counts, strict=True):
        begin = bounds[-1]
        for number in range(behind):
            offsets[order[begin + number]] = first + number
        bounds.append(begin + behind)
    entries = bytearray()
    for number in order:
        entries += _PLACE.pack(*places[number])
    return QueueAppends(
        np.array(queues), np.array(firsts), np.array(bounds), np.frombuffer(entries, QUEUE_ENTRIES)
    ), offsets


def move_ends(names: Names, codes: list[int], counts: list[int]) -> list[int]:
    """Extend each queue of *codes* by its count; return the first new offset of each."""
    firsts = []
    topic_id, ends = -1, [0]
    for code, count in zip(codes, counts, strict=True):
        if code >> 32 != topic_id:
            topic_id = code >> 32
            ends = names.topics_by_id[topic_id].ends
        queue = code & 0xFFFFFFFF
        firsts.append(ends[queue])
        ends[queue] += count
    return firsts


def distinct(values: npt.NDArray[Any]) -> list[int]:
    """Return the distinct values; the common case of one is found without sorting."""
    if len(values) and (values == values[0]).all():
        return [int(values[0])]
    return [int(value) for value in np.unique(values)]
