"""Threads for handlers that are plain functions. A handler that does not return keeps its thread,
and nothing waits for it at the program's end.

Law: the number of threads never exceeds the handlers that run at a time. They are daemons, since a
thread cannot be ended: `concurrent.futures` would wait for a handler that hangs.
"""

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import Callable
from typing import Any

_Job = tuple[Callable[[], None], contextvars.Context]


class HandlerThreads:
    """Owner: one subscription, which has at most as many calls at a time as it has places."""

    __slots__ = ("_count", "_idle", "_jobs", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        # Threads that were started, and of these the ones that wait for a job or soon will.
        self._count = self._idle = 0

    def call(self, function: Callable[[Any], Any], argument: object) -> "asyncio.Future[object]":
        """Call *function* in a thread; the future has its end. Only the event loop calls this."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()

        def end(error: BaseException | None, result: object) -> None:
            self._idle += 1
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def job() -> None:
            error: BaseException | None = None
            result: object = None
            try:
                result = function(argument)
                if inspect.isawaitable(result):
                    raise TypeError("a plain function returned an awaitable; write the handler as `async def`")
            except BaseException as raised:
                error = (
                    RuntimeError("the handler raised StopIteration") if isinstance(raised, StopIteration) else raised
                )
            if not loop.is_closed():
                loop.call_soon_threadsafe(end, error, result)

        if self._idle:
            self._idle -= 1
        else:
            self._count += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._count}", daemon=True).start()
        self._jobs.put((job, contextvars.copy_context()))
        return future

    def close(self) -> None:
        """End the threads that wait. Those in a handler end behind it."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job[1].run(job[0])
