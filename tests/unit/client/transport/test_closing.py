"""How clients end: once, with what waits sent first, and with a clear error for whoever comes later or still waits."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from tern_client import (
    Admin,
    BatchLimits,
    BlockingAdmin,
    BlockingConsumer,
    BlockingProducer,
    ClientClosed,
    Consumer,
    OutgoingMessage,
    Producer,
    SendReceipt,
)
from tern_client.transport.exchange import Request, Response
from tests.support.client.scripted_proxy import SILENT, Asked, Reply, ScriptedProxy, packed, said
from tests.unit.client.deliveries import delivered

RECEIPT = {"message_id": "m", "queue": "broker-a:1", "offset": 7, "born_at": 1}
MESSAGE = OutgoingMessage(body=b"x")


def store(asked: Asked) -> Reply:
    """A proxy that stores everything."""
    if not asked.path.endswith("/batch"):
        return said(RECEIPT, 201)
    results = [{**RECEIPT, "index": at} for at, _ in enumerate(asked.document["messages"])]
    return packed({"results": results, "failed": 0})


async def until_asked(proxy: ScriptedProxy, count: int) -> None:
    """Return when *proxy* has got *count* requests."""
    async with asyncio.timeout(30):
        while len(proxy.asked) < count:
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "use",
    [
        lambda consumer: consumer.receive(),
        anext,
        lambda consumer: consumer.ack(),
        lambda consumer: consumer.extend(1_000),
    ],
    ids=["receive", "iterate", "ack", "extend"],
)
async def test_a_closed_consumer_says_so_at_once(use: Callable[[Consumer], Awaitable[object]]) -> None:
    """It names the client and what to do; nothing reaches the proxy."""
    async with ScriptedProxy(answer=lambda _: delivered()) as proxy:
        async with Consumer(proxy.url, "t", "g") as consumer:
            pass
        with pytest.raises(ClientClosed, match=r"This Consumer is closed.*[Mm]ake a new one"):
            async with asyncio.timeout(30):
                await use(consumer)
        assert proxy.asked == []


async def test_a_confirmation_after_close_is_refused() -> None:
    """It could never be sent: the message will be delivered again, and its worker must know."""
    async with ScriptedProxy(delivered(0), answer=lambda _: said({"results": []})) as proxy:
        async with Consumer(proxy.url, "t", "g") as consumer:
            messages = await consumer.receive()
        with pytest.raises(ClientClosed):
            consumer.confirm(*messages)


@pytest.mark.parametrize("iterate", [False, True], ids=["receive", "iterate"])
async def test_closing_ends_a_receive_that_waits_for_messages(iterate: bool) -> None:
    """The proxy parks it for 20 s; the worker hears at once."""
    async with ScriptedProxy(SILENT) as proxy:
        consumer = Consumer(proxy.url, "t", "g")
        waiting = asyncio.ensure_future(anext(consumer) if iterate else consumer.receive())
        await until_asked(proxy, 1)
        await consumer.close()
        with pytest.raises(ClientClosed):
            async with asyncio.timeout(30):
                await waiting


async def test_closing_ends_a_receive_that_waits_for_a_confirmation() -> None:
    """All that may be in flight is; nobody will confirm any more."""
    async with ScriptedProxy(delivered(0), answer=lambda _: said({"results": []})) as proxy:
        consumer = Consumer(proxy.url, "t", "g", in_flight_max=1)
        await consumer.receive()
        waiting = asyncio.create_task(consumer.receive())
        for _ in range(5):
            await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ClientClosed):
            async with asyncio.timeout(30):
                await waiting
        assert len(proxy.asked) == 1


class HeldAnswer:
    """A transport whose first answer comes when the test says so; every other one is that all went well."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.first: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    async def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        self.asked.append(request)
        return await self.first if len(self.asked) == 1 else Response(200, {}, b'{"results": []}')

    async def close(self) -> None:
        return


async def test_messages_that_come_in_the_moment_of_closing_are_given_back() -> None:
    """The receive ends with ClientClosed, so nobody would work on them for a whole lease."""
    transport = HeldAnswer()
    consumer = Consumer("http://127.0.0.1:8080", "t", "g", transport=transport)
    waiting = asyncio.create_task(consumer.receive())
    while not transport.asked:
        await asyncio.sleep(0)
    reply = delivered(0)
    transport.first.set_result(Response(200, {"content-type": reply.headers["Content-Type"]}, reply.body))
    await asyncio.sleep(0)  # the answer has been read; who asked for it has not run yet
    await consumer.close()
    with pytest.raises(ClientClosed):
        await waiting
    entries = json.loads(transport.asked[1].body)["entries"]
    assert entries == [{"receipt_handle": "h0", "action": "release"}]


async def test_messages_that_come_as_their_receive_is_cancelled_are_given_back() -> None:
    """Its caller is gone, and the lease would end as an attempt that nobody saw."""
    transport = HeldAnswer()
    consumer = Consumer("http://127.0.0.1:8080", "t", "g", transport=transport)
    waiting = asyncio.create_task(consumer.receive())
    while not transport.asked:
        await asyncio.sleep(0)
    reply = delivered(0)
    transport.first.set_result(Response(200, {"content-type": reply.headers["Content-Type"]}, reply.body))
    await asyncio.sleep(0)  # as above
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await consumer.close()
    entries = [json.loads(request.body)["entries"] for request in transport.asked[1:]]
    assert entries == [[{"receipt_handle": "h0", "action": "release"}]]


