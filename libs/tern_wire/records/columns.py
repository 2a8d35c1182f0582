"""Columns of many records, with numpy: starts, fields of the heads, topics and properties.

Records may be of either version, with IPv4 or IPv6 hosts, mixed. Law: for each record the columns
have the values of `decode_rocketmq_record` and refuse what it refuses. They take about as much
memory as the smallest records do. The layout is drawn in `layout.py`.
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
    """Columns of n records; all have shape (n,).

    Starts are positions in *data* and its *octets*; sizes are bytes. *heads* are HEAD_ROWS,
    big-endian, for every kind of hosts.
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
        """The start of each body."""
        body_starts: Numbers = self.topic_starts - 1 - (self.heads["magic"] == MAGIC_V2) - self.heads["body_size"]
        return body_starts

    @property
    def stamp_starts(self) -> Numbers:
        """The position of each store time."""
        return self.starts + AT_STORE_STAMP + _growth(self.heads["sysflag"], BORN_HOST_IPV6)


def record_starts(data: Bytes) -> Numbers:
    """Return the start of each of the concatenated records, shape (n,).

    LinkBodyMalformed when the records do not fill *data*.
    """
    starts: list[int] = []
    at, end = 0, len(data)
    unpack, append, last = SIZE.unpack_from, starts.append, end - OVERHEAD_SIZE_BYTES
    while at <= last:
        append(at)
        (size,) = unpack(data, at)
        if size < OVERHEAD_SIZE_BYTES:
            raise LinkBodyMalformed(reason=f"a record at {at} claims {size} bytes")
        at += size
    if at < end:
        raise LinkBodyMalformed(reason=f"a record at {at} runs past {end} bytes")
    if at > end:
        raise LinkBodyMalformed(reason=f"the last record runs past {end} bytes")
    return np.array(starts, dtype=np.int64)


def is_whole(data: Bytes, starts: Numbers, sizes: Numbers) -> bool:
    """Whether a record of the given size begins at each of *starts*, as its head states."""
    if not len(starts):
        return not len(data)
    heads = windows(data, _SIZE_AND_MAGIC)[starts].view(">u4").reshape(-1, 2)
    return bool((heads[:, 0] == sizes).all() and (heads[:, 1] == MAGIC).all())


def read_columns(buffer: Bytes) -> RecordColumns:
    """Return the columns of the records that fill *buffer*.

    RecordMalformed for the first unsound record, with its position.
    """
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
    """Return the columns of the records that begin at *starts* of *data*, in any order.

    RecordMalformed when the sizes of a record do not add up. Sizes of topics and properties may be
    larger than Java reads them.
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


def heads_of(data: Bytes) -> bytes:
    """Return the heads of the records that fill *data*, one behind the other: HEAD_ROWS each, for
    every kind of hosts. RecordMalformed.
    """
    return columns_at(data, record_starts(data)).heads.tobytes()


def read_heads(data: Bytes) -> npt.NDArray[Any]:
    """Return what `heads_of` has made, as HEAD_ROWS, shape (n,). LinkBodyMalformed."""
    if len(data) % HEAD_SIZE_BYTES:
        raise LinkBodyMalformed(reason=f"{len(data)} bytes are no whole number of heads")
    heads = np.frombuffer(data, HEAD_ROWS)
    is_sound = np.isin(heads["magic"], (MAGIC, MAGIC_V2)) & (heads["size"] >= OVERHEAD_SIZE_BYTES)
    if not is_sound.all():
        raise LinkBodyMalformed(reason=f"no head of a record at {int(is_sound.argmin()) * HEAD_SIZE_BYTES}")
    return heads


def property_bounds(data: Bytes, starts: Numbers) -> tuple[Numbers, Numbers]:
    """Return the starts and ends, in *data*, of the properties of the records at *starts*.

    LinkBodyMalformed when a record does not lie wholly in *data*.
    """
    if not len(starts):
        return starts, starts
    try:
        _, ends, _, property_starts = _locate(data, np.frombuffer(data, np.uint8), starts)
    except RecordMalformed as error:
        raise LinkBodyMalformed(reason=f"no whole record at {error.fields['position']}") from error
    return property_starts, ends


def _locate(data: Bytes, octets: Octets, starts: Numbers) -> tuple[npt.NDArray[Any], Numbers, Numbers, Numbers]:
    """Return heads, ends of records, starts of topics and starts of properties.

    RecordMalformed unless topic and properties begin inside their record, and the record lies
    inside *data*.
    """
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
    # A read behind a record's end yields properties that begin behind the end, too.
    if ends.max() > room or (property_starts > ends).any():
        _refuse(data, starts)
    return heads, ends, topic_starts, property_starts


def windows(data: Bytes | Octets, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return `kind` at every byte of *data*, overlapping.

    Indexed by starts, it gathers without a matrix of positions.
    """
    return np.ndarray((len(data) - kind.itemsize + 1,), kind, data, 0, (1,))


def _unfold(octets: Octets, starts: Numbers, heads: npt.NDArray[Any], body_starts: Numbers) -> None:
    """Move the fields behind longer hosts to their places in HEAD_ROWS."""
    longer = np.flatnonzero(heads["sysflag"] & HOSTS_IPV6)
    stamps = starts + AT_STORE_STAMP + _growth(heads["sysflag"], BORN_HOST_IPV6)
    heads["stored_ms"][longer] = windows(octets, _LONG)[stamps[longer]]
    back = windows(octets, _BACK)[body_starts[longer] - _BACK.itemsize].view(np.uint8)
    heads.view(np.uint8).reshape(-1, HEAD_SIZE_BYTES)[longer, AT_BACK:] = back.reshape(-1, _BACK.itemsize)


def _growth(sysflags: npt.NDArray[Any], hosts: int) -> Numbers:
    """The total excess in bytes of *hosts* over IPv4 hosts, for each record."""
    growth = np.zeros(len(sysflags), np.int64)
    for host in (BORN_HOST_IPV6, STORE_HOST_IPV6):
        if hosts & host:
            growth += np.where(sysflags & host, HOST_GROWTH_BYTES, 0)
    return growth


def _refuse(data: Bytes, starts: Numbers) -> NoReturn:
    """Decode the records one by one, for the error with the position and the reason."""
    for start in starts.tolist():
        decode_rocketmq_record(data, start)
    raise RecordMalformed(position=int(starts[0]), reason="no record whose sizes add up begins here")


def _refuse_first(buffer: Bytes) -> NoReturn:
    """Decode the records that fill *buffer* one by one, for the error of the first unsound one."""
    at = 0
    while True:
        at += decode_rocketmq_record(buffer, at).size_bytes
