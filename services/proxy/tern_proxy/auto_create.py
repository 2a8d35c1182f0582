"""What comes to be at its first use, as RocketMQ's TBW102 rule has it, and that it is asked for once. Off unless the settings say otherwise."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tern_wire.errors import TernError

logger = logging.getLogger(__name__)

Key = tuple[str, str]
# What failed is not tried again before.
AGAIN_AFTER_S = 1.0


class AutoCreate:
    """Whether topics and groups are created at their first use, and creations under way. Owner: one event loop."""

    def __init__(self, *, topics: bool = False, groups: bool = False) -> None:
        self.topics, self.groups = topics, groups
        self._under_way: dict[Key, asyncio.Task[None]] = {}
        self._failed: set[Key] = set()

    async def once(self, key: Key, create: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for *create*, or for the one of the same *key* (what, name) that is under way; its error is everyone's."""
        # A client that goes away must not take the creation from the others that wait for it.
        await asyncio.shield(self._task(key, create))

    def soon(self, key: Key, create: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """As once, and nobody waits. One that has failed is not tried again for a second."""
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
            logger.error("what nobody waits for has failed", extra={"what": " ".join(key)}, exc_info=error)
        self._failed.add(key)
        asyncio.get_running_loop().call_later(AGAIN_AFTER_S, self._failed.discard, key)

    def _finished(self, key: Key, task: asyncio.Task[None]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # perhaps nobody is left to ask for it
