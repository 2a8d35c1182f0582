"""Files in memory that can lose power: synced bytes survive, unsynced ones are lost, kept or torn at 512-byte sectors.

Model. A write changes sectors; until fdatasync every touched sector may be found as it was after any of its writes, independently
of all other sectors. A size change may or may not have arrived. Creations, renames and removals of a directory arrive in order,
up to some point, until fsync_dir. Locks and descriptors die with the power. `makedirs` is durable at once.
"""

import errno
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tern_store.files import Buffer

SECTOR = 512


class PowerCut(Exception):
    """The machine is off; only `FaultyFiles.crash` turns it on again."""


@dataclass(eq=False)
class _File:
    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    # Sector number -> its content after each write since the last sync.
    versions: dict[int, list[bytes]] = field(default_factory=dict)
    is_locked: bool = False

    def remember(self, start: int, stop: int) -> None:
        for sector in range(start // SECTOR, -(-stop // SECTOR)):
            self.versions.setdefault(sector, []).append(
                bytes(self.live[sector * SECTOR : (sector + 1) * SECTOR]).ljust(SECTOR, b"\0")
            )

    def after_crash(self, rng: random.Random) -> "_File":
        size = rng.choice([len(self.durable), len(self.live)])
        content = bytearray(self.durable)
        content.extend(bytes(max(0, len(self.live) - len(content))))
        for sector, versions in self.versions.items():
            kept = rng.choice([0, len(versions), rng.randint(0, len(versions))])
            if kept:
                content[sector * SECTOR : (sector + 1) * SECTOR] = versions[kept - 1]
        content = content[:size].ljust(size, b"\0")
        return _File(bytearray(content), bytearray(content))


class FaultyFiles:
    """Implements tern_store.Files. Owner: one test."""

    def __init__(self) -> None:
        self.operations = 0  # that change something, or make it durable
        self.cut_at: int | None = None  # the operation during which the power goes
        self._is_off = False
        self._names: dict[Path, _File] = {}
        self._durable_names: dict[Path, _File] = {}
        # Since the last fsync_dir: (path, file or None) sets a name, in order; one inner list is one atomic step.
        self._steps: dict[Path, list[list[tuple[Path, _File | None]]]] = {}
        self._directories: set[Path] = set()
        self._fds: dict[int, _File] = {}
        self._next_fd = 1000
        self._failures: list[tuple[str, int]] = []

    # What a test does to it ------------------------------------------------------------------------------------
    def fail_next(self, operation: str, error: int) -> None:
        """The next call of *operation* ("pwrite", "fallocate", ...) raises OSError(*error*)."""
        self._failures.append((operation, error))

    def crash(self, rng: random.Random) -> None:
        """Cut the power and turn it on again: what follows sees one of the states that a disk could be in."""
        for directory, steps in self._steps.items():
            assert directory in self._directories
            for step in steps[: rng.choice([0, len(steps), rng.randint(0, len(steps))])]:
                _apply(self._durable_names, step)
        files = {id(file): file.after_crash(rng) for file in self._durable_names.values()}
        self._names = {path: files[id(file)] for path, file in self._durable_names.items()}
        self._durable_names = dict(self._names)
        self._steps.clear()
        self._fds.clear()
        self.cut_at, self._is_off, self.operations = None, False, 0

    def content(self, path: Path) -> bytearray:
        """The bytes of a file, to be read or damaged in place (synced and unsynced alike) by a test."""
        file = self._names[path]
        file.durable, file.versions = file.live, {}
        return file.live

    def open_count(self) -> int:
        """Descriptors that nobody has closed."""
        return len(self._fds)

    # The protocol ----------------------------------------------------------------------------------------------
    def open(self, path: Path, *, create: bool = False) -> int:
        self._require_power()
        if path not in self._names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self._step("open")
            self._set_names(path.parent, [(path, _File())])
        self._next_fd += 1
        self._fds[self._next_fd] = self._names[path]
        return self._next_fd

    def close(self, fd: int) -> None:
        file = self._fds.pop(fd, None)
        if file is not None:
            file.is_locked = False
        elif not self._is_off:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        file = self._file(fd)
        data = bytes(data)
        try:
            self._step("pwrite")
        except OSError:
            self._put(file, data[: len(data) // 2], position)  # half a write, then the error
            raise
        except PowerCut:
            self._put(file, data, position)  # on its way when the power went: `crash` decides what arrived
            raise
        self._put(file, data, position)

    def pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> None:
        for part in parts:
            self.pwrite(fd, part, position)
            position += memoryview(part).nbytes

    def pread(self, fd: int, size: int, position: int) -> bytes:
        assert size >= 0, "a read of fewer than no bytes"
        assert position >= 0, "a read before the file"
        return bytes(self._file(fd).live[position : position + size])

    def fdatasync(self, fd: int) -> None:
        file = self._file(fd)
        self._step("fdatasync")
        file.durable, file.versions = bytearray(file.live), {}

    def fsync_dir(self, path: Path) -> None:
        self._step("fsync_dir")
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        for step in self._steps.pop(path, []):
            _apply(self._durable_names, step)

    def fallocate(self, fd: int, size: int) -> None:
        file = self._file(fd)
        self._step("fallocate")
        file.live.extend(bytes(max(0, size - len(file.live))))

    def ftruncate(self, fd: int, size: int) -> None:
        file = self._file(fd)
        self._step("ftruncate")
        old = len(file.live)
        file.live = file.live[:size].ljust(size, b"\0")
        file.remember(min(size, old), max(size, old))

    def size(self, fd: int) -> int:
        return len(self._file(fd).live)

    def data_extents(self, fd: int, start: int) -> list[tuple[int, int]]:
        file = self._file(fd)
        return [(start, len(file.live))] if start < len(file.live) else []

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "only renames within a directory are atomic here"
        self._step("rename")
        self._set_names(source.parent, [(target, self._names[source]), (source, None)])

    def unlink(self, path: Path) -> None:
        self._require_power()
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self._step("unlink")
        self._set_names(path.parent, [(path, None)])

    def listdir(self, path: Path) -> list[str]:
        self._require_power()
        below = {file.relative_to(path).parts[0] for file in self._names if path in file.parents}
        return sorted(below | {made.name for made in self._directories if made.parent == path})

    def makedirs(self, path: Path, *, synced: bool = True) -> None:
        self._require_power()
        self._directories |= {path, *path.parents}

    def free_bytes(self, path: Path) -> int:
        return 1 << 40

    def try_lock(self, fd: int) -> bool:
        file = self._file(fd)
        was_locked, file.is_locked = file.is_locked, True
        return not was_locked

    # Below -----------------------------------------------------------------------------------------------------
    def _require_power(self) -> None:
        if self._is_off:
            raise PowerCut

    def _file(self, fd: int) -> _File:
        self._require_power()
        if fd not in self._fds:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._fds[fd]

    def _step(self, operation: str) -> None:
        self._require_power()
        self.operations += 1
        if self.cut_at is not None and self.operations >= self.cut_at:
            self._is_off = True
            raise PowerCut
        for number, (failing, error) in enumerate(self._failures):
            if failing == operation:
                del self._failures[number]
                raise OSError(error, os.strerror(error))

    def _put(self, file: _File, data: bytes, position: int) -> None:
        stop = position + len(data)
        file.live.extend(bytes(max(0, stop - len(file.live))))
        file.live[position:stop] = data
        file.remember(position, stop)

    def _set_names(self, directory: Path, step: list[tuple[Path, _File | None]]) -> None:
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
        _apply(self._names, step)
        self._steps.setdefault(directory, []).append(step)


def _apply(names: dict[Path, _File], step: list[tuple[Path, _File | None]]) -> None:
    for path, file in step:
        if file is None:
            names.pop(path, None)
        else:
            names[path] = file
