"""Producer, Consumer and Admin, async and blocking, against a scripted proxy."""

import asyncio
import re

import pytest

from tern_client import (
    Admin,
    BatchLimits,
    BlockingAdmin,
    BlockingConsumer,
    BlockingProducer,
    Consumer,
    OutgoingMessage,
    Producer,
    RetryPolicy,
)
from tern_wire.errors import NoLeader, OutcomeUnknown, ReceiptExpired, TopicNotFound
from tern_wire.records.read import decode_record
from tern_wire.records.write import encode_record
from tests.support.client.scripted_proxy import HANG_UP, Asked, Reply, ScriptedProxy, packed, refused, said
from tests.unit.client.deliveries import delivered

# Quick pauses; a deadline that no healthy test comes near.
QUICK = RetryPolicy(first_delay_ms=1, max_delay_ms=4, deadline_ms=8_000, attempt_timeout_ms=4_000)
RECEIPT = {"message_id": "m", "queue": "broker-a:1", "offset": 7, "born_at": 1_700_000_000_000}


def store(asked: Asked) -> Reply:
    """A proxy that stores everything."""
    if not asked.path.endswith("/batch"):
        return said(RECEIPT, 201)
    messages = asked.document["messages"]
    results = [{**RECEIPT, "index": at, "message_id": f"m{at}"} for at in range(len(messages))]
    return packed({"results": results, "failed": 0})


async def test_a_send_carries_its_metadata_and_a_key_of_its_own() -> None:
    """Two messages of one producer never share a key."""
    async with ScriptedProxy(answer=store) as proxy, Producer(proxy.url) as producer:
        receipt = await producer.send("t", b"hi", tag="A", keys=["k1", "k2"], properties={"P": "ü"})
        await producer.send("t", b"hi")
        assert (receipt.message_id, receipt.queue, receipt.offset) == ("m", "broker-a:1", 7)
        first, second = proxy.asked
        assert (first.path, first.body) == ("/v1/topics/t/messages", b"hi")
        assert (first.headers["mq-tag"], first.headers["mq-key"]) == ("A", "k1\nk2")
        assert first.headers["mq-properties"] == '{"P":"\\u00fc"}'
        assert re.fullmatch(r"[0-9a-f]{16}-0", first.headers["idempotency-key"])
        assert second.headers["idempotency-key"] == first.headers["idempotency-key"][:-1] + "1"


async def test_a_send_with_a_key_is_repeated_at_the_next_proxy_with_the_same_key() -> None:
    """The first proxy dies with the request, the second has no leader yet, then it works."""
    async with ScriptedProxy(HANG_UP) as dying, ScriptedProxy(refused(NoLeader()), answer=store) as healthy:
        async with Producer([dying.url, healthy.url], policy=QUICK) as producer:
            dying.answer = lambda _: HANG_UP
            await producer.send("t", b"hi")
        keys = {asked.headers["idempotency-key"] for asked in dying.asked + healthy.asked}
        assert len(keys) == 1
        assert len(healthy.asked) == 2


async def test_a_send_without_a_key_is_not_repeated_when_its_outcome_is_unknown() -> None:
    """Twice stored is worse than an error that says so."""
    async with ScriptedProxy(HANG_UP, answer=store) as proxy:
        async with Producer(proxy.url, idempotent=False, policy=QUICK) as producer:
            with pytest.raises(OutcomeUnknown):
                await producer.send("t", b"hi")
        assert len(proxy.asked) == 1


async def test_messages_sent_soon_travel_together_and_each_gets_its_receipt() -> None:
    """Nothing is sent before the linger is over; flush does not wait for it."""
    limits = BatchLimits(linger_ms=60_000, messages_max=10)
    async with ScriptedProxy(answer=store) as proxy, Producer(proxy.url, limits=limits) as producer:
        waiting = [await producer.send_soon("t", OutgoingMessage(body=b"%d" % at)) for at in range(14)]
        await producer.flush()
        assert [(await receipt).message_id for receipt in waiting] == [f"m{at}" for at in (*range(10), *range(4))]
        # On two connections, so either may arrive first.
        assert sorted(len(asked.document["messages"]) for asked in proxy.asked) == [4, 10]
        keys = [one["idempotency_key"] for asked in proxy.asked for one in asked.document["messages"]]
        assert len(set(keys)) == 14


async def test_the_linger_sends_without_anybody_flushing() -> None:
    """A lonely message leaves after 5 ms."""
    async with ScriptedProxy(answer=store) as proxy, Producer(proxy.url) as producer:
        receipt = await producer.send_soon("t", OutgoingMessage(body=b"x"))
        assert (await receipt).offset == 7


