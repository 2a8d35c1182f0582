"""Waiting for the disk as a value: the owner makes a job, another thread runs it, the owner takes note."""

from dataclasses import dataclass
from pathlib import Path

from tern_store.files import Files


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SyncJob:
    """fdatasync of what was dirty when the job was made. `run` touches nothing that its owner changes.

    *fds* belong to their owner, who keeps them open until it has been told; *paths* are opened and closed here.
    """

    files: Files
    fds: tuple[int, ...] = ()
    paths: tuple[Path, ...] = ()
    directories: tuple[Path, ...] = ()
    # The commit log's: what will be durable, and what it needs to take note.
    end_index: int = 0
    cuts: int = 0
    writes: tuple[tuple[int, int], ...] = ()

    def run(self) -> None:
        """Wait for the disk. SyncLost is final: never run it again. After any other OSError, run it again: not all is durable."""
        for fd in self.fds:
            self.files.fdatasync(fd)
        for path in self.paths:
            fd = self.files.open(path)
            try:
                self.files.fdatasync(fd)
            finally:
                self.files.close(fd)
        for directory in self.directories:
            self.files.fsync_dir(directory)
