"""All operating system calls of the store behind one protocol, so that tests can inject faults.

Arguments are paths and descriptors, results are bytes. Errors are the kernel's OSError, or SyncLost
where written data may be lost. Any other OSError is a lack of space, descriptors, memory or
permission: the call can be repeated when the lack is over. New files have mode 0600, directories
0700.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from tern_store.errors import LogRot, SyncLost

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview
Advice = Literal["sequential", "willneed", "dontneed"]
_ADVICE = {
    "sequential": os.POSIX_FADV_SEQUENTIAL,
    "willneed": os.POSIX_FADV_WILLNEED,
    "dontneed": os.POSIX_FADV_DONTNEED,
}
# No space: on the disk, or in the user's quota.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
# Linux's IOV_MAX: pwritev refuses more buffers.
IOV_MAX = 1024


class Files(Protocol):
    """The file system calls that the store needs."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing; FileNotFoundError unless *create*."""

    def close(self, fd: int) -> None: ...

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        """Write all of *data*, continuing short writes. SyncLost if the medium refused it."""

    def pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> None:
        """Write all *parts* in sequence from *position*."""

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Read *size* bytes, fewer only at the end of the file."""

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        """Fill *buffers* in sequence; return the bytes read, fewer only at the end of the file."""

    def advise(self, fd: int, position: int, size: int, advice: Advice) -> None:
        """Announce a read to the kernel (a hint; size 0 means to the end)."""

    def fdatasync(self, fd: int) -> None:
        """Durable here: all written data. SyncLost: it may be lost; no later call reports it."""

    def fsync_dir(self, path: Path) -> None:
        """Make creations, renames and removals in *path* durable.
        SyncLost, or an OSError raised before the sync was tried.
        """

    def fallocate(self, fd: int, size: int) -> None:
        """Reserve [0, size) on disk; new bytes read as zeros.
        ENOSPC is raised here, not by later writes.
        """

    def ftruncate(self, fd: int, size: int) -> None: ...

    def size(self, fd: int) -> int: ...

    def data_extents(self, fd: int, start: int) -> list[tuple[int, int]]:
        """List [begin, end) of the ranges at or behind *start* that may hold non-zero bytes."""

    def rename(self, source: Path, target: Path) -> None: ...

    def link(self, source: Path, target: Path) -> None:
        """Give the file a second name in the same directory."""

    def unlink(self, path: Path) -> None: ...

    def listdir(self, path: Path) -> list[str]:
        """List the names in *path*, sorted; empty if there is no such directory."""

    def makedirs(self, path: Path, *, synced: bool = True) -> None:
        """Make *path* and its parents; *synced* makes each new name durable in its parent."""

    def free_bytes(self, path: Path) -> int:
        """Bytes that an unprivileged process may still write."""

    def try_lock(self, fd: int) -> bool:
        """Take the exclusive flock of the file; return False at once if it is taken."""


class RealFiles:
    """Calls to the kernel."""

    def open(self, path: Path, *, create: bool = False) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        try:
            written = os.pwrite(fd, data, position)
            if written == len(data):
                return
            rest = memoryview(data).cast("B")[written:]
            while rest:
                position += written
                written = os.pwrite(fd, rest, position)
                rest = rest[written:]
        except OSError as error:
            raise of_write(error) from None

    def pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> None:
        for first in range(0, len(parts), IOV_MAX):
            batch = parts[first : first + IOV_MAX]
            size = sum(memoryview(part).nbytes for part in batch)
            try:
                written = os.pwritev(fd, batch, position)
            except OSError as error:
                raise of_write(error) from None
            if written < size:
                self.pwrite(fd, memoryview(b"".join(batch))[written:], position + written)
            position += size

    def pread(self, fd: int, size: int, position: int) -> bytes:
        data = os.pread(fd, size, position)
        while len(data) < size:  # the kernel returns at most 2 GiB per call, and less when a signal arrives
            more = os.pread(fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        wanted = sum(len(buffer) for buffer in buffers)
        read = os.preadv(fd, buffers, position)
        if read < wanted:  # a signal, or the end of the file
            rest = self.pread(fd, wanted - read, position + read)
            at = 0
            for buffer in buffers:
                start = max(0, read - at)
                part = rest[: max(0, len(buffer) - start)]
                buffer[start : start + len(part)] = part
                rest, read, at = rest[len(part) :], read + len(part), at + len(buffer)
        return read

    def advise(self, fd: int, position: int, size: int, advice: Advice) -> None:
        os.posix_fadvise(fd, position, size, _ADVICE[advice])

    def fdatasync(self, fd: int) -> None:
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise lost(error) from None

    def fsync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise lost(error) from None
        finally:
            os.close(fd)

    def fallocate(self, fd: int, size: int) -> None:
        os.posix_fallocate(fd, 0, size)

    def ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def data_extents(self, fd: int, start: int) -> list[tuple[int, int]]:
        extents: list[tuple[int, int]] = []
        while True:
            try:
                begin = os.lseek(fd, start, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but holes up to the end
                    return extents
                raise
            start = os.lseek(fd, begin, os.SEEK_HOLE)
            extents.append((begin, start))

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def listdir(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def makedirs(self, path: Path, *, synced: bool = True) -> None:
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for directory in reversed(missing):
            directory.mkdir(mode=0o700, exist_ok=True)
            if synced:
                self.fsync_dir(directory.parent)

    def free_bytes(self, path: Path) -> int:
        facts = os.statvfs(path)
        return facts.f_bavail * facts.f_frsize

    def try_lock(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


REAL_FILES: Files = RealFiles()


def lost(error: OSError) -> SyncLost:
    """Convert *error* of a sync: pages may be lost whatever its number, ENOSPC included."""
    return SyncLost(*error.args, error.filename)


def of_write(error: OSError) -> OSError:
    """Convert *error* of a write: EIO means the medium; any other leaves earlier writes intact."""
    return lost(error) if error.errno == errno.EIO else error


def unreadable(error: OSError, path: Path, position: int) -> OSError | LogRot:
    """Convert *error* of a read of the log: EIO is rot; any other error is a temporary lack."""
    return LogRot(path, position, "the disk cannot read it") if error.errno == errno.EIO else error


def is_lack(error: OSError) -> bool:
    """Whether the refused call can be repeated once the machine has what it lacks."""
    return not isinstance(error, SyncLost)


def refusal(action: Callable[[], object]) -> OSError | None:
    """Run *action*, which must be repeatable; return the kernel's refusal, None if it succeeded.
    A refusal is a lack of room, descriptors, memory and the like. SyncLost is raised.
    """
    try:
        action()
    except OSError as error:
        if not is_lack(error):
            raise
        return error
    return None


def is_done(action: Callable[[], object]) -> bool:
    """Run *action* as `refusal` does; True if it succeeded."""
    return refusal(action) is None


def unless_worn(read: Callable[[], T]) -> T | None:
    """Return the result of *read*; None on EIO, where the caller has another source of the data."""
    try:
        return read()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None


def discard(path: Path, files: Files) -> None:
    """Unlink an unneeded file if it exists; if refused, the folder's next opening removes it."""
    is_done(lambda: files.unlink(path))


def read_whole(path: Path, files: Files) -> bytes:
    """Read a whole file; FileNotFoundError if there is none."""
    fd = files.open(path)
    try:
        return files.pread(fd, files.size(fd), 0)
    finally:
        files.close(fd)


def replace_whole(path: Path, data: bytes, files: Files) -> None:
    """Durable here: the file at *path* is *data*; an earlier crash leaves the old contents.
    The data is written aside, synced, and renamed.
    """
    fresh = path.with_name(f"{path.name}.new")
    write_synced(fresh, data, files)
    files.rename(fresh, path)
    files.fsync_dir(path.parent)


def write_synced(path: Path, data: bytes, files: Files) -> None:
    """Durable here: the contents of the file at *path*; the caller makes the name durable."""
    fd = files.open(path, create=True)
    try:
        files.ftruncate(fd, 0)
        files.pwrite(fd, data, 0)
        files.fdatasync(fd)
    finally:
        files.close(fd)
