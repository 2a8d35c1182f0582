"""Segments with unsynced bytes, and descriptors that must stay open until a job has run."""

from tern_store.files import Files
from tern_store.log.sync_job import SyncJob


class DirtySegments:
    """Unsynced descriptors of the log. Owner: the commit log."""

    def __init__(self, files: Files) -> None:
        self._files = files
        # Descriptor -> number of its last write; a job marks a descriptor clean only if it was not
        # written again since.
        self._dirty: dict[int, int] = {}
        self._write_count = 0
        self._jobs: set[SyncJob] = set()
        self._retired: list[int] = []

    def written(self, fd: int) -> None:
        """Mark *fd* as written."""
        self._write_count += 1
        self._dirty[fd] = self._write_count

    def take_job(self, end_index: int, cuts: int) -> SyncJob:
        """A job that syncs everything unsynced now."""
        job = SyncJob(
            files=self._files,
            fds=tuple(self._dirty),
            end_index=end_index,
            cuts=cuts,
            writes=tuple(self._dirty.items()),
        )
        self._jobs.add(job)
        return job

    def job_done(self, job: SyncJob) -> None:
        """Record that *job* has run: descriptors not written again since are clean."""
        self._jobs.discard(job)
        for fd, write in job.writes:
            if self._dirty.get(fd) == write:
                del self._dirty[fd]
        self._close_retired()

    def sync_now(self) -> None:
        """Durable here: everything written before."""
        for fd in self._dirty:
            self._files.fdatasync(fd)
        self._dirty.clear()

    def forget(self, fds: list[int]) -> None:
        """Never sync *fds* again: their files are being removed."""
        for fd in fds:
            self._dirty.pop(fd, None)

    def retire(self, fds: list[int]) -> None:
        """Close *fds* once no job holds them, so that no job on another thread meets a reused
        number.
        """
        self.forget(fds)
        self._retired += fds
        self._close_retired()

    def close(self) -> None:
        """Close all retired descriptors; no job will report again."""
        self._jobs.clear()
        self._close_retired()

    def _close_retired(self) -> None:
        if not self._jobs:
            while self._retired:
                self._files.close(self._retired.pop())
