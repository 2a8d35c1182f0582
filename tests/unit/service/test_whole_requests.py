"""Requests that come whole are answered without ASGI, those that do not with it, and clients cannot tell which was which."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from tern_service import open_socket, serve
from tern_service.connections import whole_requests
from tern_service.connections.bounds import Bounds
from tern_service.connections.whole_exchange import Reply
from tern_wire.errors import TernError
from tests.support.loops import BOTH_LOOPS, eventually
from tests.unit.service.test_server import talk

TEXT = (b"content-type", b"text/plain")
# Larger than any read of either loop.
LARGE_SIZE_BYTES = 1 << 20


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Reads have other sizes, and futures other classes."""
    return request.param


def reply_of(text: bytes, status: int = 200, *headers: tuple[bytes, bytes]) -> Reply:
    """A reply with its length."""
    return status, [TEXT, *headers, (b"content-length", b"%d" % len(text))], text


class Sample:
    """Answers with how a request came, and its body. *how*: what a taken request does."""

    def __init__(self) -> None:
        self.how: Callable[[Scope, bytes], Coroutine[Any, Any, Reply]] = self._at_once
        self.taken = self.begun = 0
        self.opened = asyncio.Event()
        self.awaited = 0

    def may_take(self, target: bytes) -> bool:
        """As the application promises."""
        return target.partition(b"?")[0] in {b"/whole", b"/declined"}

    def take(self, scope: Scope, body: bytes) -> Coroutine[Any, Any, Reply] | None:
        """None for one of the two."""
        if scope["path"] == "/declined":
            return None
        self.taken += 1
        return self.how(scope, body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: the same, read to the end."""
        if scope["type"] != "http":
            await _lifespan(receive, send)
            return
        self.begun += 1
        body, has_more = b"", True
        while has_more:
            message = await receive()
            if message["type"] != "http.request":
                return
            body, has_more = body + message["body"], message["more_body"]
        text = b"asgi:%d" % len(body)
        await send({"type": "http.response.start", "status": 200, "headers": reply_of(text)[1]})
        await send({"type": "http.response.body", "body": text})

    async def _at_once(self, _scope: Scope, body: bytes) -> Reply:
        return reply_of(b"whole:%d" % len(body))

    async def when_opened(self, _scope: Scope, body: bytes) -> Reply:
        """One wait, as a send has."""
        await self._opening()
        return reply_of(b"late:%d" % len(body))

    async def in_steps(self, _scope: Scope, body: bytes) -> Reply:
        """Three waits, of which the later ones need a task."""
        await self._opening()
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await asyncio.sleep(0)
        name = asyncio.current_task() is not None
        return reply_of(b"task:%d:%d" % (name, len(body)))

    async def _opening(self) -> None:
        future = asyncio.get_running_loop().create_future()
        waiter = asyncio.ensure_future(self.opened.wait())
        waiter.add_done_callback(lambda _: None if future.done() else future.set_result(None))
        self.awaited += 1
        await future


async def _lifespan(receive: Receive, send: Send) -> None:
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


@contextlib.asynccontextmanager
async def serving(sample: Sample, **bounds: Any) -> AsyncIterator[int]:
    """*sample* behind the server; yields its port."""
    sock, stop = open_socket("127.0.0.1", 0, "--port"), asyncio.Event()
    task = asyncio.create_task(serve(sample, sock, stop=stop, bounds=Bounds(**bounds), whole=sample))
    try:
        yield sock.getsockname()[1]
    finally:
        stop.set()
        await asyncio.wait_for(task, 30)


def post(body: bytes, path: bytes = b"/whole", *fields: bytes) -> bytes:
    """One request."""
    lines = [b"POST %b HTTP/1.1" % path, b"host: a", b"content-length: %d" % len(body), *fields, b"", body]
    return b"\r\n".join(lines)


LAST = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


def texts(answer: bytes) -> list[bytes]:
    """The bodies of all answers, each without its head."""
    found = []
    while answer:
        head, _, rest = answer.partition(b"\r\n\r\n")
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        found.append(rest[:size])
        answer = rest[size:]
    return found


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        (post(b"abc"), b"whole:3"),
        (post(b""), b"whole:0"),
        (post(b"abc", b"/whole?a=b"), b"whole:3"),
        (post(b"abc", b"/declined"), b"asgi:3"),
        (post(b"abc", b"/other"), b"asgi:3"),
        (post(bytes(LARGE_SIZE_BYTES)), b"asgi:%d" % LARGE_SIZE_BYTES),
        (b"GET /whole HTTP/1.1\r\nhost: a\r\n\r\n", b"asgi:0"),
        (b"POST /whole HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"asgi:3"),
    ],
    ids=["whole", "empty", "query", "declined", "another path", "large", "GET", "chunked"],
)
async def test_a_request_is_taken_if_it_came_whole_and_the_application_takes_it(request_: bytes, wanted: bytes) -> None:
    """And the connection serves the next one, whichever way the first was answered."""
    async with serving(Sample()) as port:
        assert texts(await talk(port, request_ + LAST)) == [wanted, b"asgi:0"]


async def test_an_answer_has_what_uvicorns_has() -> None:
    """Status line, date, headers; and `connection: close` if the client has asked for it."""
    async with serving(Sample()) as port:
        whole = await talk(port, post(b"abc", b"/whole", b"connection: close"))
        asgi = await talk(port, post(b"abc", b"/other", b"connection: close"))
    heads = [answer.partition(b"\r\n\r\n")[0].split(b"\r\n") for answer in (whole, asgi)]
    assert [[line.partition(b": ")[0] for line in head] for head in heads] == [
        [b"HTTP/1.1 200 OK", b"date", b"content-type", b"content-length", b"connection"]
    ] * 2


async def test_a_body_in_two_reads_goes_to_asgi_with_all_of_it() -> None:
    """The head and a part first; the rest when the application has begun with that."""
    sample = Sample()
    async with serving(sample) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request_ = post(b"abcdef")
        writer.write(request_[:-3])
        await writer.drain()
        await eventually(lambda: sample.begun == 1, "the application to begin")
        writer.write(request_[-3:] + LAST)
        got = await asyncio.wait_for(reader.read(), 30)
        writer.close()
    assert texts(got) == [b"asgi:6", b"asgi:0"]
    assert sample.taken == 0


async def test_expect_100_is_answered_before_the_body() -> None:
    """A client that waits for leave gets it."""
    async with serving(Sample()) as port:
        got = await talk(port, post(b"abc", b"/whole", b"expect: 100-continue") + LAST)
    assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
    assert got.endswith(b"asgi:0")


async def test_requests_behind_one_in_progress_wait_and_keep_their_order() -> None:
    """Three requests in one write: the second and third are answered behind the first, which waits."""
    sample = Sample()
    sample.how = sample.when_opened
    async with serving(sample) as port:
        answer = asyncio.create_task(talk(port, post(b"1") + post(b"22", b"/other") + LAST))
        await eventually(lambda: sample.awaited == 1, "the first one to wait")
        assert not answer.done()
        sample.opened.set()
        assert texts(await answer) == [b"late:1", b"asgi:2", b"asgi:0"]


async def test_later_waits_are_those_of_a_task() -> None:
    """What needs a current task has one behind the second wait."""
    sample = Sample()
    sample.how = sample.in_steps
    async with serving(sample) as port:
        sample.opened.set()
        assert texts(await talk(port, post(b"abc") + LAST)) == [b"task:1:3", b"asgi:0"]


async def test_a_bug_is_a_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """At once, behind a wait and in a task; and so is a header with a line break."""

    async def at_once(_scope: Scope, _body: bytes) -> Reply:
        raise ValueError("one")

    async def later(_scope: Scope, _body: bytes) -> Reply:
        await asyncio.get_running_loop().create_task(asyncio.sleep(0))
        raise ValueError("two")

    async def in_a_task(_scope: Scope, _body: bytes) -> Reply:
        await asyncio.sleep(0)
        raise ValueError("three")

    async def broken(_scope: Scope, _body: bytes) -> Reply:
        return reply_of(b"x", 200, (b"mq-topic", b"a\r\nmq-more: b"))

    sample = Sample()
    async with serving(sample) as port:
        for how in (at_once, later, in_a_task, broken):
            sample.how = how
            got = await talk(port, post(b"") + LAST)
            assert got.startswith(b"HTTP/1.1 500 "), got
            assert TernError().code.encode() in got
            assert b"mq-more" not in got
            assert texts(got)[1] == b"asgi:0"
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [str(record.exc_info[1]) for record in logged if record.exc_info] == ["one", "two", "three"]
    assert logged[-1].getMessage() == "a header of an answer has a line break"


async def test_a_stop_answers_what_still_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """503 to a request in its first wait, and to one in a task."""
    monkeypatch.setattr("tern_service.server.STOP_GRACE_S", 0)
    for name in ("when_opened", "in_steps"):
        sample = Sample()
        sample.how = getattr(sample, name)
        async with serving(sample) as port:
            answer = asyncio.create_task(talk(port, post(b"abc")))
            await eventually(lambda sample=sample: sample.awaited == 1, "it to wait")  # type: ignore[misc]
        got = await answer
        assert got.startswith(b"HTTP/1.1 503 "), got
        assert b'"code":"shutting-down"' in got


async def test_a_client_that_has_gone_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Its request ends as it would have; nobody is answered, and others are served."""
    sample = Sample()
    sample.how = sample.when_opened
    ended = asyncio.Event()

    async def noted(scope: Scope, body: bytes) -> Reply:
        try:
            return await sample.when_opened(scope, body)
        finally:
            ended.set()

    sample.how = noted
    async with serving(sample) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(b"abc"))
        await eventually(lambda: sample.awaited == 1, "it to wait")
        writer.transport.abort()
        await asyncio.sleep(0)
        assert texts(await talk(port, LAST)) == [b"asgi:0"]
        sample.opened.set()
        await asyncio.wait_for(ended.wait(), 30)
        sample.how = sample._at_once
        assert texts(await talk(port, post(b"x") + LAST)) == [b"whole:1", b"asgi:0"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_garbage_behind_a_whole_request_does_not_touch_it() -> None:
    """It is answered, and then the connection ends."""
    async with serving(Sample()) as port:
        got = await talk(port, post(b"abc") + b"\x00 what is this\r\n\r\n")
    assert texts(got) == [b"whole:3"]
    assert b"connection: close" in got


async def test_whole_requests_have_places_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting ones keep no other request out; beyond their limit they are requests like any other, and leave their places."""
    monkeypatch.setattr(whole_requests, "WHOLE_REQUESTS_MAX", 2)
    sample = Sample()
    sample.how = sample.when_opened
    async with serving(sample, requests_max=2) as port:
        waiting = [asyncio.create_task(talk(port, post(b"%d" % number) + LAST)) for number in range(2)]
        await eventually(lambda: sample.awaited == 2, "both to wait")
        assert texts(await talk(port, post(b"x", b"/other") + LAST)) == [b"asgi:1", b"asgi:0"]
        assert texts(await talk(port, post(b"third") + LAST)) == [b"asgi:5", b"asgi:0"]
        sample.opened.set()
        assert [texts(await each) for each in waiting] == [[b"late:1", b"asgi:0"]] * 2
        for _ in range(3):
            assert texts(await talk(port, post(b"abc") + LAST)) == [b"late:3", b"asgi:0"]


@pytest.mark.parametrize("path", [b"/whole", b"/declined"])
async def test_what_is_not_taken_needs_an_ordinary_place(monkeypatch: pytest.MonkeyPatch, path: bytes) -> None:
    """Whether its places are used up, or the application declines it: then it is refused as any other."""
    monkeypatch.setattr(whole_requests, "WHOLE_REQUESTS_MAX", path == b"/declined")
    async with serving(Sample(), requests_max=0) as port:
        refused = await talk(port, post(b"x", path, b"connection: close"))
        assert refused.startswith(b"HTTP/1.1 503 "), refused


async def test_an_error_reply_leaves_the_connection_open() -> None:
    """The body was read: the next request's head follows it."""

    async def refusing(_scope: Scope, _body: bytes) -> Reply:
        return reply_of(TernError().code.encode(), 404)

    sample = Sample()
    sample.how = refusing
    async with serving(sample) as port:
        assert texts(await talk(port, post(b"abc") + LAST)) == [TernError().code.encode(), b"asgi:0"]
