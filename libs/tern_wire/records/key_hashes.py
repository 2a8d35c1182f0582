r"""The hashes of many records in an index file, and their tag codes.

An index file keeps `topic#UNIQ_KEY`, `topic#key` and `topic#T#tag`.

    UNIQ_KEY \x01 32 characters \x02 | KEYS \x01 word space word ... \x02 | TAGS \x01 tag \x02 | ...

Our own proxy writes properties in this form, with an id of fixed width first: one gather reads the
ids of a whole entry. All other properties are joined, and the hash of any text in them is a
difference of two running sums: with S[i] the sum of byte[k] * 31^-k for k < i, the text from b to e
has the hash (S[e] - S[b]) * 31^(e-1), modulo 2^32, where 31 has an inverse. Texts that are not
ASCII are hashed one by one.

Reference: Apache RocketMQ 5, IndexService.buildIndex, IndexFile.indexKeyHashMethod.
"""

import struct
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tern_wire.array_thresholds import PROPERTIES_ONE_BY_ONE_MAX_BYTES, RECORDS_ONE_BY_ONE_MAX
from tern_wire.records.columns import Octets, RecordColumns, columns_at, windows
from tern_wire.records.index_layout import is_indexed
from tern_wire.records.java_hashes import BLOCK_UNITS, Numbers, blocks, powers_of_31, tag_hash
from tern_wire.records.layout import (
    AT_BODY_SIZE,
    AT_SYSFLAG,
    HEAD_SIZE_BYTES,
    HOSTS_IPV6,
    MAGIC,
    OVERHEAD_SIZE_BYTES,
    TRANSACTION,
    Bytes,
)
from tern_wire.records.properties import KEYS, MESSAGE_ID, TAGS

Hashes = npt.NDArray[np.int32]
_Sums = npt.NDArray[np.uint32]
_Prefix = TypeVar("_Prefix", int, npt.NDArray[np.uint32])
# Texts: number of the record, start of the text, end of the text.
_Texts = tuple[Numbers, Numbers, Numbers]

_ID, _KEYS, _TAGS = MESSAGE_ID.encode(), KEYS.encode(), TAGS.encode()
_SIZE_AND_MAGIC, _NUMBER = struct.Struct(">II"), struct.Struct(">I")
_UNUSUAL = HOSTS_IPV6 | TRANSACTION
_PAIR, _SEPARATOR, _SPACE, _ASCII_MAX = 0x01, 0x02, 0x20, 0x7F
_ID_SIZE_BYTES = 32
_ID_NAME = np.frombuffer(f"{MESSAGE_ID}\x01".encode(), np.uint8)
_ID_AT = len(_ID_NAME)
_ID_PROPERTY_SIZE_BYTES = _ID_AT + _ID_SIZE_BYTES + 1
_ID_ROW, _WORD = np.dtype(f"V{_ID_PROPERTY_SIZE_BYTES}"), np.dtype(">u8")
# The longest prefix of a name that is compared at once: so many bytes may be read behind the last
# property.
_NAME_SIZE_BYTES = 8
# `blocks` yields at most that many bytes and rows; each row gets a separator.
_UNITS_MAX = 2 * BLOCK_UNITS + _NAME_SIZE_BYTES
_POWERS = powers_of_31(_UNITS_MAX)
_INVERSES = np.full(_UNITS_MAX, pow(31, -1, 1 << 32), np.uint32)
_INVERSES[0] = 1
_INVERSES = np.multiply.accumulate(_INVERSES, dtype=np.uint32)
# Exact as doubles, which multiply faster: 32 characters below 2^7 times powers below 2^32 stay
# below 2^53.
_ID_POWERS = _POWERS[:_ID_SIZE_BYTES][::-1].astype(np.float64)
_ID_FACTOR = _POWERS[_ID_SIZE_BYTES]


def hash_keys(data: Bytes, starts: Numbers, topic: bytes, *, tags: bool = False) -> tuple[Numbers, Hashes]:
    """Return record numbers, ascending, and hashes; shape (m,) each.

    The records begin at *starts* of *data* and all are of *topic*. The hashes of a record are in
    RocketMQ's order: its UNIQ_KEY, the words of KEYS, and with *tags* its tag. Rolled-back half
    messages have none. RecordMalformed for an unsound record, with the position in *data*.
    """
    if len(starts) <= RECORDS_ONE_BY_ONE_MAX:
        few = hash_few(data, starts.tolist(), topic, tags=tags)
        if few is not None:
            return np.array(few[0], np.int64), np.array(few[1], np.int32)
    return hash_columns(columns_at(data, starts), topic, tags=tags)


