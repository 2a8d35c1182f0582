"""One connection as a client, over real sockets: when it may be used again, how long it waits, where an answer ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tern_http.connection import HEAD_SIZE_MAX_BYTES, HttpConnection, connect, connect_to
from tern_http.exchange import AnswerTooLarge, BrokenOff, NoHttp, TooSlow, request_head
from tests.support.checker.scripted_producer import Asked, Behaviour, ScriptedProducer, answers, hangs, sends

pytestmark = pytest.mark.anyio

GET = request_head("GET", "http://one", "/x")
UNFRAMED = sends(b"HTTP/1.1 200 OK\r\n\r\nhello")


@contextlib.asynccontextmanager
async def connected(
    behaviour: Behaviour, *, head_size_max_bytes: int = HEAD_SIZE_MAX_BYTES, may_end_by_closing: bool = True
) -> AsyncIterator[tuple[HttpConnection, ScriptedProducer]]:
    """A connection to a server that behaves so."""
    server = await ScriptedProducer(behaviour).start()
    connection = await connect(
        "127.0.0.1",
        server.port,
        server_name="one",
        tls=None,
        body_size_max_bytes=1_000,
        head_size_max_bytes=head_size_max_bytes,
        may_end_by_closing=may_end_by_closing,
    )
    try:
        yield connection, server
    finally:
        connection.close()
        await server.stop()


def test_a_request_head_is_below_the_path_of_its_url() -> None:
    """With the host as it was written, and a length where a body follows."""
    fields = [("If-None-Match", '"v1"')]
    assert request_head("GET", "http://one:8080/mq/", "/v1/routes?a=1", fields) == (
        b'GET /mq/v1/routes?a=1 HTTP/1.1\r\nHost: one:8080\r\nIf-None-Match: "v1"\r\n\r\n'
    )
    assert request_head("POST", "https://one", "/x", body_size_bytes=0) == (
        b"POST /x HTTP/1.1\r\nHost: one\r\nContent-Length: 0\r\n\r\n"
    )


async def test_one_request_after_the_other_goes_over_one_connection() -> None:
    """Each has its own answer: nothing of the one before is left in the next."""
    async with connected(answers(200, b"one", "X-One: 1")) as (connection, server):
        first = await connection.ask(GET)
        server.behaviour = answers(404)
        second = await connection.ask(GET)
        assert (first.status, first.body, first.headers) == (200, b"one", {"content-length": "3", "x-one": "1"})
        assert (second.status, second.body, second.headers) == (404, b"", {"content-length": "0"})
        assert (connection.is_reusable, server.connections) == (True, 1)


async def test_a_second_answer_in_the_same_bytes_changes_nothing_of_the_first() -> None:
    """Neither its headers nor its body; and its connection is not used again."""
    both = b"HTTP/1.1 200 OK\r\nX: 1\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nX: 2\r\nContent-Length: 1\r\n\r\nb"
    async with connected(sends(both, closes=False)) as (connection, _):
        found = await connection.ask(GET)
        assert (found.body, found.headers["x"], connection.is_reusable) == (b"a", "1", False)
        with pytest.raises(BrokenOff) as caught:
            await connection.ask(GET)
        assert caught.value.is_stale


async def test_a_body_without_a_length_ends_with_its_connection_or_is_broken_off() -> None:
    """As its owner wants it; it may be half of one."""
    async with connected(UNFRAMED) as (connection, _):
        assert (await connection.ask(GET)).body == b"hello"
        assert not connection.is_reusable
    async with connected(UNFRAMED, may_end_by_closing=False) as (connection, _):
        with pytest.raises(BrokenOff) as caught:
            await connection.ask(GET)
        assert not caught.value.is_stale


async def trickles(_: Asked, writer: asyncio.StreamWriter) -> bool:
    """Twenty bytes, one by one, with pauses."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n")
    left = 20
    while left:
        await asyncio.sleep(0.02)
        writer.write(b"x")
        await writer.drain()
        left -= 1
    return True


async def test_silence_is_bounded_and_an_answer_that_goes_on_is_not() -> None:
    """A large answer over a slow line takes longer than the bound, and arrives."""
    async with connected(hangs) as (connection, _):
        with pytest.raises(TooSlow):
            await connection.ask(GET, silence_max_s=0.02)
        assert not connection.is_reusable
    async with connected(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", closes=False)) as (connection, _):
        with pytest.raises(TooSlow):
            await connection.ask(GET, silence_max_s=0.02)
    async with connected(trickles) as (connection, _):
        began_s = asyncio.get_running_loop().time()
        assert (await connection.ask(GET, silence_max_s=0.3)).body == b"x" * 20
        assert asyncio.get_running_loop().time() - began_s > 0.3


async def test_heads_and_bodies_have_their_bounds() -> None:
    """A head of its owner's size is taken, a byte more is not."""
    long = sends(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 40_000)
    async with connected(long) as (connection, _):
        with pytest.raises(AnswerTooLarge):
            await connection.ask(GET)
    async with connected(answers(200, b"", "X: " + "x" * 40_000), head_size_max_bytes=50_000) as (connection, _):
        assert len((await connection.ask(GET)).headers["x"]) == 40_000
    async with connected(answers(200, bytes(1_000))) as (connection, server):
        assert len((await connection.ask(GET)).body) == 1_000
        server.behaviour = answers(200, bytes(1_001))
        with pytest.raises(AnswerTooLarge):
            await connection.ask(GET)


async def test_a_cancelled_or_expired_request_leaves_its_answer_to_nobody() -> None:
    """Its connection is closed, and says so to whoever asks again."""
    async with connected(hangs) as (connection, server):
        asking = asyncio.create_task(connection.ask(GET))
        while not server.asked:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        with pytest.raises(BrokenOff):
            await connection.ask(GET)
    async with connected(hangs) as (connection, _):
        answer = connection.begin(GET)
        connection.expire()
        with pytest.raises(TooSlow, match="no answer in time"):
            await answer


async def test_no_answer_of_http_is_told_apart() -> None:
    """From one that broke off."""
    async with connected(sends(b"+PONG\r\n")) as (connection, _):
        with pytest.raises(NoHttp):
            await connection.ask(GET)


async def test_a_url_says_where_to_connect() -> None:
    """Host and port; nobody there is an OSError."""
    async with connected(answers(200, b"x")) as (_, server):
        url = f"http://localhost:{server.port}/below"
        connection = await connect_to(url, None, body_size_max_bytes=10)
        assert (await connection.ask(request_head("GET", url, "/x"))).body == b"x"
        assert (server.asked[0].path, server.asked[0].headers["host"]) == ("/below/x", f"localhost:{server.port}")
        connection.close()
    with pytest.raises(OSError):
        await connect_to("http://127.0.0.1:1", None, body_size_max_bytes=10)
