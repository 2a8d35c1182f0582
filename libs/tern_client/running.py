"""Running a program until it ends or receives Ctrl-C or SIGTERM, which end it in order and without
a traceback.

Python's default for SIGTERM ends the process at once: no `with` block ends, messages that a
consumer has received ahead are not released, and their delivery attempts count.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
_STOPPING = (signal.SIGINT, signal.SIGTERM)
# The exit status that shells give to a program that a signal has ended, less the signal's number.
_STATUS_OF_SIGNALS = 128


class Stoppable(Protocol):
    """An object that a signal can stop."""

    def stop(self) -> None:
        """End the loop that runs. Any thread or signal handler may call it."""


# Running loops over blocking consumers, each with its consumer. Every loop removes itself.
ITERATING: dict[object, Stoppable] = {}


def run(work: Coroutine[Any, Any, T] | Callable[[], T]) -> T:
    """Run `main()` (a coroutine, as asyncio.run does) or `main` (a function with blocking clients),
    and return its value.

    - The first Ctrl-C or SIGTERM cancels the coroutine. In a function it stops the loops over
      blocking consumers after the message in hand; without such a loop it raises SystemExit.
    - The second one ends the program at once.
    - The program then ends with SystemExit(128 + the signal's number), whatever *work* returns.
    - Outside the main thread signals have no effect here.
    """
    told: list[int] = []
    if isinstance(work, Coroutine):
        try:
            with signals_as_before():
                value = asyncio.run(_until_told(work, told))
        except asyncio.CancelledError:
            if not told:
                raise
    else:
        with _told_by_signals(told):
            value = work()
    if told:
        raise SystemExit(_STATUS_OF_SIGNALS + told[0])
    return value


async def _until_told(work: Coroutine[Any, Any, T], told: list[int]) -> T:
    loop = asyncio.get_running_loop()
    working = loop.create_task(work)

    def stop(number: int) -> None:
        told.append(number)
        _ignore()
        working.cancel()

    def _ignore() -> None:
        for number in _STOPPING:
            loop.remove_signal_handler(number)

    if threading.current_thread() is not threading.main_thread():
        return await working
    for number in _STOPPING:
        loop.add_signal_handler(number, stop, number)
    try:
        return await working
    finally:
        _ignore()


@contextmanager
def signals_as_before() -> Generator[None, None, None]:
    """Restore the signal handlers behind the block. An event loop that removes its handler restores
    Python's default, not the earlier handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _told_by_signals(told: list[int]) -> Generator[None, None, None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _STOPPING}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        restore()
        consumers = tuple(ITERATING.values())
        for consumer in consumers:
            consumer.stop()
        if not consumers:
            raise SystemExit(_STATUS_OF_SIGNALS + number)

    for number in _STOPPING:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()