def hash_columns(columns: RecordColumns, topic: bytes | None = None, *, tags: bool = True) -> tuple[Numbers, Hashes]:
    """Return the result of `hash_keys` for records of one *topic*, or each of its own (None)."""
    data, begins, sizes, sysflags = (
        columns.data,
        columns.property_starts,
        columns.property_sizes,
        columns.heads["sysflag"],
    )
    prefixes = _topic_prefixes(columns) if topic is None else np.array([_prefix_hash(topic)], np.uint32)
    indexed = None
    if (sysflags & TRANSACTION).any():
        indexed = np.flatnonzero(is_indexed(sysflags))
        begins, sizes, prefixes = begins[indexed], sizes[indexed], _of(prefixes, indexed)
    ids = _leading_ids(columns.octets, begins, sizes, prefixes)
    parts = []
    if ids is not None:
        parts.append((np.arange(len(begins), dtype=np.int64), ids))
        begins, sizes = begins + _ID_PROPERTY_SIZE_BYTES, sizes - _ID_PROPERTY_SIZE_BYTES
    if sizes.any():
        more = _all_keys(data, begins, sizes, prefixes, tags=tags, repeats_ids=ids is not None)
        if more is None:
            # A second UNIQ_KEY, of which the last one counts: only tests write that.
            begins, sizes = begins - _ID_PROPERTY_SIZE_BYTES, sizes + _ID_PROPERTY_SIZE_BYTES
            parts = _all_keys(data, begins, sizes, prefixes, tags=tags) or []
        else:
            parts += more
    owners, hashes = parts[0] if len(parts) == 1 else _in_order(parts)
    return (owners if indexed is None else indexed[owners]), hashes


def tag_codes(columns: RecordColumns) -> Numbers:
    """Return the tag code of each record in a consume queue: Java's hash of TAGS, 0 without."""
    codes = np.zeros(len(columns), np.int64)
    for run in blocks(columns.property_sizes):
        items = _Items(columns.data, columns.property_starts[run], columns.property_sizes[run])
        texts = items.values(TAGS)
        codes[run.start + texts[0]] = items.hashes(texts).view(np.int32)
    return codes


# A few, one by one --------------------------------------------------------------------------------
def hash_few(data: Bytes, starts: list[int], topic: bytes, *, tags: bool = False) -> tuple[list[int], list[int]] | None:
    """Return the result of `hash_keys` by a loop over records of the form that our proxy writes.

    None if a record has another form, is unsound, or the properties are long.
    """
    prefix, room = _prefix_hash(topic), PROPERTIES_ONE_BY_ONE_MAX_BYTES
    owners: list[int] = []
    hashes: list[int] = []
    for number, start in enumerate(starts):
        text = _plain_properties(data, start)
        if text is None or len(text) > room:
            return None
        room -= len(text)
        values: dict[bytes, bytes] = {}
        for item in text.split(b"\x02"):
            name, _, value = item.partition(b"\x01")
            if value:
                values[name] = value
        keys = [(prefix, values.get(_ID, b"")), *((prefix, word) for word in values.get(_KEYS, b"").split(b" "))]
        if tags:
            keys.append((_tag_prefix(prefix), values.get(_TAGS, b"")))
        for before, key in keys:
            if key:
                owners.append(number)
                hashes.append(_few_hash(before, key))
    return owners, hashes


def _plain_properties(data: Bytes, start: int) -> bytes | None:
    """Return the properties of a plain record, None for any other.

    A plain record is sound, of version 1 with IPv4 hosts, in no transaction, and has ASCII
    properties only.
    """
    if start < 0 or start + OVERHEAD_SIZE_BYTES > len(data):
        return None
    size, magic = _SIZE_AND_MAGIC.unpack_from(data, start)
    end, body_size = start + size, _NUMBER.unpack_from(data, start + AT_BODY_SIZE)[0]
    topic_at = start + HEAD_SIZE_BYTES + body_size + 1
    if (
        magic != MAGIC
        or _NUMBER.unpack_from(data, start + AT_SYSFLAG)[0] & _UNUSUAL
        or topic_at + 2 > end
        or end > len(data)
    ):
        return None
    begin = topic_at + data[topic_at - 1] + 2
    if begin > end or begin + int.from_bytes(data[begin - 2 : begin], "big") != end:
        return None
    text = bytes(data[begin:end])
    return text if text.isascii() else None


