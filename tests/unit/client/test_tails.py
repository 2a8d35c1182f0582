"""Tails over scripted proxies: lost streams, other proxies, ends; async, and in a thread."""

import asyncio
import json
import threading
from base64 import b64encode
from urllib.parse import parse_qs, urlsplit

import pytest

from tern_client import (
    BlockingTail,
    BodyMismatch,
    ClientClosed,
    ProxyUnreachable,
    PulledMessage,
    RetryPolicy,
    Tail,
    TernError,
)
from tern_client.calls.tailing import TailSettings, TailState
from tern_wire.errors import Forbidden, LinkReplyMalformed, Overloaded, TooManyTails
from tern_wire.paths import NDJSON
from tern_wire.records.compression import Compression, compress
from tests.support.client.scripted_proxy import HANG_UP, Asked, Reply, ScriptedProxy, blocking_proxy, refused
from tests.support.client.tail_events import IDLE, START, STOPPING, message, stream

pytestmark = pytest.mark.anyio
POLICY = RetryPolicy(deadline_ms=2_000, first_delay_ms=1)


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


def ids_of(asked: list[Asked]) -> list[str]:
    """The last event ids of the requests."""
    return [each.headers.get("last-event-id", "") for each in asked]


async def read(tail: Tail) -> list[int]:
    """Offsets to the end of *tail*."""
    async with tail:
        return [each.offset async for each in tail]


async def test_a_tail_goes_on_behind_its_last_message_whatever_ends_its_stream() -> None:
    """A cut in the middle of a line, a hang-up, a proxy that stops, one that is busy: no gap, no repeat."""
    script = (
        stream(START, message(0), rest=json.dumps(message(1)).encode()[:40]),
        HANG_UP,
        stream({"event": "start", "id": "1-0"}, message(1), STOPPING),
        refused(Overloaded(what="a test")),
        refused(TooManyTails(what="a test", limit=1, retry_after_ms=1)),
        stream({"event": "keep-alive", "id": "1-7"}, message(8)),
        stream(IDLE),
    )
    async with ScriptedProxy(*script) as proxy:
        tail = Tail(proxy.url, "orders", tags="a || b", idle="1s", policy=POLICY)
        assert await read(tail) == [0, 1, 8]
        assert ids_of(proxy.asked) == ["", "1-0", "1-0", "1-1", "1-1", "1-1", "1-8"]
        assert tail.last_id == "1-8"
        first = proxy.asked[0]
    assert (first.headers["accept"], urlsplit(first.path).path) == (NDJSON, "/v1/topics/orders/tail")
    assert parse_qs(urlsplit(first.path).query) == {
        "encoding": ["base64"],
        "from": ["latest"],
        "tags": ["a || b"],
        "idle": ["1s"],
    }


async def test_a_compressed_body_is_handed_out_plain() -> None:
    """As by every other reader; one that cannot be read says so when it is, and keeps nothing back."""
    text = b"text " * 2_000
    packed, damaged = message(0), message(1)
    for event, stored in ((packed, compress(text, Compression.ZLIB)), (damaged, b"x\x9c no zlib")):
        event["data"] |= {"body_base64": b64encode(stored).decode(), "content_encoding": "zlib"}
    async with (
        ScriptedProxy(stream(START, packed, damaged, message(2), IDLE)) as proxy,
        Tail(proxy.url, "orders", policy=POLICY) as tail,
    ):
        first, second, third = [each async for each in tail]
    assert (first.body, third.body) == (text, b"2")
    with pytest.raises(BodyMismatch):
        _ = second.body


def test_a_thread_reads_the_same() -> None:
    """Over http.client; the place of a tail begins another one."""
    script = [stream(START, message(0), rest=b'{"ev'), HANG_UP, stream(message(1)), stream(message(2), IDLE)]
    with blocking_proxy(lambda _: script.pop(0)) as proxy:
        with BlockingTail(proxy.url, "orders", since="10m", policy=POLICY, namespace="shop") as tail:
            assert [each.body for each in tail] == [b"0", b"1", b"2"]
        asked = list(proxy.asked)
        script.append(stream(IDLE))
        with BlockingTail(proxy.url, "orders", after=tail.last_id) as later:
            assert list(later) == []
        assert ids_of([*asked, proxy.asked[-1]]) == ["", "1-0", "1-0", "1-1", "1-2"]
    assert all(each.headers["mq-namespace"] == "shop" for each in asked)
    assert "since=10m" in asked[0].path


