"""The bytes of a log that every node shares: all but what each header says of its own disk (`tern_store.log.entry`, unsynced)."""

from collections.abc import Iterator
from pathlib import Path

from tern_store.errors import EntryRefused
from tern_store.log.entry import HEADER_SIZE_BYTES, decode_header, head_with

PART_SIZE_BYTES = 1 << 20


def shared(raw: bytes) -> bytes:
    """One entry, with nothing unsynced before it."""
    return head_with(raw, decode_header(raw), 0) + raw[HEADER_SIZE_BYTES:]


def shared_parts(segment: Path, size_bytes: int) -> Iterator[bytes]:
    """The first *size_bytes* of a segment file, PART_SIZE_BYTES at a time; from the first header that is none as they are."""
    with segment.open("rb") as file, segment.open("rb") as headers:
        at, header_at = 0, 0
        while at < size_bytes and (part := file.read(min(PART_SIZE_BYTES, size_bytes - at))):
            content, end = bytearray(part), at + len(part)
            while header_at < end:
                headers.seek(header_at)
                raw = headers.read(HEADER_SIZE_BYTES)
                try:
                    header = decode_header(raw)
                except EntryRefused:
                    header_at = size_bytes
                    break
                clean = head_with(raw, header, 0)
                first, last = max(header_at, at), min(header_at + HEADER_SIZE_BYTES, end)
                content[first - at : last - at] = clean[first - header_at : last - header_at]
                if header_at + HEADER_SIZE_BYTES > end:
                    break
                header_at += header.size
            yield bytes(content)
            at = end
