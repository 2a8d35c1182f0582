"""Scenarios of time and of several clients: delays and recalls, transactions and their checks, requests and their replies."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from tern_client import BegunTransaction, Check, HalfMessage
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES
from tests.support.scenarios.stage import RECEIVE_WAIT_MS, Stage, bodies, cases, code, scenario


@cases(
    {
        "a text": ("3s", (True, [b"1"])),
        "milliseconds": (3_000, (True, [b"1"])),
        "a timedelta": (timedelta(seconds=3), (True, [b"1"])),
    }
)
async def a_delayed_message_comes_at_its_time(stage: Stage, delay: Any) -> Any:
    async with stage.clients() as (producer, consumer):
        receipt = await producer.send(stage.topic, b"1", delay=delay)
        assert receipt.deliver_at and receipt.recall_handle
        return await stage.none(consumer), bodies(await stage.take(consumer))


@scenario((True, [b"1"]))
async def a_delay_level_is_a_delay(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await producer.send(stage.topic, b"1", delay_level=2)
        return await stage.none(consumer), bodies(await stage.take(consumer))


@scenario(["first", "second", "third"])
async def delayed_messages_come_in_the_order_of_their_times(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        for name, delay_ms in (("third", 6_000), ("first", 2_000), ("second", 4_000)):
            await producer.send(stage.topic, name.encode(), delay=delay_ms)
        found: list[bytes] = []
        while len(found) < 3:
            found += bodies(await stage.take(consumer))
        return [body.decode() for body in found]


@scenario([b"1"])
async def a_time_that_has_passed_is_now(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await producer.send(stage.topic, b"1", deliver_at=datetime(2020, 1, 1, tzinfo=UTC))
        return bodies(await stage.take(consumer))


@scenario(([1, 0], "not-scheduled", True))
async def a_recalled_message_never_comes(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer), stage.world.admin() as admin:
        receipt = await producer.send(stage.topic, b"1", delay="3s")
        counts = [len((await admin.scheduled(stage.topic)).messages)]
        await admin.recall(stage.topic, receipt.recall_handle)
        counts.append(len((await admin.scheduled(stage.topic)).messages))
        again = await code(admin.recall(stage.topic, receipt.recall_handle))
        await stage.world.pass_time(3_500)
        return counts, again, await stage.none(consumer)


@scenario("already-delivered")
async def a_recall_after_the_delivery_is_refused(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer), stage.world.admin() as admin:
        receipt = await producer.send(stage.topic, b"1", delay="500ms")
        await stage.take(consumer)
        return await code(admin.recall(stage.topic, receipt.recall_handle))


# Transactions ----------------------------------------------------------------------------------------------------
@cases({"commit": (True, ("committed", [b"1"])), "rollback": (False, ("rolled-back", []))})
async def a_transaction_ends_as_its_local_one(stage: Stage, decision: bool) -> Any:
    async with stage.clients() as (_, consumer), stage.world.transaction_producer(stage.producer_group) as producer:
        sent = await producer.send(HalfMessage(topic=stage.topic, body=b"1"), lambda begun: decision)
        return sent.state, bodies(await stage.take(consumer)) if decision else await consumer.receive(wait_ms=0)


@scenario((True, [b"1", b"2"]))
async def messages_of_a_transaction_become_visible_together(stage: Stage) -> Any:
    async with stage.clients() as (_, consumer), stage.world.transaction_producer(stage.producer_group) as producer:
        begun = await producer.begin([HalfMessage(topic=stage.topic, body=body) for body in (b"1", b"2")])
        is_hidden = await stage.none(consumer)
        await producer.commit(begun.transaction_id)
        return is_hidden, sorted(bodies(await stage.take(consumer, 2)))


@cases({"commit": (True, ("committed", 1)), "rollback": (False, ("rolled-back", 1))})
async def a_check_ends_an_open_transaction(stage: Stage, answer: bool) -> Any:
    asked = []

    def check(question: Check) -> bool:
        asked.append(question.transaction_id)
        return answer

    await _declare(stage)
    async with stage.world.transaction_producer(stage.producer_group, checker=check) as producer:
        begun = await producer.begin(HalfMessage(topic=stage.topic, body=b"1"), check_after="1s")

        async def state() -> str:
            return (await producer.transaction(begun.transaction_id)).state

        ended = await stage.until(state, "committed" if answer else "rolled-back")
        assert asked == [begun.transaction_id]
        return ended, (await producer.transaction(begun.transaction_id)).attempts


@scenario("transaction-resolved")
async def a_rolled_back_transaction_cannot_be_committed(stage: Stage) -> Any:
    async with stage.clients(), stage.world.transaction_producer(stage.producer_group) as producer:
        begun = await producer.begin(HalfMessage(topic=stage.topic, body=b"1"))
        await producer.rollback(begun.transaction_id)
        return await code(producer.commit(begun.transaction_id))


@scenario(("LocalTransactionFailed", "open"))
async def a_local_transaction_that_fails_stays_open(stage: Stage) -> Any:
    begun_ids = []

    def fail(begun: BegunTransaction) -> bool:
        begun_ids.append(begun.transaction_id)
        raise OSError("the database is away")

    async with stage.clients(), stage.world.transaction_producer(stage.producer_group) as producer:
        try:
            await producer.send(HalfMessage(topic=stage.topic, body=b"1"), fail)
        except Exception as error:
            return type(error).__name__, (await producer.transaction(begun_ids[0])).state
        return "sent", ""


@scenario("message-too-large")
async def a_half_message_has_the_limit_of_a_message(stage: Stage) -> Any:
    async with stage.clients(), stage.world.transaction_producer(stage.producer_group) as producer:
        return await code(producer.begin(HalfMessage(topic=stage.topic, body=bytes(MESSAGE_BODY_SIZE_MAX_BYTES + 1))))


# Requests --------------------------------------------------------------------------------------------------------
@scenario(b"PING")
async def a_request_has_its_reply(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        asking = asyncio.ensure_future(producer.request(stage.topic, b"ping", timeout="20s"))
        (message,) = await stage.take(consumer)
        await consumer.reply(message, message.body.upper())
        await consumer.ack(message)
        return (await asking).body


@scenario(("reply-timeout", b"late"))
async def a_reply_that_comes_late_is_found(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        asking = asyncio.ensure_future(
            code(producer.request(stage.topic, b"ping", timeout="1s", correlation_id="c-1", client="shop"))
        )
        (message,) = await stage.take(consumer)
        while not asking.done():
            await stage.world.pass_time(RECEIVE_WAIT_MS)
        await consumer.reply(message, b"late")
        return await asking, (await producer.find_reply(stage.topic, "c-1", "shop")).body


@scenario("no-reply")
async def a_reply_that_never_came_is_not_found(stage: Stage) -> Any:
    async with stage.clients() as (producer, _):
        return await code(producer.find_reply(stage.topic, "c-9", "shop"))


@scenario("illegal-timeout")
async def a_request_waits_for_at_most_half_a_minute(stage: Stage) -> Any:
    async with stage.clients() as (producer, _):
        return await code(producer.request(stage.topic, b"ping", timeout="31s"))


async def _declare(stage: Stage) -> None:
    async with stage.world.admin() as admin:
        await admin.create_topic(stage.topic, queues=1)
        await admin.create_producer_group(stage.producer_group)
