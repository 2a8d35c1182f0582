"""The files of many sequences of rows: which are open, unsynced, or waiting for their removal.

 directory/{key 0}/{key 1}/.../[leaf/]{20-digit byte position of the first row}        rows
          {20-digit byte position of the first row}.crc    checks of its whole blocks

Law of retirement. Flushes are numbered. A file retired after flush N may be needed by the states of
flushes up to N, and by none later. Two saved states are kept, so a file is removed when the older
of the two is of flush N + 1 or later:
 flush 1, saved | retire f | flush 2, saved    f stays: the state of flush 1 is kept, and needs it
 flush 3, but not saved                        f stays: the newest two states are of flushes 2 and 1
 flush 4, saved                                f goes: the states of flushes 4 and 2 are kept
After a restart every file that the restored state does not need is retired for one save: the state
before it may need the file, or a crash left it behind. Retired files are never written; a sequence
that was removed and begins again waits until the file is gone. Files that a state needs have
durable names: the job of its flush synced the directories before the state was saved.
"""

import errno
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tern_store.errors import DerivedDamage
from tern_store.files import Buffer, Files, discard
from tern_store.log.sync_job import SyncJob
from tern_store.open_files import OpenFiles

Key = tuple[int, ...]
ROWS, CHECKS = "", ".crc"
Slot = tuple[Key, int, str]  # a file: its key, its number from the sequence's row 0 on, ROWS or CHECKS
_FILE_NAME = re.compile(r"([0-9]{20})(\.crc)?")
# Shorter than a file's name and without leading zeros: the folder of one number of a key.
_FOLDER_NAME = re.compile(r"0|[1-9][0-9]{0,18}")


