"""The disk thread of a real process: in order, and never again after an error."""

import asyncio
import errno
import threading
from functools import partial

from tern_raft import DiskThread


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
        async with asyncio.timeout(10):
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
        raise OSError(errno.EIO, "broken")

    async def run() -> None:
        disk = DiskThread(asyncio.get_running_loop(), on_failure=failures.append)
        disk.run_soon(fail, lambda: ran.append("told"))
        disk.run_soon(lambda: ran.append("a job"), lambda: ran.append("told"))
        disk.stop()
        await asyncio.sleep(0)

    asyncio.run(run())
    assert [failure.errno for failure in failures] == [errno.EIO]
    assert ran == []
