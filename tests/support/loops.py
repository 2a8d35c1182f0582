"""Both event loops that we run on, for tests of what their readers, transports and timers do; and waiting on one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

# Of a fixture `anyio_backend`.
BOTH_LOOPS = [
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
]


async def eventually(check: Callable[[], Any], what: str, within_s: float = 30) -> Any:
    """The first true answer of *check*, polled until the deadline; AssertionError naming *what* after it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        answer = check()
        if answer:
            return answer
        assert loop.time() < deadline, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.002)
