"""Each transport limit over real sockets, one test a limit: what is too much is refused with the error that names the fix, what is not is served."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from functools import partial

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from tern_service import open_socket
from tern_service.connections.bounds import Bounds
from tern_service.connections.connection import GuardedProtocol
from tern_service.connections.table import ConnectionTable
from tern_wire.paths import HEADER_CHECK_NONCE
from tests.unit.service.test_server import CLOSE, serving, talk

POST = b"POST /echo HTTP/1.1\r\nhost: a\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


def problem_of(answer: bytes) -> tuple[int, str, str]:
    """Status, code and detail of the one problem in *answer*."""
    top, _, body = answer.partition(b"\r\n\r\n")
    assert len(re.findall(rb"HTTP/1\.1 \d{3} ", answer)) == 1, answer
    assert b"connection: close" in top
    document = json.loads(body)
    assert document["request_id"]
    return int(top.split(b" ")[1]), document["code"], document["detail"]


@contextlib.asynccontextmanager
async def serving_app(app: ASGIApp, bounds: Bounds, table: ConnectionTable | None = None) -> AsyncIterator[int]:
    """*app* behind a GuardedProtocol; yields its port."""
    sock = open_socket("127.0.0.1", 0, "--port")
    protocol = partial(GuardedProtocol, bounds=bounds, table=table)
    config = uvicorn.Config(app, http=protocol, ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1)  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(server.serve(sockets=[sock]))
    yield sock.getsockname()[1]
    server.should_exit = True
    await asyncio.wait_for(task, 30)


HEAD_CASES = [
    ("fields", CLOSE[:-2] + b"x: y\r\n" * 7 + b"\r\n", {"fields_max": 8}, 431, "head-too-large"),
    ("size", CLOSE[:-2] + b"x: " + b"y" * 300 + b"\r\n\r\n", {"head_size_max_bytes": 300}, 431, "head-too-large"),
    ("target", CLOSE.replace(b"GET /", b"GET /" + b"a" * 50), {"target_size_max_bytes": 50}, 414, "target-too-long"),
    ("query", CLOSE.replace(b"GET /", b"GET /?" + b"a" * 50), {"target_size_max_bytes": 50}, 414, "target-too-long"),
]


@pytest.mark.parametrize(
    ("request_", "bounds", "status", "code"), [case[1:] for case in HEAD_CASES], ids=[case[0] for case in HEAD_CASES]
)
@pytest.mark.parametrize("is_split", [False, True])
async def test_a_head_beyond_a_bound_gets_its_own_error(
    request_: bytes, bounds: dict[str, int], status: int, code: str, is_split: bool
) -> None:
    """431 or 414, in one piece or in two; a head that is just within its bound is served."""
    parts = [request_[:20], request_[20:]] if is_split else [request_]
    async with serving(**bounds) as port:
        assert problem_of(await talk(port, *parts))[:2] == (status, code)
    (name, most), within = next(iter(bounds.items())), CLOSE
    if name == "fields_max":
        within = CLOSE[:-2] + b"x: y\r\n" * (most - 2) + b"\r\n"
    async with serving(**bounds) as port:
        assert (await talk(port, within)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "Host is missing"),
        (b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n", "Host is not a host"),
        (b"GET / HTTP/2.0\r\nhost: a\r\n\r\n", "HTTP/2.0 is not spoken"),
        (b"POST /echo HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.0 has no"),
        (POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "only Transfer-Encoding"),
        (POST + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "Content-Length"),
        (POST + b"content-length: 1\r\ncontent-length: 1\r\n\r\nx", "Duplicate Content-Length"),
        (POST + b"authorization: a\r\nAuthorization: b\r\n\r\n", "authorization is given more than once"),
        (POST + b"x: a\r\n b\r\n\r\n", "whitespace"),
        (POST + b"x: a\n\r\n", "CR"),
        (b"\n" + CLOSE, "without CR"),
        (CHUNKED + b"1;a\nx\r\n0\r\n\r\n", "CR"),
        (CHUNKED + b"0\r\nhost: b\r\n\r\n", "host is given more than once"),
        (b"GET http://b/ HTTP/1.1\r\nhost: a\r\n\r\n", "another host"),
        (b"GET /%2e%2e/ HTTP/1.1\r\nhost: a\r\n\r\n", "'..'"),
    ],
)
async def test_what_two_readers_would_read_differently_is_refused(sent: bytes, reason: str) -> None:
    """400 with the reason, and what stands behind it is not read."""
    async with serving() as port:
        status, code, detail = problem_of(await talk(port, sent + CLOSE))
    assert (status, code) == (400, "request-malformed")
    assert reason in detail


async def test_a_callback_of_a_checker_is_nobodys_request() -> None:
    """A check URL may name a port of a mesh: no route hears of it, whatever it is called and whatever rights are asked for."""
    nonce = f"{HEADER_CHECK_NONCE}: 1\r\n".encode()
    async with serving() as port:
        for sent in (POST + b"content-length: 1\r\n\r\nx", CLOSE):
            at = sent.index(b"\r\n") + 2
            assert problem_of(await talk(port, sent[:at] + nonce + sent[at:]))[:2] == (403, "callback-refused")
    # A producer's own service, such as the one of `ternmq demo transfer --checks callback`, is asked.
    async with serving(takes_callbacks=True) as port:
        assert (await talk(port, CLOSE[:at] + nonce + CLOSE[at:])).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "sent",
    [
        CLOSE.replace(b"GET /", b"GET http://a/"),
        CLOSE.replace(b"host: a", b"host: [::1]:8080"),
        CLOSE.replace(b"host: a", b"host: my_proxy.internal:8080"),
        CLOSE.replace(b"1.1", b"1.0"),
        CLOSE.replace(b"GET /", b"GET /?a=%2F..%2F//b"),
        b"\r\n" + CLOSE,
        CHUNKED[:-2] + b"connection: close\r\n\r\n3;a=b\r\nxyz\r\n0\r\nx: y\r\n\r\n",
    ],
)
async def test_what_is_unusual_and_clear_is_served(sent: bytes) -> None:
    """Absolute targets, IPv6 hosts, HTTP/1.0, whatever is escaped in a query, chunk extensions, trailers."""
    async with serving() as port:
        assert (await talk(port, sent)).startswith(b"HTTP/1.1 200 ")


async def test_a_body_slower_than_its_rate_is_let_go_long_before_its_deadline() -> None:
    """At the first step; the deadline is a minute away."""
    async with serving(body_rate_step_ms=50, body_deadline_ms=60_000) as port:
        answer = await talk(port, POST + b"content-length: 100\r\n\r\n", b"abc")
    status, code, detail = problem_of(answer)
    assert (status, code) == (408, "body-too-slow")
    assert "1024 bytes a second" in detail


async def test_a_body_as_fast_as_it_must_be_ends_at_its_deadline_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never rests, and the step comes several times before the deadline."""
    monkeypatch.setattr("tern_service.connections.answers.LINGER_STEP_S", 30)
    async with serving(body_rate_step_ms=20, body_deadline_ms=150) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST + b"content-length: 10000000\r\n\r\n" + b"x" * 65_536)
        answer = asyncio.create_task(reader.readuntil(b"}"))
        async with asyncio.timeout(30):
            while not answer.done():
                writer.write(b"x" * 1_024)
                await asyncio.wait([answer], timeout=0.001)
        writer.close()
    assert problem_of(answer.result())[:2] == (408, "request-timeout")


