"""Growth of topics: one request for offsets waits at each broker group for all tails of a topic.

    follow ------> OFFSETS(seen=-1) -> ends -> every follower
                   OFFSETS(seen=sum of ends, wait) ..... any queue grows -> ends -> every follower

A quiet topic costs a request every WAIT_MS, however many tails it has and however many queues; a
busy one a request every PAUSE_S at most. Owner of all state: one event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from tern_remoting import problem_of
from tern_routing import GroupLink
from tern_wire.errors import TernError
from tern_wire.limits import APPEND_DEADLINE_MS
from tern_wire.link.pulls import ListOffsets

# A leader that hangs is detected within this time and a request's own.
WAIT_MS = 10_000
# Pause between two requests: what grows all the time is read in pages.
PAUSE_S = 0.05
# ... behind an answer without news before its time: by a broker of the release before, which does
# not wait, or by one in trouble.
QUIET_PAUSE_S = 1.0


class Follower(Protocol):
    """One tail."""

    def grown(self, broker_group: str, ends: list[tuple[int, int]]) -> None:
        """Hear the next offset of each queue (number, offset)."""

    def failed(self, error: TernError) -> None:
        """Hear that the topic cannot be followed there any more."""


class _Watch:
    """One topic in one broker group."""

    __slots__ = ("_ends", "_link", "_on_idle", "_task", "_topic", "followers")

    def __init__(self, link: GroupLink, topic: str, on_idle: Callable[[], None]) -> None:
        self._link, self._topic, self._on_idle = link, topic, on_idle
        self.followers: dict[Follower, None] = {}
        self._ends: list[tuple[int, int]] | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, follower: Follower) -> None:
        """Tell *follower* what is known, and all news."""
        self.followers[follower] = None
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
            self._task.add_done_callback(self._ended)
        elif self._ends is not None:
            follower.grown(self._link.broker_group, self._ends)

    def remove(self, follower: Follower) -> None:
        """Tell *follower* nothing more. Safe to repeat."""
        self.followers.pop(follower, None)
        if not self.followers:
            self.close()

    def close(self) -> None:
        """Cancel the request in flight."""
        if self._task is not None:
            self._task.cancel()
        self._on_idle()

    async def _watch(self) -> None:
        loop, seen = asyncio.get_running_loop(), -1
        while True:
            began_s = loop.time()
            asked = ListOffsets(topic=self._topic, wait_ms=WAIT_MS, seen=seen)
            try:
                found, _ = await self._link.ask(
                    asked, is_repeatable=True, deadline_ms=WAIT_MS + APPEND_DEADLINE_MS, is_prompt=False
                )
            except TernError as error:
                if not error.retryable:
                    self._fail(error)
                    return
                # An election, or a broker group that is away: its messages come when it is back.
                await asyncio.sleep(PAUSE_S)
                continue
            self._ends = [(queue, end) for queue, _, end, *_ in found.queues]
            total = sum(end for _, end in self._ends)
            is_news, seen = total != seen, total
            for follower in list(self.followers):
                follower.grown(self._link.broker_group, self._ends)
            is_early = loop.time() < began_s + WAIT_MS / 2_000
            await asyncio.sleep(PAUSE_S if is_news or not is_early else QUIET_PAUSE_S)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._fail(problem_of(error))  # a bug: no tail may wait for ever

    def _fail(self, error: TernError) -> None:
        followers, self.followers = self.followers, {}
        self._on_idle()
        for follower in followers:
            follower.failed(error)


class Growth:
    """What all tails of this proxy follow."""

    def __init__(self) -> None:
        self._watches: dict[tuple[str, str], _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def follow(self, link: GroupLink, topic: str, follower: Follower) -> Callable[[], None]:
        """Tell *follower* of the growth of *topic* in the broker group of *link*, until the
        returned function is called.
        """
        key = (link.broker_group, topic)
        watch = self._watches.get(key)
        if watch is None:

            def forget() -> None:
                if self._watches.get(key) is watch:
                    del self._watches[key]

            watch = self._watches[key] = _Watch(link, topic, forget)
        watch.add(follower)
        followed = watch
        return lambda: followed.remove(follower)

    def close(self) -> None:
        """Cancel all requests."""
        for watch in list(self._watches.values()):
            watch.close()
