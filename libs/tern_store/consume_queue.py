"""Consume queues: which records a queue consists of. `consumequeue/{topic id}/{queue}/{20-digit byte position of first entry}`.

     0              8        12          20
     | position 8   | size 4 | tag hash 8 |    big-endian; entry of offset n at byte 20 * n of the queue

Reference: RocketMQ's ConsumeQueue (20-byte CQ_STORE_UNIT_SIZE, 300,000 entries a file). Law: all of it follows from the log, so
tails wait in memory and are written in blocks; a saved state says how far the files must reach, the log's tail yields the rest.
"""

import errno
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_store.errors import StoreError
from tern_store.files import REAL_FILES, Files
from tern_store.sync_job import SyncJob
from tern_wire.rows import QUEUE_ENTRIES

ENTRY_SIZE_BYTES = 20
FOLDER = "consumequeue"
# A queue's own tail is written in blocks of this size: one system call per 3,276 messages.
TAIL_SIZE_MAX_BYTES = 64 << 10
QueueKey = tuple[int, int]
QueueEntries = npt.NDArray[Any]


class _Queue:
    """One queue's tail: entries from *written* on, as bytes. (A plain class with slots: it is on the hottest path.)"""

    __slots__ = ("end", "key", "tail", "written")

    def __init__(self, key: QueueKey, end: int) -> None:
        self.key, self.end, self.written = key, end, end
        self.tail = bytearray()


