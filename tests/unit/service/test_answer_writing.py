"""Answers leave head and body together, and nothing that waits is forgotten: HEAD, streams, `100 Continue`, answers that break off."""

import asyncio
import contextlib
from collections.abc import Sequence
from unittest.mock import Mock

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from tern_service.connections.answer_writing import JOIN_SIZE_MAX_BYTES, PIECE_SIZE_BYTES, HeadWithBody
from tern_service.connections.answers import AnsweringProtocol
from tern_service.connections.bounds import Bounds
from tests.unit.service.test_connection import serving_app
from tests.unit.service.test_server import talk

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ASKED = b"%s / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


class Wire:
    """A transport that keeps what was written, a list entry a call."""

    def __init__(self) -> None:
        self.written: list[bytes | memoryview] = []
        self.vectors: list[tuple[bytes | memoryview, ...]] = []
        self.is_closed = False

    def write(self, data: bytes | memoryview) -> None:
        """Keep it."""
        assert not self.is_closed
        self.written.append(data)

    def writelines(self, parts: Sequence[bytes | memoryview]) -> None:
        """Keep them as they are."""
        assert not self.is_closed
        self.vectors.append(tuple(parts))

    def close(self) -> None:
        """Take no more."""
        self.is_closed = True

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.is_closed


def test_a_head_and_its_body_are_one_write() -> None:
    """Also of the next answer on the connection."""
    wire = Wire()
    answers = HeadWithBody(wire)
    for _ in range(2):
        answers.write(HEAD)
        assert not wire.written
        answers.write(b"hello")
        answers.flush()
        assert wire.written == [HEAD + b"hello"]
        wire.written.clear()


def test_what_has_no_length_is_written_at_once() -> None:
    """The head of a stream, its pieces, `100 Continue`."""
    wire = Wire()
    answers = HeadWithBody(wire)
    said = [b"HTTP/1.1 100 Continue\r\n\r\n", STREAM, b"5\r\nhello\r\n", b"0\r\n\r\n"]
    for data in said:
        answers.write(data)
    assert wire.written == said


@pytest.mark.parametrize("end", ["flush", "close"])
def test_a_head_without_a_body_leaves_when_its_answer_is_over(end: str) -> None:
    """The answer to HEAD has a length and no body; an answer that breaks off is closed."""
    wire = Wire()
    answers = HeadWithBody(wire)
    answers.write(HEAD)
    getattr(answers, end)()
    assert (wire.written, wire.is_closed, answers.is_closing()) == ([HEAD], end == "close", end == "close")


def test_a_body_that_looks_like_a_head_stays_in_its_place() -> None:
    """Whatever a message holds, the bytes of an answer keep their order and none is kept back."""
    wire = Wire()
    answers = HeadWithBody(wire)
    for data in (HEAD, HEAD, HEAD, b"end"):
        answers.write(data)
    answers.flush()
    assert b"".join(wire.written) == HEAD * 3 + b"end"


class LostWire(Wire):
    """As uvloop's of a connection that was aborted: whoever writes hears of it."""

    def write(self, data: bytes | memoryview) -> None:
        """It cannot be."""
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


def test_who_has_gone_without_reading_is_no_error_of_ours() -> None:
    """Nobody is there to write to; on a connection that is not closing the same error is a bug, and told."""
    for is_closed in (True, False):
        for end in ("write", "flush", "close"):
            wire = LostWire()
            wire.is_closed = is_closed
            answers = HeadWithBody(wire)
            answers.write(HEAD)
            with contextlib.nullcontext() if is_closed else pytest.raises(RuntimeError):
                answers.write(b"hello") if end == "write" else getattr(answers, end)()


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    body = b""
    while scope["method"] == "POST":
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            break
    length = [(b"content-length", b"%d" % (5 + len(body)))]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    if scope["path"] == "/breaks":
        raise RuntimeError("in the middle of an answer")
    await send({"type": "http.response.body", "body": b"hello" + body})


@pytest.mark.anyio
async def test_a_client_gets_whole_answers_whatever_it_asks_with() -> None:
    """GET, HEAD, several requests in one read, a body that waits for `100 Continue`, and an answer that breaks off."""
    async with serving_app(_app, Bounds()) as port:
        assert (await talk(port, ASKED % b"GET")).endswith(b"content-length: 5\r\nconnection: close\r\n\r\nhello")
        assert (await talk(port, ASKED % b"HEAD")).endswith(b"content-length: 5\r\nconnection: close\r\n\r\n")
        three = await talk(
            port, b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n" + ASKED % b"GET"
        )
        assert (three.count(b"HTTP/1.1 200 OK"), three.count(b"\r\n\r\nhello")) == (3, 2)
        broken = await talk(port, b"GET /breaks HTTP/1.1\r\nhost: a\r\n\r\n")
        assert broken.endswith(b"content-length: 5\r\n\r\n")

        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3\r\nconnection: close\r\n\r\n"
        )
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"you")
        assert (await asyncio.wait_for(reader.read(), 10)).endswith(b"helloyou")
        writer.close()