async def test_a_receive_that_is_cancelled_while_its_consumer_closes_stays_cancelled() -> None:
    """A timeout or a task group that ends a worker must see its own cancellation."""
    async with ScriptedProxy(SILENT) as proxy:
        consumer = Consumer(proxy.url, "t", "g")
        waiting = asyncio.create_task(consumer.receive())
        await until_asked(proxy, 1)
        waiting.cancel()
        await consumer.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_cancelled_receive_is_cancelled_and_keeps_its_confirmations() -> None:
    """Cancelling a worker is not closing its consumer: what it had confirmed goes with the next request."""
    async with ScriptedProxy(delivered(0), SILENT, answer=lambda _: said({"results": []})) as proxy:
        consumer = Consumer(proxy.url, "t", "g")
        consumer.confirm(*await consumer.receive())
        waiting = asyncio.create_task(consumer.receive())
        await until_asked(proxy, 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await consumer.close()
        assert proxy.asked[2].document["entries"] == [{"receipt_handle": "h0", "action": "ack"}]


async def test_confirmations_that_travelled_with_an_abandoned_receive_are_sent_by_close() -> None:
    """The receive's answer will not come any more; settling twice is harmless."""
    async with ScriptedProxy(delivered(0), SILENT, answer=lambda _: said({"results": []})) as proxy:
        consumer = Consumer(proxy.url, "t", "g")
        consumer.confirm(*await consumer.receive())
        waiting = asyncio.create_task(consumer.receive())
        await until_asked(proxy, 2)
        await consumer.close()
        assert proxy.asked[2].document["entries"] == [{"receipt_handle": "h0", "action": "ack"}]
        with pytest.raises(ClientClosed):
            await waiting


@pytest.mark.parametrize(
    "use",
    [
        lambda producer: producer.send("t", b"x"),
        lambda producer: producer.send_message("t", MESSAGE),
        lambda producer: producer.send_batch("t", [MESSAGE]),
        lambda producer: producer.send_soon("t", MESSAGE),
    ],
    ids=["send", "send_message", "send_batch", "send_soon"],
)
async def test_a_closed_producer_refuses_to_send(use: Callable[[Producer], Awaitable[object]]) -> None:
    """Its connections are gone and nobody would close new ones."""
    async with ScriptedProxy(answer=store) as proxy:
        async with Producer(proxy.url) as producer:
            await producer.send("t", b"x")
        with pytest.raises(ClientClosed, match=r"This Producer is closed.*[Mm]ake a new one"):
            await use(producer)
        assert len(proxy.asked) == 1


async def test_a_sender_that_waits_for_room_in_the_buffer_hears_of_the_close() -> None:
    """What is in the buffer is sent; what was not taken is refused, so that it cannot be lost unseen."""
    async with ScriptedProxy(answer=store) as proxy:
        producer = Producer(proxy.url, buffer_size_max_bytes=200, limits=BatchLimits(linger_ms=60_000))
        taken = await producer.send_soon("t", MESSAGE)
        waiting: asyncio.Task[asyncio.Future[SendReceipt]] = asyncio.create_task(producer.send_soon("t", MESSAGE))
        for _ in range(5):
            await asyncio.sleep(0)
        await producer.close()
        assert (await taken).offset == 7
        with pytest.raises(ClientClosed):
            async with asyncio.timeout(30):
                await waiting


async def test_a_closed_admin_refuses_as_well() -> None:
    """One manner for all clients."""
    async with ScriptedProxy(answer=lambda _: said({})) as proxy:
        async with Admin(proxy.url) as admin:
            pass
        with pytest.raises(ClientClosed, match=r"This Admin is closed"):
            await admin.cluster()
        assert proxy.asked == []


async def test_closing_twice_is_closing_once() -> None:
    """Whoever closes second returns when the first has done it, even in the middle."""
    async with ScriptedProxy(delivered(0), answer=lambda _: said({"results": []})) as proxy:
        consumer = Consumer(proxy.url, "t", "g")
        consumer.confirm(*await consumer.receive())
        first = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        await consumer.close()
        assert len(proxy.asked) == 2
        await first
        await consumer.close()
        assert len(proxy.asked) == 2
    async with ScriptedProxy(answer=store) as proxy:
        for client in (Producer(proxy.url), Admin(proxy.url)):
            await client.close()
            await client.close()


async def test_closed_blocking_clients_refuse_too_and_close_twice() -> None:
    """The same sentences from the other shell; iterating a closed consumer hands out nothing that is left."""

    def blocking(url: str) -> None:
        with BlockingConsumer(url, "t", "g") as consumer:
            messages = iter(consumer)
            first = next(messages)
        producer, admin = BlockingProducer(url), BlockingAdmin(url)
        for client in (producer, admin, consumer, producer):
            client.close()
        uses: list[Callable[[], object]] = [
            lambda: producer.send("t", b"x"),
            lambda: producer.send_message("t", MESSAGE),
            lambda: producer.send_batch("t", [MESSAGE]),
            admin.cluster,
            consumer.receive,
            lambda: next(messages),
            lambda: next(iter(consumer)),
            lambda: consumer.ack(first),
            lambda: consumer.extend(1_000, first),
            lambda: consumer.confirm(first),
        ]
        for use in uses:
            with pytest.raises(ClientClosed, match=r"This Blocking\w+ is closed.*[Mm]ake a new one"):
                use()

    async with ScriptedProxy(delivered(0, 1), answer=lambda _: said({"results": []})) as proxy:
        await asyncio.to_thread(blocking, proxy.url)
        assert proxy.asked[-1].document["entries"] == [{"receipt_handle": "h1", "action": "release"}]
        assert len(proxy.asked) == 2
