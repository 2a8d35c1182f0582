"""Many of RocketMQ's records at once: the header fields and positions of a whole buffer as numpy columns.

A buffer is records end to end, of either version, with IPv4 or IPv6 hosts, mixed. Law: the columns say of each record what
`decode_rocketmq_record` says of it, refuse what that refuses, and take about as much memory as the smallest records do.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tern_wire.errors import LinkBodyMalformed
from tern_wire.records.java_hashes import Numbers, blocks, has_wide, powers_of_31, text_hashes, unit_positions
from tern_wire.records.record import HEAD_SIZE_BYTES, KEYS, MAGIC, MESSAGE_ID, TAGS, Bytes, record_starts
from tern_wire.records.rocketmq_record import (
    BORN_HOST_IPV6,
    HEADS,
    MAGIC_V2,
    PROPERTIES_SIZE_MAX_BYTES,
    STORE_HOST_IPV6,
    TOPIC_SIZE_MAX_BYTES,
    decode_rocketmq_record,
)

# The part of the header whose place does not depend on the hosts' sizes ...
FRONT = np.dtype(
    [
        *(("size", ">u4"), ("magic", ">u4"), ("body_crc", ">u4"), ("queue", ">u4"), ("flag", ">i4")),
        *(("queue_offset", ">i8"), ("position", ">i8"), ("sysflag", ">i4"), ("born_ms", ">i8")),
    ]
)
# ... and the one behind the store host.
BACK = np.dtype([("attempts", ">i4"), ("prepared_position", ">i8"), ("body_size", ">u4")])
_HOST_GROWTH_BYTES = (HEADS[BORN_HOST_IPV6].size - HEAD_SIZE_BYTES, HEADS[STORE_HOST_IPV6].size - HEAD_SIZE_BYTES)
_HOST_SIZE_BYTES = HEAD_SIZE_BYTES - FRONT.itemsize - 8 - BACK.itemsize >> 1
_SEPARATOR, _PAIR, _SPACE = 0x02, 0x01, 0x20

assert FRONT.itemsize + BACK.itemsize + 8 + 2 * _HOST_SIZE_BYTES == HEAD_SIZE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """Columns of n records; all have shape (n,). *front* and *back* are structured as FRONT and BACK, big-endian.

    Starts are positions in *data*; sizes are bytes.
    """

    data: npt.NDArray[np.uint8]
    starts: Numbers
    front: npt.NDArray[Any]
    stored_ms: Numbers
    back: npt.NDArray[Any]
    body_starts: Numbers
    topic_starts: Numbers
    topic_sizes: Numbers
    property_starts: Numbers
    property_sizes: Numbers

    def __len__(self) -> int:
        return len(self.starts)


def read_columns(buffer: Bytes) -> RecordColumns:
    """The columns of the records that fill *buffer*; RecordMalformed, with the position, for the first that is not sound."""
    data = np.frombuffer(buffer, np.uint8)
    try:
        starts = record_starts(buffer)
    except LinkBodyMalformed:
        _refuse(buffer)
    front = _rows(data, starts, FRONT)
    ends = starts + front["size"]
    second = front["magic"] == MAGIC_V2
    version = 1 + second
    born_growth = np.where(front["sysflag"] & BORN_HOST_IPV6, _HOST_GROWTH_BYTES[0], 0)
    growth = born_growth + np.where(front["sysflag"] & STORE_HOST_IPV6, _HOST_GROWTH_BYTES[1], 0)
    body_starts = starts + HEAD_SIZE_BYTES + growth
    # Each check makes it safe to read what the next one looks at.
    if ((front["magic"] != MAGIC) & ~second | (body_starts + version + 2 > ends)).any():
        _refuse(buffer)
    stored_ms = _rows(data, starts + (FRONT.itemsize + _HOST_SIZE_BYTES) + born_growth, np.dtype(">i8")).astype(
        np.int64
    )
    back = _rows(data, body_starts - BACK.itemsize, BACK)
    topic_starts = body_starts + back["body_size"] + version
    if (topic_starts + 2 > ends).any():
        _refuse(buffer)
    topic_sizes = data[topic_starts - 1].astype(np.int64)
    topic_sizes[second] += data[topic_starts[second] - 2].astype(np.int64) << 8
    property_starts = topic_starts + topic_sizes + 2
    too_long = topic_sizes > np.where(second, TOPIC_SIZE_MAX_BYTES[2], TOPIC_SIZE_MAX_BYTES[1])
    if (too_long | (property_starts > ends)).any():
        _refuse(buffer)
    property_sizes = data[property_starts - 2].astype(np.int64) << 8 | data[property_starts - 1]
    if ((property_sizes > PROPERTIES_SIZE_MAX_BYTES) | (property_starts + property_sizes != ends)).any():
        _refuse(buffer)
    return RecordColumns(
        data=data,
        starts=starts,
        front=front,
        stored_ms=stored_ms,
        back=back,
        body_starts=body_starts,
        topic_starts=topic_starts,
        topic_sizes=topic_sizes,
        property_starts=property_starts,
        property_sizes=property_sizes,
    )


def property_values(columns: RecordColumns, *names: str) -> list[tuple[Numbers, Numbers]]:
    """For each of *names*, where its value starts in each record and how long it is (0 where there is none)."""
    found = [(np.zeros(len(columns), np.int64), np.zeros(len(columns), np.int64)) for _ in names]
    for run in blocks(columns.property_sizes):
        items = _split(columns.data, columns.property_starts[run], columns.property_sizes[run], _SEPARATOR)
        for name, (starts, sizes) in zip(names, found, strict=True):
            mark = np.frombuffer(name.encode() + bytes((_PAIR,)), np.uint8)
            owners, begins, lengths = (column[items[2] > len(mark)] for column in items)
            for at, unit in enumerate(mark):
                same = columns.data[begins + at] == unit
                owners, begins, lengths = owners[same], begins[same], lengths[same]
            # Of equal names the last one counts, and of equal places the last assignment.
            starts[run.start + owners] = begins + len(mark)
            sizes[run.start + owners] = lengths - len(mark)
    return found


def tag_codes(columns: RecordColumns) -> Numbers:
    """What a consume-queue entry of each record holds as its tag code: Java's hash of TAGS, 0 without."""
    ((starts, sizes),) = property_values(columns, TAGS)
    return text_hashes(columns.data, starts, sizes)


