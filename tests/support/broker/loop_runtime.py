"""The Runtime of a broker node on the test's own event loop: an instant disk, and clocks that a
test moves, or that follow the loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NoReturn

from tern_raft.runtime import Disk
from tern_store import SyncLost
from tern_testing.node_runtime import InstantDisk

NOW_MS = 1_700_000_000_000


class LoopRuntime:
    """The Runtime of a node on the running loop, with an instant disk.

    Its clocks stand still but for what a test adds. With *follows_loop* the loop's time passes too:
    then schedules of the node run by themselves.
    """

    pid = 1

    def __init__(self, *, follows_loop: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time() if follows_loop else None
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        """Seconds that have passed."""
        return self.ahead_s if self._began_s is None else self.waited() - self._began_s

    def wall_ms(self) -> int:
        """NOW_MS, and what has passed."""
        return NOW_MS + round(self.monotonic() * 1000)

    def waited(self) -> float:
        """The loop's seconds, and what a test has let pass: what long polls are bounded by."""
        return self._loop.time() + self.ahead_s

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> object:
        """In the next turn of the loop, or of `turn`."""
        self._soon.append((callback, arguments))
        return self._loop.call_soon(self._run_one)

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> object:
        """Not before *delay_s* of the loop's time."""
        return self._loop.call_later(delay_s, callback, *arguments)

    def open_disk(self, on_failure: Callable[[SyncLost], None]) -> Disk:
        """A disk that does its jobs at once."""
        return InstantDisk(self.call_soon)

    def new_id(self) -> bytes:
        """Always the same."""
        return bytes(16)

    def end(self, code: int) -> NoReturn:
        """A node in memory has no process to end."""
        raise AssertionError(f"the node ended itself with {code}")

    def turn(self) -> None:
        """Run everything that is due, without waiting for the loop."""
        while self._soon:
            self._run_one()

    def _run_one(self) -> None:
        if self._soon:
            callback, arguments = self._soon.popleft()
            callback(*arguments)
