"""Creation of topics and groups at their first use, as RocketMQ's TBW102 rule does. Off by default.

Concurrent first uses share one creation.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tern_wire.errors import TernError

logger = logging.getLogger(__name__)

Key = tuple[str, str]
# Pause before a failed creation is tried again.
AGAIN_AFTER_S = 1.0


class AutoCreate:
    """Settings of creation at first use, and the creations in progress. Owner: one event loop."""

    def __init__(self, *, topics: bool = False, groups: bool = False) -> None:
        self.topics, self.groups = topics, groups
        self._under_way: dict[Key, asyncio.Task[None]] = {}
        self._failed: set[Key] = set()

    async def once(self, key: Key, create: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for *create*, or for a creation of the same *key* (kind, name) in progress.

        All waiters share its error.
        """
        # A client that disconnects must not cancel the creation for the other waiters.
        await asyncio.shield(self._task(key, create))

    def soon(self, key: Key, create: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a creation in the background, unless it is in progress or failed within the last
        second.
        """
        if key not in self._failed and key not in self._under_way:
            self._task(key, create).add_done_callback(lambda done: self._note(key, done))

    def _task(self, key: Key, create: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(create())
            task.add_done_callback(lambda done: self._finished(key, done))
        return task

    def _note(self, key: Key, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if not isinstance(error, TernError):
            logger.error("a creation in the background has failed", extra={"what": " ".join(key)}, exc_info=error)
        self._failed.add(key)
        asyncio.get_running_loop().call_later(AGAIN_AFTER_S, self._failed.discard, key)

    def _finished(self, key: Key, task: asyncio.Task[None]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved when no waiter is left