def key_hashes(columns: RecordColumns) -> tuple[Numbers, Numbers]:
    """Under which hashes an index file finds each record: its number (ascending) and the hash, shape (m,) each.

    RocketMQ's order: `topic#UNIQ_KEY`, `topic#key` for each of KEYS, `topic#T#tag`. Which records are indexed at all says
    `index_layout.is_indexed`.
    """
    ids, keys, tags = property_values(columns, MESSAGE_ID, KEYS, TAGS)
    topics = text_hashes(columns.data, columns.topic_starts, columns.topic_sizes)
    prefixes = (topics * 31 + ord("#")).astype(np.uint32)
    tag_prefixes = (prefixes * 31 + ord("T")) * 31 + ord("#")
    parts = [_present(ids, prefixes)]
    for run in blocks(keys[1]):
        owners, starts, sizes = _split(columns.data, keys[0][run], keys[1][run], _SPACE)
        parts.append((owners + run.start, starts, sizes, prefixes[owners + run.start]))
    parts.append(_present(tags, tag_prefixes))
    owners = np.concatenate([part[0] for part in parts])
    order = np.argsort(owners, kind="stable")
    starts, sizes, before = (np.concatenate([part[column] for part in parts])[order] for column in (1, 2, 3))
    # hash(prefix + key) = hash(prefix) * 31^(units of key) + hash(key)
    units = _utf16_units(columns.data, starts, sizes)
    powers = powers_of_31(int(units.max(initial=0)) + 1)[units]
    values = before * powers + text_hashes(columns.data, starts, sizes).astype(np.uint32)
    hashes = np.abs(values.view(np.int32).astype(np.int64))
    hashes[hashes > np.iinfo(np.int32).max] = 0
    return owners[order], hashes


def _present(
    values: tuple[Numbers, Numbers], prefixes: npt.NDArray[np.uint32]
) -> tuple[Numbers, Numbers, Numbers, npt.NDArray[np.uint32]]:
    having = np.flatnonzero(values[1])
    return having, values[0][having], values[1][having], prefixes[having]


def _rows(data: npt.NDArray[np.uint8], starts: Numbers, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """`kind` read at each of *starts*: windows of a view, so that no matrix of positions is made."""
    if not len(starts):
        return np.zeros(0, kind)
    windows = np.lib.stride_tricks.sliding_window_view(data, kind.itemsize)
    return np.ascontiguousarray(windows[starts]).view(kind).reshape(-1)


def _refuse(buffer: Bytes) -> NoReturn:
    """Find the unsound record again, one at a time, for the error that says where and why."""
    at = 0
    while True:
        at += decode_rocketmq_record(buffer, at).size_bytes


def _split(
    data: npt.NDArray[np.uint8], starts: Numbers, sizes: Numbers, separator: int
) -> tuple[Numbers, Numbers, Numbers]:
    """The pieces between separators that are not empty: number of their segment, start and size, in order."""
    positions, within = unit_positions(starts, sizes)
    owners = np.repeat(np.arange(len(starts), dtype=np.int64), sizes)
    inside = data[positions] != separator
    first = inside & ((within == 0) | ~np.concatenate((np.zeros(1, np.bool_), inside[:-1])))[: len(inside)]
    last = inside & (
        (within + 1 == sizes[owners]) | ~np.concatenate((inside[1:], np.zeros(1, np.bool_)))[: len(inside)]
    )
    begins = positions[first]
    return owners[first], begins, positions[last] + 1 - begins


def _utf16_units(data: npt.NDArray[np.uint8], starts: Numbers, sizes: Numbers) -> Numbers:
    """How many UTF-16 units each UTF-8 segment has."""
    units = sizes.copy()
    for at in np.flatnonzero(has_wide(data, starts, sizes)):
        text = data[starts[at] : starts[at] + sizes[at]].tobytes().decode("utf-8", "replace")
        units[at] = len(text.encode("utf-16-be")) // 2
    return units
