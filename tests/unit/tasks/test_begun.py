"""Coroutines begin at once, and their rest is a task."""

import asyncio

import pytest

from tern_tasks import begin

pytestmark = pytest.mark.anyio


async def test_the_first_part_runs_before_begin_returns_and_the_rest_as_a_task() -> None:
    """Up to the first wait there is no task of its own; each later wait works like that of any task."""
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    seen: list[object] = []

    async def work() -> str:
        seen.append("begun")
        seen.append(await first)
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())
        return "done"

    ending = begin(work(), asyncio.get_running_loop())
    assert seen == ["begun"]
    first.set_result(7)
    assert await ending == "done"
    assert seen == ["begun", 7, ending]


async def test_what_needs_no_wait_has_ended() -> None:
    """Results and errors, without a task."""

    async def result() -> int:
        return 3

    async def fail() -> int:
        raise ValueError("wrong")

    ended, failed = (begin(work(), asyncio.get_running_loop()) for work in (result, fail))
    assert (ended.done(), ended.result()) == (True, 3)
    with pytest.raises(ValueError, match="wrong"):
        await failed


async def test_errors_of_awaited_things_and_cancellation_reach_the_coroutine() -> None:
    """At its first wait and at later ones."""
    seen: list[str] = []

    async def work(waited: "asyncio.Future[None]") -> None:
        try:
            await waited
        except ValueError as error:
            seen.append(str(error))
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    loop = asyncio.get_running_loop()
    waited: asyncio.Future[None] = loop.create_future()
    ending = begin(work(waited), loop)
    waited.set_exception(ValueError("late"))
    while seen != ["late"]:
        await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert seen == ["late", "ended"]
