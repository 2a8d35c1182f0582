"""Scan of the log: finds its end, and distinguishes a torn end from rot.

Law: unwritten bytes are zero, and a disk writes whole 512-byte sectors. So an unsynced entry that a
crash damaged lacks at least one sector entirely: a zero sector, or the end of the file. A tear is
also the last thing in the log: no intact entry behind it was written when the disk had the damaged
one. All other damage is rot and is never cut.
"""

from collections.abc import Callable, Iterator

from tern_store.checking import Checked
from tern_store.errors import EntryRefused, LogRot
from tern_store.log.entry import (
    BLANK,
    BLANK_MAGIC,
    BLANK_SIZE_BYTES,
    HEADER_SIZE_BYTES,
    MAGIC,
    UNSYNCED_MAX,
    EntryHeader,
    LogMark,
    crc_of,
    decode_header,
)
from tern_store.log.genesis import SECTOR_SIZE_BYTES
from tern_store.log.segment import Segment, Segments

# Read ahead, so that one system call serves many small entries.
WINDOW_SIZE_BYTES = 1 << 20


class LogScan:
    """One pass over the entries behind *start*.
    When exhausted, `end` is the log's end, and `torn` says whether a tear ended it.
    """

    def __init__(self, segments: Segments, start: LogMark, entry_size_max_bytes: int) -> None:
        self.end = start
        self.torn = False
        self._segments = segments
        self._entry_size_max_bytes = entry_size_max_bytes
        self._window = b""
        self._window_at = 0

    def __iter__(self) -> Iterator[EntryHeader]:
        while (header := self._next()) is not None:
            self.end = header.mark
            yield header

    def _next(self) -> EntryHeader | None:
        try:
            return self._look()
        except LogRot:
            # Read again before reporting rot: a running node may have written here since the window
            # was read.
            self._window, self.torn = b"", False
            return self._look()

    def _look(self) -> EntryHeader | None:
        segment = self._segments.at(self.end.position)
        if segment is None:
            return None
        position = self.end.position
        head = self._bytes(segment, position, min(HEADER_SIZE_BYTES, segment.end - position))
        if head[:4] == BLANK_MAGIC:
            if not self._is_filler(segment, position, head):
                return None
            following = self._segments.at(segment.end)
            if following is None:
                raise LogRot(segment.path, segment.end, "the segment behind this one is missing")
            segment, position = following, following.base
            head = self._bytes(segment, position, HEADER_SIZE_BYTES)
        if not any(head):  # nothing was ever written here, or not even the first sector
            self._require_last(segment, position, None, "there are zeros where it should begin")
            return None
        return self._entry(segment, position, head)

    def _is_filler(self, segment: Segment, position: int, head: memoryview) -> bool:
        room = segment.end - position
        size = BLANK.unpack_from(head)[1] if len(head) >= BLANK_SIZE_BYTES else 0
        if size == room:
            return True
        reason = f"a filler of {size} bytes where {room} are left"
        self._require_torn(segment, position, BLANK_SIZE_BYTES, reason)
        self._require_last(segment, position, None, reason)
        return False

    def _entry(self, segment: Segment, position: int, head: memoryview) -> EntryHeader | None:
        believed: EntryHeader | None = None
        try:
            header = decode_header(head)
            self._require_next(header, position)
            if not HEADER_SIZE_BYTES <= header.size <= min(self._entry_size_max_bytes, segment.end - position):
                raise EntryRefused(f"an entry cannot have {header.size} bytes here")
            # The size is used only if the header is right otherwise: a damaged size could reach
            # zero sectors elsewhere.
            believed = header
            raw = self._bytes(segment, position, header.size)
            if len(raw) == header.size and crc_of(raw) == header.crc:
                return header
            if self._is_size_rotten(segment, header):
                raise LogRot(segment.path, position, "one bit of its size has changed")
            raise EntryRefused("its checksum is wrong")
        except EntryRefused as refused:
            extent = believed.size if believed is not None else HEADER_SIZE_BYTES
            self._require_torn(segment, position, extent, refused.reason)
            self._require_last(segment, position, believed, refused.reason)
            return None

    def _is_size_rotten(self, segment: Segment, header: EntryHeader) -> bool:
        """Whether flipping one bit of the size makes the entry intact.
        Near the log's end such damage would otherwise pass for a tear.
        """
        for bit in range(self._entry_size_max_bytes.bit_length()):
            size = header.size ^ (1 << bit)
            if HEADER_SIZE_BYTES <= size <= min(self._entry_size_max_bytes, segment.end - header.position):
                raw = bytearray(self._segments.read(header.position, size))
                raw[4:8] = size.to_bytes(4, "big")
                if len(raw) == size and crc_of(raw) == header.crc:
                    return True
        return False

    def _require_next(self, header: EntryHeader, position: int) -> None:
        found = (header.index, header.position, header.previous_crc)
        expected = (self.end.index + 1, position, self.end.crc)
        if found != expected or header.term < self.end.term:
            raise EntryRefused(
                f"(index, position, previous checksum) {found} in term {header.term} does not follow "
                f"{expected} in term {self.end.term}"
            )

    def _require_torn(self, segment: Segment, position: int, extent: int, reason: str) -> None:
        """Raise LogRot unless the damage is a tear, which ends the log."""
        start, stop = position - segment.base, min(position + extent, segment.end) - segment.base
        self.torn = stop > segment.length
        # Up to the end of the last sector, not only of the entry: if that sector had been written,
        # the bytes behind the entry would be there too.
        last = -(-stop // SECTOR_SIZE_BYTES) * SECTOR_SIZE_BYTES
        data = self._segments.read(position, last - start)
        while start < stop and not self.torn:
            sector_end = (start // SECTOR_SIZE_BYTES + 1) * SECTOR_SIZE_BYTES
            begin = position - segment.base
            self.torn = not any(data[start - begin : sector_end - begin])
            start = sector_end
        if not self.torn:
            raise LogRot(segment.path, position, reason)

    def _require_last(self, segment: Segment, position: int, believed: EntryHeader | None, reason: str) -> None:
        """Raise LogRot if an intact later entry proves that *position* was durable.
        *believed*: the header there, if everything in it but size and checksum is right.
        """
        number = self.end.index + 1
        for at in self._segments.find(MAGIC, position + 1):
            header = self._good_at(at)
            if header is None or header.index < number or header.term < self.end.term:
                continue
            if believed is not None and at < position + believed.size and header.previous_crc != believed.crc:
                continue  # bytes of a message that look like an entry, unless the size is wrong
            is_known = header.unsynced < UNSYNCED_MAX and header.index - 1 - header.unsynced >= number
            if is_known or at >= segment.end:
                self.torn = False
                raise LogRot(segment.path, position, f"{reason}; entry {header.index} was written when it was durable")

    def _good_at(self, position: int) -> EntryHeader | None:
        """The whole entry that begins at *position*, None if there is none."""
        segment = self._segments.at(position)
        try:
            header = decode_header(self._segments.read(position, HEADER_SIZE_BYTES))
            if (
                segment is None
                or header.position != position
                or not HEADER_SIZE_BYTES <= header.size <= segment.end - position
            ):
                return None
            return header if crc_of(self._segments.read(position, header.size)) == header.crc else None
        except EntryRefused:
            return None

    def _bytes(self, segment: Segment, position: int, size: int) -> memoryview:
        """*size* bytes at *position*, fewer at the file's end; windows never cross a segment."""
        at = position - self._window_at
        if at < 0 or at + size > len(self._window):
            self._window = self._segments.read(position, min(max(size, WINDOW_SIZE_BYTES), segment.end - position))
            self._window_at, at = position, 0
        return memoryview(self._window)[at : at + size]


def verify_log(
    segments: Segments, start: LogMark, end: LogMark, entry_size_max_bytes: int, is_current: Callable[[], bool]
) -> Iterator[Checked | LogRot]:
    """Read the entries of (*start*, *end*] again, about 1 MiB a step.
    *is_current* is called before each step. All of them were synced by this process or earlier, so
    any damage is rot, zeroed sectors included.
    """
    scan, checked = LogScan(segments, start, entry_size_max_bytes), 0
    entries = iter(scan)
    while scan.end.index < end.index:
        try:
            header = next(entries, None)
        except LogRot as rot:
            if is_current():
                yield rot
            return
        if header is None:
            if is_current():
                segment = segments.at(scan.end.position)
                path = segment.path if segment is not None else segments.directory
                yield LogRot(path, scan.end.position, f"entry {scan.end.index + 1} is not there any more")
            return
        checked += header.size
        if checked >= WINDOW_SIZE_BYTES or scan.end.index == end.index:
            yield Checked(checked)
            checked = 0
            if not is_current():
                return
    if scan.end != end and is_current():
        segment = segments.at(end.position - 1)
        yield LogRot(segment.path if segment is not None else segments.directory, end.position, "it ends differently")
