"""Running a program until it is done or told to stop: Ctrl-C and SIGTERM end it in order, without a traceback.

Python dies of SIGTERM on the spot: no `with` ends, what a consumer has received ahead is not given back, and its attempts count.
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
# What shells make of a program that a signal has ended.
_STATUS_OF_SIGNALS = 128


class Stoppable(Protocol):
    """What a signal stops."""

    def stop(self) -> None:
        """End the loop that runs, from any thread or signal handler."""


# Loops of blocking consumers that run, and over whom. Every loop removes itself.
ITERATING: dict[object, Stoppable] = {}


def run(work: Coroutine[Any, Any, T] | Callable[[], T]) -> T:
    """Run `main()` (a coroutine, as asyncio.run does) or `main` (a function with blocking clients), and return its value.

    The first Ctrl-C or SIGTERM cancels the coroutine, or stops the loops over blocking consumers after the message in hand; without such a loop
    it raises SystemExit in the function. The second one ends the program on the spot. After either it ends as SystemExit(128 + the signal's
    number), whatever *work* returns. Outside the main thread signals do nothing here.
    """
    told: list[int] = []
    if isinstance(work, Coroutine):
        try:
            with _as_before():
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
def _as_before() -> Generator[None, None, None]:
    """Signals are what they were, behind a block: an event loop that lets go of one leaves Python's own handler, not the one of before."""
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
