"""The server over real sockets: deadlines, bounds, garbage, stop, and a second thread with its own loop."""

import asyncio
import contextlib
import logging
import random
import socket
import threading
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Request
from starlette.types import Receive, Scope, Send

import tern_service.connections.table
from tern_service import SettingsError, install_problems, open_socket, serve
from tern_service.connections.bounds import Bounds
from tern_service.connections.connection import GuardedProtocol
from tern_service.connections.table import ConnectionTable

SEED = 20_261


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


def sample_app() -> FastAPI:
    """Says hello, echoes, and waits."""
    app = FastAPI()
    install_problems(app)

    @app.get("/")
    async def hello() -> str:
        return "hello"

    @app.post("/echo")
    async def echo(request: Request) -> int:
        return len(await request.body())

    @app.get("/wait")
    async def wait() -> None:
        await asyncio.Event().wait()

    return app


@contextlib.asynccontextmanager
async def serving(**bounds: Any) -> AsyncIterator[int]:
    """The sample application behind a GuardedProtocol with *bounds*; yields its port."""
    sock = open_socket("127.0.0.1", 0, "--port")
    port: int = sock.getsockname()[1]
    if bounds:
        config = uvicorn.Config(
            sample_app(),
            http=partial(GuardedProtocol, bounds=Bounds(**bounds), table=ConnectionTable()),  # type: ignore[arg-type]
            ws="none",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
        task = asyncio.create_task(server.serve(sockets=[sock]))
        yield port
        server.should_exit = True
    else:
        stop = asyncio.Event()
        task = asyncio.create_task(serve(sample_app(), sock, stop=stop))
        yield port
        stop.set()
    await asyncio.wait_for(task, 30)


async def talk(port: int, *parts: bytes) -> bytes:
    """Send *parts* and return all that comes until the server closes; a reset ends it as well."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        while part := await asyncio.wait_for(reader.read(65_536), 10):
            got += part
    except ConnectionError:
        pass
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return got


CLOSE = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


async def test_random_bytes_get_a_400_or_a_close_and_never_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """A few hundred bodies of garbage, some of which begin as HTTP does; then it still serves."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    beginnings = [b"", b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n\r\n"]
    beginnings += [b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"]
    with caplog.at_level(logging.INFO):
        async with serving() as port:
            for number in range(120):
                garbage = (
                    beginnings[number % len(beginnings)] + chance.randbytes(chance.randrange(300, 600)) + b"\xff\n\r\n"
                )
                answer = await talk(port, garbage)
                assert answer == b"" or answer.startswith(b"HTTP/1.1 400 "), (number, answer)
            assert (await talk(port, CLOSE)).startswith(b"HTTP/1.1 200 ")
    assert [record for record in caplog.records if record.exc_info or record.levelno >= logging.WARNING] == []


async def test_a_refusal_on_the_wire_is_a_problem() -> None:
    """Media type, code, id, and the connection closes."""
    async with serving() as port:
        answer = await talk(port, b"what is this\r\n\r\n")
    assert b"application/problem+json" in answer
    assert b'"code":"request-malformed"' in answer
    assert b"mq-request-id: " in answer
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    "parts",
    [
        [b"GET / HTTP/1.1\r\nhost: a\r\na: " + b"a" * 3_000 + b"\r\n\r\n"],
        [b"GET /" + b"a" * 3_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n"],
        [b"GET / HTTP/1.1\r\n"] + [b"a: " + b"a" * 500 + b"\r\n"] * 8,
        [b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 500],
    ],
)
async def test_a_head_or_trailer_beyond_the_limit_is_refused(parts: list[bytes]) -> None:
    """In one piece, in many, in the path, or behind the body."""
    async with serving(head_size_max_bytes=2_000) as port:
        answer = await talk(port, *parts)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
    assert b" 200 " not in answer


async def test_a_large_body_before_the_next_head_does_not_count_as_head() -> None:
    """Two requests in one piece: the bound is each head's own."""
    first = b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 5000\r\n\r\n" + b"b" * 5_000
    async with serving(head_size_max_bytes=200) as port:
        answer = await talk(port, first + CLOSE[:10], CLOSE[10:])
    assert answer.count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([], b""),
        ([b"\r\n"], b""),
        ([b"GE"], b"HTTP/1.1 408 "),
        ([b"GET / HTTP/1.1\r\nhost: a\r\n"], b"HTTP/1.1 408 "),
        ([b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n", b"abc"], b"HTTP/1.1 408 "),
    ],
)
async def test_a_client_that_does_not_finish_is_let_go(parts: list[bytes], status: bytes) -> None:
    """Nothing sent: closed. A head or body begun: 408. (The test's own deadline is the ten seconds of talk.)"""
    async with serving(head_deadline_ms=50, body_deadline_ms=50) as port:
        assert (await talk(port, *parts)).startswith(status)


async def test_a_trickle_does_not_extend_the_deadline() -> None:
    """Bytes that come one by one, for ever, end in a 408 all the same."""
    async with serving(head_deadline_ms=100) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\na: ")
        answer = asyncio.create_task(reader.read())
        async with asyncio.timeout(30):
            while not answer.done():
                writer.write(b"a")
                await asyncio.wait([answer], timeout=0.01)
        writer.close()
        assert answer.exception() is not None or answer.result().startswith(b"HTTP/1.1 408 ")


async def test_pipelined_garbage_waits_for_the_answer_before_it() -> None:
    """The good request is answered whole, then the connection closes."""
    async with serving() as port:
        answer = await talk(port, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n\x00\x01garbage\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b'"hello"')


async def test_at_the_cap_the_connection_that_idles_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked once keeps nobody out for as long as connections are kept; one whose request is under way stays."""
    monkeypatch.setattr(tern_service.connections.table, "IDLE_MIN_S", 0.0)
    async with serving(connections_max=3) as port:
        working, *idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        working[1].write(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
        for reader, writer in idle:
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            await reader.readuntil(b'"hello"')
        assert (await talk(port, CLOSE)).startswith(b"HTTP/1.1 200 ")
        assert await asyncio.wait_for(idle[0][0].read(), 10) == b""
        idle[1][1].write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await idle[1][0].readuntil(b'"hello"')
        for _, writer in (working, *idle):
            writer.close()


async def test_one_connection_too_many_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """503 at once; the ones before it go on. Who has asked nothing yet is a stranger, and counted apart."""
    monkeypatch.setattr(tern_service.connections.table, "IDLE_MIN_S", 60.0)
    async with serving(connections_max=1) as port:
        _, stranger = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await reader.readuntil(b'"hello"')).startswith(b"HTTP/1.1 200 ")
        answer = await talk(port)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b'"code":"overloaded"' in answer
        assert b'"what":"connections"' in answer
        for each in (writer, stranger):
            each.close()
            await each.wait_closed()
        async with asyncio.timeout(30):
            while not (await talk(port, CLOSE)).startswith(b"HTTP/1.1 200 "):
                await asyncio.sleep(0.01)


async def test_a_stop_answers_what_still_waits(caplog: pytest.LogCaptureFixture) -> None:
    """503 shutting-down, no traceback, the port is free afterwards."""
    async with serving() as port:
        waiting = asyncio.create_task(talk(port, b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n"))
        assert (await talk(port, CLOSE)).startswith(b"HTTP/1.1 200 ")
    answer = await waiting
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"shutting-down" in answer
    assert [record for record in caplog.records if record.exc_info] == []
    open_socket("127.0.0.1", port, "--port").close()


def test_it_serves_from_a_second_thread_with_its_own_loop() -> None:
    """As the broker does; stopped from this thread."""
    sock = open_socket("localhost", 0, "--http-port")
    port = sock.getsockname()[1]
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        await serve(sample_app(), sock, stop=stop)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=10).json() == "hello"
    finally:
        loop, stop = loops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_an_address_other_than_loopback_is_refused(host: str) -> None:
    """There is no authentication in this release, so there is no other listener."""
    with pytest.raises(SettingsError, match="--listen") as caught:
        open_socket(host, 0, "--port")
    assert caught.value.code == 78


def test_a_port_in_use_is_named_with_the_option_to_change() -> None:
    """Also when the other one has set SO_REUSEADDR, as we do."""
    with open_socket("127.0.0.1", 0, "--port") as first:
        port = first.getsockname()[1]
        with pytest.raises(SettingsError) as caught:
            open_socket("127.0.0.1", port, "--http-port")
    assert f"{port} on 127.0.0.1" in caught.value.text
    assert "--http-port" in caught.value.text


def test_ipv6_loopback_is_loopback() -> None:
    """`::1`, where the machine has it."""
    try:
        socket.socket(socket.AF_INET6).close()
        sock = open_socket("::1", 0, "--port")
    except (OSError, SettingsError):
        pytest.skip("no IPv6 here")
    with sock:
        assert sock.family == socket.AF_INET6


async def test_a_server_that_cannot_begin_closes_its_socket() -> None:
    """Else connections would wait in the kernel's queue of a port that nobody serves."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "lifespan"
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    sock = open_socket("127.0.0.1", 0, "--port")
    with contextlib.suppress(SystemExit):
        await serve(app, sock)
    assert sock.fileno() == -1


async def test_a_listener_counts_in_the_crowd_that_it_is_given() -> None:
    """Also in one that nobody has entered yet, which is empty."""
    table, stop = ConnectionTable(), asyncio.Event()
    sock = open_socket("127.0.0.1", 0, "--port")
    port: int = sock.getsockname()[1]
    task = asyncio.create_task(serve(sample_app(), sock, stop=stop, table=table))
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(30):
        while table.known == 0:
            await asyncio.sleep(0.001)
    writer.close()
    stop.set()
    await task
