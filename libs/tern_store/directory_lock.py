"""One process per data directory: two nodes on one log would destroy it."""

import os
from pathlib import Path

from tern_store.errors import DirectoryInUse
from tern_store.files import REAL_FILES, Files, is_done


class DirectoryLock:
    """An flock on the file `lock`; the kernel releases it when the process ends for any reason."""

    def __init__(self, fd: int, files: Files) -> None:
        """Use `acquire`."""
        self._fd, self._files = fd, files

    @classmethod
    def acquire(cls, directory: Path, *, pid: int | None = None, files: Files = REAL_FILES) -> "DirectoryLock":
        """Lock *directory* (made if missing). DirectoryInUse, with the owner's pid."""
        files.makedirs(directory)
        fd = files.open(directory / "lock", create=True)
        if not files.try_lock(fd):
            owner = files.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            files.close(fd)
            raise DirectoryInUse(
                f"{directory} is in use by process {owner}. Stop that process, or give this one its own data directory."
            )
        files.ftruncate(fd, 0)
        # The pid is only for operators: a full disk leaves it out.
        is_done(lambda: files.pwrite(fd, f"{os.getpid() if pid is None else pid}\n".encode(), 0))
        return cls(fd, files)

    def release(self) -> None:
        """Unlock the directory. The file stays: its removal would race with the next owner."""
        self._files.close(self._fd)