async def test_bytes_that_came_quickly_are_no_credit_for_a_rest() -> None:
    """All but the end of a body at once, and then nothing: gone after two steps, not at the deadline."""
    async with serving(body_rate_step_ms=30, body_deadline_ms=60_000) as port:
        answer = await talk(port, POST + b"content-length: 65537\r\n\r\n" + b"x" * 65_536)
    assert problem_of(answer)[:2] == (408, "body-too-slow")


@pytest.mark.parametrize(
    ("body", "bounds", "reason"),
    [
        (b"1\r\nx\r\n" * 9 + b"0\r\n\r\n", {"chunks_max": 8}, "more than 8 chunks"),
        (b"0" * 20_000, {"body_wire_size_max_bytes": 9_000}, "more than 9000 bytes"),
        (b"1;a=" + b"b" * 20_000, {"body_wire_size_max_bytes": 9_000}, "more than 9000 bytes"),
        (b"1;a=" + b"b" * 300_000, {"head_size_max_bytes": 16_384}, "bytes of chunk extensions"),
        ((b"1;" + b"b" * 1_000 + b"\r\nx\r\n") * 300, {"head_size_max_bytes": 16_384}, "bytes of chunk extensions"),
    ],
)
async def test_a_body_that_is_mostly_framing_is_refused(body: bytes, bounds: dict[str, int], reason: str) -> None:
    """Chunks without number, sizes and extensions without end."""
    async with serving(**bounds) as port:
        status, code, detail = problem_of(await talk(port, CHUNKED, body))
    assert (status, code) == (400, "request-malformed")
    assert reason in detail


