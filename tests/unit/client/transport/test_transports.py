"""The three transports against a scripted proxy: what arrives, what comes back, and which error says whether it was sent."""

import asyncio
import contextlib
import sys
from collections.abc import Callable

import pytest

from tern_client import BlockingProducer, Producer
from tern_client.transport.blocking_transport import BlockingTransport, HttpxBlockingTransport, PlainTransport
from tern_client.transport.credentials import Credentials
from tern_client.transport.exchange import ProxyUnreachable, Request, Response
from tern_client.transport.fast_transport import FastTransport
from tern_client.transport.transport import HttpxTransport, Transport, choose_transport
from tern_wire.errors import OutcomeUnknown
from tern_wire.extras import ExtraMissing
from tern_wire.limits import MIB
from tests.support.client.scripted_proxy import HANG_UP, SILENT, Reply, ScriptedProxy

REQUEST = Request("POST", "/v1/x?a=1", (("MQ-Key", "a"), ("MQ-Key", "b"), ("Content-Type", "text/plain")), b"hello")
# Nothing listens there: port 1 of loopback is never given out.
NOBODY = "http://127.0.0.1:1"


class InThread:
    """A blocking transport in the shape of an async one."""

    def __init__(self, transport: BlockingTransport) -> None:
        self.transport = transport

    async def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        return await asyncio.to_thread(self.transport.exchange, endpoint, request, timeout_ms)

    async def close(self) -> None:
        self.transport.close()


TRANSPORTS: list[Callable[[], Transport]] = [
    FastTransport,
    lambda: HttpxTransport([NOBODY]),
    lambda: InThread(PlainTransport()),
    lambda: InThread(HttpxBlockingTransport([NOBODY])),
]
each_transport = pytest.mark.parametrize("make", TRANSPORTS, ids=["fast", "httpx", "plain", "httpx-blocking"])


@each_transport
async def test_the_path_of_an_endpoint_stands_before_that_of_every_request(make: Callable[[], Transport]) -> None:
    """What serves proxies below a path is asked there, whichever transport asks."""
    transport = make()
    async with ScriptedProxy(Reply(body=b""), Reply(body=b"")) as proxy:
        await transport.exchange(f"{proxy.url}/mq/one", REQUEST, 5_000)
        await transport.exchange(proxy.url, REQUEST, 5_000)
        assert [each.path for each in proxy.asked] == ["/mq/one/v1/x?a=1", "/v1/x?a=1"]
        await transport.close()


@each_transport
async def test_a_request_arrives_as_it_was_made_and_the_answer_comes_back(make: Callable[[], Transport]) -> None:
    """Repeated headers stay repeated; the answer's header names are lower case; a chunked body is put together."""
    transport = make()
    reply = Reply(status=207, body=b"x" * 100_000, headers={"MQ-Next-Offset": "7"}, chunked=True)
    async with ScriptedProxy(reply, Reply(body=b"")) as proxy:
        response = await transport.exchange(proxy.url, REQUEST, 5_000)
        assert (response.status, response.body) == (207, b"x" * 100_000)
        assert response.headers["mq-next-offset"] == "7"
        assert (await transport.exchange(proxy.url, Request("GET", "/y"), 5_000)).body == b""
        first, second = proxy.asked
        assert (first.method, first.path, first.body) == ("POST", "/v1/x?a=1", b"hello")
        assert first.headers["mq-key"].replace(", ", "\n") == "a\nb"
        assert (second.method, second.path, second.body) == ("GET", "/y", b"")
        assert proxy.connections == 1
        await transport.close()


@each_transport
async def test_nobody_listening_means_that_nothing_was_sent(make: Callable[[], Transport]) -> None:
    """Which is always safe to repeat elsewhere."""
    transport = make()
    with pytest.raises(ProxyUnreachable, match=r"127\.0\.0\.1:1"):
        await transport.exchange(NOBODY, REQUEST, 5_000)
    await transport.close()


@each_transport
@pytest.mark.parametrize(
    "reply", [HANG_UP, SILENT, Reply(headers={"Content-Length": "x"})], ids=["hang up", "silent", "noise"]
)
async def test_no_whole_answer_means_that_the_outcome_is_unknown(make: Callable[[], Transport], reply: Reply) -> None:
    """The request was sent. Only a repeatable one may be sent again."""
    transport = make()
    async with ScriptedProxy(reply) as proxy:
        with pytest.raises(OutcomeUnknown):
            await exchange_in_time(transport, proxy.url, is_silent=reply is SILENT)
        assert len(proxy.asked) == 1
        await transport.close()


async def exchange_in_time(transport: Transport, url: str, *, is_silent: bool) -> Response:
    """An exchange with all the time that a slow machine needs to connect; *is_silent*: a deadline that passes."""
    for timeout_ms in (300, 3_000) if is_silent else ():
        with contextlib.suppress(ProxyUnreachable):  # not even connected in that time
            return await transport.exchange(url, REQUEST, timeout_ms)
    return await transport.exchange(url, REQUEST, 30_000)


