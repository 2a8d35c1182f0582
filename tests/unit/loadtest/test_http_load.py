"""The benchmark's client and its echo server: what is read, however it is cut, and what is refused."""

import asyncio
from collections.abc import Callable

import pytest

from loadtest.bench.echo import start_echo
from loadtest.bench.http_load import HttpConnection, HttpError, MessageReader


@pytest.fixture
def anyio_backend() -> str:
    """The client needs nothing of uvloop."""
    return "asyncio"


def reply_of(body: bytes, status: int = 200) -> bytes:
    """A reply as our servers send it."""
    return b"HTTP/1.1 %d OK\r\nContent-Type: x/y\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body


@pytest.mark.parametrize("chunk_size", [1, 7, 64, 10_000_000])
def test_messages_are_read_however_they_are_cut(chunk_size: int) -> None:
    """Small, empty and large bodies in one stream, and a status without any body."""
    bodies = [b"one", b"", b"\r\n\r\n", bytes(5_000)]
    stream = b"".join(map(reply_of, bodies)) + b"HTTP/1.1 204 No Content\r\nserver: x\r\n\r\n" + reply_of(b"last")
    reader = MessageReader()
    read = [
        message for at in range(0, len(stream), chunk_size) for message in reader.feed(stream[at : at + chunk_size])
    ]
    assert [body for _, body in read] == [*bodies, b"", b"last"]


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"x" * 70_000,
    ],
    ids=["chunked", "negative length", "endless head"],
)
def test_what_our_servers_do_not_send_is_refused(stream: bytes) -> None:
    """An error, never a guess."""
    with pytest.raises(HttpError):
        MessageReader().feed(stream)


async def test_a_connection_is_kept_and_bodies_come_back() -> None:
    """Small and large bodies over one connection to the echo server."""
    server, port = await start_echo()
    async with server:
        connection = await HttpConnection.open("127.0.0.1", port)
        for body in (b"small", b"", bytes(3_000_000), b"small again"):
            assert await connection.request("POST", "/echo", b"x-test: yes\r\n", body) == (200, body)
        connection.close()
        with pytest.raises(HttpError):
            await connection.request("POST", "/echo")


@pytest.mark.parametrize(
    "answer",
    [lambda writer: writer.close(), lambda writer: writer.write(b"SSH-2.0-what\r\n\r\n")],
    ids=["closes", "other protocol"],
)
async def test_a_server_that_fails_is_an_error_not_a_hang(answer: Callable[[asyncio.StreamWriter], None]) -> None:
    """The request under way ends, and the connection counts as closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        answer(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        connection = await HttpConnection.open("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises(HttpError):
            await connection.request("GET", "/")
        assert connection.closed


async def test_a_cancelled_request_takes_its_connection_with_it() -> None:
    """Otherwise its reply would be taken for the next one's."""
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        try:
            await reader.read()
        except ConnectionResetError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        connection = await HttpConnection.open("127.0.0.1", server.sockets[0].getsockname()[1])
        request = asyncio.create_task(connection.request("GET", "/"))
        await asked.wait()
        request.cancel()
        await asyncio.wait([request])
        assert connection.closed
