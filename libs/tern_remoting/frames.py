"""The remoting frame, sans-IO: RocketMQ's binary layout, big-endian.

 | total 4 | 1 | header size 3 | code 2 | language 1 | version 2 | opaque 4 | flags 4 |
 | remark size 4 | remark | ext size 4 | ext | body ... |
Total excludes itself. The byte before the header size is the serialize type, always 1 (binary).
Flags: bit 0 response, bit 1 one-way. A request's code names the operation; a response's code is 0
or the application's error number, with details in the body. Ext fields are not written and are
skipped when read; the header is bounded.

Law: cost is linear in the bytes, however they are cut into chunks, and no more than the limit is
ever buffered. Reference: Apache RocketMQ, RemotingCommand.java and RocketMQSerializable.java.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tern_remoting.errors import FrameCorrupt, FrameTooLarge

Buffer: TypeAlias = bytes | bytearray | memoryview

RESPONSE = 1
ONE_WAY = 2

# LanguageCode.PYTHON of RocketMQ, and the version of this use of the frame.
LANGUAGE = 3
VERSION = 1
# Remark and ext fields are small texts; a header as large as a frame is an attack or a bug.
HEADER_SIZE_MAX_BYTES = 64 * 1024
# Larger bodies are views into their chunk; for smaller ones a copy is cheaper than pinning the
# chunk.
VIEW_SIZE_MIN_BYTES = 32 * 1024

# Where bytes are read whose frame is not known yet: as much as uvloop reads at once.
SCRATCH_SIZE_BYTES = 256 * 1024
# The rest of a frame is read at its place if it is that large: it takes a read of its own.
DIRECT_SIZE_MIN_BYTES = 64 * 1024

_TOTAL = struct.Struct(">I")
_SIZE = struct.Struct(">I")
# total, type and header size, code, language, version, opaque, flags, remark size, ext size (if no
# remark)
_HEAD = struct.Struct(">IIHBHIIII")
_HEADER_SIZE_MIN = 21
_TOTAL_MIN = 4 + _HEADER_SIZE_MIN
_REMARK_AT = 25
_PLAIN = 1 << 24 | _HEADER_SIZE_MIN


# Not frozen: the hot path makes one per frame, and a frozen dataclass's __init__ costs four times
# more.
@dataclass(slots=True)
class Frame:
    """One frame. *code*: 0..65535, *opaque*: 0..2^32-1; *body* is read-only and may be kept."""

    code: int
    opaque: int
    flags: int
    remark: str
    body: bytes | memoryview


def encode_frame(code: int, opaque: int, flags: int, body_parts: Sequence[Buffer], remark: str = "") -> list[Buffer]:
    """Encode a frame as buffers to write in order; the parts are the caller's objects, not
    copied.
    """
    size = 0
    for part in body_parts:
        size += len(part) if type(part) is bytes else memoryview(part).nbytes
    if not remark:
        head = _HEAD.pack(_TOTAL_MIN + size, _PLAIN, code, LANGUAGE, VERSION, opaque, flags, 0, 0)
        return [head, *body_parts]
    text = remark.encode()
    header_size = _HEADER_SIZE_MIN + len(text)
    if header_size > HEADER_SIZE_MAX_BYTES:
        raise FrameTooLarge(header_size, HEADER_SIZE_MAX_BYTES)
    head = _HEAD.pack(
        4 + header_size + size, 1 << 24 | header_size, code, LANGUAGE, VERSION, opaque, flags, len(text), 0
    )
    return [head[:_REMARK_AT] + text + _SIZE.pack(0), *body_parts]


def frame_size(buffers: Sequence[Buffer]) -> int:
    """Bytes of an encoded frame on the wire, its total field included."""
    first = buffers[0]
    return 4 + int(_TOTAL.unpack_from(first)[0])


class FrameReader:
    """Cuts a byte stream into frames. Holds at most one unfinished frame; unusable after an error.
    *frame_size_max_bytes* bounds the total field; it may be raised between two frames (after
    authentication).

     space() -> the rest of a large unfinished frame, or *scratch* -> bytes are read into it
     filled(size) -> the frames that they complete

    So the kernel writes a large body at its place, and nobody copies it. `feed` takes bytes that
    are somewhere else.
    """

    __slots__ = ("_filled", "_is_direct", "_partial", "_scratch", "_tail", "frame_size_max_bytes")

    def __init__(self, frame_size_max_bytes: int, scratch: bytearray | None = None) -> None:
        """*scratch*: kept by the caller, who may use it for all readers of one thread."""
        self.frame_size_max_bytes = frame_size_max_bytes
        self._scratch = memoryview(bytearray(SCRATCH_SIZE_BYTES) if scratch is None else scratch)
        # Whether the last space was that of the unfinished frame.
        self._is_direct = False
        # Up to three bytes of an incomplete total field.
        self._tail = b""
        # The unfinished frame, allocated at its full size once that is known, and its bytes so far.
        self._partial: bytearray | None = None
        self._filled = 0

    def space(self) -> memoryview:
        """Return where the next bytes go; it has room for one at least."""
        partial = self._partial
        self._is_direct = partial is not None and len(partial) - self._filled >= DIRECT_SIZE_MIN_BYTES
        return memoryview(partial)[self._filled :] if partial is not None and self._is_direct else self._scratch

    def filled(self, size_bytes: int) -> list[Frame]:
        """Frames that the first *size_bytes* of the last space complete. Raises as `feed` does."""
        partial = self._partial
        if partial is None or not self._is_direct:
            return self.feed(bytes(self._scratch[:size_bytes]))
        self._filled += size_bytes
        if self._filled < len(partial):
            return []
        self._partial = None
        return [_parse(partial, 0, len(partial))]

    def feed(self, data: Buffer) -> list[Frame]:
        """Frames that *data* completes, in order. Raises FrameTooLarge or FrameCorrupt."""
        chunk = data if type(data) is bytes else bytes(data)
        frames: list[Frame] = []
        at = 0
        if self._partial is not None:
            at = self._fill(self._partial, chunk, frames)
        elif self._tail:
            chunk = self._tail + chunk
            self._tail = b""
        end = len(chunk)
        limit = self.frame_size_max_bytes
        while end - at >= 4:
            (total,) = _TOTAL.unpack_from(chunk, at)
            if total > limit:
                raise FrameTooLarge(total, limit)
            if total < _TOTAL_MIN:
                raise FrameCorrupt(f"a frame of {total} bytes cannot hold a header")
            stop = at + 4 + total
            if stop > end:
                self._partial = bytearray(4 + total)
                self._filled = end - at
                self._partial[: end - at] = memoryview(chunk)[at:]
                return frames
            frames.append(_parse(chunk, at, stop))
            at = stop
        if at < end:
            self._tail = chunk[at:]
        return frames

    def _fill(self, partial: bytearray, chunk: bytes, frames: list[Frame]) -> int:
        """Move bytes into the unfinished frame; return the begin of the next one."""
        taken = min(len(partial) - self._filled, len(chunk))
        partial[self._filled : self._filled + taken] = memoryview(chunk)[:taken]
        self._filled += taken
        if self._filled == len(partial):
            self._partial = None
            frames.append(_parse(partial, 0, len(partial)))
        return taken


def _parse(data: bytes | bytearray, at: int, stop: int) -> Frame:
    _, kind, code, _, _, opaque, flags, remark_size, ext_size = _HEAD.unpack_from(data, at)
    if kind == _PLAIN and remark_size == 0 and ext_size == 0:
        remark, body_at = "", at + 4 + _TOTAL_MIN
    else:
        remark, body_at = _parse_header(data, at, stop, kind, remark_size)
    # The bytearray of an unfinished frame belongs to that frame alone: a view costs and pins
    # nothing.
    if type(data) is bytes and stop - body_at < VIEW_SIZE_MIN_BYTES:
        return Frame(code, opaque, flags, remark, data[body_at:stop])
    return Frame(code, opaque, flags, remark, memoryview(data)[body_at:stop].toreadonly())


def _parse_header(data: bytes | bytearray, at: int, stop: int, kind: int, remark_size: int) -> tuple[str, int]:
    """Remark and body position, for a header with remark or ext fields."""
    if kind >> 24 != 1:
        raise FrameCorrupt(f"serialize type {kind >> 24} is not 1")
    header_size = kind & 0xFFFFFF
    body_at = at + 8 + header_size
    if header_size < _HEADER_SIZE_MIN or header_size > HEADER_SIZE_MAX_BYTES or body_at > stop:
        raise FrameCorrupt(f"a header of {header_size} bytes")
    if _HEADER_SIZE_MIN + remark_size > header_size:
        raise FrameCorrupt(f"a remark of {remark_size} bytes in a header of {header_size}")
    remark_at = at + _REMARK_AT
    (ext_size,) = _SIZE.unpack_from(data, remark_at + remark_size)
    if _HEADER_SIZE_MIN + remark_size + ext_size != header_size:
        raise FrameCorrupt(f"ext fields of {ext_size} bytes in a header of {header_size}")
    try:
        return bytes(data[remark_at : remark_at + remark_size]).decode(), body_at
    except UnicodeDecodeError as error:
        raise FrameCorrupt("a remark that is not UTF-8") from error