class Refusing:
    """Refuses each body as it begins, and ends the connection, as a proxy does that has no room for it."""

    def __init__(self) -> None:
        self.begun = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun += 1
        if scope["path"] == "/some":
            await receive()
        ends = [(b"content-length", b"2"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 429, "headers": ends})
        await send({"type": "http.response.body", "body": b"no"})


@pytest.mark.anyio
@pytest.mark.parametrize("path", [b"/at-once", b"/some"])
async def test_who_is_refused_while_it_still_sends_reads_why(path: bytes) -> None:
    """A client that writes its 5 MB before it reads gets the answer and not a reset; what stands behind that body is not begun."""
    app = Refusing()
    async with serving_app(app, Bounds()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST %s HTTP/1.1\r\nhost: a\r\ncontent-length: 5000000\r\n\r\n" % path)
        for _ in range(50):
            writer.write(bytes(100_000))
            await writer.drain()
        writer.write(ASKED % b"GET")
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert answer.endswith(b"\r\n\r\nno")
    assert app.begun == 1


@pytest.mark.anyio
async def test_who_is_refused_and_sends_nothing_more_is_closed_soon() -> None:
    """Long before any deadline of bodies."""
    async with serving_app(Refusing(), Bounds(body_deadline_ms=60_000, body_rate_step_ms=60_000)) as port:
        answer = await talk(port, b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\npart")
    assert answer.startswith(b"HTTP/1.1 429 ")


@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_a_large_body_leaves_with_its_head_and_is_not_copied(kind: type) -> None:
    """The transport gets the very object, once; a small view is joined as bytes are."""
    wire = Wire()
    answers = HeadWithBody(wire)
    body = kind(bytes(JOIN_SIZE_MAX_BYTES + 1))
    answers.write(HEAD)
    answers.write(body)
    answers.write(body)
    ((head, sent),) = wire.vectors
    assert (head, wire.written) == (HEAD, [body])
    assert sent is body
    answers.write(HEAD)
    answers.write(kind(b"hello"))
    assert wire.written[1:] == [HEAD + b"hello"]


def test_a_head_and_a_large_body_are_encrypted_in_pieces() -> None:
    """The first one has the head, also one that is larger than a piece."""
    for head in (HEAD, HEAD[:-4] + b"\r\nlink: " + bytes(PIECE_SIZE_BYTES) + b"\r\n\r\n"):
        wire = Wire()
        answers = HeadWithBody(wire, in_pieces=True)
        body = bytes(range(256)) * 1_000
        answers.write(head)
        answers.write(memoryview(body))
        assert b"".join(wire.written) == head + body
        assert len(wire.written[0]) == max(PIECE_SIZE_BYTES, len(head))
        assert not wire.vectors


def test_what_is_encrypted_is_written_in_pieces() -> None:
    """Each as large as the buffer that OpenSSL keeps for the connection; together they are the answer, and a small one is one write."""
    wire = Wire()
    answers = HeadWithBody(wire, in_pieces=True)
    answers.write(HEAD)
    answers.write(b"small")
    assert wire.written == [HEAD + b"small"]
    wire.written.clear()
    body = bytes(range(256)) * 1_000
    answers.write(body)
    assert b"".join(wire.written) == body
    assert [len(piece) for piece in wire.written] == [PIECE_SIZE_BYTES] * 3 + [len(body) - 3 * PIECE_SIZE_BYTES]


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_connection_knows_whether_it_encrypts(is_encrypted: bool) -> None:
    """As its transport says."""

    transport = Mock(spec=asyncio.Transport)
    transport.get_extra_info = lambda name, default=None: object() if name == "sslcontext" and is_encrypted else default
    transport.get_write_buffer_size.return_value = 0

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        """Never asked."""

    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
    config.load()
    protocol = AnsweringProtocol(config=config, server_state=ServerState(), app_state={})
    protocol.connection_made(transport)
    assert protocol.answers._in_pieces is is_encrypted
    protocol.connection_lost(None)
