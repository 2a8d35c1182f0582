"""Writer of a RocketMQ store's consume queues, `consumequeue/TOPIC/QUEUE/{20-digit first byte}`.

Law: every file has its whole size (sparse), since a broker refuses any other; places before a
queue's first message in its first file are pre-blanks, as a broker fills them. At most
*buffer_max_bytes* of entries wait in memory, whatever the number of queues. Layout:
`tern_wire.records.queue_entry`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_store.errors import StoreError
from tern_store.files import Files
from tern_store.log.sync_job import SyncJob
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.java_hashes import Numbers
from tern_wire.records.queue_entry import PRE_BLANK, QUEUE_ENTRY_SIZE_BYTES

BUFFER_MAX_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class RocketQueue:
    """One queue to be written, and the offset of its first message."""

    topic: str
    queue: int
    first: int = 0


@dataclass(slots=True, eq=False)
class _Tail:
    """Waiting bytes of one queue, from *at* of the queue on."""

    folder: Path
    at: int
    waiting: bytearray = field(default_factory=bytearray)


class RocketQueues:
    """All queues of one store. Owner: the store's writer; call `finish` once."""

    def __init__(
        self,
        folder: Path,
        queues: Sequence[RocketQueue],
        *,
        entries_per_file: int,
        files: Files,
        buffer_max_bytes: int = BUFFER_MAX_BYTES,
    ) -> None:
        self._files, self._buffer_max_bytes = files, buffer_max_bytes
        self._file_size_bytes = entries_per_file * QUEUE_ENTRY_SIZE_BYTES
        self._buffered_bytes = 0
        self._made: dict[Path, None] = {}
        self._folders: dict[Path, None] = {folder: None}
        files.makedirs(folder, synced=False)
        self._tails = []
        for queue in queues:
            begin = queue.first // entries_per_file * entries_per_file
            tail = _Tail(folder / queue.topic / str(queue.queue), begin * QUEUE_ENTRY_SIZE_BYTES)
            self._tails.append(tail)
            if queue.first > begin:
                tail.waiting += PRE_BLANK * (queue.first - begin)
                self._buffered_bytes += len(tail.waiting)
                self._write_if_full()

    def add(self, sources: Numbers, offsets: Numbers, entries: npt.NDArray[Any]) -> None:
        """Append *entries* (QUEUE_ENTRIES, shape (n,)) to the queues numbered by *sources*.
        *offsets* must be the ends of those queues.
        """
        order = np.argsort(sources, kind="stable")
        sources, offsets, entries = sources[order], offsets[order], entries[order]
        bounds = [0, *(np.flatnonzero(np.diff(sources)) + 1).tolist(), len(sources)]
        for begin, end in pairwise(bounds):
            tail = self._tails[int(sources[begin])]
            first = (tail.at + len(tail.waiting)) // QUEUE_ENTRY_SIZE_BYTES
            if int(offsets[begin]) != first or int(offsets[end - 1]) != first + end - begin - 1:
                raise StoreError(f"{tail.folder} goes on at {first}, not with {offsets[begin]} to {offsets[end - 1]}")
            tail.waiting += entries[begin:end].tobytes()
        self._buffered_bytes += len(entries) * QUEUE_ENTRIES.itemsize
        self._write_if_full()

    def finish(self) -> None:
        """Durable here: every entry and every name."""
        self._write_all()
        SyncJob(files=self._files, paths=tuple(self._made), directories=tuple(self._folders)).run()

    def _write_if_full(self) -> None:
        if self._buffered_bytes > self._buffer_max_bytes:
            self._write_all()

    def _write_all(self) -> None:
        for tail in self._tails:
            if tail.waiting:
                self._write(tail)
        self._buffered_bytes = 0

    def _write(self, tail: _Tail) -> None:
        done = 0
        while done < len(tail.waiting):
            begin = tail.at // self._file_size_bytes * self._file_size_bytes
            part = tail.waiting[done : done + begin + self._file_size_bytes - tail.at]
            path = tail.folder / f"{begin:020d}"
            fd = self._open(path)
            try:
                self._files.pwrite(fd, part, tail.at - begin)
            finally:
                self._files.close(fd)
            done += len(part)
            tail.at += len(part)
        tail.waiting = bytearray()

    def _open(self, path: Path) -> int:
        if path in self._made:
            return self._files.open(path)
        self._files.makedirs(path.parent, synced=False)
        self._folders.update({path.parent: None, path.parents[1]: None})
        self._made[path] = None
        fd = self._files.open(path, create=True)
        self._files.ftruncate(fd, self._file_size_bytes)
        return fd
