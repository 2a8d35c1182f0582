"""Records of the log, verified: every byte returned is covered by its entry's checksum.

The first read of an entry in a process checks the whole entry and remembers it in one bit. Later
reads take its records alone, since the bytes that the checksum covered come from the page cache.
Adjacent records are read into place with one scattered read: the entry's other bytes go into
buffers of their own, so nothing is copied twice.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tern_store.errors import EntryRefused, LogRot, StoreError
from tern_store.files import Buffer
from tern_store.log.entry import HEADER_SIZE_BYTES, EntryHeader, StoredEntry, crc_of_parts, decode_header, stored
from tern_store.log.entry_index import IndexRow
from tern_store.log.segment import Segments

# Rows of the entry index loaded together: a search costs some twenty reads, reads after it none.
WINDOW_ROWS = 256
# Verified entries are remembered in chunks of bits; the oldest chunks are dropped. 2 MiB for 16
# million entries.
_CHUNK_BITS = 4096
CHUNKS_MAX = 4096
# A gap between two records up to this size is cheaper to read than to skip.
GAP_SIZE_MAX_BYTES = 64 << 10
# Fewer pieces of one size are gathered faster without numpy.
GATHER_ROWS_MIN = 16

Positions = npt.NDArray[np.int64]
# Positions and sizes of records of one entry, ascending.
Spans = tuple[Positions, Positions]


class VerifiedEntries:
    """Entries that this process has read and verified. Owner: the log reader."""

    def __init__(self) -> None:
        self._chunks: OrderedDict[int, bytearray] = OrderedDict()

    def __contains__(self, index: int) -> bool:
        chunk = self._chunks.get(index // _CHUNK_BITS)
        return chunk is not None and bool(chunk[index % _CHUNK_BITS >> 3] >> (index & 7) & 1)

    def add(self, index: int) -> None:
        """Remember that entry *index* is intact."""
        number = index // _CHUNK_BITS
        chunk = self._chunks.get(number)
        if chunk is None:
            if len(self._chunks) >= CHUNKS_MAX:
                self._chunks.popitem(last=False)
            chunk = self._chunks[number] = bytearray(_CHUNK_BITS // 8)
        chunk[index % _CHUNK_BITS >> 3] |= 1 << (index & 7)

    def forget(self) -> None:
        """Forget every verification."""
        self._chunks.clear()


class LogReader:
    """Reads records by position. Owner: the commit log."""

    def __init__(
        self,
        segments: Segments,
        *,
        row: Callable[[int], IndexRow],
        begin: Callable[[int], int | None],
        bounds: Callable[[], tuple[int, int]],
        recent: Callable[[int], StoredEntry | None],
    ) -> None:
        """Set up the look-ups of entries and their places.
        *row*: index to the entry's row. *begin*: index to the entry's begin, None if only *row* has
        it. *bounds*: the first and the last index. *recent*: position to an entry in memory.
        """
        self._segments = segments
        self._row, self._begin, self._bounds, self._recent = row, begin, bounds, recent
        self._verified = VerifiedEntries()
        # Bytes of one entry at most.
        self._buffer = bytearray()
        # Begin positions of a run of entries, and the rows of those that were read.
        self._window_first = 0
        self._window_positions: list[int] = []
        self._window: dict[int, IndexRow] = {}

    def forget(self) -> None:
        """Forget everything known of the log's end, after a cut."""
        self._window, self._window_positions = {}, []
        self._verified.forget()

    def distrust(self) -> None:
        """Verify every entry again at its next read: verified entries may be damaged since."""
        self._verified.forget()

    def entry(self, row: IndexRow) -> StoredEntry:
        """Read and verify the entry at *row*; LogRot if it is damaged."""
        raw = bytes(self._bytes(row.position, row.size))
        return stored(self._verify(row, [raw]), raw)

    def read(self, positions: Positions, sizes: Positions) -> memoryview:
        """Concatenate the bytes at *positions* (shape (n,)), *sizes* each; the result is writable.
        Each range must lie within one entry. LogRot if an entry is damaged; StoreError for a
        position outside the log.
        """
        ends = sizes.cumsum()
        data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        out = data.data
        rising = len(positions) == 1 or bool((positions[1:] > positions[:-1]).all())
        done, begin = 0, 0
        while done < len(positions):
            first = int(positions[done])
            recent = self._recent(first)
            row = None if recent is not None else self._find(first)
            stop = recent.position + len(recent.raw) if recent is not None else _end(row)
            until = int(positions.searchsorted(stop)) if rising else _rising_until(positions, done, stop)
            last, end = int(positions[until - 1] + sizes[until - 1]), int(ends[until - 1])
            if last > stop:
                raise StoreError(f"bytes {int(positions[until - 1])} to {last} are not in one entry")
            place = out[begin:end]
            spans = (positions[done:until], sizes[done:until])
            if recent is not None:
                _gather(place, memoryview(recent.raw)[first - recent.position : last - recent.position], spans)
            elif row is not None:
                self._read_entry(place, row, spans, last)
            done, begin = until, end
        return out

    # One entry ------------------------------------------------------------------------------------
    def _read_entry(self, place: memoryview, row: IndexRow, spans: Spans, last: int) -> None:
        positions, sizes = spans
        first, stop = int(positions[0]), row.position + row.size
        is_together = last - first == len(place)
        if row.index in self._verified:
            if is_together:
                self._fill([place], first)
            elif last - first <= 2 * len(place) + len(sizes) * GAP_SIZE_MAX_BYTES:
                _gather(place, self._passing(first, last - first), spans)
            else:
                for position, size in zip(positions.tolist(), sizes.tolist(), strict=True):
                    self._fill([place[:size]], position)
                    place = place[size:]
            return
        if is_together and first - row.position >= HEADER_SIZE_BYTES:
            head, tail = bytearray(first - row.position), bytearray(stop - last)
            self._fill([head, place, tail], row.position)
            self._verify(row, [head, place, tail])
            return
        raw = self._bytes(row.position, row.size)
        self._verify(row, [raw])
        _gather(place, memoryview(raw)[first - row.position : last - row.position], spans)

    def _verify(self, row: IndexRow, parts: Sequence[Buffer]) -> EntryHeader:
        try:
            header = decode_header(parts[0])
            if (header.index, header.position, header.size) != (row.index, row.position, row.size):
                raise EntryRefused(f"entry {row.index} was expected, entry {header.index} is there")
            if not crc_of_parts(parts) == header.crc == row.crc:
                raise EntryRefused(f"entry {row.index} has a wrong checksum")
        except EntryRefused as refused:
            raise LogRot(self._path(row.position), row.position, refused.reason) from refused
        self._verified.add(row.index)
        return header

    def _bytes(self, position: int, size: int) -> bytearray:
        data = bytearray(size)
        self._fill([data], position)
        return data

    def _passing(self, position: int, size: int) -> memoryview:
        """Read into a buffer that the next call overwrites: new memory would cost more than the
        read.
        """
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        self._fill([view], position)
        return view

    def _fill(self, buffers: list[bytearray | memoryview], position: int) -> None:
        wanted = sum(map(len, buffers))
        buffers = [buffer for buffer in buffers if len(buffer)]
        if (found := self._segments.read_into(buffers, position)) < wanted:
            raise LogRot(self._path(position), position, f"the segment ends {wanted - found} bytes too early")

    def _path(self, position: int) -> Path:
        segment = self._segments.at(position)
        return segment.path if segment is not None else self._segments.directory

    # Places ---------------------------------------------------------------------------------------
    def _find(self, position: int) -> IndexRow:
        row = self._in_window(position)
        if row is None:
            self._load_window(position)
            row = self._in_window(position)
        if row is None:
            raise StoreError(f"position {position} is in no entry of the log")
        return row

    def _in_window(self, position: int) -> IndexRow | None:
        number = bisect_right(self._window_positions, position) - 1
        if number < 0:
            return None
        index = self._window_first + number
        row = self._window.get(index)
        if row is None:
            row = self._window[index] = self._row(index)
        return row if row.position <= position < _end(row) else None

    def _load_window(self, position: int) -> None:
        low, high = self._bounds()
        last = high
        while low < high:  # the last entry that begins at or before *position*
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._begin_of(middle) <= position else (low, middle - 1)
        # Not the newest entry of the log: a cut would leave it in the window.
        self._window_positions = [self._begin_of(index) for index in range(low, min(low + WINDOW_ROWS, last + 1))]
        self._window_first, self._window = low, {}

    def _begin_of(self, index: int) -> int:
        begin = self._begin(index)
        return self._row(index).position if begin is None else begin


def _end(row: IndexRow | None) -> int:
    assert row is not None
    return row.position + row.size


def _rising_until(positions: Positions, done: int, stop: int) -> int:
    """The end of the run of *positions* from number *done* on that ascends below *stop*."""
    until = done + 1
    while until < len(positions) and positions[until - 1] < positions[until] < stop:
        until += 1
    return until


def _gather(place: memoryview, source: memoryview, spans: Spans) -> None:
    """Copy *spans* into *place*; *source* begins with the first span, ends with the last."""
    if len(source) == len(place):
        place[:] = source
        return
    positions, sizes = spans
    starts = positions - positions[0]
    size = int(sizes[0])
    if len(sizes) >= GATHER_ROWS_MIN and size and bool((sizes == size).all()):
        # Pieces of one size, such as the heads of records: rows of numpy.
        row = np.dtype(f"V{size}")
        windows = np.ndarray((len(source) - size + 1,), row, source, 0, (1,))
        np.frombuffer(place, row)[:] = windows[starts]
        return
    pairs = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    place[:] = b"".join([source[start:stop] for start, stop in pairs])
