"""The files of the key index as ranges of bytes: RocketMQ's `index/{20 digits}`, and their checks.

 file:    0        40         40 + 4 * slots
   | header | slots ...| entry 0 (unused) | entry 1 | ...    see `tern_wire.records.index_layout`
   |-- pages of 4,096 -|---- blocks of 64 entries, 1,280 bytes ----|
 {20 digits}.crc:  | crc of block 0: 4 | block 1: 4 | ... | crc of page 0: 4 | ...    big-endian
A file is named by the position of its first record, or by the last name plus one if two files begin
in one record.

Law: every byte returned is covered by its check. A check is written once, when its block or page is
complete; the last page and the last block may be short.
"""

import errno
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tern_store.checksum import crc32
from tern_store.errors import DerivedDamage
from tern_store.files import Buffer, Files, discard
from tern_store.log.sync_job import SyncJob
from tern_store.open_files import OpenFiles
from tern_wire.records.index_layout import INDEX_ENTRY_SIZE_BYTES, INDEX_HEADER_SIZE_BYTES, INDEX_SLOT_SIZE_BYTES

FOLDER = "index"
BLOCK_ENTRIES = 64
PAGE_SIZE_BYTES = 4096
CHECK_SIZE_BYTES = 4
# Open data and check files; a look-up in older files opens and closes them.
OPEN_FILES_MAX = 16
# Verified pages and blocks in memory, at most 2 MiB: the chains of a few keys.
PIECES_MAX = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of the file in pieces of *piece_bytes*, the last possibly shorter.
    *first_check* is the number of its first check.
    """

    start: int
    stop: int
    piece_bytes: int
    first_check: int

    @property
    def pieces(self) -> int:
        """Number of pieces."""
        return -(-(self.stop - self.start) // self.piece_bytes)

    def span(self, first: int, count: int) -> tuple[int, int]:
        """Byte range in the file of *count* pieces from number *first* on."""
        begin = self.start + first * self.piece_bytes
        return begin, min(begin + count * self.piece_bytes, self.stop)


class IndexShape:
    """Sizes of every file. As in RocketMQ, entry 0 stays unused, so a file has one entry less."""

    def __init__(self, slots: int, entries_per_file: int) -> None:
        if slots < 1 or entries_per_file < 2:
            raise ValueError(f"an index needs 1 slot and 2 entries at least, not {slots} and {entries_per_file}")
        self.slots, self.entries_per_file = slots, entries_per_file
        head_bytes = INDEX_HEADER_SIZE_BYTES + slots * INDEX_SLOT_SIZE_BYTES
        self.size_bytes = head_bytes + entries_per_file * INDEX_ENTRY_SIZE_BYTES
        block_bytes = BLOCK_ENTRIES * INDEX_ENTRY_SIZE_BYTES
        self.blocks = Region(start=head_bytes, stop=self.size_bytes, piece_bytes=block_bytes, first_check=0)
        self.pages = Region(start=0, stop=head_bytes, piece_bytes=PAGE_SIZE_BYTES, first_check=self.blocks.pieces)
        self.checks_size_bytes = (self.blocks.pieces + self.pages.pieces) * CHECK_SIZE_BYTES


def checks_of(data: Buffer, piece_bytes: int) -> bytes:
    """The checks of the pieces in *data*."""
    view = memoryview(data)
    crcs = [crc32(view[at : at + piece_bytes]) for at in range(0, len(view), piece_bytes)]
    return np.array(crcs, ">u4").tobytes()


class IndexFolder:
    """Reads and writes by file name and place.
    Owner: the core loop; only `SyncJob.run` runs elsewhere.
    """

    def __init__(self, directory: Path, shape: IndexShape, files: Files) -> None:
        """*directory* is the node's."""
        self.shape = shape
        self._directory, self._files = directory / FOLDER, files
        files.makedirs(self._directory)
        self._open_files: OpenFiles[Path] = OpenFiles(files, OPEN_FILES_MAX)
        self._dirty: dict[Path, None] = {}
        self._has_new_names = False
        self._pieces: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def path(self, base: int) -> Path:
        """The file of RocketMQ's layout."""
        return self._directory / f"{base:020d}"

    def checks_path(self, base: int) -> Path:
        """The file of its checks."""
        return self._directory / f"{base:020d}.crc"

    def bases(self) -> list[int]:
        """Names of the existing files, complete or not, ascending."""
        names = {name.removesuffix(".crc") for name in self._files.listdir(self._directory)}
        return sorted(int(name) for name in names if len(name) == 20 and name.isdecimal())

    # Read -----------------------------------------------------------------------------------------
    def piece(self, base: int, region: Region, number: int) -> bytes:
        """One complete page or block. DerivedDamage if it differs from what was written."""
        key = (base, region.first_check + number)
        found = self._pieces.get(key)
        if found is not None:
            self._pieces.move_to_end(key)
            return found
        found = self._pieces[key] = self.run(base, region, number, 1)
        if len(self._pieces) > PIECES_MAX:
            self._pieces.popitem(last=False)
        return found

    def run(self, base: int, region: Region, first: int, count: int) -> bytes:
        """*count* complete pieces from *first* on, read from the disk.
        DerivedDamage names the first bad.
        """
        begin, end = region.span(first, count)
        data = self.read(self.path(base), begin, end)
        at = (region.first_check + first) * CHECK_SIZE_BYTES
        wanted = self.read(self.checks_path(base), at, at + count * CHECK_SIZE_BYTES)
        if (found := checks_of(data, region.piece_bytes)) != wanted:
            bad = np.frombuffer(found, ">u4") != np.frombuffer(wanted, ">u4")
            position = begin + int(np.flatnonzero(bad)[0]) * region.piece_bytes
            raise DerivedDamage(self.path(base), position, "the checksum does not match")
        return data

    def read(self, path: Path, begin: int, end: int) -> bytes:
        """Unverified bytes of a file; DerivedDamage if it is missing, short or unreadable."""
        try:
            data = self._files.pread(self._fd(path), end - begin, begin)
        except FileNotFoundError as error:
            raise DerivedDamage(path, begin, "the file is missing") from error
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise DerivedDamage(path, begin, "the disk cannot read it") from error
        if len(data) < end - begin:
            raise DerivedDamage(path, begin + len(data), "the file ends here")
        return data

    def require_size(self, path: Path, size_bytes: int) -> None:
        """Raise DerivedDamage unless the file has at least *size_bytes*."""
        if size_bytes:
            self.read(path, size_bytes - 1, size_bytes)

    # Write ----------------------------------------------------------------------------------------
    def write(self, path: Path, data: Buffer, position: int) -> None:
        """Write at *position*; the next job makes it durable. OSError: repeat the call."""
        fd = self._fd(path, create=True)
        self._dirty[path] = None
        self._files.pwrite(fd, data, position)

    def stretch(self, base: int) -> None:
        """Give the file its full size; unwritten parts read as zeros."""
        path = self.path(base)
        fd = self._fd(path, create=True)
        self._dirty[path] = None
        self._files.ftruncate(fd, self.shape.size_bytes)

    def take_job(self) -> SyncJob:
        """Durable here: everything written since the last job, once this one has run."""
        directories = (self._directory,) if self._has_new_names else ()
        job = SyncJob(files=self._files, paths=tuple(self._dirty), directories=directories)
        self._dirty, self._has_new_names = {}, False
        return job

    def remove(self, base: int) -> None:
        """Unlink a file and its checks. Not durable: a name that reappears is removed again."""
        for path in (self.path(base), self.checks_path(base)):
            self._dirty.pop(path, None)
            self._open_files.close(path)
            discard(path, self._files)

    def close_files(self) -> None:
        """Close all open files. The next write or read opens its own again."""
        self._open_files.close_all()

    def close(self) -> None:
        """Close the files; forget read pieces and unsynced files."""
        self.close_files()
        self._pieces.clear()
        self._dirty, self._has_new_names = {}, False

    def _fd(self, path: Path, *, create: bool = False) -> int:
        fd = self._open_files.get(path)
        if fd is not None:
            return fd
        return self._open_files.open(path, partial(self._create if create else self._files.open, path))

    def _create(self, path: Path) -> int:
        try:
            return self._files.open(path)
        except FileNotFoundError:
            fd = self._files.open(path, create=True)
            self._has_new_names = True
            return fd
