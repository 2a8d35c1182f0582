"""Offline check of the entry index: every entry of the log has its row, and the row is right.

Rows are never synced, so a crash may have lost some, which are zeros then. After a clean stop all
are there.
"""

from pathlib import Path

import numpy as np

from tern_store.checks.finding import FindingKind, Findings
from tern_store.files import Files
from tern_store.log.entry import EntryHeader
from tern_store.log.entry_index import ROW_SIZE_BYTES, ROWS_PER_FILE, EntryIndex, IndexRow


class EntryIndexCheck:
    """Compares rows with the entries of one pass over the log. Owner: that pass."""

    def __init__(self, directory: Path, index: EntryIndex, files: Files, findings: Findings, *, is_clean: bool) -> None:
        self._directory, self._index, self._files, self._findings = directory, index, files, findings
        self._is_clean = is_clean
        # The first and last of a run of entries without an intact row.
        self._lost: tuple[int, int] | None = None

    def check(self, headers: list[EntryHeader]) -> None:
        """Compare the rows of *headers*, which are intact entries in ascending order."""
        find = self._index.find
        self._check_reserved(headers[0].index, headers[-1].index)
        for header in headers:
            row = find(header.index)
            if row is None:
                self._lose(header.index)
            elif row != IndexRow(header.index, header.position, header.term, header.size, header.crc):
                reason = (
                    f"the row of entry {header.index} says position {row.position}, size {row.size}, term {row.term}"
                )
                self._add(header.index, f"{reason}; the log says {header.position}, {header.size}, {header.term}")

    def close(self, end_index: int) -> None:
        """End the check at the log's last entry, *end_index*."""
        del end_index
        self._report_lost()

    def _check_reserved(self, first: int, last: int) -> None:
        """Check that the bytes outside every checksum are zero."""
        while first <= last:
            stop = min(last, (first - 1) // ROWS_PER_FILE * ROWS_PER_FILE + ROWS_PER_FILE)
            raw = self._raw(first, stop) or b""
            words = np.frombuffer(raw, ">u4", len(raw) // ROW_SIZE_BYTES * ROW_SIZE_BYTES // 4).reshape(-1, 8)
            for number in np.flatnonzero(words[:, 7])[:1].tolist():
                self._add(first + number, f"the row of entry {first + number} has bytes where nothing is written")
            first = stop + 1

    def _lose(self, index: int) -> None:
        if self._lost is not None and self._lost[1] == index - 1 and (index - 1) % ROWS_PER_FILE:
            self._lost = (self._lost[0], index)
            return
        self._report_lost()
        self._lost = (index, index)

    def _report_lost(self) -> None:
        if self._lost is None:
            return
        (first, last), self._lost = self._lost, None
        raw = self._raw(first, last)
        what = f"the rows of entries {first} to {last} are" if last > first else f"the row of entry {first} is"
        if raw is None:
            self._add(first, f"{what} missing: there is no such file", is_damage=self._is_clean)
        elif any(raw[: len(raw) // ROW_SIZE_BYTES * ROW_SIZE_BYTES]):
            self._add(first, f"{what} damaged")
        else:
            how = "cut off" if len(raw) < (last - first + 1) * ROW_SIZE_BYTES else "zero"
            self._add(first, f"{what} {how}", is_damage=self._is_clean)

    def _raw(self, first: int, last: int) -> bytes | None:
        path, position = self._place(first)
        try:
            fd = self._files.open(path)
        except FileNotFoundError:
            return None
        try:
            return self._files.pread(fd, (last - first + 1) * ROW_SIZE_BYTES, position)
        finally:
            self._files.close(fd)

    def _place(self, index: int) -> tuple[Path, int]:
        file, row = divmod(index - 1, ROWS_PER_FILE)
        return self._directory / f"{file * ROWS_PER_FILE + 1:020d}", row * ROW_SIZE_BYTES

    def _add(self, index: int, reason: str, *, is_damage: bool = True) -> None:
        self._findings.add(FindingKind.DERIVED, *self._place(index), reason, is_damage=is_damage)
