"""`run`: the value or the exception of a program, and what signals do to it. What they do to consumers: test_attempts."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tern_client import run

ROOT = Path(__file__).resolve().parents[3]


async def seven() -> int:
    """A program."""
    await asyncio.sleep(0)
    return 7


async def fail() -> int:
    """One with a bug."""
    raise KeyError("bug")


async def cancelled() -> int:
    """One that ends itself as if it had been cancelled."""
    raise asyncio.CancelledError


def test_signals_that_were_ignored_are_ignored_again() -> None:
    """As of a program in the background of a shell (nohup): an event loop that lets go of a signal leaves Python's own handler."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run(seven()) == 7
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("is_main_thread", [True, False])
def test_a_program_that_ends_by_itself_is_as_if_it_had_been_called(is_main_thread: bool) -> None:
    """In whatever thread; signals are as they were, afterwards."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    ends: list[object] = []

    def all_ways() -> None:
        ends.append(run(seven()))
        ends.append(run(lambda: 8))
        ways: list[Callable[[], object]] = [lambda: run(fail()), lambda: run(lambda: dict[str, int]()["bug"])]
        for way in ways:
            with pytest.raises(KeyError, match="bug"):
                way()
        with pytest.raises(asyncio.CancelledError):
            run(cancelled())

    if is_main_thread:
        all_ways()
    else:
        thread = threading.Thread(target=all_ways)
        thread.start()
        thread.join(10)
    assert ends == [7, 8]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


PROGRAMS = {
    # Nothing of it is a loop over a consumer: it ends where it stands, and its `finally` runs.
    "function": """
import signal
from tern_client import run
def main():
    try:
        print("ready", flush=True)
        while True:
            signal.pause()
    finally:
        print("left", flush=True)
run(main)
""",
    # It takes its time to end, and does not hear a second cancellation: the second signal is not asked.
    "stubborn": """
import asyncio
from tern_client import run
async def main():
    try:
        print("ready", flush=True)
        await asyncio.Event().wait()
    finally:
        print("left", flush=True)
        await asyncio.Event().wait()
run(main())
""",
    # What it returns in spite of the signal is nobody's.
    "swallowing": """
import asyncio
from tern_client import run
async def main():
    print("ready", flush=True)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("left", flush=True)
run(main())
print("went on", flush=True)
""",
}


@pytest.mark.parametrize(
    ("program", "signals", "status"),
    [("function", 1, 128 + signal.SIGTERM), ("stubborn", 2, -signal.SIGTERM), ("swallowing", 1, 128 + signal.SIGTERM)],
)
def test_the_first_signal_ends_a_program_in_order_and_the_second_on_the_spot(
    program: str, signals: int, status: int
) -> None:
    """Without a traceback."""
    command = [sys.executable, "-c", PROGRAMS[program]]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            for line in ("ready", "left")[:signals]:
                assert running.stdout.readline().strip() == line
                running.send_signal(signal.SIGTERM)
            out, err = running.communicate(timeout=30)
        finally:
            running.kill()
    assert (running.returncode, out, err) == (status, "left\n" if signals == 1 else "", "")
