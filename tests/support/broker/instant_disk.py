"""A disk thread without a thread: for nodes whose files are in memory."""

from collections.abc import Callable


class InstantDisk:
    """A disk that does its jobs at once, and says so in the next turn of the loop, by *call_soon*."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """Run *job* now, and *done* in the next turn."""
        job()
        self._call_soon(done)

    def stop(self) -> None:
        """There is no thread."""
