"""The event loop whose time stands still: what runs when, and from where it can be asked."""

import asyncio
import time

import pytest

from tern_testing.virtual_loop import LoopThread

HOUR_S = 3_600.0


async def passed(seconds: float) -> None:
    """Return when they have passed, as asyncio's sleep, for which tests have no use."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await over.wait()


class Recorder:
    """What ran, and when."""

    def __init__(self, thread: LoopThread) -> None:
        self.thread, self.ran = thread, list[tuple[str, int]]()

    async def later(self, name: str, delay_s: float) -> None:
        """Note *name* after *delay_s*."""
        self.thread.loop.call_later(delay_s, lambda: self.ran.append((name, round(self.thread.loop.time()))))

    async def advance(self, seconds: float) -> bool:
        """Let time pass."""
        return await self.thread.loop.run_to(self.thread.loop.time() + seconds)


@pytest.fixture
def recorder() -> "Recorder":
    """On a thread of its own, which ends with the test."""
    return Recorder(LoopThread(follows_clock=False))


@pytest.fixture(autouse=True)
def ended(recorder: Recorder) -> object:
    """The thread ends, and nothing has failed in it."""
    yield
    recorder.thread.close()
    assert recorder.thread.failures == []


def test_timers_run_in_the_order_of_their_times_and_not_before(recorder: Recorder) -> None:
    """Those within the advance, at their times; the rest waits for the next one."""
    ask = recorder.thread.ask
    for name, delay_s in (("late", 2 * HOUR_S), ("second", 20.0), ("first", 10.0)):
        ask(recorder.later(name, delay_s))
    assert ask(recorder.advance(0))
    assert recorder.ran == []
    assert ask(recorder.advance(HOUR_S))
    assert recorder.ran == [("first", 10), ("second", 20)]
    assert ask(recorder.advance(HOUR_S))
    assert recorder.ran[2:] == [("late", 7_200)]


def test_a_month_passes_without_a_timer(recorder: Recorder) -> None:
    """Beyond the longest sleep of asyncio, which is a day; exactly."""
    loop = recorder.thread.loop
    began_s = loop.time()
    assert recorder.thread.ask(recorder.advance(30 * 24 * HOUR_S))
    assert loop.time() - began_s == pytest.approx(30 * 24 * HOUR_S, abs=1e-3)


def test_a_hold_ends_an_advance_where_it_is(recorder: Recorder) -> None:
    """The timer behind it has not run; the next advance goes on."""
    loop, ask = recorder.thread.loop, recorder.thread.ask
    ask(recorder.later("behind", 20.0))
    loop.call_soon_threadsafe(loop.call_later, 10.0, loop.hold)
    assert not ask(recorder.advance(HOUR_S))
    assert (round(loop.time()), recorder.ran) == (10, [])
    assert ask(recorder.advance(15.0))
    assert recorder.ran == [("behind", 20)]


def test_timeouts_and_sleeps_are_virtual(recorder: Recorder) -> None:
    """All of asyncio's own; they cost no time of the machine."""

    async def wait() -> str:
        try:
            async with asyncio.timeout(HOUR_S):
                await passed(2 * HOUR_S)
        except TimeoutError:
            return f"after {asyncio.get_running_loop().time():.0f} s"
        return "slept"

    waiting = recorder.thread.submit(wait())
    recorder.thread.ask(recorder.advance(3 * HOUR_S))
    assert waiting.result(0) == "after 3600 s"


def test_time_creeps_while_something_is_handled_and_no_longer(recorder: Recorder) -> None:
    """To the next timer, without an advance."""
    loop = recorder.thread.loop
    busy = [True]
    loop.is_busy = lambda: busy[0]

    async def handle() -> float:
        await passed(0.005)
        await passed(0.005)
        busy[0] = False
        return loop.time()

    assert recorder.thread.ask(handle()) == pytest.approx(0.01, abs=1e-3)
    recorder.thread.ask(recorder.later("never", 1.0))
    recorder.thread.ask(recorder.advance(0))
    assert recorder.ran == []


def test_the_machine_s_time_passes_where_it_shall(recorder: Recorder) -> None:
    """And from the moment on at which it is told to."""
    thread = LoopThread(follows_clock=True)
    thread.ask(passed(0.01))
    thread.close()

    loop = recorder.thread.loop
    before_s, began_s = loop.time(), time.monotonic()
    loop.call_soon_threadsafe(loop.follow_clock)
    recorder.thread.ask(passed(0.01))
    assert 0.01 <= loop.time() - before_s <= time.monotonic() - began_s + 0.001


def test_what_goes_wrong_in_a_callback_is_kept(recorder: Recorder) -> None:
    """No log alone: the mesh tells it at its end."""
    loop = recorder.thread.loop
    loop.call_soon_threadsafe(lambda: 1 // 0)
    recorder.thread.ask(asyncio.sleep(0))
    (failure,) = recorder.thread.failures
    assert "ZeroDivisionError" in failure
    recorder.thread.failures.clear()