class RowFolders:
    """Files by key and number. Owner: RowFiles; only `SyncJob.run` may run elsewhere."""

    def __init__(self, directory: Path, leaf: str, file_size_bytes: int, open_files_max: int, files: Files) -> None:
        self._directory, self._leaf, self._files = directory, leaf, files
        self._file_size_bytes = file_size_bytes
        files.makedirs(directory)
        self._open_files: OpenFiles[Slot] = OpenFiles(files, open_files_max)
        self._dirty: dict[Slot, None] = {}
        self._dirty_directories: dict[Path, None] = {}
        # Existing files that the restored state does not need: the process may have been killed
        # before their names were synced.
        self._unsure: set[Slot] = set()
        self._retired: dict[tuple[Key, int], int] = {}  # the flush after which it was retired; never falling
        self._flushes = 0
        self._newest, self._older = 0, -1  # flushes of the two kept states

    @property
    def is_dirty(self) -> bool:
        """Whether something was written that no job covers."""
        return bool(self._dirty)

    def path(self, slot: Slot) -> Path:
        """The path of a file."""
        key, file, suffix = slot
        return Path(f"{self._folder(key)}/{file * self._file_size_bytes:020d}{suffix}")

    def write(self, slot: Slot, data: Buffer, position: int) -> None:
        """Write all of *data*; the next job makes it durable. Raises the kernel's OSError."""
        fd = self._open_files.get(slot)
        if fd is None:
            fd = self._open_files.open(slot, partial(self._create, slot))
        self._dirty[slot] = None
        self._files.pwrite(fd, data, position)

    def read(self, slot: Slot, position: int, size: int, *, keep_open: bool = True) -> bytes:
        """*size* bytes. DerivedDamage if the file is missing, shorter, or unreadable."""
        try:
            fd = self._open_files.get(slot)
            if fd is None:
                fd = self._open_files.open(slot, partial(self._files.open, self.path(slot)))
            data = self._files.pread(fd, size, position)
        except FileNotFoundError as error:
            raise DerivedDamage(self.path(slot), 0, "the file is missing") from error
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise DerivedDamage(self.path(slot), position, "the disk cannot read it") from error
        if not keep_open:
            self._open_files.close(slot)
        if len(data) < size:
            raise DerivedDamage(self.path(slot), position + len(data), f"the file ends before byte {position + size}")
        return data

    def take_job(self) -> SyncJob:
        """End a flush: count it and return the job that syncs everything unsynced."""
        self._flushes += 1
        job = SyncJob(
            files=self._files,
            paths=tuple(self.path(slot) for slot in self._dirty),
            directories=tuple(self._dirty_directories),
        )
        self._dirty, self._dirty_directories = {}, {}
        return job

    def retire(self, key: Key, file: int) -> None:
        """Mark the file's rows and checks as needed only by states that are saved already."""
        for suffix in (ROWS, CHECKS):
            self._forget((key, file, suffix))
        self._retired.pop((key, file), None)
        self._retired[key, file] = self._flushes

    def has_retired(self, key: Key, files: range) -> bool:
        """Whether one of these files waits for its removal and must not change."""
        return bool(self._retired) and any((key, file) in self._retired for file in files)

    def saved(self) -> None:
        """Unlink retired files that neither the last flush's state, now durable, nor the one before
        needs.
        """
        if self._newest == self._flushes:
            return
        self._older, self._newest = self._newest, self._flushes
        gone = []
        for retired, behind in self._retired.items():
            if behind >= self._older:
                break
            gone.append(retired)
        for key, file in gone:
            del self._retired[key, file]
            for suffix in (ROWS, CHECKS):
                self.unlink((key, file, suffix))

    def listing(self) -> Iterator[Slot]:
        """Yield every file of this folder."""
        for key, names in self._names():
            for match in names:
                number, odd = divmod(int(match[1]), self._file_size_bytes)
                if not odd:
                    yield key, number, match[2] or ROWS

    def restored(self, retired: list[tuple[Key, int]], not_needed: list[Slot]) -> None:
        """Record that the owner is at a saved state that does not need *retired*.
        The state saved before it may need them. *not_needed*: all existing files that this state
        does not need, whose names may not be durable.
        """
        self._flushes, self._newest, self._older = 0, 0, -1
        self._retired = dict.fromkeys(retired, -1)
        self._unsure = set(not_needed)
        self._dirty, self._dirty_directories = {}, {}

    def unlink(self, slot: Slot) -> None:
        """Unlink the file if it exists. Not synced: if it reappears, no sequence uses it."""
        self._forget(slot)
        discard(self.path(slot), self._files)

    def wipe(self) -> None:
        """Remove every file, also those with another size per file."""
        self.close_files()
        self._dirty, self._dirty_directories, self._retired, self._unsure = {}, {}, {}, set()
        for key, names in self._names():
            for match in names:
                self._files.unlink(Path(f"{self._folder(key)}/{match[0]}"))

    def close_files(self) -> None:
        """Close all open files. The next write or read opens its own again."""
        self._open_files.close_all()

    # Below ----------------------------------------------------------------------------------------
    def _folder(self, key: Key) -> str:
        folder = "/".join([str(self._directory), *map(str, key)])
        return f"{folder}/{self._leaf}" if self._leaf else folder

    def _names(self) -> Iterator[tuple[Key, list[re.Match[str]]]]:
        waiting: list[Key] = [()]
        while waiting:
            key = waiting.pop()
            names = self._files.listdir(self._directory.joinpath(*map(str, key)))
            waiting.extend((*key, int(name)) for name in names if _FOLDER_NAME.fullmatch(name))
            if self._leaf:
                names = self._files.listdir(Path(self._folder(key))) if self._leaf in names else []
            yield key, [match for match in map(_FILE_NAME.fullmatch, names) if match is not None]

    def _create(self, slot: Slot) -> int:
        assert slot[:2] not in self._retired, "a saved state may need it as it is"
        path = self.path(slot)
        try:
            fd = self._files.open(path)
        except FileNotFoundError:
            # The job makes the names durable: a directory sync here would stop the core for every
            # new file.
            self._files.makedirs(path.parent, synced=False)
            fd = self._files.open(path, create=True)
        else:
            if slot not in self._unsure:
                return fd
        self._unsure.discard(slot)
        folder = path.parent
        while folder != self._directory:
            self._dirty_directories[folder] = None
            folder = folder.parent
        self._dirty_directories[folder] = None
        return fd

    def _forget(self, slot: Slot) -> None:
        self._dirty.pop(slot, None)
        self._open_files.close(slot)
