"""Files in memory that can lose power, run full and fail (what a crash may leave of them: `faulty_disk.py`).

Locks and descriptors die with the power. Space: a file has all of it from its start to the last byte written or allocated.
"""

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tern_store.files import Advice, Buffer, lost, of_write
from tests.support.files.faulty_disk import (
    FOLDER,
    REMOVED,
    Arrivals,
    Effect,
    Everything,
    FaultyDisk,
    FaultyFile,
    RandomArrivals,
)

_ROOT = Path("/")
PAGE_SIZE_BYTES = 4096


class PowerCut(BaseException):
    """The machine is off; only `FaultyFiles.crash` turns it on again. Nothing that runs on it may catch this."""


class FaultyFiles:
    """Implements tern_store.Files. Owner: one test."""

    def __init__(self) -> None:
        self.operations = 0  # that change something, or make it durable
        self.cut_at: int | None = None  # the operation during which the power goes
        self.open_files_max: int | None = None  # of the process; None: as many as it likes
        self.capacity_bytes: int | None = None  # of the disk; None: as much as you like
        self.tape: list[Effect] | None = None  # a list here gets every effect from now on
        self._is_off = False
        self._disk = FaultyDisk()
        self._fds: dict[int, FaultyFile] = {}
        self._next_fd = 1000
        self._failures: list[list[Any]] = []
        self._refusal: tuple[random.Random, float, tuple[int, ...]] | None = None
        self._worn: list[tuple[int, int, int]] = []  # by number of the file

    # What a test does to it ------------------------------------------------------------------------------------
    def fail_next(self, operation: str, error: int, *, after: int = 0) -> None:
        """The next call of *operation* ("pwrite", "fallocate", ...) but *after* others raises OSError(*error*)."""
        self._failures.append([operation, error, after])

    def refuse(self, rng: random.Random, share: float, errors: Sequence[int]) -> None:
        """From now on each open, write and change of a name is refused with this chance, by one of *errors*; `relent` ends it."""
        self._refusal = rng, share, tuple(errors)

    def relent(self) -> None:
        """Nothing is refused any more."""
        self._refusal = self.open_files_max = None

    @property
    def is_refusing(self) -> bool:
        """Whether it may refuse anything now."""
        return self._refusal is not None or self.open_files_max is not None

    def wear(self, path: Path, start: int, stop: int) -> None:
        """The bytes [start, stop) of the file cannot be read any more (EIO) until they are written anew."""
        self._worn.append((self._disk.names[path.parent][path.name], start, stop))

    def crash(self, rng: random.Random) -> None:
        """Cut the power and turn it on again: what follows sees one of the states that a disk could be in."""
        self._disk = self._disk.after_crash(RandomArrivals(rng))
        self._fds.clear()
        self.cut_at, self.tape, self._is_off, self.operations = None, None, False, 0

    def end_process(self) -> None:
        """The process is gone (killed, or cut off by `cut_at`), the machine is not: what was written stays, in the page cache."""
        for file in self._fds.values():
            file.locked_by = None
        self._fds.clear()
        self.cut_at, self._is_off, self._failures = None, False, []

    def after_crash(self, arrivals: Arrivals) -> "FaultyFiles":
        """Another machine with what *arrivals* leaves of this one's disk, which does not change."""
        files = FaultyFiles()
        files._disk = self._disk.after_crash(arrivals)
        return files

    def fork(self) -> "FaultyFiles":
        """Another machine with the same files, all of them synced."""
        return self.after_crash(Everything())

    def play(self, effect: Effect) -> None:
        """One effect of another's tape that began where this one is now."""
        kind, *arguments = effect
        getattr(self._disk, kind)(*arguments)

    def content(self, path: Path) -> bytearray:
        """The bytes of a file, to be read or damaged in place (synced and unsynced alike) by a test."""
        file = self._disk.files[self._disk.names[path.parent][path.name]]
        file.durable, file.versions, file.lost, file.sizes = file.live, {}, {}, []
        return file.live

    def peek(self, path: Path) -> bytes:
        """The bytes of a file, as who reads sees them."""
        return bytes(self._disk.files[self._disk.names[path.parent][path.name]].live)

    def flip(self, path: Path, position: int, bit: int) -> None:
        """A bit goes bad, on the platter and for whoever reads: what is unsynced stays unsynced."""
        file = self._disk.files[self._disk.names[path.parent][path.name]]
        for content in {id(each): each for each in (file.live, file.durable)}.values():
            if position < len(content):
                content[position] ^= 1 << bit

    def lose(self, path: Path) -> None:
        """The file is gone, and was for long."""
        del self._disk.names[path.parent][path.name]
        self._disk.durable_names.get(path.parent, {}).pop(path.name, None)

    def paths(self, below: Path = Path("/")) -> list[Path]:
        """Every file below a directory, sorted."""
        disk = self._disk
        return sorted(
            directory / name
            for directory, entries in disk.names.items()
            if directory == below or below in directory.parents
            for name, number in entries.items()
            if number > FOLDER
        )

    def has(self, folder: Path, name: str) -> bool:
        """Whether there is such a file or folder, as who looks from outside sees it."""
        return name in self._disk.names.get(folder, {})

    def disk(self) -> FaultyDisk:
        """What `crash_states` looks at: pending steps, and files by number."""
        return self._disk

    def open_count(self) -> int:
        """Descriptors that nobody has closed."""
        return len(self._fds)

    @property
    def used_bytes(self) -> int:
        """Space of the files that have a name or are open."""
        named = {number for entries in self._disk.names.values() for number in entries.values() if number > FOLDER}
        held = named | {file.number for file in self._fds.values()}
        return sum(self._disk.files[number].allocated for number in held)

    # The protocol ----------------------------------------------------------------------------------------------
    def open(self, path: Path, *, create: bool = False) -> int:
        self._require_power()
        if self.open_files_max is not None and len(self._fds) >= self.open_files_max:
            raise _error(errno.EMFILE, path)
        number = self._disk.names.get(path.parent, {}).get(path.name)
        if number is None:
            if not create:
                raise _error(errno.ENOENT, path)
            self._require_directory(path.parent)
            self._step("open")
        elif number != FOLDER:
            self._refuse_if_asked(path)
        if number is None:
            self._require_room(1, path)
            number = self._disk.file_count + 1
            self._do("name", path.parent, ((path.name, number),))
        if number == FOLDER:
            raise _error(errno.EISDIR, path)
        self._next_fd += 1
        self._fds[self._next_fd] = self._disk.files[number]
        return self._next_fd

    def close(self, fd: int) -> None:
        file = self._fds.pop(fd, None)
        if file is not None:
            file.locked_by = None if file.locked_by == fd else file.locked_by
        elif not self._is_off:
            raise _error(errno.EBADF)

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        file, data = self._file(fd), bytes(data)
        try:
            self._step("pwrite")
        except OSError as error:
            # Pages that the kernel had taken, then the error: it refuses at a page, never in its middle.
            whole = (position + len(data) // 2) // PAGE_SIZE_BYTES * PAGE_SIZE_BYTES - position
            if whole > 0:
                self._do("put", file.number, data[:whole], position)
            raise of_write(error) from None
        except PowerCut:
            self._do("put", file.number, data, position)  # on its way when the power went: `crash` decides what arrived
            raise
        room = file.allocated + max(0, self.free_bytes(_ROOT))
        if position + len(data) > max(room, file.allocated):
            if room > position:
                self._do("put", file.number, data[: room - position], position)
            raise _error(errno.ENOSPC)
        self._do("put", file.number, data, position)
        if self._worn:
            stop = position + len(data)
            self._worn = [
                (number, start, end)
                for number, start, end in self._worn
                if not (number == file.number and position <= start and end <= stop)
            ]

    def pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> None:
        for part in parts:
            self.pwrite(fd, part, position)
            position += memoryview(part).nbytes

    def pread(self, fd: int, size: int, position: int) -> bytes:
        assert size >= 0, "a read of fewer than no bytes"
        assert position >= 0, "a read before the file"
        file = self._file(fd)
        if self._failures:
            self._fail_if_asked("pread")
        if self._worn:
            self._require_readable(file, position, position + size)
        return bytes(file.live[position : position + size])

    def fdatasync(self, fd: int) -> None:
        file = self._file(fd)
        try:
            self._step("fdatasync", may_refuse=False)
        except OSError as error:
            self._do("fail_sync", file.number)
            raise lost(error) from None
        self._do("sync", file.number)

    def fsync_dir(self, path: Path) -> None:
        self._require_power()
        self._require_directory(path)
        self._step("fsync_dir")
        self._do("sync_names", path)

    def fallocate(self, fd: int, size: int) -> None:
        file = self._file(fd)
        self._step("fallocate")
        self._require_room(size - file.allocated)
        self._do("allocate", file.number, size)

    def ftruncate(self, fd: int, size: int) -> None:
        file = self._file(fd)
        self._step("ftruncate")
        self._do("resize", file.number, size)

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        read = 0
        for buffer in buffers:
            part = self.pread(fd, len(buffer), position + read)
            buffer[: len(part)] = part
            read += len(part)
        return read

    def advise(self, fd: int, position: int, size: int, advice: Advice) -> None:
        self._file(fd)

    def size(self, fd: int) -> int:
        return len(self._file(fd).live)

    def data_extents(self, fd: int, start: int) -> list[tuple[int, int]]:
        file = self._file(fd)
        return [(start, len(file.live))] if start < len(file.live) else []

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "only renames within a directory are atomic here"
        self._require_name(source)
        self._step("rename")
        number = self._disk.names[source.parent][source.name]
        self._do("name", source.parent, ((target.name, number), (source.name, REMOVED)))

    def link(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "a second name lies beside the first"
        self._require_name(source)
        self._step("link")
        self._do("name", target.parent, ((target.name, self._disk.names[source.parent][source.name]),))

    def unlink(self, path: Path) -> None:
        self._require_name(path)
        self._step("unlink")
        self._do("name", path.parent, ((path.name, REMOVED),))

    def listdir(self, path: Path) -> list[str]:
        self._require_power()
        self._refuse_if_asked(path)
        return sorted(self._disk.names.get(path, {}))

    def makedirs(self, path: Path, *, synced: bool = True) -> None:
        self._require_power()
        missing = []
        while path not in self._disk.names:
            missing.append(path)
            path = path.parent
        for directory in reversed(missing):
            self._step("mkdir")
            self._require_room(1, directory)
            self._do("name", directory.parent, ((directory.name, FOLDER),))
            if synced:
                self.fsync_dir(directory.parent)

    def free_bytes(self, path: Path) -> int:
        return 1 << 40 if self.capacity_bytes is None else self.capacity_bytes - self.used_bytes

    def try_lock(self, fd: int) -> bool:
        file = self._file(fd)
        if file.locked_by is None:
            file.locked_by = fd
        return file.locked_by == fd

    # Below -----------------------------------------------------------------------------------------------------
    def _do(self, kind: str, *arguments: Any) -> None:
        if self.tape is not None:
            self.tape.append((kind, *arguments))
        getattr(self._disk, kind)(*arguments)

    def _require_power(self) -> None:
        if self._is_off:
            raise PowerCut

    def _require_room(self, size_bytes: int, path: Path | None = None) -> None:
        if size_bytes > 0 and size_bytes > self.free_bytes(_ROOT):
            raise _error(errno.ENOSPC, path)

    def _require_directory(self, path: Path) -> None:
        if path not in self._disk.names:
            raise _error(errno.ENOENT, path)

    def _require_name(self, path: Path) -> None:
        self._require_power()
        if path.name not in self._disk.names.get(path.parent, {}):
            raise _error(errno.ENOENT, path)

    def _file(self, fd: int) -> FaultyFile:
        if self._is_off:
            raise PowerCut
        file = self._fds.get(fd)
        if file is None:
            raise _error(errno.EBADF)
        return file

    def _require_readable(self, file: FaultyFile, start: int, stop: int) -> None:
        for number, begin, end in self._worn:
            if number == file.number and begin < stop and start < end:
                raise _error(errno.EIO)

    def _refuse_if_asked(self, path: Path | None = None) -> None:
        if self._refusal is not None and self._refusal[0].random() < self._refusal[1]:
            raise _error(self._refusal[0].choice(self._refusal[2]), path)

    def _step(self, operation: str, *, may_refuse: bool = True) -> None:
        self._require_power()
        if may_refuse and self._refusal is not None:
            self._refuse_if_asked()
        self.operations += 1
        if self.cut_at is not None and self.operations >= self.cut_at:
            self._is_off = True
            raise PowerCut
        if self._failures:
            self._fail_if_asked(operation)

    def _fail_if_asked(self, operation: str) -> None:
        for number, failure in enumerate(self._failures):
            if failure[0] == operation:
                if failure[2]:
                    failure[2] -= 1
                    continue
                del self._failures[number]
                raise _error(failure[1])


def _error(number: int, path: Path | None = None) -> OSError:
    return OSError(number, os.strerror(number), None if path is None else str(path))