async def test_a_full_buffer_makes_the_sender_wait_and_loses_nothing() -> None:
    """Memory stays bounded however fast messages come."""
    async with ScriptedProxy(answer=store) as proxy:
        async with Producer(proxy.url, buffer_size_max_bytes=4_000, limits=BatchLimits(linger_ms=1)) as producer:
            waiting = []
            for at in range(50):
                waiting.append(await producer.send_soon("t", OutgoingMessage(body=b"%04d" % at + b"x" * 500)))
                unsettled = sum(not receipt.done() for receipt in waiting)
                assert unsettled <= 7
            await asyncio.gather(*waiting)
        bodies = [one["body"][:4] for asked in proxy.asked for one in asked.document["messages"]]
        assert sorted(bodies) == [b"%04d" % at for at in range(50)]


async def test_closing_a_producer_sends_what_waits_and_errors_are_in_the_futures() -> None:
    """Close itself does not raise for a message's sake."""
    async with ScriptedProxy(refused(TopicNotFound(topic="t"))) as proxy:
        async with Producer(proxy.url, limits=BatchLimits(linger_ms=60_000)) as producer:
            receipt = await producer.send_soon("t", OutgoingMessage(body=b"x"))
        with pytest.raises(TopicNotFound):
            await receipt


async def test_a_consumer_acks_with_its_next_receive() -> None:
    """One request a batch, not two."""
    async with ScriptedProxy(delivered(0, 1), delivered(2), answer=lambda _: said({"results": []})) as proxy:
        async with Consumer(proxy.url, "t", "g", max_messages=2, wait_ms=1_000) as consumer:
            seen = []
            async for message in consumer:
                seen.append(message.body)
                consumer.confirm(message)
                if len(seen) == 3:
                    break
        assert seen == [b"body 0", b"body 1", b"body 2"]
        first, second, last = proxy.asked
        assert first.path == "/v1/topics/t/groups/g/receive"
        assert "settle" not in first.document
        assert [entry["receipt_handle"] for entry in second.document["settle"]] == ["h0", "h1"]
        assert last.path == "/v1/topics/t/groups/g/settle"
        assert last.document == {"entries": [{"receipt_handle": "h2", "action": "ack"}]}


async def test_a_closing_consumer_gives_unread_messages_back() -> None:
    """Behind its acks: what it has not handed out is visible at once, and no attempt of it counts."""
    async with ScriptedProxy(delivered(0, 1, 2), answer=lambda _: said({"results": []})) as proxy:
        async with Consumer(proxy.url, "t", "g") as consumer:
            consumer.confirm(await anext(consumer))
        assert [asked.document["entries"] for asked in proxy.asked[1:]] == [
            [{"receipt_handle": "h0", "action": "ack"}],
            [{"receipt_handle": "h1", "action": "release"}, {"receipt_handle": "h2", "action": "release"}],
        ]


async def test_a_lost_receive_keeps_its_confirmations() -> None:
    """They go along again; acking twice is harmless, forgetting is not."""
    async with ScriptedProxy(delivered(0), HANG_UP, delivered(1), answer=lambda _: said({"results": []})) as proxy:
        async with Consumer(proxy.url, "t", "g", policy=QUICK) as consumer:
            consumer.confirm(*await consumer.receive())
            await consumer.receive()
        lost, again = proxy.asked[1:3]
        assert lost.document == again.document
        assert again.document["settle"][0]["receipt_handle"] == "h0"


async def test_acks_that_came_too_late_are_counted_and_told() -> None:
    """By handle when asked for at once, as a number when they went along."""
    late = {"index": 0, "error": ReceiptExpired().problem()}
    script = (delivered(0, 1), said({"results": [late]}, 207), delivered(settled=[late]))
    async with ScriptedProxy(*script) as proxy, Consumer(proxy.url, "t", "g") as consumer:
        first, second = await consumer.receive()
        errors = await consumer.ack(first, return_errors=True)
        assert [type(error) for error in errors.values()] == [ReceiptExpired]
        assert list(errors) == ["h0"]
        consumer.confirm(second)
        assert await consumer.receive() == []
        assert consumer.expired == 2


async def test_a_settle_that_is_refused_as_a_whole_is_told_per_message_and_not_tried_for_ever() -> None:
    """When all failed for one cause, the proxy answers that cause's status; closing ends all the same."""
    script = (delivered(0, 1, 2), refused(ReceiptExpired()))
    async with ScriptedProxy(*script, answer=lambda _: refused(ReceiptExpired())) as proxy:
        async with Consumer(proxy.url, "t", "g") as consumer:
            first, second, third = await consumer.receive()
            assert [type(error) for error in (await consumer.ack(first, second, return_errors=True)).values()] == [
                ReceiptExpired
            ] * 2
            consumer.confirm(third)
        assert consumer.expired == 3
        assert len(proxy.asked) == 3


async def test_an_ack_whose_outcome_is_unknown_raises_and_is_the_callers_to_repeat() -> None:
    """After the deadline; nothing is kept behind the caller's back."""
    impatient = RetryPolicy(first_delay_ms=1, max_delay_ms=1, deadline_ms=50)
    async with ScriptedProxy(delivered(0), answer=lambda _: HANG_UP) as proxy:
        consumer = Consumer(proxy.url, "t", "g", policy=impatient)
        received = await consumer.receive()
        with pytest.raises(OutcomeUnknown):
            await consumer.ack(*received)
        asked = len(proxy.asked)
        await consumer.close()
        assert len(proxy.asked) == asked


