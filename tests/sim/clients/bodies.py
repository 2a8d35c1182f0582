r"""Bodies that name their message, so that any byte of any copy can be told right from wrong.

     | name : size | filler: FILLER from a place that the name decides ... |        name: client, dot, number: `p3.17`

Of every third large one the filler is zeros: whole sectors of them, which must not pass for what a crash lost. A body is a function of its
name and size. Whoever reads another one reports it under a name that no client ever sent.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from zlib import crc32

from tern_wire.records.properties import MESSAGE_ID
from tests.sim.history.history import Stored

# No byte of it repeats at a distance below 4,096: bodies that were shifted or mixed are seen.
FILLER = b"".join(crc32(number.to_bytes(2, "big")).to_bytes(4, "big") for number in range(4096))
SIZE_MAX_BYTES = len(FILLER) // 2
ZEROS_MIN_BYTES = 1_500
# Size, queue offset, store time and body size of a record's head (tern_wire.records.layout).
_HEAD = struct.Struct(">I16xq28xq20xI")
_HEAD_SIZE_BYTES = 88
assert _HEAD.size == _HEAD_SIZE_BYTES
_ID_MARK = f"{MESSAGE_ID}\x01".encode()


@lru_cache(maxsize=4096)
def body_of(name: str, size_bytes: int) -> bytes:
    """The body of message *name*; it has at least the bytes of its own beginning, at most SIZE_MAX_BYTES."""
    begin = f"{name}:{size_bytes}|".encode()
    if size_bytes >= ZEROS_MIN_BYTES and crc32(begin) % 3 == 0:
        return begin + bytes(size_bytes - len(begin))
    at = crc32(begin) % SIZE_MAX_BYTES
    return begin + FILLER[at : at + max(0, size_bytes - len(begin))]


def name_of(body: bytes) -> str:
    """The name of the message that *body* is, exactly; `?` and its first bytes when it is no message's."""
    begin = body.split(b"|", 1)[0][:64]
    name, _, size = begin.decode("ascii", "replace").partition(":")
    if size.isdecimal() and len(size) < 6 and body == body_of(name, int(size)):
        return name
    return f"?{body[:24].hex()} ({len(body)} bytes)"


def message_id(operation: int, row: int) -> str:
    """The id of the message in *row* of the send with that number: 32 characters, as a proxy makes one for each attempt."""
    return f"{operation:024X}{row:08X}"


def read_records(data: bytes | memoryview) -> Iterator[Stored]:
    """The messages of concatenated records, as PULL and RECEIVE answer them."""
    return iter(_read_records(bytes(data)))


@lru_cache(maxsize=256)
def _read_records(data: bytes) -> tuple[Stored, ...]:
    """Nodes that are equal hold the same bytes: those of the first are read."""
    found, at = [], 0
    while at < len(data):
        size, offset, stored_ms, body_size = _HEAD.unpack_from(data, at)
        body_at = at + _HEAD_SIZE_BYTES
        body = data[body_at : body_at + body_size]
        id_at = data.find(_ID_MARK, body_at + body_size, at + size) + len(_ID_MARK)
        found.append(Stored(offset, name_of(body), data[id_at : id_at + 32].decode("ascii", "replace"), stored_ms))
        assert size > 0, "a record without a size"
        at += size
    return tuple(found)
