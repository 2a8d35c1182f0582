"""Check of a log's bytes in order, as they arrive: a copy is the source log's chain of entries.

Law: no crash explains damage here. Bytes that do not continue the chain are refused, and the check
stays behind the last whole entry or filler.
"""

from tern_store.errors import CopyRefused, EntryRefused
from tern_store.files import Buffer
from tern_store.log.entry import (
    BLANK,
    BLANK_MAGIC,
    BLANK_SIZE_BYTES,
    HEADER_SIZE_BYTES,
    LogMark,
    crc_of,
    decode_header,
)


class ChainCheck:
    """One walk along a log. Owner: the caller of `feed`. `end` is the last whole entry's mark."""

    def __init__(self, start: LogMark, segment_size_bytes: int, entry_size_max_bytes: int) -> None:
        """*start*: the point before the first entry; its position is the begin of a segment."""
        self.end = start
        # The end of the last whole entry or of the filler behind it; and the end of the bytes fed
        # so far.
        self.position = start.position
        self.received = start.position
        self._rest = b""
        self._segment_size_bytes = segment_size_bytes
        self._entry_size_max_bytes = entry_size_max_bytes

    def feed(self, data: Buffer) -> None:
        """Check the bytes at `received`. CopyRefused: they do not continue the chain.
        After a refusal feed again from `received`, which is `position` then.
        """
        begin = self.received - len(self._rest)
        view = memoryview(b"".join((self._rest, data)) if self._rest else data)
        self.received += len(data)
        try:
            while self._take(view[max(0, self.position - begin) :]):
                pass
        except EntryRefused as refused:
            self.forget_rest()
            raise CopyRefused(self.position, refused.reason) from refused
        self._rest = bytes(view[max(0, self.position - begin) :])

    def forget_rest(self) -> None:
        """Return to the last whole entry or filler."""
        self._rest = b""
        self.received = self.position

    def _take(self, view: memoryview) -> bool:
        """Take the next entry or filler if it is there, whole."""
        segment_end = (self.position // self._segment_size_bytes + 1) * self._segment_size_bytes
        if len(view) < BLANK_SIZE_BYTES:
            return False
        if view[:4] == BLANK_MAGIC:
            size, room = BLANK.unpack_from(view)[1], segment_end - self.position
            if size != room:
                raise EntryRefused(f"a filler of {size} bytes where {room} are left")
            self.position = segment_end
            return True
        if len(view) < HEADER_SIZE_BYTES:
            return False
        header = decode_header(view[:HEADER_SIZE_BYTES])
        found = (header.index, header.position, header.previous_crc)
        expected = (self.end.index + 1, self.position, self.end.crc)
        if found != expected or header.term < self.end.term:
            raise EntryRefused(
                f"(index, position, previous checksum) {found} in term {header.term} does not follow {expected} in term "
                f"{self.end.term}"
            )
        room = min(self._entry_size_max_bytes, segment_end - BLANK_SIZE_BYTES - self.position)
        if not HEADER_SIZE_BYTES <= header.size <= room:
            raise EntryRefused(f"an entry cannot have {header.size} bytes here")
        if len(view) < header.size:
            return False
        if crc_of(view[: header.size]) != header.crc:
            raise EntryRefused(f"the checksum of entry {header.index} is wrong")
        self.end = header.mark
        self.position = self.end.position
        return True
