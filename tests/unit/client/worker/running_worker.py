"""A worker that runs against a GroupProxy, for the tests of this folder."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tern_client import RetryPolicy, Worker
from tests.support.client.group_proxy import GroupProxy
from tests.support.client.scripted_proxy import ScriptedProxy

QUICK = RetryPolicy(first_delay_ms=1, max_delay_ms=4, deadline_ms=8_000, attempt_timeout_ms=4_000)


async def until(check: Callable[[], object], within_s: float = 20) -> None:
    """Wait until *check* is true."""
    async with asyncio.timeout(within_s):
        while not check():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def proxy_of(group: GroupProxy) -> AsyncIterator[ScriptedProxy]:
    """The proxy that answers for *group*."""
    async with ScriptedProxy(answer=group.answer) as proxy:
        yield proxy


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """*worker* in a task; stopped in order at the end."""
    serving = asyncio.create_task(worker.serve())
    try:
        yield serving
    finally:
        worker.stop()
        async with asyncio.timeout(20):
            await asyncio.wait({serving})
