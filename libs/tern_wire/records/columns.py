"""Many records at once, with numpy: where each begins, its head's fields, its topic and its properties.

Records may be of either version, with IPv4 or IPv6 hosts, mixed. Law: the columns say of each record what
`decode_rocketmq_record` says of it, refuse what that refuses, and take about as much memory as the smallest records do.
The layout is drawn in `layout.py`.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tern_wire.errors import LinkBodyMalformed, RecordMalformed
from tern_wire.records.java_hashes import Numbers
from tern_wire.records.layout import (
    AT_BACK,
    AT_STORE_STAMP,
    BORN_HOST_IPV6,
    HEAD_ROWS,
    HEAD_SIZE_BYTES,
    HOST_GROWTH_BYTES,
    HOSTS_IPV6,
    MAGIC,
    MAGIC_V2,
    OVERHEAD_SIZE_BYTES,
    PROPERTIES_SIZE_MAX_BYTES,
    SIZE,
    STORE_HOST_IPV6,
    TOPIC_SIZE_MAX_BYTES,
    Bytes,
)
from tern_wire.records.read import decode_rocketmq_record

Octets = npt.NDArray[np.uint8]
_HEAD = np.dtype(f"V{HEAD_SIZE_BYTES}")
_BACK = np.dtype(f"V{HEAD_SIZE_BYTES - AT_BACK}")
_SIZE_AND_MAGIC, _SHORT, _LONG = np.dtype("V8"), np.dtype(">u2"), np.dtype(">i8")


@dataclass(slots=True)
class RecordColumns:
    """Columns of n records; all have shape (n,). Starts are positions in *data* and its *octets*; sizes are bytes.

    *heads* are HEAD_ROWS, big-endian, whatever hosts the records have.
    """

    data: Bytes
    octets: Octets
    starts: Numbers
    heads: npt.NDArray[Any]
    topic_starts: Numbers
    topic_sizes: Numbers
    property_starts: Numbers
    property_sizes: Numbers

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def body_starts(self) -> Numbers:
        """Where each body begins."""
        body_starts: Numbers = self.topic_starts - 1 - (self.heads["magic"] == MAGIC_V2) - self.heads["body_size"]
        return body_starts

    @property
    def stamp_starts(self) -> Numbers:
        """Where each store time lies."""
        return self.starts + AT_STORE_STAMP + _growth(self.heads["sysflag"], BORN_HOST_IPV6)


def record_starts(data: Bytes) -> Numbers:
    """Where each of the concatenated records begins, shape (n,); LinkBodyMalformed when they do not fill *data*."""
    starts: list[int] = []
    at, end = 0, len(data)
    unpack = SIZE.unpack_from
    while at < end:
        if end - at < OVERHEAD_SIZE_BYTES:
            raise LinkBodyMalformed(reason=f"a record at {at} runs past {end} bytes")
        starts.append(at)
        size = unpack(data, at)[0]
        if size < OVERHEAD_SIZE_BYTES:
            raise LinkBodyMalformed(reason=f"a record at {at} claims {size} bytes")
        at += size
    if at != end:
        raise LinkBodyMalformed(reason=f"the last record runs past {end} bytes")
    return np.array(starts, dtype=np.int64)


def is_whole(data: Bytes, starts: Numbers, sizes: Numbers) -> bool:
    """Whether at every one of *starts* lies a record of just that many bytes (its head says so)."""
    if not len(starts):
        return not len(data)
    heads = windows(data, _SIZE_AND_MAGIC)[starts].view(">u4").reshape(-1, 2)
    return bool((heads[:, 0] == sizes).all() and (heads[:, 1] == MAGIC).all())


def read_columns(buffer: Bytes) -> RecordColumns:
    """The columns of the records that fill *buffer*; RecordMalformed, with the position, for the first that is not sound."""
    try:
        starts = record_starts(buffer)
    except LinkBodyMalformed:
        _refuse_first(buffer)
    columns = columns_at(buffer, starts)
    second = columns.heads["magic"] == MAGIC_V2
    too_long = columns.topic_sizes > np.where(second, TOPIC_SIZE_MAX_BYTES[2], TOPIC_SIZE_MAX_BYTES[1])
    if (too_long | (columns.property_sizes > PROPERTIES_SIZE_MAX_BYTES)).any():
        _refuse_first(buffer)
    return columns


def columns_at(data: Bytes, starts: Numbers) -> RecordColumns:
    """The columns of the records that begin at *starts* of *data*, in any order; RecordMalformed when one's sizes do not add up.

    Sizes of topics and properties may be larger than Java reads them.
    """
    octets = np.frombuffer(data, np.uint8)
    if not len(starts):
        none = np.zeros(0, np.int64)
        return RecordColumns(data, octets, none, np.zeros(0, HEAD_ROWS), none, none, none, none)
    heads, ends, topic_starts, property_starts = _locate(data, octets, starts)
    topic_sizes = property_starts - 2 - topic_starts
    property_sizes = windows(octets, _SHORT)[property_starts - 2].astype(np.int64)
    if (property_starts + property_sizes != ends).any():
        _refuse(data, starts)
    return RecordColumns(data, octets, starts, heads, topic_starts, topic_sizes, property_starts, property_sizes)


def property_bounds(data: Bytes, starts: Numbers) -> tuple[Numbers, Numbers]:
    """Where in *data* the properties of the records at *starts* begin and end; LinkBodyMalformed when a record is not whole there."""
    if not len(starts):
        return starts, starts
    try:
        _, ends, _, property_starts = _locate(data, np.frombuffer(data, np.uint8), starts)
    except RecordMalformed as error:
        raise LinkBodyMalformed(reason=f"no whole record at {error.fields['position']}") from error
    return property_starts, ends


def _locate(data: Bytes, octets: Octets, starts: Numbers) -> tuple[npt.NDArray[Any], Numbers, Numbers, Numbers]:
    """Heads, ends, where topics and where properties begin. RecordMalformed unless they begin inside their record, and it in *data*."""
    room = len(octets)
    if starts.min() < 0 or room < OVERHEAD_SIZE_BYTES:
        _refuse(data, starts)
    try:
        heads = windows(octets, _HEAD)[starts].view(HEAD_ROWS)
        ends: Numbers = starts + heads["size"]
        second: npt.NDArray[np.bool_] = heads["magic"] != MAGIC
        if second.any() or np.bitwise_or.reduce(heads["sysflag"]) & HOSTS_IPV6:
            body_starts = starts + HEAD_SIZE_BYTES + _growth(heads["sysflag"], HOSTS_IPV6)
            if (second & (heads["magic"] != MAGIC_V2)).any():
                _refuse(data, starts)
            _unfold(octets, starts, heads, body_starts)
            topic_starts: Numbers = body_starts + heads["body_size"] + 1 + second
            property_starts: Numbers = topic_starts + 2 + octets[topic_starts - 1]
            property_starts[second] += octets[topic_starts[second] - 2].astype(np.int64) << 8
        else:
            topic_starts = starts + (HEAD_SIZE_BYTES + 1) + heads["body_size"]
            property_starts = topic_starts + 2 + octets[topic_starts - 1]
    except IndexError:
        _refuse(data, starts)
    # Whatever was read from behind a record's end makes its properties begin there, too.
    if ends.max() > room or (property_starts > ends).any():
        _refuse(data, starts)
    return heads, ends, topic_starts, property_starts


def windows(data: Bytes | Octets, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """`kind` at every byte of *data*, overlapping: indexed by starts it gathers without a matrix of positions."""
    return np.ndarray((len(data) - kind.itemsize + 1,), kind, data, 0, (1,))


def _unfold(octets: Octets, starts: Numbers, heads: npt.NDArray[Any], body_starts: Numbers) -> None:
    """What lies behind longer hosts is put where HEAD_ROWS has it."""
    longer = np.flatnonzero(heads["sysflag"] & HOSTS_IPV6)
    stamps = starts + AT_STORE_STAMP + _growth(heads["sysflag"], BORN_HOST_IPV6)
    heads["stored_ms"][longer] = windows(octets, _LONG)[stamps[longer]]
    back = windows(octets, _BACK)[body_starts[longer] - _BACK.itemsize].view(np.uint8)
    heads.view(np.uint8).reshape(-1, HEAD_SIZE_BYTES)[longer, AT_BACK:] = back.reshape(-1, _BACK.itemsize)


def _growth(sysflags: npt.NDArray[Any], hosts: int) -> Numbers:
    """How many bytes longer than IPv4's those of the two *hosts* are, together."""
    growth = np.zeros(len(sysflags), np.int64)
    for host in (BORN_HOST_IPV6, STORE_HOST_IPV6):
        if hosts & host:
            growth += np.where(sysflags & host, HOST_GROWTH_BYTES, 0)
    return growth


def _refuse(data: Bytes, starts: Numbers) -> NoReturn:
    """Find the unsound record again, one at a time, for the error that says where and why."""
    for start in starts.tolist():
        decode_rocketmq_record(data, start)
    raise RecordMalformed(position=int(starts[0]), reason="no record whose sizes add up begins here")


def _refuse_first(buffer: Bytes) -> NoReturn:
    """The same of records that fill *buffer*."""
    at = 0
    while True:
        at += decode_rocketmq_record(buffer, at).size_bytes
