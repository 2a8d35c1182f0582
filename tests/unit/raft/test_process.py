"""The disk thread of a real process: in order, and never again after an error."""

import asyncio
import errno
import threading
from functools import partial

import pytest

from tern_raft import DiskThread, process
from tern_store import SyncLost


def test_jobs_run_in_order_and_their_ends_are_told_in_the_loop() -> None:
    """Beside the loop, not in it."""
    ran: list[tuple[int, bool]] = []

    async def run() -> list[int]:
        told: asyncio.Queue[int] = asyncio.Queue()
        disk = DiskThread(asyncio.get_running_loop(), on_failure=lambda error: None)
        here = threading.current_thread()

        def job(number: int) -> None:
            ran.append((number, threading.current_thread() is here))

        for number in range(5):
            disk.run_soon(partial(job, number), partial(told.put_nowait, number))
        async with asyncio.timeout(30):
            numbers = [await told.get() for _ in range(5)]
        disk.stop()
        return numbers

    assert asyncio.run(run()) == list(range(5))
    assert ran == [(number, False) for number in range(5)]


def test_after_an_error_nothing_more_is_written() -> None:
    """A sync that failed is not tried again: the kernel would call it a success. The process ends with `on_failure`."""
    failures: list[OSError] = []
    ran: list[str] = []

    def fail() -> None:
        raise SyncLost(errno.EIO, "broken")

    async def run() -> None:
        disk = DiskThread(asyncio.get_running_loop(), on_failure=failures.append)
        disk.run_soon(fail, lambda: ran.append("told"))
        disk.run_soon(lambda: ran.append("a job"), lambda: ran.append("told"))
        disk.stop()
        await asyncio.sleep(0)

    asyncio.run(run())
    assert [failure.errno for failure in failures] == [errno.EIO]
    assert ran == []


def test_a_refused_job_is_run_again_before_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptors, no memory: nothing is lost, the node stays alive, and jobs end in their order."""
    monkeypatch.setattr(process, "JOB_AGAIN_AFTER_S", 0.001)
    failures: list[OSError] = []
    ran: list[str] = []
    errors = [OSError(number, "refused") for number in (errno.EMFILE, errno.ENOMEM, errno.EDQUOT, errno.EACCES)]

    def refused() -> None:
        if errors:
            raise errors.pop()
        ran.append("first")

    async def run() -> list[str]:
        told: asyncio.Queue[str] = asyncio.Queue()
        disk = DiskThread(asyncio.get_running_loop(), on_failure=failures.append)
        disk.run_soon(refused, lambda: told.put_nowait("first"))
        disk.run_soon(lambda: ran.append("second"), lambda: told.put_nowait("second"))
        async with asyncio.timeout(30):
            ends = [await told.get(), await told.get()]
        disk.stop()
        return ends

    assert asyncio.run(run()) == ["first", "second"]
    assert ran == ["first", "second"]
    assert not errors
    assert not failures


def test_a_thread_that_is_stopped_leaves_what_is_refused_undone() -> None:
    """A process that ends does not wait for what its machine lacks."""
    told: list[str] = []

    def refused() -> None:
        raise OSError(errno.EMFILE, "refused")

    async def run() -> None:
        disk = DiskThread(asyncio.get_running_loop(), on_failure=lambda error: None)
        disk.run_soon(refused, lambda: told.append("first"))
        disk.stop()
        assert not disk._thread.is_alive()
        await asyncio.sleep(0)

    asyncio.run(run())
    assert told == []
