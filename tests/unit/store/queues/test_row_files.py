"""RowFiles: rows in files of their own, checks beside them, bounded memory and descriptors, and no wrong byte whatever is damaged."""

import errno
import os
import random
import struct
import zlib
from pathlib import Path

import pytest

from tern_store.checking import Checked
from tern_store.errors import DerivedDamage, StoreError
from tern_store.files import REAL_FILES, Files, RealFiles
from tern_store.queues.row_files import RowFiles
from tests.support.files.faulty_files import FaultyFiles

DIRECTORY = Path("/data")
KEY = (7, 1)
# 22 rows a file, 8 a block: the last block of a file has 6.
SIZE, PER_FILE, BLOCK = 6, 22, 8


def opened(
    directory: Path = DIRECTORY,
    files: Files = REAL_FILES,
    *,
    buffer_max_bytes: int = 1 << 20,
    open_files_max: int = 8,
) -> RowFiles:
    return RowFiles.open(
        directory,
        row_size_bytes=SIZE,
        rows_per_file=PER_FILE,
        block_rows=BLOCK,
        buffer_max_bytes=buffer_max_bytes,
        open_files_max=open_files_max,
        files=files,
    )


def some(first: int, count: int, salt: int = 0) -> bytes:
    return b"".join(struct.pack(">IH", row, salt) for row in range(first, first + count))


def path(directory: Path, file: int, suffix: str = "", key: tuple[int, ...] = KEY) -> Path:
    return directory.joinpath(*map(str, key)) / f"{file * PER_FILE * SIZE:020d}{suffix}"


def damages(rows: RowFiles) -> list[DerivedDamage]:
    return [found for found in rows.verify() if isinstance(found, DerivedDamage)]


def flushed(directory: Path, count: int, files: Files = REAL_FILES) -> RowFiles:
    rows = opened(directory, files)
    rows.append(KEY, 0, some(0, count))
    rows.flush().run()
    return rows


def test_files_hold_rows_and_the_checks_lie_beside_them(tmp_path: Path) -> None:
    """50 rows: two files of 22 and one of 6; a crc for each whole block, begun with the sequence's life, which is 1."""
    flushed(tmp_path, 50)
    data = some(0, 50)
    names = [f"{0:020d}", f"{0:020d}.crc", f"{132:020d}", f"{132:020d}.crc", f"{264:020d}"]
    assert sorted(found.name for found in (tmp_path / "7" / "1").iterdir()) == names
    assert b"".join(path(tmp_path, file).read_bytes() for file in range(3)) == data
    crcs = [zlib.crc32(data[first * 6 : stop * 6], 1) for first, stop in ((22, 30), (30, 38), (38, 44))]
    assert path(tmp_path, 1, ".crc").read_bytes() == struct.pack(">3I", *crcs)


def test_every_range_reads_back_whatever_lies_where(tmp_path: Path) -> None:
    """Three files and a tail, flushed at some places: each range of rows, before and after a restart."""
    rows = opened(tmp_path)
    for first in range(0, 77, 7):
        rows.append(KEY, first, some(first, 7))
        if first in {14, 21, 56}:
            rows.flush().run()

    def check() -> None:
        for row in range(79):
            for count in (0, 1, 5, 8, 23, 100):
                assert rows.read(KEY, row, count) == some(row, max(0, min(count, 77 - row)))
        assert (rows.first(KEY), rows.end(KEY), rows.keys()) == (0, 77, [KEY])
        assert rows.read(KEY, -1, 5) == rows.read((9, 9), 0, 5) == b""
        assert (rows.first((9, 9)), rows.end((9, 9))) == (0, 0)

    check()
    rows.flush().run()
    marks = rows.marks()
    rows.close()
    rows = opened(tmp_path)
    rows.restore(marks)
    check()
    assert not damages(rows)


