"""What comes to be at its first use, as RocketMQ's TBW102 rule has it, and that it is asked for once. Off unless the settings say otherwise."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Key = tuple[str, str]


class AutoCreate:
    """Whether topics and groups are created at their first use, and creations under way. Owner: one event loop."""

    def __init__(self, *, topics: bool = False, groups: bool = False) -> None:
        self.topics, self.groups = topics, groups
        self._under_way: dict[Key, asyncio.Task[None]] = {}

    async def once(self, key: Key, create: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for *create*, or for the one of the same *key* (what, name) that is under way; its error is everyone's."""
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(create())
            task.add_done_callback(lambda done: self._finished(key, done))
        # A client that goes away must not take the creation from the others that wait for it.
        await asyncio.shield(task)

    def _finished(self, key: Key, task: asyncio.Task[None]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # perhaps nobody is left to ask for it