async def test_the_next_proxy_continues() -> None:
    """The first one stops in the middle; a third is not there at all."""
    first = ScriptedProxy(stream(START, message(0), message(1), STOPPING))
    async with first as one, ScriptedProxy(stream(message(2), IDLE)) as two:
        tail = Tail([one.url, "http://127.0.0.1:9", two.url], "orders", policy=POLICY)
        assert await read(tail) == [0, 1, 2]
        assert ids_of(two.asked) == ["1-1"]


async def test_so_many_messages_are_the_end() -> None:
    """Over a lost stream the rest of them is asked for; nothing more is read behind the last."""
    async with ScriptedProxy(stream(START, message(0)), stream(message(1), message(2), message(3))) as proxy:
        assert await read(Tail(proxy.url, "orders", start="earliest", max_messages=3, policy=POLICY)) == [0, 1, 2]
        asked = [parse_qs(urlsplit(each.path).query)["max_messages"] for each in proxy.asked]
    assert asked == [["3"], ["2"]]


@pytest.mark.parametrize("is_event", [True, False])
async def test_an_error_that_a_repeat_cannot_mend_is_raised(is_event: bool) -> None:
    """As the answer, or as the last event of a stream; the message before it was handed out."""
    error = Forbidden(principal="reader", action="SUB", kind="topic", name="orders")
    first = stream(START, message(0), {"event": "error", "data": error.problem()}) if is_event else refused(error)
    async with ScriptedProxy(first) as proxy, Tail(proxy.url, "orders", policy=POLICY) as tail:
        found: list[PulledMessage] = []
        with pytest.raises(Forbidden) as raised:
            async for each in tail:
                found.append(each)
        assert (len(found), raised.value.detail) == (int(is_event), error.detail)
        assert len(proxy.asked) == 1


async def test_a_tail_gives_up_when_no_proxy_answers_until_its_deadline() -> None:
    """With the error of a call."""
    with pytest.raises(ProxyUnreachable):
        await read(Tail("http://127.0.0.1:9", "orders", policy=RetryPolicy(deadline_ms=50)))


async def test_a_closed_tail_ends_its_loop() -> None:
    """While it waits for a message, and before it has begun."""
    async with ScriptedProxy(Reply(silent=True)) as proxy:
        tail = Tail(proxy.url, "orders", policy=POLICY)

        async def wait() -> None:
            async for _ in tail:
                pass

        waiting = asyncio.create_task(wait())
        while not proxy.asked:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        await tail.close()
        with pytest.raises(ClientClosed):
            await wait()


def test_another_thread_may_close_a_tail() -> None:
    """Its loop ends with ClientClosed, though no line has come."""
    with blocking_proxy(lambda _: stream(START)) as proxy:
        tail = BlockingTail(proxy.url, "orders", policy=RetryPolicy(deadline_ms=60_000, first_delay_ms=1))
        timer = threading.Timer(0.05, tail.close)
        timer.start()
        with pytest.raises(TernError) as raised:
            list(tail)
        assert isinstance(raised.value, ClientClosed)
        timer.join()


@pytest.mark.parametrize("line", [b"{", b"[]", b"{}", b'{"event":"message","data":{}}'])
def test_a_line_that_is_none_of_ours_is_named(line: bytes) -> None:
    """Whatever it is, the error is of the SDK."""
    with pytest.raises(LinkReplyMalformed, match="a line of a tail"):
        TailState(TailSettings(topic="orders"), "").take(line)


def test_skipped_messages_are_counted() -> None:
    """And the place moves."""
    state = TailState(TailSettings(topic="orders"), "")
    assert state.take(b'{"event":"skipped","id":"1-x","data":{"count":3}}') is None
    assert (state.skipped, state.last_id) == (3, "1-x")
