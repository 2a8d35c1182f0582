"""Files of a RocketMQ store as streams: their kind, and their records as documents.

Documents have RocketMQ's names. Law: at most the largest record of a file (16 MiB) or a block of
entries is in memory, and damage is reported with file and byte.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tern_cli.failures import CommandFailed
from tern_cli.store.file_kinds import FileKind
from tern_cli.store.rocketmq_documents import entry_document, header_document, index_document, record_document
from tern_wire.errors import RecordMalformed
from tern_wire.limits import KIB, ROCKETMQ_RECORD_SIZE_MAX_BYTES
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.index_layout import (
    ENTRIES_PER_SLOT,
    INDEX_ENTRY_SIZE_BYTES,
    INDEX_HEADER_SIZE_BYTES,
    entry_start,
    read_index_entry,
    read_index_header,
    slots_of,
)
from tern_wire.records.layout import BLANK, MAGIC_BLANK, OVERHEAD_SIZE_BYTES, VERSIONS
from tern_wire.records.queue_entry import PRE_BLANK_SIZE, QUEUE_ENTRY_SIZE_BYTES, read_queue_entries
from tern_wire.records.read import decode_rocketmq_record

# Whole entries of both kinds.
_BLOCK_SIZE_BYTES = 20 * 3 * KIB
_READ_AHEAD_SIZE_BYTES = 1024 * KIB
# Message times between 2001 and 5138: they distinguish an index's header from entries of a queue.
_TIMES_MS = range(10**12, 10**14)


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketFile:
    """One recognised file.
    *first* is the byte of the log or queue at which it begins, -1 if unknown.
    """

    path: Path
    kind: FileKind
    size_bytes: int
    first: int
    index_slots: int

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield its records in file order; CommandFailed (exit 1) with file and byte at damage."""
        readers = {
            FileKind.COMMIT_LOG: self._records,
            FileKind.CONSUME_QUEUE: self._queue_entries,
            FileKind.INDEX: self._index_entries,
        }
        with self.path.open("rb", buffering=_READ_AHEAD_SIZE_BYTES) as file:
            yield from readers[self.kind](file)

    def _records(self, file: BinaryIO) -> Iterator[dict[str, Any]]:
        at, first = 0, self.first
        while len(head := file.read(BLANK.size)) == BLANK.size:
            size, magic = BLANK.unpack(head)
            if magic == MAGIC_BLANK:
                return
            if not any(head):
                self._rest_is_empty(file, at)
                return
            if magic not in VERSIONS:
                raise self._damaged(at, f"no record begins here (magic {magic:#010x})")
            if not OVERHEAD_SIZE_BYTES <= size <= min(self.size_bytes - at, ROCKETMQ_RECORD_SIZE_MAX_BYTES):
                raise self._damaged(at, f"a record claims {size} bytes where {self.size_bytes - at} are left")
            try:
                record = decode_rocketmq_record(head + file.read(size - len(head)))
                first = record.position if first < 0 else first
                yield record_document(record, first + at)
            except RecordMalformed as error:
                raise self._damaged(at, str(error.fields["reason"])) from error
            at += size
        if any(head):
            raise self._damaged(at, f"{len(head)} bytes are left, too few for a record")

    def _queue_entries(self, file: BinaryIO) -> Iterator[dict[str, Any]]:
        at = 0
        while block := file.read(_BLOCK_SIZE_BYTES):
            offset, damage = (max(self.first, 0) + at) // QUEUE_ENTRY_SIZE_BYTES, None
            try:
                entries, written = read_queue_entries(block, offset)
            except RecordMalformed as error:
                damage = self._damaged(at + int(error.fields["position"]), str(error.fields["reason"]))
                entries, written = read_queue_entries(block[: int(error.fields["position"])], offset)
            for entry in entries:
                yield entry_document(entry)
            if damage is not None:
                raise damage
            if written < len(block):
                file.seek(at + written)
                self._rest_is_empty(file, at + written)
                return
            at += len(block)

    def _index_entries(self, file: BinaryIO) -> Iterator[dict[str, Any]]:
        at = 0
        try:
            header = read_index_header(file.read(INDEX_HEADER_SIZE_BYTES))
            yield header_document(header, self.path.name, self.size_bytes)
            slots = self.index_slots or slots_of(self.size_bytes)
            number, at = 1, entry_start(slots, 1)
            file.seek(at)
            while number < header.next_entry:
                block = file.read(min(_BLOCK_SIZE_BYTES, (header.next_entry - number) * INDEX_ENTRY_SIZE_BYTES))
                for start in range(0, max(len(block), 1), INDEX_ENTRY_SIZE_BYTES):
                    entry = read_index_entry(block, start, number)
                    yield index_document(entry, header)
                    number, at = number + 1, at + INDEX_ENTRY_SIZE_BYTES
        except RecordMalformed as error:
            hint = "" if self.index_slots else "; if maxHashSlotNum was not a quarter of maxIndexNum, use --index-slots"
            raise self._damaged(at, f"{error.fields['reason']}{hint}") from error

    def _rest_is_empty(self, file: BinaryIO, since: int) -> None:
        """Check that the unwritten rest is zeros; data behind zeros means a hole in the data."""
        at = file.tell()
        while block := file.read(_READ_AHEAD_SIZE_BYTES):
            if block.strip(b"\0"):
                at += len(block) - len(block.lstrip(b"\0"))
                raise self._damaged(since, f"zeros, followed by data again at byte {at}")
            at += len(block)

    def _damaged(self, at: int, reason: str) -> CommandFailed:
        return CommandFailed(
            "The file is damaged", f"{self.path}, byte {at}: {reason}. What stands before it has been shown."
        )


