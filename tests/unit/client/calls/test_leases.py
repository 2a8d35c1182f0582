"""Messages in flight: how many there are, and that a lease that is over makes room."""

import asyncio

from tern_client import BlockingConsumer, Consumer, ReceivedMessage
from tern_client.calls.documents import read_received
from tern_client.calls.leases import Leases
from tern_client.transport.exchange import Response
from tests.support.client.scripted_proxy import Asked, Reply, ScriptedProxy, blocking_proxy, said
from tests.unit.client.deliveries import delivered


def received(*numbers: int, invisible_until: int, attempt: int = 1) -> list[ReceivedMessage]:
    """Messages as a consumer gets them."""
    reply = delivered(*numbers, invisible_until=invisible_until, attempt=attempt)
    messages, _ = read_received(Response(200, {"content-type": reply.headers["Content-Type"]}, reply.body))
    return messages


def test_a_lease_makes_room_when_it_is_over_and_not_before() -> None:
    """At `invisible_until` the broker delivers the message again, so it is no longer ours."""
    leases = Leases(count_max=3)
    leases.add(received(0, 1, invisible_until=1_000))
    leases.add(received(2, invisible_until=2_000))
    assert leases.room(999) == 0
    assert leases.first_end_ms == 1_000
    assert leases.room(1_000) == 2
    assert leases.first_end_ms == 2_000
    assert leases.room(2_000) == 3
    assert leases.first_end_ms is None


def test_a_message_that_is_done_makes_room_at_once_and_an_extended_one_later() -> None:
    """What was never held, or is over, is ignored: an ack may come too late."""
    leases = Leases(count_max=2)
    leases.add(received(0, 1, invisible_until=1_000))
    leases.release(["h0", "h7"])
    assert leases.room(0) == 1
    leases.extend(["h1", "h0"], until_ms=5_000)
    assert leases.room(4_999) == 1
    assert leases.room(5_000) == 2


async def test_a_consumer_whose_messages_are_never_confirmed_goes_on_when_their_leases_are_over() -> None:
    """The worker that had them has died, say. It waits until the lease's end, and asks for no more than has ended."""
    now_ms = [999]
    script = (delivered(0, invisible_until=1_000), delivered(1, invisible_until=9_000), delivered(0))
    async with (
        ScriptedProxy(*script, answer=lambda _: said({"results": []})) as proxy,
        Consumer(proxy.url, "t", "g", in_flight_max=2, max_messages=1, clock=lambda: now_ms[0]) as consumer,
    ):
        await consumer.receive()
        await consumer.receive()
        waiting = asyncio.create_task(consumer.receive(max_messages=2))
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(proxy.asked) == 2
        now_ms[0] = 1_000
        async with asyncio.timeout(30):
            (again,) = await waiting
        assert again.message_id == "m0"
        assert proxy.asked[2].document["max_messages"] == 1


async def test_an_extended_message_stays_in_flight_until_its_new_end() -> None:
    """The old `invisible_until` makes no room; an extension that was refused moves nothing."""
    now_ms = [0]
    script = (delivered(0, invisible_until=1_000), said({"results": []}), delivered(1))
    async with (
        ScriptedProxy(*script, answer=lambda _: said({"results": []})) as proxy,
        Consumer(proxy.url, "t", "g", in_flight_max=1, clock=lambda: now_ms[0]) as consumer,
    ):
        (message,) = await consumer.receive()
        await consumer.extend(60_000, message)
        now_ms[0] = 1_000
        waiting = asyncio.create_task(consumer.receive())
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(proxy.asked) == 2
        consumer.confirm(message)
        async with asyncio.timeout(30):
            await waiting


async def test_a_message_whose_lease_ended_while_it_waited_here_is_not_handed_out() -> None:
    """Somebody else has it by now, and what follows it in its message group after that: handled here, it would come behind those."""
    now_ms = [0]
    script = (delivered(0, 1, 2, invisible_until=1_000), delivered(1, invisible_until=9_000))
    async with (
        ScriptedProxy(*script, answer=lambda _: said({"results": []})) as proxy,
        Consumer(proxy.url, "t", "g", clock=lambda: now_ms[0]) as consumer,
    ):
        seen = []
        async for message in consumer:
            seen.append((message.message_id, message.invisible_until))
            if len(seen) == 2:
                break
            now_ms[0] = 1_000
        assert seen == [("m0", 1_000), ("m1", 9_000)]


def test_the_blocking_consumer_does_not_hand_it_out_either() -> None:
    """Its loop handles one after the other, so the last ones wait longest."""
    now_ms, replies = [0], [delivered(0, 1, 2, invisible_until=1_000), delivered(1, invisible_until=9_000)]

    def answer(asked: Asked) -> Reply:
        return replies.pop(0) if asked.path.endswith("/receive") and replies else delivered()

    with blocking_proxy(answer) as proxy, BlockingConsumer(proxy.url, "t", "g", clock=lambda: now_ms[0]) as consumer:
        seen = []
        for message in consumer.until_idle():
            seen.append((message.message_id, message.invisible_until))
            now_ms[0] = 1_000
        assert seen == [("m0", 1_000), ("m1", 9_000)]


async def test_a_clock_that_is_far_ahead_keeps_no_message_back() -> None:
    """It says that leases were over when they began."""
    script = (delivered(0, 1, invisible_until=1_000),)
    async with (
        ScriptedProxy(*script, answer=lambda _: said({"results": []})) as proxy,
        Consumer(proxy.url, "t", "g", clock=lambda: 5_000) as consumer,
    ):
        seen = [await anext(consumer), await anext(consumer)]
        assert [message.message_id for message in seen] == ["m0", "m1"]