async def test_requests_sent_far_ahead_are_answered_up_to_a_bound() -> None:
    """The first one is being worked on, two lie behind it; then the connection ends, after their answers."""
    async with serving(pipelined_max=2) as port:
        answer = await talk(port, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 9)
    assert answer.count(b"HTTP/1.1 200 ") == 3
    assert answer.count(b"HTTP/1.1 ") == 3


class Working:
    """Answers when it is told to. `begun` counts its requests."""

    def __init__(self) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun += 1
        if scope["path"] == "/work":
            await self.go_on.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def until_begun(app: Working, count: int) -> None:
    """Until *count* requests have begun."""
    async with asyncio.timeout(30):
        while app.begun < count:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("parked", [0, 1])
async def test_requests_at_a_time_are_bounded_without_those_that_are_parked(parked: int) -> None:
    """One more is told to come back, on a connection that stays; health is asked for all the same."""
    app = Working()
    async with serving_app(app, Bounds(requests_max=1), ConnectionTable(parked=lambda: parked)) as port:
        first = asyncio.create_task(talk(port, b"GET /work HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"))
        await until_begun(app, 1)
        answer = await talk(
            port,
            b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc" + CLOSE.replace(b"GET /", b"GET /healthz"),
        )
        app.go_on.set()
        assert (await first).startswith(b"HTTP/1.1 204 ")
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == ([b"204", b"204"] if parked else [b"503", b"204"])
    if not parked:
        assert b'"what":"requests at a time"' in answer
        assert b"retry-after: " in answer


async def test_connections_of_one_address_are_bounded_and_counted_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from afar: what is loopback is not counted."""
    monkeypatch.setattr("tern_service.connections.table.address_of", lambda host: host)
    table = ConnectionTable()
    async with serving_app(Working(), Bounds(connections_per_address_max=1), table) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        status, code, detail = problem_of(await talk(port))
        assert (status, code) == (503, "overloaded")
        assert "connections of one address" in detail
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(30):
            while len(table):
                await asyncio.sleep(0.001)
        assert (await talk(port, CLOSE)).startswith(b"HTTP/1.1 204 ")


async def test_a_client_that_does_not_take_its_answer_is_broken_off() -> None:
    """Its buffers are full, and it does not read: nobody holds megabytes for it for ever."""
    ended = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            for _ in range(1_000):
                await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
                if (await asyncio.wait([asyncio.ensure_future(receive())], timeout=0))[0]:
                    return
        finally:
            ended.set()

    async with serving_app(app, Bounds(answer_step_ms=50)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await asyncio.wait_for(ended.wait(), 10)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            while True:
                await asyncio.wait_for(reader.readexactly(1 << 20), 10)
        writer.close()
