"""Places of the entries: `entryindex/{20-digit first index}`, fixed rows, O(1), little memory.

 0          8      16     20    24        28         32
 | position | term | size | crc | check 4 | reserved |    big-endian; row of index i is number i - 1

Law: all rows can be derived from the log, so only cuts are synced. The check (crc32 of the index
and the row's first 24 bytes) tells intact rows from rows that a crash lost; since cuts are durable,
an intact row is never stale.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from tern_store.checksum import crc32
from tern_store.files import Files, discard, is_done, unless_worn
from tern_store.log.entry import LogMark

_ROW = struct.Struct(">QQIIII")
_POSITION = struct.Struct(">Q")
_FACTS = struct.Struct(">QQQII")
ROW_SIZE_BYTES = _ROW.size
ROWS_PER_FILE = 1 << 20
# Rows are written in blocks: one system call per 2,048 entries.
TAIL_SIZE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One entry's place; *size* counts header and body."""

    index: int
    position: int
    term: int
    size: int
    crc: int

    @property
    def mark(self) -> LogMark:
        """The point behind this entry."""
        return LogMark(self.index, self.position + self.size, self.crc, self.term)


class EntryIndex:
    """Rows of one log. Owner: the commit log."""

    def __init__(self, directory: Path, files: Files, rows_per_file: int = ROWS_PER_FILE) -> None:
        self._directory, self._files, self._rows_per_file = directory, files, rows_per_file
        self._fds: dict[int, int] = {}
        files.makedirs(directory)
        self._written = 0  # rows in files; later rows are in the tail
        for number in self._numbers():
            size = files.size(self._fd(number))
            self._written = number * rows_per_file + min(size // ROW_SIZE_BYTES, rows_per_file)
        self._tail = bytearray()
        self._write_at_bytes = TAIL_SIZE_BYTES

    @property
    def count(self) -> int:
        """Number of rows, lost rows included."""
        return self._written + len(self._tail) // ROW_SIZE_BYTES

    def find(self, index: int) -> IndexRow | None:
        """The row of *index*; None if it is absent, lost by a crash, or unreadable."""
        number = index - 1
        if number >= self._written:
            at = (number - self._written) * ROW_SIZE_BYTES
            if at >= len(self._tail):
                return None
            # Still in memory and unchanged: the check is only for rows that come back from a disk.
            position, term, size, crc, _, _ = _ROW.unpack_from(self._tail, at)
            return IndexRow(index, position, term, size, crc)
        file, row = divmod(number, self._rows_per_file)
        if file not in self._fds:
            return None
        data = unless_worn(lambda: self._files.pread(self._fds[file], ROW_SIZE_BYTES, row * ROW_SIZE_BYTES)) or b""
        if len(data) < ROW_SIZE_BYTES:
            return None
        position, term, size, crc, check, _ = _ROW.unpack(data)
        if check != crc32(_FACTS.pack(index, position, term, size, crc)):
            return None
        return IndexRow(index, position, term, size, crc)

    def position(self, index: int) -> int | None:
        """The position in the row of *index*, or None as in `find`; faster than `find`."""
        at = (index - 1 - self._written) * ROW_SIZE_BYTES
        if 0 <= at < len(self._tail):
            position: int = _POSITION.unpack_from(self._tail, at)[0]
            return position
        row = self.find(index)
        return None if row is None else row.position

    def drop_before(self, index: int) -> None:
        """Unlink files with only rows before *index*; a refused removal is repeated next time."""
        numbers: list[int] = []
        is_done(lambda: numbers.extend(self._numbers()))
        for number in numbers:
            if (number + 1) * self._rows_per_file < index:
                fd = self._fds.pop(number, None)
                if fd is not None:
                    self._files.close(fd)
                discard(self._path(number), self._files)

    def put(self, index: int, position: int, term: int, size: int, crc: int) -> None:
        """Add the next row, or write an earlier one again."""
        check = crc32(_FACTS.pack(index, position, term, size, crc))
        row = _ROW.pack(position, term, size, crc, check, 0)
        number = index - 1
        assert number <= self.count, "rows come one after the other"
        if number < self._written:
            # If refused, the row counts as lost and can be derived again.
            is_done(lambda: self._write(number, row))
            return
        at = (number - self._written) * ROW_SIZE_BYTES
        self._tail[at : at + ROW_SIZE_BYTES] = row
        if len(self._tail) >= self._write_at_bytes:
            self._write_tail_if_room()

    def skip_to(self, count: int) -> None:
        """Count at least *count* rows; rows that were never put count as lost."""
        if self.count < count:
            self._write_tail_if_room()
            if self._tail:  # no room: these rows count as lost too, and can be derived again
                self._tail, self._write_at_bytes = bytearray(), TAIL_SIZE_BYTES
            self._written = count

    def cut(self, count: int) -> None:
        """Durable here: no row behind the first *count* is left."""
        kept = max(0, count - self._written)
        del self._tail[kept * ROW_SIZE_BYTES :]
        if count >= self._written:
            return
        file, row = divmod(count, self._rows_per_file)
        for number in reversed(self._numbers()):
            if number > file or (number == file and not row):
                self._files.close(self._fd(number))
                del self._fds[number]
                self._files.unlink(self._path(number))
            elif number == file:
                self._files.ftruncate(self._fd(number), row * ROW_SIZE_BYTES)
                self._files.fdatasync(self._fd(number))
        self._files.fsync_dir(self._directory)
        self._written = count

    def close(self) -> None:
        """Write the tail and close the files."""
        self._write_tail_if_room()
        self.abandon()

    def abandon(self) -> None:
        """Close the files without writing."""
        for fd in self._fds.values():
            self._files.close(fd)
        self._fds.clear()

    def _write_tail_if_room(self) -> None:
        if not is_done(lambda: self._write(self._written, self._tail)):
            # Kept in memory until there is room; a full disk stops the log before these rows add
            # up.
            self._write_at_bytes = len(self._tail) + TAIL_SIZE_BYTES
            return
        self._written += len(self._tail) // ROW_SIZE_BYTES
        self._tail = bytearray()
        self._write_at_bytes = TAIL_SIZE_BYTES

    def _write(self, number: int, rows: bytes | bytearray) -> None:
        at = 0
        while at < len(rows):
            file, row = divmod(number + at // ROW_SIZE_BYTES, self._rows_per_file)
            part = rows[at : at + (self._rows_per_file - row) * ROW_SIZE_BYTES]
            self._files.pwrite(self._fd(file), part, row * ROW_SIZE_BYTES)
            at += len(part)

    def _numbers(self) -> list[int]:
        names = [name for name in self._files.listdir(self._directory) if len(name) == 20 and name.isdecimal()]
        return [(int(name) - 1) // self._rows_per_file for name in names]

    def _path(self, number: int) -> Path:
        return self._directory / f"{number * self._rows_per_file + 1:020d}"

    def _fd(self, number: int) -> int:
        if number not in self._fds:
            self._fds[number] = self._files.open(self._path(number), create=True)
        return self._fds[number]