def _few_hash(prefix: int, key: bytes) -> int:
    value = prefix
    for unit in key:
        value = 31 * value + unit & 0xFFFFFFFF
    value = abs(value - (1 << 32) if value >> 31 else value)
    return 0 if value >> 31 else value


# Hashes in columns --------------------------------------------------------------------------------
def _leading_ids(octets: Octets, begins: Numbers, sizes: Numbers, prefixes: _Sums) -> Hashes | None:
    """Return the hash of each id if every record's first property is an id of our proxy's form.

    None otherwise.
    """
    if not len(sizes) or sizes.min() < _ID_PROPERTY_SIZE_BYTES:
        return None
    rows = windows(octets, _ID_ROW)[begins].view(np.uint8)
    rows = rows.reshape(-1, _ID_PROPERTY_SIZE_BYTES)
    ids = rows[:, _ID_AT:-1]
    if (rows[:, :_ID_AT] != _ID_NAME).any() or (rows[:, -1] != _SEPARATOR).any():
        return None
    if ids.max() > _ASCII_MAX or ids.min() <= _SEPARATOR:
        return None
    # Not `@`: BLAS would start a second thread for one large entry.
    sums = np.einsum("ij,j->i", ids.astype(np.float64), _ID_POWERS)
    return _slot_hashes(sums.astype(np.int64).astype(np.uint32) + prefixes * _ID_FACTOR)


def _all_keys(
    data: Bytes, begins: Numbers, sizes: Numbers, prefixes: _Sums, *, tags: bool, repeats_ids: bool = False
) -> list[tuple[Numbers, Hashes]] | None:
    """Return owners and hashes of all ids, then of all words of KEYS, then of all tags.

    None if *repeats_ids* and there is an id.
    """
    found = []
    for run in blocks(sizes):
        items, before = _Items(data, begins[run], sizes[run]), _of(prefixes, run)
        ids = items.values(MESSAGE_ID)
        if repeats_ids and len(ids[0]):
            return None
        if not repeats_ids:
            found.append(_numbered(items, ids, before, run.start))
        found.append(_numbered(items, items.words(items.values(KEYS)), before, run.start))
        if tags:
            found.append(_numbered(items, items.values(TAGS), _tag_prefix(before), run.start))
    return found


def _numbered(items: "_Items", texts: _Texts, prefixes: _Sums, first: int) -> tuple[Numbers, Hashes]:
    return texts[0] + first, _slot_hashes(items.hashes(texts, prefixes))