async def test_a_consumer_does_not_receive_beyond_what_may_be_in_flight() -> None:
    """It asks for no more than there is room for, and waits for a confirmation when there is none."""
    script = (delivered(0, 1), delivered(2))
    async with ScriptedProxy(*script, answer=lambda _: said({"results": []})) as proxy:
        consumer = Consumer(proxy.url, "t", "g", in_flight_max=2, max_messages=32)
        async with consumer:
            first, _ = await consumer.receive()
            assert proxy.asked[0].document["max_messages"] == 2
            waiting = asyncio.create_task(consumer.receive())
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(proxy.asked) == 1
            consumer.confirm(first)
            (third,) = await waiting
            assert third.message_id == "m2"
            assert proxy.asked[1].document["max_messages"] == 1


async def test_both_admins_say_the_same() -> None:
    """The blocking one is another shell over the same requests."""
    replies = [
        said({"topic": "t", "queues": 4}, 201),
        said({"group": "g"}, 201),
        said({"queues": [{"queue": "broker-a:0", "min_offset": 1, "max_offset": 5}]}),
        said({"offsets": {"broker-a:0": 3}}),
        said({}),
    ]
    async with ScriptedProxy(*replies) as one, ScriptedProxy(*replies) as two:
        async with Admin(one.url) as admin:
            await admin.create_topic("t", 4)
            await admin.create_group("g", invisible_ms=5_000, start="latest")
            offsets = await admin.offsets("t")
            assert await admin.group_offsets("g", "t") == {"broker-a:0": 3}
            await admin.commit_offsets("g", "t", {"broker-a:0": 4}, {"broker-a:0": 3})

        def blocking() -> None:
            with BlockingAdmin(two.url) as admin:
                admin.create_topic("t", 4)
                admin.create_group("g", invisible_ms=5_000, start="latest")
                assert admin.offsets("t") == offsets
                assert admin.group_offsets("g", "t") == {"broker-a:0": 3}
                admin.commit_offsets("g", "t", {"broker-a:0": 4}, {"broker-a:0": 3})

        await asyncio.to_thread(blocking)
        told = [[(asked.method, asked.path, asked.body) for asked in proxy.asked] for proxy in (one, two)]
        assert told[0] == told[1]
        assert offsets[0].max_offset == 5


async def test_blocking_clients_send_receive_and_settle() -> None:
    """From threads, with the same keys, repeats and piggy-backed acks."""
    script = [HANG_UP, said(RECEIPT, 201), delivered(0), delivered(1), delivered(), said({"results": []})]

    def blocking(url: str) -> list[bytes]:
        with BlockingProducer(url, policy=QUICK) as producer:
            assert producer.send("t", b"x").offset == 7
        seen = []
        with BlockingConsumer(url, "t", "g", policy=QUICK) as consumer:
            for message in consumer.until_idle():
                seen.append(message.body)
                consumer.confirm(message)
            consumer.extend(5_000, *consumer.receive())
        return seen

    async with ScriptedProxy(*script[:-1], delivered(), answer=lambda _: said({"results": []})) as proxy:
        assert await asyncio.to_thread(blocking, proxy.url) == [b"body 0", b"body 1"]
        lost, again, _, second, third, *_ = proxy.asked
        assert lost.headers["idempotency-key"] == again.headers["idempotency-key"]
        assert [asked.document["settle"][0]["receipt_handle"] for asked in (second, third)] == ["h0", "h1"]


async def test_pages_of_records_are_pulled_until_the_end_of_the_range() -> None:
    """A page without progress ends it: the queue is shorter than the range."""
    record = encode_record(b"t", 0, b"hello", b"", born_ms=5)

    def page(asked: Asked) -> Reply:
        offset = int(re.findall(r"[?&]offset=(\d+)", asked.path)[0])
        data = record * 2 if offset < 4 else b""
        return Reply(body=data, headers={"MQ-Next-Offset": str(min(offset + 2, 4)), "MQ-Max-Offset": "4"})

    def pull(url: str) -> list[tuple[int, int]]:
        with BlockingAdmin(url) as admin:
            pages = list(admin.pull_records("t", "broker-a:0", 0, 9))
        assert decode_record(pages[0].data, len(record)).body == b"hello"
        return [(len(one.data) // len(record), one.next_offset) for one in pages]

    async with ScriptedProxy(answer=page) as proxy:
        assert await asyncio.to_thread(pull, proxy.url) == [(2, 2), (2, 4)]
        async with Admin(proxy.url) as admin:
            assert [one.next_offset async for one in admin.pull_records("t", "broker-a:0", 0, 9)] == [2, 4]
        assert proxy.asked[0].headers["accept"] == "application/vnd.ternmq.records"
        assert proxy.asked[0].path.startswith("/v1/topics/t/queues/broker-a:0/messages?offset=0&end_offset=9&")
