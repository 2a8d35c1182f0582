"""Files in memory for the broker of a TestMesh: the calls of `tern_store.Files` on a dictionary.

Law: a file takes the bytes that were written to it. Space that is reserved and not written reads as
zeros and takes none, so a log segment of 16 MiB costs what the log holds. All files together have a
limit; beyond it a write fails with ENOSPC, as on a full disk, and the broker answers `disk-full`.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from tern_store.files import Advice, Buffer

_FIRST_FD = 1_000


class _File:
    """One file. *size* may lie behind the bytes that were written: the rest reads as zeros."""

    __slots__ = ("data", "is_locked_by", "names", "size")

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0
        self.names = 0
        self.is_locked_by: int | None = None


class MemoryFiles:
    """Implements tern_store.Files. Owner: one broker node, on the thread of its loop.

    *capacity_bytes*: what all files may hold.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._folders: dict[Path, dict[str, _File | None]] = {Path("/"): {}}
        self._open: dict[int, _File] = {}
        self._next_fd = _FIRST_FD
        self.used_bytes = 0

    def clear(self) -> None:
        """Drop all files and their bytes."""
        self._folders, self._open, self.used_bytes = {Path("/"): {}}, {}, 0

    # Names ----------------------------------------------------------------------------------------
    def open(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing; FileNotFoundError unless *create*."""
        folder = self._folder(path.parent) if create else self._folders.get(path.parent, {})
        if path.name not in folder:
            if not create:
                raise _error(errno.ENOENT, path)
            made = folder[path.name] = _File()
            made.names = 1
        file = folder[path.name]
        if file is None:
            raise _error(errno.EISDIR, path)
        self._next_fd += 1
        self._open[self._next_fd] = file
        return self._next_fd

    def close(self, fd: int) -> None:
        """Close *fd*; a file without a name is gone then."""
        file = self._open.pop(fd, None)
        if file is None:
            raise _error(errno.EBADF)
        if file.is_locked_by == fd:
            file.is_locked_by = None
        self._drop_if_gone(file)

    def rename(self, source: Path, target: Path) -> None:
        """Give the file another name in the same folder, in place of another file of that name."""
        folder = self._folder(source.parent)
        file = self._named(source)
        if target.name in folder:
            if folder[target.name] is file:  # two names of one file stay, as POSIX says
                return
            self.unlink(target)
        del folder[source.name]
        folder[target.name] = file

    def link(self, source: Path, target: Path) -> None:
        """Give the file a second name in the same folder."""
        file = self._named(source)
        if target.name in self._folder(target.parent):
            raise _error(errno.EEXIST, target)
        if file is not None:
            file.names += 1
        self._folder(target.parent)[target.name] = file

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        file = self._named(path)
        del self._folder(path.parent)[path.name]
        if file is not None:
            file.names -= 1
            self._drop_if_gone(file)

    def listdir(self, path: Path) -> list[str]:
        """List the names in *path*, sorted; empty if there is no such folder."""
        return sorted(self._folders.get(path, {}))

    def makedirs(self, path: Path, *, synced: bool = True) -> None:
        """Make *path* and its parents."""
        for folder in (*reversed(path.parents), path):
            if folder not in self._folders:
                self._folders[folder] = {}
                self._folders[folder.parent][folder.name] = None

    def try_lock(self, fd: int) -> bool:
        """Take the exclusive lock of the file; False at once if it is taken."""
        file = self._file(fd)
        if file.is_locked_by is None:
            file.is_locked_by = fd
        return file.is_locked_by == fd

    # Bytes ----------------------------------------------------------------------------------------
    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        """Write all of *data*; ENOSPC when it does not fit."""
        file, view = self._file(fd), memoryview(data).cast("B")
        end = position + len(view)
        if (more := end - len(file.data)) > 0:
            if self.used_bytes + more > self._capacity_bytes:
                raise _error(errno.ENOSPC)
            self.used_bytes += more
            file.data.extend(bytes(more))
        file.data[position:end] = view
        file.size = max(file.size, end)

    def pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> None:
        """Write all *parts* in sequence from *position*."""
        self.pwrite(fd, b"".join(parts), position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Read *size* bytes, fewer only at the end of the file."""
        file = self._file(fd)
        stop = max(position, min(position + size, file.size))
        found = bytes(file.data[position:stop])
        return found + bytes(stop - position - len(found))

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        """Fill *buffers* in sequence; return the bytes read."""
        read = 0
        for buffer in buffers:
            part = self.pread(fd, len(buffer), position + read)
            buffer[: len(part)] = part
            read += len(part)
        return read

    def fallocate(self, fd: int, size: int) -> None:
        """Reserve [0, size): new bytes read as zeros and take no memory."""
        file = self._file(fd)
        file.size = max(file.size, size)

    def ftruncate(self, fd: int, size: int) -> None:
        """Set the size; what is behind it is gone."""
        file = self._file(fd)
        if (less := len(file.data) - size) > 0:
            del file.data[size:]
            self.used_bytes -= less
        file.size = size

    def size(self, fd: int) -> int:
        """The size of the file."""
        return self._file(fd).size

    def data_extents(self, fd: int, start: int) -> list[tuple[int, int]]:
        """The range at or behind *start* that may hold non-zero bytes."""
        end = len(self._file(fd).data)
        return [(start, end)] if start < end else []

    def free_bytes(self, path: Path) -> int:
        """Bytes that may still be written."""
        return self._capacity_bytes - self.used_bytes

    # A memory has nothing to sync and nothing to read ahead ---------------------------------------
    def advise(self, fd: int, position: int, size: int, advice: Advice) -> None:
        """Do nothing."""

    def fdatasync(self, fd: int) -> None:
        """Do nothing."""

    def fsync_dir(self, path: Path) -> None:
        """Do nothing."""

    # Below ----------------------------------------------------------------------------------------
    def _file(self, fd: int) -> _File:
        file = self._open.get(fd)
        if file is None:
            raise _error(errno.EBADF)
        return file

    def _folder(self, path: Path) -> dict[str, _File | None]:
        folder = self._folders.get(path)
        if folder is None:
            raise _error(errno.ENOENT, path)
        return folder

    def _named(self, path: Path) -> _File | None:
        folder = self._folders.get(path.parent, {})
        if path.name not in folder:
            raise _error(errno.ENOENT, path)
        return folder[path.name]

    def _drop_if_gone(self, file: _File) -> None:
        if not file.names and file not in self._open.values():
            self.used_bytes -= len(file.data)
            file.data = bytearray()


def _error(number: int, path: Path | None = None) -> OSError:
    return OSError(number, os.strerror(number), None if path is None else str(path))
