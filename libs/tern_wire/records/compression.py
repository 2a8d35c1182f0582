"""Compressed bodies: the compression in a record's sysflag as RocketMQ has it, its name in
documents (`content_encoding`), and safe decompression.

    sysflag bit 0      the body is compressed
    sysflag bits 8-10  1 LZ4 (frame), 2 zstd, 3 zlib; 0 is zlib, too: the only one before RocketMQ 5

Law: decompression never yields more than its limit, whatever the input claims. LZ4 and zstd come
from libraries (the extras `rocketmq` and `compression`), which are loaded at the first such body.

Reference: Apache RocketMQ 5, MessageSysFlag and CompressionType.
"""

import zlib
from enum import IntEnum
from typing import Any

from tern_wire.errors import CompressionNotInstalled, RecordMalformed
from tern_wire.extras import is_installed
from tern_wire.limits import DECOMPRESSED_SIZE_FREE_BYTES, DECOMPRESSION_RATIO_MAX, MESSAGE_BODY_SIZE_MAX_BYTES

COMPRESSED = 0x1
_TYPE_SHIFT, _TYPE_MASK = 8, 0x7
# RocketMQ's own level (compressLevel) for zlib.
LEVEL_DEFAULT = 5
# A zstd block of 4 bytes can stand for 128 KiB, so this much input yields at most 4 MiB before the
# size is checked.
_ZSTD_STEP_SIZE_BYTES = 128
_LZ4_STEP_SIZE_BYTES = 64 << 10


