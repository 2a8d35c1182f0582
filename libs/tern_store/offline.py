"""The data directory of a stopped node, for commands that only read.

Law: no file below the directory is written except `lock`, which keeps the node from starting
meanwhile. Bytes that a restart would cut lie behind the saved state's marks; they are left in place
and never read.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_store.directory_lock import DirectoryLock
from tern_store.errors import StateCorrupt, StoreError
from tern_store.files import REAL_FILES, Advice, Buffer, Files
from tern_store.log.commit_log import INDEX_FOLDER, LOG_FOLDER
from tern_store.log.entry import ORIGIN
from tern_store.log.entry_index import EntryIndex, IndexRow
from tern_store.log.genesis_file import read_genesis
from tern_store.log.log_reader import LogReader
from tern_store.log.log_start import read_start
from tern_store.log.moved_entries import MovedEntries
from tern_store.log.segment import Segments, segment_bases
from tern_store.queues.consume_queue import ConsumeQueues
from tern_store.small_files import ABORT, CONFIG_FOLDER, read_text, refuse_quarantined, topic_id_of
from tern_store.state.saving import split_payload
from tern_store.state.state_file import SavedState, load_state


@dataclass(frozen=True, slots=True)
class OfflineTopic:
    """A topic of this node; its id names the folder of its queues."""

    topic_id: int
    name: str
    queues: int


class OfflineStore:
    """The locked directory of a stopped node.
    Owner: the command; `close` lets the node start again.
    """

    def __init__(self, directory: Path, lock: DirectoryLock, state: SavedState, files: Files) -> None:
        """Use `open`."""
        self.directory, self.mark = directory, state.mark
        self.section, _ = split_payload(state.payload)
        self._lock, self._files = lock, files
        self.clean = ABORT not in files.listdir(directory)
        self.topics = self._read_topics()
        folder = directory / LOG_FOLDER
        begin = read_start(folder, files)
        self.start = begin.mark if begin is not None else ORIGIN
        genesis, _ = read_genesis(folder, begin, files)
        self._segments = Segments(folder, genesis.segment_size_bytes, files, first_position=self.start.position)
        self._index = EntryIndex(directory / INDEX_FOLDER, files)
        self._reader = LogReader(
            self._segments,
            row=self._row,
            begin=self._index.position,
            bounds=lambda: (self.start.index + 1, self.mark.index),
            recent=lambda _: None,
        )
        self.queues = ConsumeQueues.open(directory, files=files)
        self._moved = MovedEntries()
        self._moved.restore(self.section["moved"])
        # Queues with messages by reference: (topic id, queue) to the first and last such offset.
        self.references = {(topic, queue): (first, last) for topic, queue, first, last in self.section["references"]}

    @classmethod
    def open(cls, directory: Path, *, files: Files = REAL_FILES) -> "OfflineStore":
        """Lock *directory* and read the newest saved state.
        StoreError, whose text says the fix, if no node was ever stopped there. DirectoryInUse, with
        the pid, if a node runs. Quarantined if the log is known to be damaged. LogRot or
        DerivedDamage if a file is missing, short or damaged. After a crash `clean` is False: the
        messages behind the saved state are missing until the node starts again.
        """
        if not segment_bases(directory / LOG_FOLDER, files):
            raise StoreError(
                f"{directory} has no {LOG_FOLDER}/ with a log in it: it is not the data directory of a node."
            )
        # Lock before the first read: a running node changes every file.
        lock = DirectoryLock.acquire(directory, files=files)
        try:
            unchanging = UnchangingFiles(files)
            refuse_quarantined(directory, unchanging)
            state = load_state(directory, files=unchanging)
            if state is None:
                raise StoreError(f"{directory} has no saved state. {START_AND_STOP}")
            store = cls(directory, lock, state, unchanging)
        except StateCorrupt as error:
            lock.release()
            raise StoreError(f"{directory} was saved by another release. {START_AND_STOP}") from error
        except BaseException:
            lock.release()
            raise
        try:
            store._segments.load()
            store.queues.restore(store.section["queues"])
        except BaseException:
            store.close()
            raise
        return store

    def queue_keys(self) -> list[tuple[int, int]]:
        """List (topic id, queue) of every queue that ever had a message, ascending."""
        return sorted(key for key in self.queues.all_keys() if self.queues.end(*key))

    def read(self, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> memoryview:
        """Concatenate the bytes at *positions* (shape (n,)), *sizes* each, verified.
        Each range must lie within one entry up to the saved state, else StoreError. LogRot if an
        entry is damaged.
        """
        return self._reader.read(positions, sizes)

    def entries(self, topic_id: int, queue: int, offset: int, count: int) -> npt.NDArray[Any]:
        """Up to *count* entries of a queue from *offset*, with their records' present positions.
        DerivedDamage.
        """
        return self._moved.lay_over(topic_id, queue, offset, self.queues.read(topic_id, queue, offset, count))

    def config(self, name: str) -> dict[str, Any]:
        """Read the JSON object in `config/{name}`; empty if there is no file, StoreError if
        damaged.
        """
        path = self.directory / CONFIG_FOLDER / name
        text = read_text(path, self._files)
        try:
            document = json.loads(text or "{}")
        except ValueError as error:
            raise StoreError(f"{path} is not JSON ({error}). {START_AND_STOP}") from error
        if not isinstance(document, dict):
            raise StoreError(f"{path} is not a JSON object. {START_AND_STOP}")
        return document

    def close(self) -> None:
        """Close the files and release the directory."""
        self.queues.close()
        self._index.abandon()
        self._segments.close()
        self._lock.release()

    def _row(self, index: int) -> IndexRow:
        row = self._index.find(index)
        if row is None:
            raise StoreError(f"{self.directory / INDEX_FOLDER} has lost the place of entry {index}. {START_AND_STOP}")
        return row

    def _read_topics(self) -> dict[int, OfflineTopic]:
        topics: dict[int, OfflineTopic] = {}
        for name, facts in self.config("topics.json").get("topicConfigTable", {}).items():
            if (topic_id := topic_id_of(facts)) is not None:
                topics[topic_id] = OfflineTopic(topic_id, name, int(facts["readQueueNums"]))
        return topics


class UnchangingFiles:
    """Read-only files.
    Calls that reserve or tidy do nothing; a write is a bug and raises StoreError.
    """

    def __init__(self, files: Files) -> None:
        self._files = files

    def open(self, path: Path, *, create: bool = False) -> int:
        """Forward to `Files.open` without creating: FileNotFoundError instead."""
        del create
        return self._files.open(path)

    def close(self, fd: int) -> None:
        """Forward to `Files.close`."""
        self._files.close(fd)

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        """Raise StoreError."""
        raise StoreError(f"a stopped node's file would have been written: {len(data)} bytes at {position} of {fd}")

    def pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> None:
        """Raise StoreError."""
        raise StoreError(f"a stopped node's file would have been written: {len(parts)} parts at {position} of {fd}")

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Forward to `Files.pread`."""
        return self._files.pread(fd, size, position)

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        """Forward to `Files.preadv`."""
        return self._files.preadv(fd, buffers, position)

    def advise(self, fd: int, position: int, size: int, advice: Advice) -> None:
        """Forward to `Files.advise`."""
        self._files.advise(fd, position, size, advice)

    def fdatasync(self, fd: int) -> None:
        """Do nothing."""

    def fsync_dir(self, path: Path) -> None:
        """Do nothing."""

    def fallocate(self, fd: int, size: int) -> None:
        """Do nothing."""

    def ftruncate(self, fd: int, size: int) -> None:
        """Do nothing."""

    def size(self, fd: int) -> int:
        """Forward to `Files.size`."""
        return self._files.size(fd)

    def data_extents(self, fd: int, start: int) -> list[tuple[int, int]]:
        """Forward to `Files.data_extents`."""
        return self._files.data_extents(fd, start)

    def rename(self, source: Path, target: Path) -> None:
        """Raise StoreError."""
        raise StoreError(f"a stopped node's file would have been renamed: {source} to {target}")

    def link(self, source: Path, target: Path) -> None:
        """Raise StoreError."""
        raise StoreError(f"a stopped node's file would have got another name: {source}, {target}")

    def unlink(self, path: Path) -> None:
        """Do nothing."""

    def listdir(self, path: Path) -> list[str]:
        """Forward to `Files.listdir`."""
        return self._files.listdir(path)

    def makedirs(self, path: Path, *, synced: bool = True) -> None:
        """Do nothing."""

    def free_bytes(self, path: Path) -> int:
        """Forward to `Files.free_bytes`."""
        return self._files.free_bytes(path)

    def try_lock(self, fd: int) -> bool:
        """Forward to `Files.try_lock`."""
        return self._files.try_lock(fd)


START_AND_STOP = "Start the node and stop it once (ternmq up, ternmq down), then try again."
