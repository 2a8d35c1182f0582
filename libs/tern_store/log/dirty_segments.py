"""Which segments hold bytes that no fdatasync has covered, and which descriptors must stay open until a job has run."""

from tern_store.files import Files
from tern_store.log.sync_job import SyncJob


class DirtySegments:
    """Owner: the commit log."""

    def __init__(self, files: Files) -> None:
        self._files = files
        # Descriptor -> number of its last write; a job makes clean only what was not written again since.
        self._dirty: dict[int, int] = {}
        self._write_count = 0
        self._jobs: set[SyncJob] = set()
        self._retired: list[int] = []

    def written(self, fd: int) -> None:
        """Something was written to *fd*."""
        self._write_count += 1
        self._dirty[fd] = self._write_count

    def take_job(self, end_index: int, cuts: int) -> SyncJob:
        """A sync of everything that is dirty now."""
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
        """*job* has run: what was not written again since is clean."""
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
        """Their files are gone or going: never sync them again."""
        for fd in fds:
            self._dirty.pop(fd, None)

    def retire(self, fds: list[int]) -> None:
        """Close *fds* as soon as no job holds them: a number must not be given away under a job on another thread."""
        self.forget(fds)
        self._retired += fds
        self._close_retired()

    def close(self) -> None:
        """No job will report any more."""
        self._jobs.clear()
        self._close_retired()

    def _close_retired(self) -> None:
        if not self._jobs:
            while self._retired:
                self._files.close(self._retired.pop())
