"""Coroutines that run up to their first wait before they become tasks.

A task begins in the next turn of the loop. A request that is sent by a coroutine's first part
leaves a turn earlier this way. `asyncio.eager_task_factory` of Python 3.12 does the same.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def begin(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> "asyncio.Future[T]":
    """Run *coroutine* up to its first wait; return its end: a task, or a finished future.

    Up to that wait there is no current task, so the first part must not use a timeout of asyncio,
    which needs one.
    """
    ended: asyncio.Future[T]
    try:
        awaited = coroutine.send(None)
    except StopIteration as end:
        ended = loop.create_future()
        ended.set_result(end.value)
        return ended
    except Exception as error:
        ended = loop.create_future()
        ended.set_exception(error)
        return ended
    return loop.create_task(rest_of(coroutine, awaited))


async def rest_of(coroutine: Coroutine[Any, Any, T], awaited: Any) -> T:
    """Run the rest of *coroutine*, which waits for *awaited*, in the current task."""
    result: T = await _Rest(coroutine, awaited)
    return result


class _Rest(Generic[T]):
    """Awaitable of the rest of a coroutine that somebody else began."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._coroutine, self._awaited = coroutine, awaited

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine, awaited = self._coroutine, self._awaited
        while True:
            thrown: BaseException | None = None
            sent = None
            try:
                sent = yield awaited
            except BaseException as error:
                thrown = error
            try:
                awaited = coroutine.send(sent) if thrown is None else coroutine.throw(thrown)
            except StopIteration as end:
                result: T = end.value
                return result
