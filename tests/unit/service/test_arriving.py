"""Requests that are not whole take no place among those that are worked on, whatever they are; and the count of them always ends at 0."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from starlette.types import Receive, Scope, Send

from tern_service.connections.bounds import Bounds
from tern_service.connections.table import ConnectionTable
from tests.unit.service.test_connection import serving_app
from tests.unit.service.test_server import CLOSE, talk

HEAD = b"POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"
CHUNKED = b"POST /read HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
MANY = 5


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


class Reading:
    """Reads bodies whole, but for /early, which is answered without; waits at /work until `go_on`; /large is an answer of 20 MB."""

    def __init__(self) -> None:
        self.begun = self.gone = 0
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun += 1
        while scope["path"] in {"/read", "/work"}:
            message = await receive()
            if message["type"] != "http.request":
                self.gone += 1
                return
            if not message["more_body"]:
                break
        if scope["path"] == "/work":
            await self.go_on.wait()
        body = bytes(20_000_000) if scope["path"] == "/large" else b""
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def waiting(
    *parts: bytes, begun: int = MANY
) -> AsyncIterator[tuple[int, Reading, ConnectionTable, list[asyncio.StreamWriter]]]:
    """A server that works on two requests at a time, at which MANY connections have sent *parts*, and which has begun so many requests."""
    app, table = Reading(), ConnectionTable()
    async with serving_app(
        app, Bounds(requests_max=2, body_deadline_ms=60_000, body_rate_step_ms=60_000), table
    ) as port:
        writers: list[asyncio.StreamWriter] = []
        try:
            for _ in range(MANY):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writers.append(writer)
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    if part is not parts[-1]:
                        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            await until(lambda: app.begun == begun)
            yield port, app, table, writers
        finally:
            for writer in writers:
                await gone(writer)
        await until(lambda: table.arriving == 0)


async def gone(writer: asyncio.StreamWriter) -> None:
    """Its connection is closed, whatever state it is in."""
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def until(check: Callable[[], bool]) -> None:
    """Until *check* is true."""
    async with asyncio.timeout(30):
        while not check():
            await asyncio.sleep(0.001)


WAYS = [
    ("a head alone", [HEAD]),
    ("a part of a body", [HEAD + b"part"]),
    ("a chunk", [CHUNKED + b"4\r\npart\r\n"]),
    ("a chunk's size", [CHUNKED + b"4"]),
    ("behind an answered request, in one read", [GET + HEAD]),
    ("behind a taken answer", [GET, HEAD]),
]


@pytest.mark.parametrize("parts", [way[1] for way in WAYS], ids=[way[0] for way in WAYS])
async def test_what_is_not_whole_takes_nobodys_place(parts: list[bytes]) -> None:
    """More than are worked on at a time, and whoever comes is served."""
    async with waiting(*parts, begun=MANY * b"".join(parts).count(b"HTTP/1.1")) as (port, _, table, writers):
        await until(lambda: table.arriving == MANY)
        for _ in range(3):
            assert (await talk(port, CLOSE)).startswith(b"HTTP/1.1 200 ")
        for writer in writers[:3]:
            await gone(writer)
        await until(lambda: table.arriving == MANY - 3)


async def test_what_is_answered_before_its_body_came_is_nobody_s_work_either() -> None:
    """The rest of the body is read and dropped; it is not counted, neither before nor behind its answer."""
    async with waiting(HEAD.replace(b"/read", b"/early")) as (port, _, table, _):
        await until(lambda: table.arriving == 0)
        assert (await talk(port, CLOSE)).startswith(b"HTTP/1.1 200 ")


async def test_a_request_that_becomes_whole_in_a_crowd_is_refused_then() -> None:
    """503 with a pause, and the application that waited for the body hears that it is not coming: nothing was done."""
    async with waiting(HEAD) as (port, app, table, writers):
        working = [asyncio.create_task(talk(port, CLOSE.replace(b"GET /", b"GET /work"))) for _ in range(2)]
        await until(lambda: app.begun == MANY + 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD)
        # Now a head alone is refused, since it could not be worked on either.
        assert b'"what":"requests at a time"' in await asyncio.wait_for(reader.readuntil(b"}"), 10)
        writers[0].write(b"nine byte")
        await until(lambda: app.gone == 1)
        assert table.arriving == MANY - 1
        app.go_on.set()
        assert [(await each)[:13] for each in working] == [b"HTTP/1.1 200 "] * 2
        await gone(writer)


async def test_a_slow_reader_takes_no_place_and_its_next_request_waits() -> None:
    """Five clients ask for 20 MB twice, read nothing, and hold one answer each; others are served meanwhile."""
    large = GET.replace(b"/ ", b"/large ")
    async with waiting(large + large) as (port, app, _, _):
        assert (await talk(port, CLOSE)).startswith(b"HTTP/1.1 200 ")
        assert app.begun == MANY + 1


async def test_requests_behind_an_answer_that_is_taken_late_are_answered() -> None:
    """All of them, in their order, on one connection."""
    large = GET.replace(b"/ ", b"/large ")
    async with serving_app(Reading(), Bounds(), ConnectionTable()) as port:
        answer = await talk(port, large + GET, large + CLOSE)
    assert answer.count(b"HTTP/1.1 200 ") == 4
    assert len(answer) > 40_000_000


async def test_at_the_cap_a_body_that_does_not_come_gives_way_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a newcomer of another address: 503, and the newcomer is served."""
    monkeypatch.setattr("tern_service.connections.table.IDLE_MIN_S", 0.0)
    monkeypatch.setattr("tern_service.connections.table._place_of", lambda host: "far" if host == "127.0.0.9" else host)
    table, app = ConnectionTable(), Reading()
    async with serving_app(
        app, Bounds(connections_max=2, body_deadline_ms=60_000, body_rate_step_ms=60_000), table
    ) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        held[0][1].write(HEAD)
        await until(lambda: table.arriving == 1)
        held[1][1].write(HEAD)
        await until(lambda: table.arriving == 2)
        reader, newcomer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.9", 0))
        newcomer.write(CLOSE)
        assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 200 ")
        assert (await asyncio.wait_for(held[0][0].read(), 10)).startswith(b"HTTP/1.1 503 ")
        assert (table.arriving, table.known) == (1, 1)
        for writer in (newcomer, *(each[1] for each in held)):
            await gone(writer)
        await until(lambda: (table.arriving, table.known) == (0, 0))


async def test_reads_leave_places_to_others() -> None:
    """A quarter: who reads is refused, who sends finds one, and at the full number nobody does."""
    table, app = ConnectionTable(is_read=lambda target: target.startswith(b"/held-read")), Holding()
    get = "GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with serving_app(app, Bounds(requests_max=4), table) as port:
        writers = []
        for number, target in enumerate(["/held-read"] * 3 + ["/held"]):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get.format(target).encode())
            writers.append(writer)
            await until(lambda number=number: app.held == number + 1)  # type: ignore[misc]
            if app.held == 3:
                assert (await talk(port, get.format("/held-read").encode())).startswith(b"HTTP/1.1 503 ")
        assert (await talk(port, get.format("/held").encode())).startswith(b"HTTP/1.1 503 ")
        app.go.set()
        for writer in writers:
            await gone(writer)


class Holding:
    """An application whose answers wait for *go*."""

    def __init__(self) -> None:
        self.held, self.go = 0, asyncio.Event()

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        self.held += 1
        await self.go.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