def test_rows_that_do_not_continue_a_sequence_are_refused(tmp_path: Path) -> None:
    """A gap, a repeat, half a row, a second beginning, a trim behind the end: StoreError, and nothing has changed."""
    rows = opened(tmp_path)
    rows.append(KEY, 0, some(0, 2))
    for first, data in ((0, some(0, 1)), (3, some(3, 1)), (2, b"12345")):
        with pytest.raises(StoreError, match="ends at 2"):
            rows.append(KEY, first, data)
    with pytest.raises(StoreError, match="ends at 2"):
        rows.begin(KEY, 2)
    with pytest.raises(StoreError, match="ends at 2"):
        rows.trim(KEY, 3)
    with pytest.raises(StoreError):
        rows.append((1,), 0, b"12345")
    with pytest.raises(StoreError):
        rows.begin((1,), -1)
    with pytest.raises(StoreError):
        rows.trim((1,), 1)
    assert rows.keys() == [KEY]
    assert rows.read(KEY, 0, 9) == some(0, 2)
    rows.append(KEY, 2, b"")
    rows.flush().run()
    assert rows.read(KEY, 0, 9) == some(0, 2)


@pytest.mark.parametrize("first", [0, 3, 8, 21, 22, 23, 44, 1000])
def test_a_sequence_may_begin_at_any_row(tmp_path: Path, first: int) -> None:
    """Begun, flushed while it is empty, restored, grown over two files, restored."""
    rows = opened(tmp_path)
    rows.begin(KEY, first)
    for count in (0, 1, 10, 40):
        end = rows.end(KEY)
        rows.append(KEY, end, some(end, count))
        rows.flush().run()
        marks = rows.marks()
        rows = opened(tmp_path)
        rows.restore(marks)
        assert (rows.first(KEY), rows.end(KEY)) == (first, end + count)
        assert rows.read(KEY, first, 99) == some(first, end + count - first)
        assert rows.read(KEY, first - 1, 99) == b""
        assert not damages(rows)
    at = first % PER_FILE * SIZE
    assert path(tmp_path, first // PER_FILE).read_bytes()[at : at + SIZE] == some(first, 1)


def test_a_leaf_has_its_files_in_a_folder_below_the_keys(tmp_path: Path) -> None:
    """Two sets of rows share one tree: each restores, wipes and sees its own files only."""
    plain = opened(tmp_path)
    leaf = RowFiles.open(
        tmp_path, row_size_bytes=4, rows_per_file=5, buffer_max_bytes=99, open_files_max=2, leaf="times"
    )
    plain.append(KEY, 0, some(0, 30))
    leaf.append(KEY, 0, b"abcd" * 7)
    plain.flush().run()
    leaf.flush().run()
    assert (tmp_path / "7" / "1" / "times" / f"{20:020d}").read_bytes() == b"abcd" * 2
    marks = plain.marks()
    leaf.restore(leaf.marks())
    plain.wipe()
    assert leaf.read(KEY, 0, 9) == b"abcd" * 7
    assert sorted(found.name for found in tmp_path.rglob("0*")) == [f"{0:020d}", f"{0:020d}.crc", f"{20:020d}"]
    with pytest.raises(DerivedDamage):
        plain.restore(marks)


def test_memory_and_descriptors_are_bounded() -> None:
    """Thirty sequences, 600 bytes that may wait, three open files: none is lost, none is exceeded."""
    files, rng = FaultyFiles(), random.Random(1)
    rows = opened(DIRECTORY, files, buffer_max_bytes=600, open_files_max=3)
    ends = dict.fromkeys(range(30), 0)
    for _ in range(
        2
    ):  # the second has to wait, since the files of the first are in its way, and must not hold up the others
        rows.remove((30,))
        rows.append((30,), 0, some(0, 30))
        rows.flush()
    for _ in range(600):
        key, count = rng.randrange(30), rng.randint(1, 9)
        rows.append((key,), ends[key], some(ends[key], count, key))
        ends[key] += count
        held = sum(len(sequence.tail) for sequence in rows._sequences.values())
        assert held <= 600 + 31 * BLOCK * SIZE
        assert files.open_count() <= 3
    for key, end in ends.items():
        assert rows.read((key,), 0, 10_000) == some(0, end, key)
    assert files.open_count() <= 3
    rows.close()
    assert files.open_count() == 0


def test_a_long_tail_is_written_without_being_asked(tmp_path: Path) -> None:
    """More than 64 KiB in one sequence are on disk, and what is in memory of them is less than a block."""
    rows = opened(tmp_path)
    rows.append(KEY, 0, some(0, 12_000))
    assert sum(path(tmp_path, file).stat().st_size for file in range(546)) == 72_000
    assert len(rows._sequences[KEY].tail) < BLOCK * SIZE
    with pytest.raises(StoreError, match="no marks"):
        rows.marks()


def test_rows_are_written_once(tmp_path: Path) -> None:
    """Flushed after every row: 6 bytes of rows each, and 4 bytes a block."""

    class CountingFiles(RealFiles):
        written = 0

        def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
            self.written += len(data)
            super().pwrite(fd, data, position)

    files = CountingFiles()
    rows = opened(tmp_path, files)
    for row in range(PER_FILE * 2):
        rows.append(KEY, row, some(row, 1))
        rows.flush().run()
    assert files.written == PER_FILE * 2 * SIZE + 6 * 4


def test_many_small_tails_go_with_the_marks_instead_of_into_files(tmp_path: Path) -> None:
    """500 sequences of 5 rows: a flush leaves to the marks what the buffer holds; a restart has all of it; few are written."""
    rows = opened(tmp_path, buffer_max_bytes=10_000)
    for key in range(500):
        rows.append((key,), 0, some(0, 5, key))
    rows.flush().run()
    assert len(list(tmp_path.rglob("0*0"))) == 500 - 10_000 // 30
    marks = rows.marks()
    assert sum(len(mark[-1]) for mark in marks[1]) == 333 * 30
    rows = opened(tmp_path, buffer_max_bytes=10_000)
    rows.restore(marks)
    assert all(rows.read((key,), 0, 9) == some(0, 5, key) for key in range(500))
    assert not damages(rows)
    assert len(rows.flush().paths) == 0
    for key in range(0, 500, 25):
        rows.append((key,), 5, some(5, 5, key))
    rows.flush().run()
    again = opened(tmp_path)
    again.restore(rows.marks())
    assert all(again.read((key,), 0, 99) == some(0, 10 if key % 25 == 0 else 5, key) for key in range(500))
    for key in range(500):
        if len(again._waiting) > 64:
            again.remove((key,))
    assert len({path.parent for path in again.flush().paths}) == 64, "few wait: all rows are in files now"


@pytest.mark.parametrize("operation", ["pwrite", "open"])
def test_a_full_disk_keeps_rows_in_memory(operation: str) -> None:
    """ENOSPC: append and read go on, flush says so, appends go on even while its error is at hand; a later flush writes all."""
    for failing in range(1, 4):
        files = FaultyFiles()
        rows = opened(DIRECTORY, files)
        rows.append(KEY, 0, some(0, 10_000))
        for _ in range(failing):
            files.fail_next(operation, errno.ENOSPC)
        rows.append(KEY, 10_000, some(10_000, 3000))  # more than 64 KiB: written, and not
        assert rows.read(KEY, 0, 99_999) == some(0, 13_000)
        files.fail_next(operation, errno.ENOSPC)
        with pytest.raises(OSError, match="No space") as raised:
            rows.flush()
        rows.append(KEY, 13_000, some(13_000, 5))
        assert raised.value.errno == errno.ENOSPC
        while True:
            try:
                job = rows.flush()
                break
            except OSError as error:
                assert error.errno == errno.ENOSPC
        job.run()
        files.crash(random.Random(failing))
        again = opened(DIRECTORY, files)
        again.restore(rows.marks())
        assert again.read(KEY, 0, 99_999) == some(0, 13_005)
        assert not damages(again)


def test_another_error_than_a_full_disk_is_not_hidden() -> None:
    """EIO while writing: the owner is told by the append itself."""
    files = FaultyFiles()
    rows = opened(DIRECTORY, files)
    files.fail_next("pwrite", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        rows.append(KEY, 0, some(0, 12_000))


def test_damage_at_any_byte_is_told_and_never_read() -> None:
    """Flip a bit of every byte of every file, under running rows and before a start: damage, or the rows as they were."""
    files = FaultyFiles()
    rows = flushed(DIRECTORY, 61, files)  # the incomplete block: rows 60 and on, of which the disk has one
    marks = rows.marks()
    whole = some(0, 61)
    for file, suffix in ((0, ""), (0, ".crc"), (1, ""), (1, ".crc"), (2, ""), (2, ".crc")):
        content = files.content(path(DIRECTORY, file, suffix))
        for at in range(len(content)):
            content[at] ^= 1 << at % 8
            found = damages(rows)
            assert [damage.file for damage in found] == [path(DIRECTORY, file)]
            position = at if not suffix else at // 4 * BLOCK * SIZE
            assert found[0].position == position // (BLOCK * SIZE) * BLOCK * SIZE
            refused = 0
            for reader in (rows, opened(DIRECTORY, files)):
                try:
                    if reader is not rows:
                        reader.restore(marks)
                    for row in range(61):
                        try:
                            assert reader.read(KEY, row, 3) == whole[row * SIZE : (row + 3) * SIZE]
                        except DerivedDamage:
                            refused += 1
                except DerivedDamage as damage:
                    refused += 1
                    assert damage.position >= 16 * SIZE
                    assert reader.keys() == []
                reader._folders.close_files()
            assert refused
            content[at] ^= 1 << at % 8
    assert not damages(rows)


def test_a_missing_or_short_file_is_damage_at_once_and_changes_nothing(tmp_path: Path) -> None:
    """Cut or remove each file in turn: restore refuses, running rows refuse reads, and verify names the file."""
    rows = flushed(tmp_path, 61)
    marks = rows.marks()
    for file, suffix in ((0, ""), (0, ".crc"), (1, ""), (1, ".crc"), (2, ""), (2, ".crc")):
        one = path(tmp_path, file, suffix)
        whole = one.read_bytes()
        names = sorted(tmp_path.rglob("*"))
        for short in (None, b"", whole[:-1]):
            if short is None:
                one.unlink()
            else:
                one.write_bytes(short)
            rows._folders.close_files()
            assert one in [damage.file for damage in damages(rows)]
            again = opened(tmp_path)
            with pytest.raises(DerivedDamage) as raised:
                again.restore(marks)
            assert (raised.value.file, again.keys()) == (one, [])
            assert len(short or b"") <= raised.value.position < len(whole) or short is None
        one.write_bytes(whole)
        assert sorted(tmp_path.rglob("*")) == names
    rows._folders.close_files()
    again.restore(marks)
    assert again.read(KEY, 0, 99) == some(0, 61)


def test_a_sector_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    """EIO from a read becomes DerivedDamage; any other error of the system passes through as it is."""

    class Failing(RealFiles):
        error = 0

        def pread(self, fd: int, size: int, position: int) -> bytes:
            if self.error:
                raise OSError(self.error, os.strerror(self.error))
            return super().pread(fd, size, position)

    files = Failing()
    rows = flushed(tmp_path, 20, files)
    files.error = errno.EIO
    with pytest.raises(DerivedDamage, match="cannot read"):
        rows.read(KEY, 0, 1)
    assert len(damages(rows)) == 2
    files.error = errno.ENOMEM
    with pytest.raises(OSError, match="memory") as raised:
        rows.read(KEY, 0, 1)
    assert raised.value.errno == errno.ENOMEM


def test_verify_reads_every_byte_on_disk_once_while_the_owner_goes_on(tmp_path: Path) -> None:
    """Sizes add up; rows that are added, trimmed or removed between two steps do no harm."""
    rows = flushed(tmp_path, 50)
    rows.append((8,), 0, some(0, 2000))
    rows.flush().run()
    total = sum(found.size_bytes for found in rows.verify() if isinstance(found, Checked))
    assert total == (50 + 2000) * SIZE
    steps = rows.verify()
    for number, found in enumerate(steps):
        assert isinstance(found, Checked)
        if number == 0:
            rows.append(KEY, 50, some(50, 30))
            rows.flush().run()
            rows.trim(KEY, 40)
        if number == 5:
            rows.remove((8,))
            rows.append((8,), 0, some(0, 3))


def test_wipe_removes_every_file_also_those_of_other_sizes(tmp_path: Path) -> None:
    """What another release left, with more rows a file, goes as well; what is not ours stays."""
    rows = flushed(tmp_path, 50)
    path(tmp_path, 0).with_name(f"{77:020d}").write_bytes(b"x")
    stranger = tmp_path / "7" / "notes.txt"
    stranger.write_text("mine")
    rows.wipe()
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [stranger]
    assert (rows.keys(), rows.end(KEY)) == ([], 0)
    rows.append(KEY, 0, some(0, 50))
    rows.flush().run()
    again = opened(tmp_path)
    again.restore(rows.marks())
    assert again.read(KEY, 0, 99) == some(0, 50)