class _Items:
    """Joined properties (or topics) of a run of records, with one more separator after each record.

    Owner: one call.
    """

    __slots__ = ("_begins", "_ends", "_firsts", "_octets", "_sums")

    def __init__(self, data: Bytes, begins: Numbers, sizes: Numbers) -> None:
        """Join the segments; *sizes* are one run of `blocks`."""
        spans = zip(begins.tolist(), (begins + sizes).tolist(), strict=True)
        # The last zeros allow comparisons of names where too few bytes are left.
        octets = b"\x02".join([*[data[begin:end] for begin, end in spans], bytes(_NAME_SIZE_BYTES)])
        self._octets = np.frombuffer(octets, np.uint8)
        self._ends = np.flatnonzero(self._octets == _SEPARATOR)
        self._begins = np.concatenate((np.zeros(1, np.int64), self._ends[:-1] + 1))
        self._firsts = np.cumsum(sizes + 1) - (sizes + 1)
        self._sums: _Sums | None = None

    def values(self, name: str) -> _Texts:
        """Return the non-empty values of *name* as texts; the last one of equal names counts."""
        mark = np.frombuffer(name.encode() + bytes((_PAIR,)), np.uint8)
        head = mark[:_NAME_SIZE_BYTES]
        # As one number: the first bytes of the name at the top of eight.
        shift = np.uint64(8 * (_NAME_SIZE_BYTES - len(head)))
        wanted = np.uint64(int.from_bytes(head.tobytes(), "big"))
        words = windows(self._octets, _WORD)[self._begins] >> shift
        at = np.flatnonzero((words == wanted) & (self._ends - self._begins > len(mark)))
        for place in range(_NAME_SIZE_BYTES, len(mark)):
            at = at[self._octets[self._begins[at] + place] == mark[place]]
        owners = np.searchsorted(self._firsts, self._begins[at], "right") - 1
        if len(at) > 1:
            last = np.append(owners[1:] != owners[:-1], True)
            if not last.all():
                at, owners = at[last], owners[last]
        return owners, self._begins[at] + len(mark), self._ends[at]

    def words(self, values: _Texts) -> _Texts:
        """Return *values* split at spaces, without empty words."""
        owners, begins, ends = values
        spaces = np.flatnonzero(self._octets == _SPACE)
        if not len(spaces) or not len(owners):
            return values
        within = np.searchsorted(begins, spaces, "right") - 1
        spaces = spaces[(within >= 0) & (spaces < ends[within])]
        if not len(spaces):
            return values
        # Values neither touch nor overlap: the n-th smallest begin belongs to the n-th smallest
        # end.
        word_begins, word_ends = np.sort(np.append(begins, spaces + 1)), np.sort(np.append(ends, spaces))
        filled = word_begins < word_ends
        word_begins, word_ends = word_begins[filled], word_ends[filled]
        return owners[np.searchsorted(begins, word_begins, "right") - 1], word_begins, word_ends

    def hashes(self, texts: _Texts, prefixes: _Sums | None = None) -> _Sums:
        """Return Java's hash of each of *texts*, modulo 2^32.

        With *prefixes*, of the text behind the record's prefix, whose hash *prefixes* has.
        """
        owners, begins, ends = texts
        if not len(begins):
            return np.zeros(0, np.uint32)
        sums = self._sums
        if sums is None:
            sums = self._sums = np.zeros(len(self._octets) + 1, np.uint32)
            np.cumsum(self._octets * _INVERSES[: len(self._octets)], dtype=np.uint32, out=sums[1:])
        values: _Sums = (sums[ends] - sums[begins]) * _POWERS[ends - 1]
        units = ends - begins
        if self._octets.max() > _ASCII_MAX:
            wide = np.append(0, np.cumsum(self._octets > _ASCII_MAX))
            for at in np.flatnonzero(wide[ends] > wide[begins]).tolist():
                text = self._octets[begins[at] : ends[at]].tobytes().decode("utf-8", "replace")
                units[at] = len(text.encode("utf-16-be")) // 2
                values[at] = tag_hash(text) % (1 << 32)
        if prefixes is not None:
            values += _of(prefixes, owners) * _POWERS[units]
        return values


def _slot_hashes(values: _Sums) -> Hashes:
    """Return the hashes of `java_hashes.slot_hash`: absolute values, and 0 for the smallest int."""
    hashes: Hashes = np.maximum(np.abs(values.view(np.int32)), 0)
    return hashes


def _in_order(parts: list[tuple[Numbers, Hashes]]) -> tuple[Numbers, Hashes]:
    """Return the hashes in order of records; those of one record stay in the order of *parts*."""
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    owners = np.concatenate([part[0] for part in parts])
    order = np.argsort(owners, kind="stable")
    return owners[order], np.concatenate([part[1] for part in parts])[order]


def _topic_prefixes(columns: RecordColumns) -> _Sums:
    """Return the hash of `topic#` of each record, modulo 2^32."""
    prefixes = np.zeros(len(columns), np.uint32)
    for run in blocks(columns.topic_sizes):
        sizes = columns.topic_sizes[run]
        items = _Items(columns.data, columns.topic_starts[run], sizes)
        begins = np.cumsum(sizes + 1) - (sizes + 1)
        filled = np.flatnonzero(sizes)
        prefixes[run.start + filled] = items.hashes((filled, begins[filled], begins[filled] + sizes[filled]))
    return prefixes * np.uint32(31) + np.uint32(ord("#"))


def _of(prefixes: _Sums, which: Numbers | slice) -> _Sums:
    """Return the prefixes of *which* records; a single prefix is that of all records."""
    return prefixes if len(prefixes) == 1 else prefixes[which]


def _tag_prefix(prefix: _Prefix) -> _Prefix:
    """Return the hash of `topic#T#`, from the hash of `topic#`."""
    return (prefix * 31 + ord("T")) * 31 + ord("#")


@lru_cache(maxsize=1024)  # topics of recent entries
def _prefix_hash(topic: bytes) -> int:
    return tag_hash(f"{topic.decode('utf-8', 'replace')}#") % (1 << 32)
