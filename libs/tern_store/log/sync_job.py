"""A sync as a value: the owner makes a job, another thread runs it, the owner records it."""

from dataclasses import dataclass
from pathlib import Path

from tern_store.files import Files


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SyncJob:
    """fdatasync of everything unsynced when the job was made. `run` touches no state of the owner.
    The owner keeps *fds* open until it has recorded the job's end; `run` opens and closes *paths*.
    """

    files: Files
    fds: tuple[int, ...] = ()
    paths: tuple[Path, ...] = ()
    directories: tuple[Path, ...] = ()
    # For the commit log: the index that becomes durable, and the state at the job's making.
    end_index: int = 0
    cuts: int = 0
    writes: tuple[tuple[int, int], ...] = ()

    def run(self) -> None:
        """Wait for the disk. SyncLost is final: never run the job again.
        After any other OSError run it again: some data is not durable.
        """
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
