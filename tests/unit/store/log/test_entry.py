"""The bytes of an entry, in both directions."""

import struct
import zlib

import pytest

from tern_store import (
    HEADER_SIZE_BYTES,
    EntryKind,
    EntryRefused,
    Genesis,
    StoreError,
    decode_header,
    encode_entry,
    verify,
)


def test_an_entry_has_exactly_the_bytes_that_its_drawing_shows() -> None:
    """Build the header by hand from the drawing and compare."""
    entry = encode_entry(
        EntryKind.COMMANDS, 7, 3, (b"ab", memoryview(b"cd"), bytearray(b"e")), 2, position=4096, previous_crc=0xAABBCCDD
    )
    head = b"TRNL" + struct.pack(">IQQQBBHI", 53, 7, 3, 4096, 2, 0, 2, 0xAABBCCDD)
    crc = zlib.crc32(head + bytes(8) + b"abcde")
    assert entry.raw == head + struct.pack(">II", crc, 0) + b"abcde"
    assert (len(entry), entry.crc, bytes(entry.body)) == (HEADER_SIZE_BYTES + 5, crc, b"abcde")


def test_a_built_entry_is_verified_and_read_back() -> None:
    """Encode, verify, compare every field."""
    entry = encode_entry(EntryKind.NOOP, 2, 1, (), 0, position=100, previous_crc=5)
    header = verify(entry.raw)
    assert (header.index, header.term, header.position, header.kind) == (2, 1, 100, EntryKind.NOOP)
    assert (header.size, header.version, header.previous_crc, header.crc) == (48, 0, 5, entry.crc)
    assert header.mark == entry.mark


def test_any_flipped_bit_is_noticed() -> None:
    """Flip one bit of every byte; verify refuses each."""
    raw = encode_entry(EntryKind.COMMANDS, 2, 1, (b"body",), 1, position=100, previous_crc=5).raw
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(EntryRefused):
            verify(bytes(damaged))


def test_a_header_that_ends_early_is_refused() -> None:
    """Cut the header at every byte."""
    raw = encode_entry(EntryKind.NOOP, 2, 1, (), 0, position=100, previous_crc=5).raw
    for size in range(HEADER_SIZE_BYTES):
        with pytest.raises(EntryRefused):
            decode_header(raw[:size])


def test_the_genesis_does_not_depend_on_the_order_of_members() -> None:
    """Two nodes that list the members differently begin the same log."""
    one = Genesis(b"i" * 16, ("b", "ä", "c"), 65536)
    other = Genesis(b"i" * 16, ("c", "b", "ä"), 65536)
    assert one.entry().raw == other.entry().raw
    assert Genesis.decode(one.encode()) == Genesis(b"i" * 16, ("b", "c", "ä"), 65536)


def test_a_genesis_of_a_later_format_is_refused() -> None:
    """Change the format number."""
    body = bytearray(Genesis(b"i" * 16, ("a",), 65536).encode())
    body[1] = 9
    with pytest.raises(StoreError, match="format 9"):
        Genesis.decode(bytes(body))


@pytest.mark.parametrize(("group_id", "size"), [(b"short", 65536), (b"i" * 16, 1000), (b"i" * 16, 512)])
def test_an_impossible_group_is_refused(group_id: bytes, size: int) -> None:
    """A wrong id, a segment of broken sectors, a segment that cannot hold its genesis."""
    with pytest.raises(ValueError, match=r"16 bytes|segment_size_bytes"):
        Genesis(group_id, ("a",), size)
