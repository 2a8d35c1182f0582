"""The surroundings of a broker node on a VirtualLoop: a disk without a thread, and an upkeep clock
that takes long steps where nothing is due.

Law: what comes due is noticed at its time. A node looks for it every 0.13 s, which for an advance
of a month would be twenty million looks; so this runtime asks what is due next, and lets the node
sleep until then.
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from tern_raft.runtime import Disk
from tern_raft.upkeep_clock import PERIOD_S
from tern_store import SyncLost
from tern_testing.virtual_loop import VirtualLoop

# In the longest advance the node still looks so often, for what has no exact time: retention.
LOOKS_PER_ADVANCE = 256

Callback = Callable[..., object]


class NodeEnded(RuntimeError):
    """The broker node of a TestMesh has ended itself after an error, which its log names."""


class InstantDisk:
    """A disk that does its jobs at once, and says so in the next turn, by *call_soon*."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """Run *job* now, and *done* in the next turn."""
        job()
        self._call_soon(done)

    def stop(self) -> None:
        """There is no thread."""


class Nobody:
    """The links of a group of one."""

    def post(self, _peer: str, _parts: object) -> bool:
        """There is no peer."""
        return False

    def buffered(self, _peer: str) -> int:
        """As above."""
        return 0


class NodeRuntime:
    """Implements tern_raft.Runtime. Owner: one node. *began_ms*: the wall clock at the loop's 0."""

    def __init__(self, loop: VirtualLoop, began_ms: int) -> None:
        self._loop, self._began_ms = loop, began_ms
        self.pid = os.getpid()
        self.monotonic = loop.time
        self.call_soon = loop.call_soon
        # Set by the node: the seconds until something is due, at most as many as are given.
        self.until_due_s: Callable[[float], float] = lambda _within_s: 0.0
        self._upkeep: tuple[asyncio.TimerHandle, Callback] | None = None

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._began_ms + int(self._loop.time() * 1000)

    def call_later(self, delay_s: float, callback: Callback, *arguments: object) -> object:
        """Not before *delay_s*. The upkeep clock, known by its period, comes when it is needed."""
        if delay_s != PERIOD_S:
            return self._loop.call_later(delay_s, callback, *arguments)
        self._look_later(partial(callback, *arguments))
        return None

    def look_again(self) -> None:
        """Something has changed: the next look may have to come earlier. At the begin of an advance
        it may come later.
        """
        if self._upkeep is not None:
            handle, callback = self._upkeep
            handle.cancel()
            self._look_later(callback)

    def _look_later(self, callback: Callback) -> None:
        self._upkeep = self._loop.call_later(self._upkeep_s(), self._look), callback

    def _look(self) -> None:
        assert self._upkeep is not None
        callback, self._upkeep = self._upkeep[1], None
        callback()

    def _upkeep_s(self) -> float:
        longest_s = self._loop.left_s / LOOKS_PER_ADVANCE
        if longest_s <= PERIOD_S:
            return PERIOD_S
        return max(PERIOD_S, self.until_due_s(longest_s))

    def open_disk(self, on_failure: Callable[[SyncLost], None]) -> Disk:
        """A disk that does its jobs at once."""
        return InstantDisk(self.call_soon)

    def new_id(self) -> bytes:
        """16 random bytes."""
        return os.urandom(16)

    def end(self, code: int) -> NoReturn:
        """The process is the user's: only the node ends."""
        raise NodeEnded(f"the broker of this TestMesh has ended itself with exit code {code}")