class ConsumeQueues:
    """All queues of one broker node. Owner: the core loop; only `SyncJob.run` may run elsewhere."""

    def __init__(self, directory: Path, limits: tuple[int, int, int], files: Files) -> None:
        """Use `open`."""
        self._directory, self._files = directory / FOLDER, files
        entries_per_file, self._buffer_max_bytes, self._open_files_max = limits
        self._file_size_bytes = entries_per_file * ENTRY_SIZE_BYTES
        self._queues: dict[QueueKey, _Queue] = {}
        self._waiting: dict[QueueKey, _Queue] = {}  # those with a tail, the longest waiting first
        self._buffered_bytes = 0
        self._fds: OrderedDict[Path, int] = OrderedDict()
        self._dirty: dict[Path, None] = {}
        self._dirty_directories: dict[Path, None] = {}

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        entries_per_file: int = 300_000,
        buffer_max_bytes: int = 64 << 20,
        open_files_max: int = 256,
        files: Files = REAL_FILES,
    ) -> "ConsumeQueues":
        """The queues below *directory*, all of them empty until `restore` says how far they reach."""
        files.makedirs(directory / FOLDER)
        return cls(directory, (entries_per_file, buffer_max_bytes, open_files_max), files)

    def append(self, topic_id: int, queue: int, first_offset: int, entries: QueueEntries) -> None:
        """Add *entries* (QUEUE_ENTRIES) behind the queue's end, which must be *first_offset*. In memory; written in blocks."""
        state = self._queues.get((topic_id, queue))
        if state is None:
            state = self._queues[topic_id, queue] = _Queue((topic_id, queue), 0)
        if first_offset != state.end or entries.dtype != QUEUE_ENTRIES:
            raise StoreError(
                f"queue {topic_id}/{queue} ends at {state.end}, cannot add {entries.dtype} at {first_offset}"
            )
        data = entries.tobytes()
        if not state.tail:
            self._waiting[state.key] = state
        state.tail += data
        state.end += len(entries)
        self._buffered_bytes += len(data)
        if len(state.tail) > TAIL_SIZE_MAX_BYTES:
            self._write_if_room(state)
        while self._buffered_bytes > self._buffer_max_bytes and self._write_if_room(next(iter(self._waiting.values()))):
            pass

    def end(self, topic_id: int, queue: int) -> int:
        """The offset that the next message gets."""
        state = self._queues.get((topic_id, queue))
        return state.end if state is not None else 0

    def read(self, topic_id: int, queue: int, offset: int, count: int) -> QueueEntries:
        """A copy of up to *count* entries from *offset* on, fewer at the queue's end."""
        state = self._queues.get((topic_id, queue))
        if state is None or offset < 0 or offset >= state.end or count <= 0:
            return np.empty(0, QUEUE_ENTRIES)
        stop = min(offset + count, state.end)
        data = bytearray()
        if offset < state.written:
            data += self._read_files(state, offset * ENTRY_SIZE_BYTES, min(stop, state.written) * ENTRY_SIZE_BYTES)
        if stop > state.written:
            first = max(0, offset - state.written)
            data += state.tail[first * ENTRY_SIZE_BYTES : (stop - state.written) * ENTRY_SIZE_BYTES]
        return np.frombuffer(data, QUEUE_ENTRIES)

    def flush(self) -> SyncJob:
        """Write every tail (OSError: what was not written stays in memory); the job makes all that durable."""
        for state in list(self._waiting.values()):
            self._write(state)
        job = SyncJob(files=self._files, paths=tuple(self._dirty), directories=tuple(self._dirty_directories))
        self._dirty, self._dirty_directories = {}, {}
        return job

    def restore(self, ends: Mapping[QueueKey, int]) -> None:
        """Set every queue's end as a saved state has it, and forget what lies behind; the log's tail yields it again.

        StoreError if a file that must be there is missing or too short.
        """
        self.close()
        self._queues = {key: _Queue(key, end) for key, end in ends.items() if end}
        self._waiting, self._buffered_bytes = {}, 0
        for topic in self._files.listdir(self._directory):
            for queue in self._files.listdir(self._directory / topic):
                if topic.isdecimal() and queue.isdecimal() and (int(topic), int(queue)) not in self._queues:
                    self._cut(self._directory / topic / queue, 0)
        for state in self._queues.values():
            self._cut(self._folder(state.key), state.end * ENTRY_SIZE_BYTES)

    def close(self) -> None:
        """Close the files; tails that were not flushed are forgotten, the log has them."""
        while self._fds:
            self._files.close(self._fds.popitem()[1])

    # Files -----------------------------------------------------------------------------------------------------
    def _write_if_room(self, state: _Queue) -> bool:
        """Write a tail. On a full disk it stays in memory: reads and acks go on, and the broker refuses new messages."""
        try:
            self._write(state)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False
        return True

    def _write(self, state: _Queue) -> None:
        position, at = state.written * ENTRY_SIZE_BYTES, 0
        while at < len(state.tail):
            start = (position + at) // self._file_size_bytes * self._file_size_bytes
            part = state.tail[at : at + start + self._file_size_bytes - position - at]
            path = self._folder(state.key) / f"{start:020d}"
            self._files.pwrite(self._fd(path, create=True), part, position + at - start)
            self._dirty[path] = None
            at += len(part)
        self._buffered_bytes -= len(state.tail)
        state.written, state.tail = state.end, bytearray()
        self._waiting.pop(state.key, None)

    def _read_files(self, state: _Queue, position: int, stop: int) -> bytes:
        parts = []
        while position < stop:
            start = position // self._file_size_bytes * self._file_size_bytes
            size = min(stop, start + self._file_size_bytes) - position
            path = self._folder(state.key) / f"{start:020d}"
            parts.append(self._files.pread(self._fd(path), size, position - start))
            if len(parts[-1]) < size:
                raise StoreError(f"{path} ends before byte {position - start + size}; restart this node")
            position += size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _fd(self, path: Path, *, create: bool = False) -> int:
        fd = self._fds.get(path)
        if fd is not None:
            self._fds.move_to_end(path)
            return fd
        fd = self._create(path) if create else self._files.open(path)
        if len(self._fds) >= self._open_files_max:
            self._files.close(self._fds.popitem(last=False)[1])
        self._fds[path] = fd
        return fd

    def _create(self, path: Path) -> int:
        try:
            return self._files.open(path)
        except FileNotFoundError:
            # The job makes the names durable: waiting for directories here would stop the core for every new queue.
            self._files.makedirs(path.parent, synced=False)
            self._dirty_directories.update(dict.fromkeys((path.parent, path.parents[1], path.parents[2])))
            return self._files.open(path, create=True)

    def _folder(self, key: QueueKey) -> Path:
        return self._directory / str(key[0]) / str(key[1])

    def _cut(self, folder: Path, size: int) -> None:
        """Remove what lies behind *size* bytes. Not synced: stale bytes are written over before any state counts them."""
        names = {name for name in self._files.listdir(folder) if len(name) == 20 and name.isdecimal()}
        for start in range(0, size, self._file_size_bytes):
            needed = min(self._file_size_bytes, size - start)
            self._require(folder / f"{start:020d}", needed, cut=start + self._file_size_bytes >= size)
        for name in names:
            if int(name) >= size:
                self._files.unlink(folder / name)

    def _require(self, path: Path, size: int, *, cut: bool) -> None:
        try:
            fd = self._files.open(path)
        except FileNotFoundError as error:
            raise StoreError(f"{path} is missing, but the saved state needs it. {_REPLAY}") from error
        try:
            found = self._files.size(fd)
            if found < size:
                raise StoreError(f"{path} has {found} bytes, but the saved state needs {size}. {_REPLAY}")
            if cut and found > size:
                self._files.ftruncate(fd, size)
        finally:
            self._files.close(fd)


_REPLAY = "Remove the folder `state`: the node then derives everything from its log."
