"""Whatever bytes a producer answers with: one of a few texts, never an exception that nobody expects, never more than the bound, and never a
verdict that it did not give."""

import asyncio
import json
import random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tern_http.connection import HEAD_SIZE_MAX_BYTES, HttpConnection
from tern_http.exchange import AnswerTooLarge, BrokenOff, HttpAnswer, NoHttp
from tern_txn_checker.core.answers import ANSWER_SIZE_MAX_BYTES, read_answer
from tern_wire.limits import CHECK_ANSWER_LENGTH_MAX
from tests.fuzz.mutations import bend

pytestmark = pytest.mark.anyio
SEEDS = st.integers(0, 1 << 40)
VERDICTS = (
    b'{"state":"commit"}',
    b'{"state":"rollback"}',
    b'{"state":"unknown"}',
    b'{"a":[1,{"b":null}],"state":"commit"}',
)
HEADS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nX-Length: %d\r\n\r\n%s",
    b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
)


def said_by(body: bytes) -> Any:
    """What a plain reader of JSON makes of it."""
    try:
        document = json.loads(body.decode())
    except (ValueError, RecursionError):
        return None
    return document.get("state") if isinstance(document, dict) else None


@settings(max_examples=1_500, deadline=None)
@given(
    status=st.sampled_from([200] * 8 + [0, 100, 204, 301, 429, 500, 999]), verdict=st.sampled_from(VERDICTS), seed=SEEDS
)
def test_bytes_are_the_verdict_that_they_say_or_none(status: int, verdict: bytes, seed: int) -> None:
    """Bent verdicts and noise: a text that the history takes; commit and rollback only where a plain reader of JSON reads them."""
    rng = random.Random(seed)
    body = rng.randbytes(rng.randrange(200)) if rng.random() < 0.2 else bend(verdict, rng)
    answer = read_answer(status, body)
    assert 1 <= len(answer.text) <= CHECK_ANSWER_LENGTH_MAX
    assert answer.text.isprintable()
    if answer.is_verdict:
        assert (status, answer.text) == (200, said_by(body))


class Wire:
    """The peer's end: it is closed, or not."""

    def __init__(self) -> None:
        self.is_closed = False

    def write(self, _: bytes) -> None:
        """The question."""

    def is_closing(self) -> bool:
        """As a transport."""
        return self.is_closed

    def abort(self) -> None:
        """As a transport."""
        self.is_closed = True


async def asked(data: bytes, rng: random.Random, body_size_max_bytes: int) -> HttpAnswer | Exception:
    """What comes of one question whose answer is *data*, in pieces, and then the end of the connection."""
    connection, wire = HttpConnection(body_size_max_bytes), Wire()
    connection.connection_made(cast(asyncio.Transport, wire))
    asking = asyncio.create_task(connection.ask(b"POST"))
    await asyncio.sleep(0)
    at = 0
    while at < len(data) and not wire.is_closed:
        size = rng.choice((1, 7, 100, 4_096))
        connection.data_received(data[at : at + size])
        at += size
    connection.connection_lost(rng.choice((None, ConnectionResetError())))
    try:
        return await asyncio.wait_for(asking, 5)
    except (AnswerTooLarge, BrokenOff, NoHttp) as error:
        return error


async def test_any_bytes_on_a_connection_are_an_answer_or_one_of_three_refusals() -> None:
    """3,000 bent answers in pieces of every size: nothing else is raised, nobody waits for ever, no body is longer than its bound."""
    rng = random.Random(7)
    kinds = set()
    for _ in range(3_000):
        body = rng.choice(VERDICTS) * rng.choice((1, 1, 1, 40))
        data = rng.choice(HEADS) % (len(body), body)
        if rng.random() < 0.7:
            data = bend(data, rng)
        found = await asked(data, rng, body_size_max_bytes=500)
        kinds.add(type(found))
        if isinstance(found, HttpAnswer):
            assert len(found.body) <= 500
            read_answer(found.status, found.body)
    assert kinds == {HttpAnswer, AnswerTooLarge, BrokenOff, NoHttp}


@pytest.mark.parametrize(
    "endless",
    [
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * HEAD_SIZE_MAX_BYTES,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * (4 * HEAD_SIZE_MAX_BYTES),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * ANSWER_SIZE_MAX_BYTES,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (4 * ANSWER_SIZE_MAX_BYTES),
    ],
    ids=["headers", "a header", "chunks", "a body"],
)
async def test_what_does_not_end_is_cut_off(endless: bytes) -> None:
    """However it is sent, and without keeping it."""
    found = await asked(endless, random.Random(1), ANSWER_SIZE_MAX_BYTES)
    assert isinstance(found, AnswerTooLarge)