# httpx over asyncio hears of the reset first and drops the answer; it serves https and forward proxies.
@pytest.mark.parametrize("make", [TRANSPORTS[at] for at in (0, 2, 3)], ids=["fast", "plain", "httpx-blocking"])
async def test_an_answer_that_comes_before_the_whole_body_was_read_is_the_answer(make: Callable[[], Transport]) -> None:
    """A proxy that refuses a body early closes its side: the broken pipe of the rest must not hide what it said."""

    async def refuse_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 X\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    transport = make()
    server = await asyncio.start_server(refuse_early, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    response = await transport.exchange(url, Request("POST", "/x", (), bytes(32 * MIB)), 10_000)
    assert (response.status, response.body) == (413, b"{}")
    await transport.close()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("make", [TRANSPORTS[0], TRANSPORTS[2]], ids=["fast", "plain"])
async def test_a_request_that_is_on_its_way_when_its_transport_closes_leaves_no_connection(
    make: Callable[[], Transport],
) -> None:
    """It still gets its answer; then its connection is closed instead of kept for nobody."""
    transport = make()
    async with ScriptedProxy(answer=lambda _: Reply(body=b"late")) as proxy:
        await transport.close()
        assert (await transport.exchange(proxy.url, REQUEST, 5_000)).body == b"late"
        async with asyncio.timeout(30):
            while proxy._writers:
                await asyncio.sleep(0)


@each_transport
async def test_a_connection_that_the_proxy_has_closed_is_not_used_again(make: Callable[[], Transport]) -> None:
    """Idle connections are cut by restarts and keep-alive limits; the next request opens a new one."""
    transport = make()
    async with ScriptedProxy(Reply(), Reply(), Reply()) as proxy:
        await transport.exchange(proxy.url, REQUEST, 5_000)
        proxy.drop_connections()
        for _ in range(3):  # the client's side of the loop hears of it
            await asyncio.sleep(0)
        assert (await transport.exchange(proxy.url, REQUEST, 5_000)).status == 200
        assert proxy.connections == 2
        await transport.close()


async def test_requests_at_one_time_use_as_many_connections_as_allowed() -> None:
    """The others wait for their turn; nothing is refused."""
    transport = FastTransport(connections_max=3)
    async with ScriptedProxy(answer=lambda asked: Reply(body=asked.body)) as proxy:
        requests = [Request("POST", "/x", (), b"%d" % at) for at in range(20)]
        answers = await asyncio.gather(*(transport.exchange(proxy.url, one, 5_000) for one in requests))
        assert [answer.body for answer in answers] == [one.body for one in requests]
        assert proxy.connections == 3
        await transport.close()


async def test_a_cancelled_request_does_not_leave_its_answer_to_the_next_one() -> None:
    """Its connection is dropped, not put back."""
    transport = FastTransport()
    async with ScriptedProxy(SILENT, Reply(body=b"second")) as proxy:
        first = asyncio.create_task(transport.exchange(proxy.url, REQUEST, 5_000))
        while not proxy.asked:
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await transport.exchange(proxy.url, REQUEST, 5_000)).body == b"second"
        await transport.close()


async def test_the_fast_transport_is_chosen_where_no_forward_proxy_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With TLS or without. Forward proxies of the environment are httpx's; loopback never goes through one."""
    monkeypatch.setenv("http_proxy", "http://10.0.0.1:3128")
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    urls = ("http://127.0.0.1:1", "http://queue.example:1", "https://127.0.0.1:1", "https://queue.example:1")
    chosen = [choose_transport([url], Credentials([url], "", "")) for url in urls]
    assert [type(transport) for transport in chosen] == [FastTransport, HttpxTransport, FastTransport, FastTransport]
    monkeypatch.setenv("https_proxy", "http://10.0.0.1:3128")
    chosen.append(choose_transport(urls[3:], Credentials(urls[3:], "", "")))
    assert type(chosen[-1]) is HttpxTransport
    for transport in chosen:
        await transport.close()


@pytest.mark.parametrize("kind", [Producer, BlockingProducer])
def test_a_forward_proxy_without_its_extra_is_told_by_the_constructor(
    monkeypatch: pytest.MonkeyPatch, kind: type[Producer] | type[BlockingProducer]
) -> None:
    """Where httpx is not installed: the sentence has the line to install, and a client is not left to time out on a direct connection."""
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.setenv("http_proxy", "http://10.0.0.1:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        ExtraMissing, match=r"forward proxy .* needs httpx: pip install 'ternmq-client\[forward-proxy\]'"
    ):
        kind("http://queue.example:1")