def open_rocketmq_file(path: Path, kind: FileKind | None, index_slots: int) -> RocketFile:
    """Open *path* as a file of RocketMQ, of *kind* if given; CommandFailed (exit 2) if not."""
    try:
        size_bytes = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(INDEX_HEADER_SIZE_BYTES)
    except OSError as error:
        raise CommandFailed("The file cannot be read", f"{path}: {error.strerror}.", exit_code=2) from error
    kind = kind or _kind_by_path(path) or _kind_by_content(head, size_bytes, index_slots)
    if kind is None:
        reason = f"{path} is neither a commit log, a consume queue nor an index: use --kind if it is one."
        raise CommandFailed("Not a file of RocketMQ's", reason, exit_code=2)
    named = len(path.name) == 20 and path.name.isascii() and path.name.isdecimal()
    return RocketFile(
        path=path, kind=kind, size_bytes=size_bytes, first=int(path.name) if named else -1, index_slots=index_slots
    )


def _kind_by_path(path: Path) -> FileKind | None:
    """Return the kind of `commitlog/FILE`, `consumequeue/TOPIC/QUEUE/FILE`, `index/FILE`."""
    parts = path.absolute().parts[-4:]
    for depth, kind in ((2, FileKind.COMMIT_LOG), (4, FileKind.CONSUME_QUEUE), (2, FileKind.INDEX)):
        if len(parts) >= depth and parts[-depth] == kind.value:
            return kind
    return None


def _kind_by_content(head: bytes, size_bytes: int, index_slots: int) -> FileKind | None:
    if len(head) < QUEUE_ENTRY_SIZE_BYTES:
        return None
    if BLANK.unpack_from(head)[1] in {*VERSIONS, MAGIC_BLANK}:
        return FileKind.COMMIT_LOG
    try:
        header = read_index_header(head)
        room = ENTRIES_PER_SLOT * slots_of(size_bytes) if not index_slots else size_bytes // INDEX_ENTRY_SIZE_BYTES
        if header.begin_ms in _TIMES_MS and header.end_ms in _TIMES_MS and header.next_entry <= room:
            return FileKind.INDEX
    except RecordMalformed:
        # Not an index; the last possibility is tried below.
        pass
    if size_bytes % QUEUE_ENTRY_SIZE_BYTES:
        return None
    # A possible position of a commit log, and a possible size of a record.
    position, size, _ = (int(value) for value in np.frombuffer(head, QUEUE_ENTRIES, count=1)[0].item())
    likely = position in range(1 << 50) and (size == PRE_BLANK_SIZE or size in range(1, ROCKETMQ_RECORD_SIZE_MAX_BYTES))
    return FileKind.CONSUME_QUEUE if likely else None
