"""Rows on disk in blocks: their places, the checks beside them, and the files that a sequence
needs.

 rows   | block 0: 64 rows | block 1 | ... | last block: what is left of the file |
 .crc   | crc 4 | crc 4 | ... |    big-endian, one for each whole block
A crc is crc32 over the block, begun with the sequence's *life*, a number that no other sequence
had. Rows of a removed sequence are therefore never taken for rows of a later one with the same key.
Only whole blocks have a check, and only they are read here. The incomplete block at a sequence's
end is read once, by `load`, whose caller has its check.
"""

import struct

from tern_store.checksum import crc32
from tern_store.errors import DerivedDamage
from tern_store.queues.row_folders import CHECKS, ROWS, Key, RowFolders

CHECK_SIZE_BYTES = 4


class RowBlocks:
    """Rows of one size in files of one size. Each file begins with a new block. Owner: RowFiles."""

    def __init__(self, folders: RowFolders, row_size_bytes: int, rows_per_file: int, block_rows: int) -> None:
        self._folders, self._row_size_bytes = folders, row_size_bytes
        self.rows_per_file, self.block_rows = rows_per_file, block_rows
        self._block_size_bytes = block_rows * row_size_bytes

    def floor(self, row: int) -> int:
        """The first row of the block with *row*."""
        return row - row % self.rows_per_file % self.block_rows

    def file_end(self, row: int) -> int:
        """The first row of the file behind the one with *row*."""
        return row - row % self.rows_per_file + self.rows_per_file

    def needs(self, first: int, end: int, file: int, suffix: str) -> bool:
        """Whether a sequence with rows [first, end), all on disk, needs the rows or checks of a
        file.
        It needs the rows from the block of its first row on, and the checks of the whole blocks
        among them.
        """
        begin = file * self.rows_per_file
        stop = min(begin + self.rows_per_file, end)
        return max(begin, self.floor(first)) < (stop if suffix == ROWS else self.floor(stop))

    def write(self, key: Key, life: int, base: int, written: int, tail: bytes) -> int:
        """Write rows of *tail* from *written* on, and the checks of blocks that they complete.
        *tail* begins at *base*. Returns the row behind the last whole block. OSError: some rows may
        have been written; repeat the call.
        """
        size, view = self._row_size_bytes, memoryview(tail)
        start, row, end = base, written, base + len(tail) // self._row_size_bytes
        while row < end:
            file, at = divmod(row, self.rows_per_file)
            stop = min(end, self.file_end(row))
            self._folders.write((key, file, ROWS), view[(row - start) * size : (stop - start) * size], at * size)
            whole = self.floor(stop)
            if whole > base:
                checks = self._checks(view[(base - start) * size : (whole - start) * size], life)
                self._folders.write((key, file, CHECKS), checks, self._check_position(base))
                base = whole
            row = stop
        return base

    def read(self, key: Key, life: int, row: int, stop: int) -> bytes:
        """The rows [row, stop) of whole blocks, at most to the end of *row*'s file.
        DerivedDamage.
        """
        file, size = row // self.rows_per_file, self._row_size_bytes
        begin, file_end = self.floor(row), self.file_end(row)
        stop = min(stop, file_end)
        blocks = -(-(stop - begin) // self.block_rows)
        position = begin % self.rows_per_file * size
        length = (min(begin + blocks * self.block_rows, file_end) - begin) * size
        data = self._folders.read((key, file, ROWS), position, length)
        checks = self._folders.read((key, file, CHECKS), self._check_position(begin), blocks * CHECK_SIZE_BYTES)
        found = self._checks(data, life)
        if found != checks:
            at = next(at for at in range(0, len(found), 4) if found[at : at + 4] != checks[at : at + 4]) // 4
            path = self._folders.path((key, file, ROWS))
            raise DerivedDamage(path, position + at * self._block_size_bytes, "a block and its check disagree")
        if len(data) == (stop - row) * size:
            return data
        return data[(row - begin) * size : (stop - begin) * size]

    def compare(self, key: Key, base: int, tail: bytes) -> None:
        """Raise DerivedDamage unless the disk has *tail* as the incomplete block that begins at
        *base*.
        """
        file, at = divmod(base, self.rows_per_file)
        position = at * self._row_size_bytes
        if tail and self._folders.read((key, file, ROWS), position, len(tail)) != tail:
            path = self._folders.path((key, file, ROWS))
            raise DerivedDamage(path, position, "the last rows are not those that were written")

    def load(self, key: Key, first: int, end: int, check: int) -> bytes:
        """The rows of the incomplete block before *end*; *check* is their crc32.
        DerivedDamage if they differ, or if a file with rows or checks of [first, end) is missing or
        short.
        """
        base, size, tail = self.floor(end), self._row_size_bytes, b""
        for file in range(first // self.rows_per_file, -(-end // self.rows_per_file)):
            begin = file * self.rows_per_file
            stop = min(end, begin + self.rows_per_file)
            if self.needs(first, end, file, CHECKS):
                last = self._check_position(self.floor(stop) - 1)
                self._folders.read((key, file, CHECKS), last, CHECK_SIZE_BYTES, keep_open=False)
            if stop == end > base:
                position, length = (base - begin) * size, (end - base) * size
                tail = self._folders.read((key, file, ROWS), position, length, keep_open=False)
                if crc32(tail) != check:
                    path = self._folders.path((key, file, ROWS))
                    raise DerivedDamage(path, position, "the last rows are not those of the saved state")
            elif self.needs(first, end, file, ROWS):
                self._folders.read((key, file, ROWS), (stop - begin) * size - 1, 1, keep_open=False)
        return tail

    def _check_position(self, row: int) -> int:
        return row % self.rows_per_file // self.block_rows * CHECK_SIZE_BYTES

    def _checks(self, data: bytes | memoryview, life: int) -> bytes:
        """The checks of consecutive whole blocks of one file."""
        view, size = memoryview(data), self._block_size_bytes
        crcs = [crc32(view[at : at + size], life) for at in range(0, len(view), size)]
        return struct.pack(f">{len(crcs)}I", *crcs)
