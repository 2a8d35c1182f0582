"""Files that remember the kernel's last refusal, and what an operator can do about it."""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from tern_store.errors import SyncLost
from tern_store.files import Advice, Buffer, Files
from tern_store.open_files import OUT_OF_DESCRIPTORS

# Refused calls are repeated within seconds: a lasting lack is reported without gaps, and one that
# is over soon disappears from the report.
TOLD_S = 10.0
# Not a lack of the machine: callers expect these answers.
_EXPECTED = frozenset({errno.ENOENT, errno.EEXIST, errno.ENXIO})
_REMEDIES = {
    errno.EMFILE: "this process has as many open files as its limit allows; raise the limit (LimitNOFILE, ulimits) or close connections",
    errno.ENFILE: "the machine has as many open files as it allows; raise fs.file-max",
    errno.ENOMEM: "the machine is out of memory; free some",
    errno.ENOSPC: "the disk is full; free some of it",
    errno.EDQUOT: "the quota of this user on this disk is used up; raise it, or free some of it",
    errno.EACCES: "a file or folder of the data directory does not permit it; give it back to the user of this process",
    errno.EPERM: "a file or folder of the data directory does not permit it; give it back to the user of this process",
    errno.EROFS: "the disk is mounted read-only; mount it for writing",
    errno.EIO: "the disk has an error; replace it",
}
_P = ParamSpec("_P")
_R = TypeVar("_R")


class NotedFiles:
    """Implement Files over *files*. Safe on any thread."""

    def __init__(self, files: Files, monotonic: Callable[[], float]) -> None:
        """*monotonic*: seconds, from any origin."""
        self._files, self._monotonic = files, monotonic
        self._refused: tuple[float, OSError] | None = None
        self._is_short = False

    def lack(self) -> str:
        """A sentence about a refusal of the last seconds; empty if there was none."""
        refused = self._refused
        if refused is None or self._monotonic() - refused[0] > TOLD_S:
            return ""
        error = refused[1]
        remedy = _REMEDIES.get(error.errno or 0, "see what the operating system lacks")
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{where}: {remedy}"

    def take_short(self) -> bool:
        """Whether an open was refused for want of a descriptor since the last call."""
        is_short, self._is_short = self._is_short, False
        return is_short

    def open(self, path: Path, *, create: bool = False) -> int:
        """Forward to `Files.open` and note a refusal."""
        return self._noted(self._files.open, path, create=create)

    def close(self, fd: int) -> None:
        """Forward to `Files.close`."""
        self._files.close(fd)

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        """Forward to `Files.pwrite` and note a refusal."""
        self._noted(self._files.pwrite, fd, data, position)

    def pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> None:
        """Forward to `Files.pwritev` and note a refusal."""
        self._noted(self._files.pwritev, fd, parts, position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Forward to `Files.pread` and note a refusal."""
        return self._noted(self._files.pread, fd, size, position)

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        """Forward to `Files.preadv` and note a refusal."""
        return self._noted(self._files.preadv, fd, buffers, position)

    def advise(self, fd: int, position: int, size: int, advice: Advice) -> None:
        """Forward to `Files.advise`."""
        self._files.advise(fd, position, size, advice)

    def fdatasync(self, fd: int) -> None:
        """Forward to `Files.fdatasync`."""
        self._files.fdatasync(fd)

    def fsync_dir(self, path: Path) -> None:
        """Forward to `Files.fsync_dir` and note a refusal."""
        self._noted(self._files.fsync_dir, path)

    def fallocate(self, fd: int, size: int) -> None:
        """Forward to `Files.fallocate` and note a refusal."""
        self._noted(self._files.fallocate, fd, size)

    def ftruncate(self, fd: int, size: int) -> None:
        """Forward to `Files.ftruncate`."""
        self._noted(self._files.ftruncate, fd, size)

    def size(self, fd: int) -> int:
        """Forward to `Files.size`."""
        return self._files.size(fd)

    def data_extents(self, fd: int, start: int) -> list[tuple[int, int]]:
        """Forward to `Files.data_extents`."""
        return self._files.data_extents(fd, start)

    def rename(self, source: Path, target: Path) -> None:
        """Forward to `Files.rename` and note a refusal."""
        self._noted(self._files.rename, source, target)

    def link(self, source: Path, target: Path) -> None:
        """Forward to `Files.link` and note a refusal."""
        self._noted(self._files.link, source, target)

    def unlink(self, path: Path) -> None:
        """Forward to `Files.unlink` and note a refusal."""
        self._noted(self._files.unlink, path)

    def listdir(self, path: Path) -> list[str]:
        """Forward to `Files.listdir` and note a refusal."""
        return self._noted(self._files.listdir, path)

    def makedirs(self, path: Path, *, synced: bool = True) -> None:
        """Forward to `Files.makedirs` and note a refusal."""
        self._noted(self._files.makedirs, path, synced=synced)

    def free_bytes(self, path: Path) -> int:
        """Forward to `Files.free_bytes`."""
        return self._files.free_bytes(path)

    def try_lock(self, fd: int) -> bool:
        """Forward to `Files.try_lock`."""
        return self._files.try_lock(fd)

    def _noted(self, call: Callable[_P, _R], *arguments: _P.args, **options: _P.kwargs) -> _R:
        try:
            return call(*arguments, **options)
        except SyncLost:
            raise
        except OSError as error:
            if error.errno not in _EXPECTED:
                # Without its frames, which would keep their variables alive.
                self._is_short = self._is_short or error.errno in OUT_OF_DESCRIPTORS
                self._refused = self._monotonic(), OSError(error.errno, error.strerror, error.filename)
            raise
