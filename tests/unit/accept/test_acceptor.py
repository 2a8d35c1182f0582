"""Accepting goes on whatever happens to descriptors, on both loops."""

import asyncio
import errno
import os
import resource
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tern_accept import Acceptor, Strangers
from tests.support.loops import BOTH_LOOPS


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Both loops: their readers and timers are not the same code."""
    return request.param


class Port:
    """A listening socket with an Acceptor; keeps what it has accepted. Owner: one test."""

    def __init__(self, **bounds: Any) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.strangers: Strangers[socket.socket] = Strangers(socket.socket.close, **bounds)
        self.accepted: list[socket.socket] = []
        self.lacks: list[OSError] = []
        self.acceptor = Acceptor(self.listener, self.strangers, self._take, on_lack=self.lacks.append)

    def _take(self, sock: socket.socket) -> None:
        self.accepted.append(sock)
        self.strangers.enter(sock)

    def call(self) -> socket.socket:
        """A connection to it, perhaps still in the kernel's queue."""
        return socket.create_connection(self.listener.getsockname())

    def close(self) -> None:
        """The end."""
        self.acceptor.close()
        self.acceptor.close()
        self.listener.close()
        for sock in self.accepted:
            sock.close()


async def until(check: Callable[[], bool]) -> None:
    """Poll *check* for ten seconds."""
    deadline_s = time.monotonic() + 10
    while not check():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.001)


async def test_a_crowd_is_replaced_one_by_one_and_all_are_accepted() -> None:
    """At the cap each newcomer costs the oldest its place."""
    port = Port(most=4, stay_min_ms=1)
    calls = [port.call() for _ in range(40)]
    await until(lambda: len(port.accepted) == 40)
    assert [sock.fileno() for sock in port.accepted[:36]] == [-1] * 36
    assert len(port.strangers) == 4
    for call in calls:
        call.close()
    port.close()


async def test_at_the_cap_accepting_waits_for_the_oldest_to_have_had_its_time() -> None:
    """Newcomers stay in the kernel's queue meanwhile; who leaves makes room at the next look."""
    now_s, looks = 1_000.0, 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return now_s

    port = Port(most=2, stay_min_ms=5, monotonic=clock)
    calls = [port.call() for _ in range(3)]
    await until(lambda: looks > 20)
    assert len(port.accepted) == 2
    now_s += 1
    await until(lambda: len(port.accepted) == 3)
    assert port.accepted[0].fileno() == -1
    for call in calls:
        call.close()
    port.close()


async def test_without_a_descriptor_the_oldest_stranger_gives_its_own_and_accepting_goes_on() -> None:
    """The kernel has none, asyncio would log and uvloop might never listen again."""
    port = Port()
    first = port.call()
    await until(lambda: len(port.accepted) == 1)
    second, third = port.call(), socket.socket()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        # Above every number that is in use: a descriptor that is given up can be had again.
        used = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 16, limits[1]))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.dup(first.fileno()))
        await until(lambda: len(port.accepted) == 2)
        third.connect(port.listener.getsockname())
        await until(lambda: len(port.accepted) == 3)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert {lack.errno for lack in port.lacks} <= {errno.EMFILE}
    assert port.accepted[0].fileno() == -1
    for call in (first, second, third):
        call.close()
    port.close()
