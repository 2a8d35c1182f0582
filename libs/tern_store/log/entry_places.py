"""Place of every log entry: rows of the entry index, and lost rows derived again from the log."""

from tern_store.log.entry import EntryHeader, EntryKind, LogMark
from tern_store.log.entry_index import EntryIndex, IndexRow
from tern_store.log.recovery import LogScan
from tern_store.log.segment import Segments


class EntryPlaces:
    """Rows of one log. Owner: the commit log."""

    def __init__(self, index: EntryIndex, segments: Segments, start: LogMark, entry_size_max_bytes: int) -> None:
        self._index, self._segments, self._start = index, segments, start
        self._entry_size_max_bytes = entry_size_max_bytes
        # Entries of kind PASS_OVER that the last `scan` read.
        self.pass_overs: list[int] = []

    def begin(self, start: LogMark) -> None:
        """Begin the log at *start*; earlier rows are dropped."""
        self._start = start
        self._index.drop_before(start.index + 1)
        self._index.skip_to(start.index)

    def find(self, index: int) -> IndexRow | None:
        """The row of *index*, an entry of the log; None if the log cannot be read that far."""
        return self._index.find(index) or self._find_again(index)

    def put(self, index: int, position: int, term: int, size: int, crc: int) -> None:
        """Add the row of the log's new last entry."""
        self._index.put(index, position, term, size, crc)

    def scan(self, start: LogMark) -> LogScan:
        """Read the log from *start* to its end and write its rows again."""
        self._index.cut(start.index)
        self._index.skip_to(start.index)
        self.pass_overs = []
        scan = LogScan(self._segments, start, self._entry_size_max_bytes)
        for header in scan:
            self._put_header(header)
            if header.kind is EntryKind.PASS_OVER:
                self.pass_overs.append(header.index)
        return scan

    def cut(self, index: int) -> None:
        """Durable here: no row behind that of *index* is left."""
        self._index.cut(index)

    def close(self) -> None:
        """Write waiting rows and close the files."""
        self._index.close()

    def abandon(self) -> None:
        """Close the files without writing."""
        self._index.abandon()

    def _find_again(self, index: int) -> IndexRow | None:
        """Write lost rows again, from the last intact one before *index*."""
        known = min(index - 1, self._index.count)
        while known > self._start.index and self._index.find(known) is None:
            known -= 1
        row = self._index.find(known) if known > self._start.index else None
        begin = row.mark if row is not None else self._start
        for header in LogScan(self._segments, begin, self._entry_size_max_bytes):
            self._put_header(header)
            if header.index == index:
                return self._index.find(index)
        return None

    def _put_header(self, header: EntryHeader) -> None:
        self._index.put(header.index, header.position, header.term, header.size, header.crc)
