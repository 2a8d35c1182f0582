"""The event loop of a TestMesh, whose time stands still unless somebody advances it.

    stands still --run_to(10 min)--> whatever is due runs, in order of its time --> stands still
                 --a request comes--> creeps over the pauses of its handling    --> stands still

The loop sleeps for the next timer by asking its selector; this selector does not sleep while an
advance is under way, but moves the time to that timer. So all of asyncio's timers, timeouts and
sleeps of the broker and the proxy are virtual, without a change there.

Law: time never goes back, and no timer is passed over. An advance stops early when `hold` is
called: then somebody outside has to react before more time passes. Without an advance time creeps
only while a request is being handled (*is_busy*): a broker gathers for some milliseconds, and a
proxy asks again after a moment.
"""

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
# The longest wait for the loop's thread: only a bug lets it hang.
ANSWER_MAX_S = 60.0


class _Selector(selectors.DefaultSelector):
    """Waits for sockets for as long as *loop* says."""

    def __init__(self, loop: "VirtualLoop") -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As every selector; *timeout* is in the loop's seconds."""
        if timeout is not None and timeout <= 0:
            return super().select(0)
        if self._loop.is_advancing or (timeout is not None and self._loop.creeps):
            if not (found := super().select(0)):
                self._loop.jump(timeout)
            return found
        return super().select(timeout if self._loop.follows_clock else None)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a time of its own. With *follows_clock* the machine's time passes too."""

    def __init__(self, *, follows_clock: bool) -> None:
        self.follows_clock = follows_clock
        self._ahead_s = 0.0
        self._began_s = time.monotonic()
        self._target_s: float | None = None
        self._arrived: asyncio.Future[bool] | None = None
        self.is_busy: Callable[[], bool] = lambda: False
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Seconds since the loop was made."""
        passed_s = time.monotonic() - self._began_s if self.follows_clock else 0.0
        return self._ahead_s + passed_s

    def follow_clock(self) -> None:
        """From here on the machine's time passes."""
        if not self.follows_clock:
            self._began_s, self.follows_clock = time.monotonic(), True

    @property
    def is_advancing(self) -> bool:
        """Whether time is on its way to a target."""
        return self._target_s is not None

    @property
    def creeps(self) -> bool:
        """Whether time may creep to the next timer."""
        return not self.follows_clock and self.is_busy()

    @property
    def left_s(self) -> float:
        """Seconds to the target of the advance under way; 0 without one."""
        return max(0.0, self._target_s - self.time()) if self._target_s is not None else 0.0

    def run_to(self, target_s: float) -> asyncio.Future[bool]:
        """Let time pass until *target_s*. The result is False when `hold` ended it before."""
        assert self._target_s is None, "one advance at a time"
        arriving = self.create_future()
        self._target_s, self._arrived = target_s, arriving
        # Who gives an advance up leaves time where it is.
        arriving.add_done_callback(lambda _: self.hold() if self._arrived is arriving else None)
        return arriving

    def hold(self) -> None:
        """End the advance under way where it is."""
        self._arrive(is_there=False)

    async def quiet(self) -> None:
        """Return when nothing is left to run at the present time."""
        # An answer ends it early, while it is still on its way to whoever asked.
        while not await self.run_to(self.time()):
            pass

    def jump(self, timeout: float | None) -> None:
        """Move time to the next timer, which is *timeout* away, or to the target of the advance."""
        left_s = self.left_s
        if timeout is not None and (timeout <= left_s or not self.is_advancing):
            # A little further than the timer, which the sum of two floats might just miss.
            self._ahead_s += timeout + 1e-9
        else:
            self._ahead_s += left_s
            self._arrive(is_there=True)

    def _arrive(self, *, is_there: bool) -> None:
        arrived, self._arrived, self._target_s = self._arrived, None, None
        if arrived is not None and not arrived.done():
            arrived.set_result(is_there)


class LoopThread:
    """A VirtualLoop on a thread of its own, and the way to it from other threads and loops."""

    def __init__(self, *, follows_clock: bool) -> None:
        self.loop = VirtualLoop(follows_clock=follows_clock)
        # What went wrong in a callback of the loop, that nobody else was told.
        self.failures: list[str] = []
        self.is_closed = False
        self.loop.set_exception_handler(self._failed)
        self._thread = threading.Thread(target=self._work, name="tern-mesh", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run *work* there; its future is of no loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* there, and wait in the caller's loop."""
        return await asyncio.wrap_future(self.submit(work))

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* there, and wait in the caller's thread."""
        return self.submit(work).result(ANSWER_MAX_S)

    def close(self) -> None:
        """End the loop's tasks, its thread and the loop; blocks until that is done."""
        self.is_closed = True
        self.ask(_cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(ANSWER_MAX_S)
        self.loop.close()

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context['message']}: {error!r}" if error else str(context["message"]))


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
