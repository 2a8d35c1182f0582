"""What lies among a segment's zeros: it is found wherever it stands, and zeroed without a look at every zero."""

from pathlib import Path

import pytest

from tern_store.log.entry import MAGIC
from tern_store.log.segment import Segments, create_segment_file
from tests.support.files.faulty_files import FaultyFiles

DIRECTORY = Path("/data/commitlog")
# In what pieces a segment is read.
PIECE = 1 << 16
SIZE_BYTES = 4 * PIECE
PLACES = [0, 1, PIECE - 4, PIECE - 3, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE - 2, SIZE_BYTES - 4]


@pytest.fixture
def segments() -> Segments:
    """One segment of zeros."""
    files = FaultyFiles()
    files.makedirs(DIRECTORY)
    create_segment_file(files, DIRECTORY / f"{0:020d}", SIZE_BYTES)
    made = Segments(DIRECTORY, SIZE_BYTES, files)
    made.load()
    return made


@pytest.mark.parametrize("place", PLACES)
def test_what_stands_alone_among_zeros_is_found_once(segments: Segments, place: int) -> None:
    """At the edges of the pieces that are read, across them, and at both ends; not from behind its first byte."""
    segments.write(MAGIC, place)
    assert [*segments.find(MAGIC, 0)] == [place]
    assert [*segments.find(MAGIC, place)] == [place]
    assert [*segments.find(MAGIC, place + 1)] == []


def test_all_of_them_are_found_in_order(segments: Segments) -> None:
    """Several in one piece, and in neighbouring ones."""
    places = [0, 9, PIECE - 3, PIECE + 5, 3 * PIECE, SIZE_BYTES - 4]
    for place in places:
        segments.write(MAGIC, place)
    assert [*segments.find(MAGIC, 0)] == places


@pytest.mark.parametrize("place", PLACES)
def test_what_lies_behind_a_cut_is_zeros_and_what_lies_before_it_stays(segments: Segments, place: int) -> None:
    """One byte anywhere is enough to be zeroed; a byte in front of the cut is no part of it."""
    segments.write(b"\x01", SIZE_BYTES - 1)
    segments.write(b"\x01", place)
    segments.erase_behind(place + 1)
    kept = segments.read(0, SIZE_BYTES)
    assert (kept[place], kept.count(0)) == (1, SIZE_BYTES - 1)
    segments.erase_behind(place)
    assert segments.read(0, SIZE_BYTES) == bytes(SIZE_BYTES)
