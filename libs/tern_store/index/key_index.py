"""The key index: records of the commit log by key, in RocketMQ's index files, made at apply.

A key is found by a hash of `topic#key` (UNIQ_KEY, or a word of KEYS) in each file's table of slots
and chain of entries, newest first. Results are candidates: the caller compares the real key.
Layout: `tern_wire.records.index_layout`; checks: `index_folder.py`; one file: `index_file.py`.
Marks: [slots, entries per file, 1 with tags, first position, [mark of file ...]].

Law: the same records in the same order make the same bytes, all derived from the log. A written
entry is a row and its check; look-ups use nothing unchecked. RocketMQ counts the seconds of a
file's first entry from the end of the file before; here all count from the file's own begin.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tern_store.checking import Checked
from tern_store.errors import DerivedDamage
from tern_store.files import REAL_FILES, Files, is_done
from tern_store.index.index_file import IndexFile
from tern_store.index.index_folder import IndexFolder, IndexShape
from tern_store.log.sync_job import SyncJob
from tern_wire.errors import RecordMalformed
from tern_wire.records.java_hashes import Numbers, slot_hash
from tern_wire.records.key_hashes import Hashes, hash_few, hash_keys
from tern_wire.records.layout import Bytes

# One system call per 3,276 keys.
TAIL_SIZE_MAX_BYTES = 64 << 10
TIME_MAX_MS = (1 << 63) - 1
# An entry of the index: the file's name, and its number in it.
Place = tuple[int, int]


class KeyIndex:
    """The index of one node. Owner: the core loop; only `SyncJob.run` may run elsewhere."""

    def __init__(self, folder: IndexFolder, *, tags: bool) -> None:
        """Use `open`."""
        self._folder, self._tags = folder, tags
        self._files: list[IndexFile] = []
        self._first_position = 0
        # Files hidden from readers that a saved state may still need.
        self._trimmed: set[int] = set()
        self._flushed: set[int] = set()
        self._saved: set[int] = set()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        slots: int = 5_000_000,
        entries_per_file: int = 20_000_000,
        tags: bool = False,
        files: Files = REAL_FILES,
    ) -> "KeyIndex":
        """Open the index below *directory*, empty until `restore`.
        With *tags*, `topic#T#tag` is a key too, as in RocketMQ 5.5.
        """
        return cls(IndexFolder(directory, IndexShape(slots, entries_per_file), files), tags=tags)

    # Add and find ---------------------------------------------------------------------------------
    def add(self, data: Bytes, starts: Numbers, positions: Numbers, stored_ms: int, *, topic: bytes) -> None:
        """Index the records at *starts* of *data*, at *positions* of the log, of *topic*.
        All are stored at *stored_ms*; a time before the file's begin counts as its begin. A full
        disk keeps entries in memory; the broker refuses new messages then, so they grow little.
        Malformed records have no keys, because committed entries must be applied.
        """
        self.add_runs(data, [(topic, starts, positions)], stored_ms)

    def add_runs(self, data: Bytes, runs: Iterable[tuple[bytes, Numbers, Numbers]], stored_ms: int) -> None:
        """Call `add` for each run of topic, starts, positions, in one step for all topics."""
        hashed = [self._hashed(data, starts, positions, topic) for topic, starts, positions in runs]
        places, hashes = hashed[0]
        if len(hashed) > 1:
            places, hashes = np.concatenate([run[0] for run in hashed]), np.concatenate([run[1] for run in hashed])
        at = 0
        while at < len(hashes):
            file = self._growing(int(places[at]))
            end = at + min(file.room, len(hashes) - at)
            file.add(hashes[at:end], places[at:end], stored_ms)
            at = end
            _write_if_long(file)

    def add_few(self, data: Bytes, runs: list[tuple[bytes, list[int]]], begin: int, stored_ms: int) -> None:
        """Call `add_runs`, faster for a few records.
        *runs*: topic and positions of each run; *data* begins at *begin* of the log.
        """
        hashes: list[int] = []
        places: list[int] = []
        for topic, positions in runs:
            few = hash_few(data, [position - begin for position in positions], topic, tags=self._tags)
            if few is None:
                arrays = [(topic, np.array(positions, np.int64)) for topic, positions in runs]
                self.add_runs(data, [(topic, where - begin, where) for topic, where in arrays], stored_ms)
                return
            places += [positions[owner] for owner in few[0]]
            hashes += few[1]
        at = 0
        while at < len(hashes):
            file = self._growing(places[at])
            end = at + min(file.room, len(hashes) - at)
            file.add_few(hashes[at:end], places[at:end], stored_ms)
            at = end
            _write_if_long(file)

    def find(self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = TIME_MAX_MS, count: int = 64) -> list[int]:
        """Positions of at most *count* records whose key has the hash of `topic#key`, newest first.
        Times as in `walk`. DerivedDamage if the bytes on the way are damaged.
        """
        wanted = slot_hash(f"{topic}#{key}")
        found: list[int] = []
        for file in reversed(self._files):
            if len(found) >= count:
                break
            if file.begin_ms <= end_ms and file.end_ms >= begin_ms:
                found += file.find(wanted, self._first_position, begin_ms, end_ms, count - len(found))
        return found

    def walk(
        self, topic: str, key: str, *, begin_ms: int = 0, after: Place | None = None
    ) -> Iterator[tuple[Place, int, int]]:
        """Place, position and time of the entries in the key's chains, newest first.
        Position -1: not of this key. Times are ms, exact to the second. *after*: the place where an
        earlier, bounded walk stopped. The owner may continue its work between steps; entries
        trimmed meanwhile are skipped. DerivedDamage as in `find`.
        """
        wanted = slot_hash(f"{topic}#{key}")
        for file in list(reversed(self._files)):
            is_newer = after is not None and file.base > after[0]
            if file.end_ms < begin_ms or is_newer or file not in self._files:
                continue
            before = after[1] if after is not None and file.base == after[0] else None
            for number, position, time_ms in file.walk(wanted, self._first_position, begin_ms, before=before):
                yield (file.base, number), position, time_ms
                if file not in self._files:
                    return

    def trim(self, position: int) -> None:
        """Hide everything below *position*; files with nothing else go once no saved state needs
        them.
        """
        self._first_position = max(self._first_position, position)
        while self._files and self._files[0].end_position < position:
            self._trimmed.add(self._files.pop(0).base)

    # Save and restore -----------------------------------------------------------------------------
    def flush(self) -> SyncJob:
        """Write the rows in memory; the job makes them durable.
        OSError: the rest stays, flush again.
        """
        for file in self._files:
            file.flush()
        self._flushed = {file.base for file in self._files}
        return self._folder.take_job()

    def complete(self) -> None:
        """Also write the last file's header and slots, 20 MB at RocketMQ's size, after a clean
        stop.
        Only RocketMQ's tools read them. OSError as in `flush`; the next flush's job makes them
        durable.
        """
        for file in self._files[-1:]:
            file.complete()

    def saved(self) -> None:
        """Unlink files that neither the last flush's state, now durable, nor the one before
        needs.
        """
        for base in self._trimmed - self._flushed - self._saved:
            self._folder.remove(base)
            self._trimmed.discard(base)
        self._saved = self._flushed

    def marks(self) -> list[Any]:
        """The data for `restore`, valid right after a flush."""
        shape = self._folder.shape
        files = [file.mark() for file in self._files]
        return [shape.slots, shape.entries_per_file, int(self._tags), self._first_position, files]

    def restore(self, marks: list[Any]) -> None:
        """Restore *marks*; later entries are gone.
        DerivedDamage if a file is missing, short or damaged, or the index has other settings: then
        only `wipe` and `restore` may be called.
        """
        self._reset()
        shape = self._folder.shape
        if marks[:3] != [shape.slots, shape.entries_per_file, int(self._tags)]:
            reason = (
                f"made with {marks[0]} slots, {marks[1]} entries a file and tags {marks[2]}, not with today's settings"
            )
            raise DerivedDamage(self._folder.path(0).parent, 0, reason)
        wanted = {mark[0] for mark in marks[4]}
        first = min(wanted, default=marks[3])
        for base in self._folder.bases():
            if base < first:
                # An older saved state may need the file: it goes after the next save.
                self._trimmed.add(base)
            elif base not in wanted:
                self._folder.remove(base)
        self._files = [IndexFile.restored(self._folder, mark) for mark in marks[4]]
        self._first_position = marks[3]
        self._flushed = self._saved = wanted

    def wipe(self) -> None:
        """Remove every file. The owner makes them again from the log."""
        self._reset()
        for base in self._folder.bases():
            self._folder.remove(base)

    def verify(self) -> Iterator[Checked | DerivedDamage]:
        """Read everything on disk once, about 1 MiB a step; the owner may work between steps."""
        for file in list(self._files):
            steps = file.verify()
            # A file trimmed meanwhile has no readers and may be unlinked.
            while file in self._files and (step := next(steps, None)) is not None:
                yield step

    def close_files(self) -> None:
        """Close all open files. The next write or read opens its own again."""
        self._folder.close_files()

    def close(self) -> None:
        """Close the files; the log has the entries that were not flushed."""
        self._folder.close()

    # Below ----------------------------------------------------------------------------------------
    def _growing(self, position: int) -> IndexFile:
        """The file for the next entry, whose record lies at *position*."""
        if not self._files or not self._files[-1].room:
            names = [*self._trimmed, *(file.base for file in self._files[-1:])]
            self._files.append(IndexFile(self._folder, max([position, *(name + 1 for name in names)])))
        return self._files[-1]

    def _hashed(self, data: Bytes, starts: Numbers, positions: Numbers, topic: bytes) -> tuple[Numbers, Hashes]:
        """The position of each key's record, and the key's hash."""
        try:
            owners, hashes = hash_keys(data, starts, topic, tags=self._tags)
        except RecordMalformed:
            owners, hashes = self._sound_keys(data, starts, topic)
        return positions[owners], hashes

    def _sound_keys(self, data: Bytes, starts: Numbers, topic: bytes) -> tuple[Numbers, Hashes]:
        """Call `hash_keys` for one record at a time and skip malformed ones."""
        owners, hashes = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for number in range(len(starts)):
            try:
                whose, found = hash_keys(data, starts[number : number + 1], topic, tags=self._tags)
            except RecordMalformed:
                continue
            owners.append(whose + number)
            hashes.append(found)
        return np.concatenate(owners), np.concatenate(hashes)

    def _reset(self) -> None:
        self._folder.close()
        self._files, self._first_position = [], 0
        self._trimmed, self._flushed, self._saved = set(), set(), set()


def _write_if_long(file: IndexFile) -> None:
    if file.tail_bytes > TAIL_SIZE_MAX_BYTES or not file.room:
        # A full disk keeps it in memory; the next flush raises the error.
        is_done(file.write)