class Compression(IntEnum):
    """The compression of a body; the numbers are those of sysflag bits 8 to 10."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


# Modules that a compression needs; zlib is in the standard library.
LIBRARIES = {Compression.ZSTD: ("zstandard",), Compression.LZ4: ("lz4",)}
# By the name in documents and headers.
ENCODINGS = {each.name.lower(): each for each in Compression if each}
_ENCODING_NAMES = {each: name for name, each in ENCODINGS.items()}
_LZ4_BEGINS, _ZSTD_BEGINS = b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd"
_ZLIB_HEADER_SIZE_BYTES, _DEFLATE, _ZLIB_CHECK = 2, 8, 31


def sysflag_of(compression: Compression) -> int:
    """Return the bits of the sysflag that say *compression*; 0 for NONE."""
    return COMPRESSED | compression << _TYPE_SHIFT if compression else 0


def encoding_of(sysflag: int) -> str:
    """Return the name of the compression of the body (`zstd`), "" for none; `unknown` for one that
    RocketMQ does not have.
    """
    if not sysflag & COMPRESSED:
        return ""
    try:
        return _ENCODING_NAMES[compression_of(sysflag)]
    except RecordMalformed:
        return "unknown"


def begins_as(stored: bytes, compression: Compression) -> bool:
    """Whether *stored* begins as a body of *compression* does; its end is not looked at."""
    if compression is Compression.LZ4:
        return stored.startswith(_LZ4_BEGINS)
    if compression is Compression.ZSTD:
        return stored.startswith(_ZSTD_BEGINS)
    head = stored[:_ZLIB_HEADER_SIZE_BYTES]
    is_whole = len(head) == _ZLIB_HEADER_SIZE_BYTES
    return is_whole and head[0] & 0xF == _DEFLATE and not int.from_bytes(head, "big") % _ZLIB_CHECK


def can_return(plain_size_bytes: int, stored_size_bytes: int) -> bool:
    """Whether `decompress` returns a body of *plain_size_bytes* from one of *stored_size_bytes*."""
    return plain_size_bytes <= _limit_of(stored_size_bytes, MESSAGE_BODY_SIZE_MAX_BYTES)


def _limit_of(stored_size_bytes: int, size_max_bytes: int) -> int:
    return min(size_max_bytes, max(DECOMPRESSED_SIZE_FREE_BYTES, DECOMPRESSION_RATIO_MAX * stored_size_bytes))


def compression_of(sysflag: int) -> Compression:
    """Return the compression of the body; RecordMalformed for one that RocketMQ does not have."""
    if not sysflag & COMPRESSED:
        return Compression.NONE
    number = sysflag >> _TYPE_SHIFT & _TYPE_MASK
    if number > Compression.ZLIB:
        raise RecordMalformed(position=0, reason=f"sysflag {sysflag:#x} names compression {number}, which is not known")
    return Compression(number) if number else Compression.ZLIB


def compress(body: bytes, compression: Compression, level: int = LEVEL_DEFAULT) -> bytes:
    """Return *body* in the form that a client of RocketMQ stores.

    *level* is for zlib (0 to 9) and zstd (1 to 22).
    """
    match compression:
        case Compression.LZ4:
            return bytes(_lz4_frame().compress(body))
        case Compression.ZSTD:
            return bytes(_zstandard().ZstdCompressor(level=level).compress(body))
        case Compression.ZLIB:
            return zlib.compress(body, level)
    return body


def decompress(stored: bytes, compression: Compression, size_max_bytes: int = MESSAGE_BODY_SIZE_MAX_BYTES) -> bytes:
    """Return the decompressed body, at most *size_max_bytes* long.

    RecordMalformed when *stored* is not of that compression, is cut, or decompresses to more than
    the limit or than `DECOMPRESSION_RATIO_MAX` times its size; CompressionNotInstalled without the
    library.
    """
    limit_bytes = _limit_of(len(stored), size_max_bytes)
    match compression:
        case Compression.LZ4:
            body, done = _unpack_lz4(stored, limit_bytes)
        case Compression.ZSTD:
            body, done = _unpack_zstd(stored, limit_bytes)
        case Compression.ZLIB:
            body, done = _unpack_zlib(stored, limit_bytes)
        case _:
            return stored
    if len(body) > limit_bytes:
        raise RecordMalformed(
            position=0, reason=f"{len(stored)} bytes of {compression.name} unpack to more than {limit_bytes}"
        )
    if not done:
        raise RecordMalformed(position=0, reason=f"{len(stored)} bytes of {compression.name} end too early")
    return body


# Each returns at most a little more than its limit, and whether the compressed stream is complete.


def _unpack_zlib(stored: bytes, limit_bytes: int) -> tuple[bytes, bool]:
    unpacker = zlib.decompressobj()
    try:
        return unpacker.decompress(stored, limit_bytes + 1), unpacker.eof
    except zlib.error as error:
        raise RecordMalformed(position=0, reason=f"not zlib: {error}") from error


def _unpack_lz4(stored: bytes, limit_bytes: int) -> tuple[bytes, bool]:
    unpacker = _lz4_frame().LZ4FrameDecompressor()
    parts: list[bytes] = []
    size = 0
    try:
        # The library allocates room for the whole output of one call, so each call requests little.
        while size <= limit_bytes and not unpacker.eof and (unpacker.needs_input is False or not parts):
            parts.append(unpacker.decompress(b"" if parts else stored, max_length=_LZ4_STEP_SIZE_BYTES))
            size += len(parts[-1])
    except (RuntimeError, EOFError, ValueError) as error:
        raise RecordMalformed(position=0, reason=f"not an LZ4 frame: {error}") from error
    return b"".join(parts), bool(unpacker.eof)


def _unpack_zstd(stored: bytes, limit_bytes: int) -> tuple[bytes, bool]:
    library = _zstandard()
    # A window larger than the limit has no use; the library refuses frames that request one.
    window_bytes = 1 << max(limit_bytes, 8 << 20).bit_length()
    unpacker = library.ZstdDecompressor(max_window_size=window_bytes).decompressobj()
    parts: list[bytes] = []
    size = 0
    try:
        for at in range(0, len(stored), _ZSTD_STEP_SIZE_BYTES):
            parts.append(unpacker.decompress(stored[at : at + _ZSTD_STEP_SIZE_BYTES]))
            size += len(parts[-1])
            if unpacker.eof or size > limit_bytes:
                break
    except library.ZstdError as error:
        raise RecordMalformed(position=0, reason=f"not zstd: {error}") from error
    return b"".join(parts), unpacker.eof


def _lz4_frame() -> Any:
    if not is_installed("lz4"):
        raise CompressionNotInstalled(compression="LZ4")
    import lz4.frame  # noqa: PLC0415 - needed only for such bodies

    return lz4.frame


def _zstandard() -> Any:
    if not is_installed("zstandard"):
        raise CompressionNotInstalled(compression="ZSTD")
    import zstandard  # noqa: PLC0415 - needed only for such bodies

    return zstandard
