"""Work that is kept running: it begins anew after a failure, is told, and ends when it should."""

import asyncio
import logging

import pytest

from tern_service.plain_app import readiness
from tern_tasks import KeptTasks
from tern_tasks.kept_tasks import PAUSE_MAX_S, PAUSE_MIN_S, SETTLED_S


class Time:
    """Pauses are noted, and end when a test says so. Owner: one test."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: asyncio.Queue[float] = asyncio.Queue()
        self.over: asyncio.Queue[None] = asyncio.Queue()
        self.tasks = KeptTasks(sleep=self._sleep, monotonic=lambda: self.now_s)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.put_nowait(seconds)
        await self.over.get()

    async def paused(self) -> float:
        """Until the work waits to begin anew; for how long."""
        async with asyncio.timeout(30):
            return await self.pauses.get()

    def go_on(self) -> None:
        """The pause is over."""
        self.over.put_nowait(None)


async def test_work_that_fails_is_told_and_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    """With its trace in the log; while it does not go on the process is not ready, and says why."""
    time, began, may_end = Time(), asyncio.Queue[int](), asyncio.Event()

    async def work() -> None:
        began.put_nowait(began.qsize())
        if began.qsize() == 1:
            raise OSError("no descriptor")
        await may_end.wait()

    task = time.tasks.keep("watch", work)
    assert await time.paused() == PAUSE_MIN_S
    assert time.tasks.down() == {"watch": "OSError: no descriptor"}
    status, _, body = readiness(lambda: (True, {"leader": "b"}), tasks=time.tasks)
    assert status == 503
    assert b'"failed_tasks":{"watch":"OSError: no descriptor"}' in body
    assert [record.exc_info is not None for record in caplog.records if record.levelno == logging.ERROR] == [True]
    time.go_on()
    may_end.set()
    await asyncio.wait_for(task, 30)
    assert (began.qsize(), time.tasks.down(), time.tasks.failures()["watch"].count) == (2, {}, 1)
    status, _, body = readiness(lambda: (True, {"leader": "b"}), tasks=time.tasks)
    assert (status, b"failed_tasks" in body) == (200, False)


async def test_pauses_grow_up_to_a_bound_and_begin_anew_after_work_that_went_on() -> None:
    """A cause that stays is tried a few times a minute."""
    time, lasted_s = Time(), 0.0

    async def work() -> None:
        time.now_s += lasted_s
        raise ValueError("bad")

    task = time.tasks.keep("bad", work)
    pauses = []
    for _ in range(8):
        pauses.append(await time.paused())
        time.go_on()
    assert pauses[:3] == [PAUSE_MIN_S, 2 * PAUSE_MIN_S, 4 * PAUSE_MIN_S]
    assert max(pauses) == PAUSE_MAX_S
    lasted_s = SETTLED_S
    await time.paused()
    time.go_on()
    assert await time.paused() == PAUSE_MIN_S
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_task_ends_in_its_work_and_in_its_pause() -> None:
    """A stop is no failure, and what is given up is not down."""
    time, began = Time(), asyncio.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    async def broken() -> None:
        raise RuntimeError

    working, pausing = time.tasks.keep("working", work), time.tasks.keep("pausing", broken)
    await began.wait()
    await time.paused()
    for task in (working, pausing):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert time.tasks.down() == {}
    assert {name: failure.count for name, failure in time.tasks.failures().items()} == {"pausing": 1}


async def test_several_tasks_of_one_name_are_counted_together() -> None:
    """One that goes on again does not hide one that does not."""
    time, stays = Time(), [False, True]

    async def work() -> None:
        if not stays.pop():
            raise OSError("gone")

    tasks = [time.tasks.keep("link", work) for _ in range(2)]
    await time.paused()
    assert time.tasks.down() == {"link": "OSError: gone"}
    stays.append(True)
    time.go_on()
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    assert time.tasks.down() == {}
