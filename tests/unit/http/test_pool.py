"""Idle connections: which one is taken, how many are kept and for how long, what becomes of one that was closed meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tern_http.connection import HttpConnection, connect
from tern_http.exchange import BrokenOff, request_head
from tern_http.pool import Pool
from tests.support.checker.scripted_producer import Asked, ScriptedProducer, answers, sends
from tests.support.loops import eventually

pytestmark = pytest.mark.anyio

GET = request_head("GET", "http://one", "/x")


class Site:
    """A server, and connections to it."""

    def __init__(self, server: ScriptedProducer) -> None:
        self.server = server

    async def connect(self) -> HttpConnection:
        """A new one."""
        return await connect("127.0.0.1", self.server.port, server_name="", tls=None, body_size_max_bytes=1_000)

    async def used(self) -> HttpConnection:
        """A new one that has had an answer."""
        connection = await self.connect()
        await connection.ask(GET)
        return connection


@contextlib.asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """A server that answers."""
    server = await ScriptedProducer(answers(200, b"x")).start()
    try:
        yield Site(server)
    finally:
        await server.stop()


async def test_the_one_that_was_used_last_is_taken_first() -> None:
    """Of its own origin only."""
    async with site() as here:
        pool = Pool()
        first, second = await here.used(), await here.used()
        pool.keep("a", first)
        pool.keep("a", second)
        assert pool.take("b") is None
        assert [pool.take("a") for _ in range(3)] == [second, first, None]
        first.close()
        second.close()


async def test_no_more_are_kept_than_allowed_and_none_after_the_end() -> None:
    """The others are closed."""
    async with site() as here:
        pool = Pool(idle_max=1)
        for _ in range(2):
            pool.keep("a", await here.used())
        await eventually(lambda: len(here.server._tasks) == 1, "the end of one")
        pool.close()
        pool.keep("a", await here.used())
        await eventually(lambda: not here.server._tasks, "the end of all")


async def test_what_is_idle_or_there_for_too_long_is_closed() -> None:
    """Also when nobody asks any more."""
    for pool in (Pool(idle_s=0.02), Pool(life_s=0.02)):
        async with site() as here:
            pool.keep("a", await here.used())
            await eventually(lambda here=here: not here.server._tasks, "the end")  # type: ignore[misc]
            assert pool.take("a") is None
            pool.close()


async def test_one_that_its_peer_has_closed_is_replaced() -> None:
    """The request is sent again, on another one; on a new one that breaks off it is not."""
    async with site() as here:
        pool = Pool()

        async def says_and_leaves(asked: Asked, writer: asyncio.StreamWriter) -> bool:
            await answers(200, b"x")(asked, writer)
            return False

        here.server.behaviour = says_and_leaves
        for _ in range(5):
            assert (await pool.exchange("a", GET, here.connect)).body == b"x"
        assert len(here.server.asked) == 5
        here.server.behaviour = sends(b"")
        with pytest.raises(BrokenOff):
            await pool.exchange("a", GET, here.connect)
        assert len(here.server.asked) == 6
        pool.close()


async def test_a_connection_with_an_unasked_word_is_not_used() -> None:
    """It would be taken for the next answer."""
    async with site() as here:
        pool = Pool()

        async def says_more(asked: Asked, writer: asyncio.StreamWriter) -> bool:
            await answers(200, b"x")(asked, writer)
            await writer.drain()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ny")
            return True

        here.server.behaviour = says_more
        for _ in range(5):
            assert (await pool.exchange("a", GET, here.connect)).body == b"x"
            await eventually(lambda: not here.server._tasks or here.server.under_way == 0, "all of it")
        pool.close()
