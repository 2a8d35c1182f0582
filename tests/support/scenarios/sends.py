"""Scenarios of sends: what a message carries, batches, idempotency keys, order, and what is refused."""

from typing import Any

from tern_client import OutgoingMessage
from tests.support.scenarios.stage import Stage, bodies, cases, code, codes, scenario

MIB = 1 << 20


@cases(
    {
        "nothing but a body": ({}, ("", (), {}, "")),
        "a tag": ({"tag": "new"}, ("new", (), {}, "")),
        "two keys": ({"keys": ["17", "18"]}, ("", ("17", "18"), {}, "")),
        "properties": ({"properties": {"region": "eu", "ä": "ö"}}, ("", (), {"region": "eu", "ä": "ö"}, "")),
        "a content type": ({"content_type": "application/json"}, ("", (), {}, "application/json")),
    }
)
async def a_message_arrives_as_it_was_sent(stage: Stage, given: dict[str, Any]) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.send(producer, b"1", **given)
        (message,) = await stage.take(consumer)
        return message.tag, message.keys, dict(message.properties), message.content_type


@cases({"empty": (0, 0), "64 KiB": (65_536, 65_536), "4 MiB": (4 * MIB, 4 * MIB)})
async def a_body_of_this_size_arrives(stage: Stage, size: int) -> Any:
    async with stage.clients(max_bytes=4 * MIB) as (producer, consumer):
        await stage.send(producer, bytes(size))
        (message,) = await stage.take(consumer)
        return len(message.body)


@scenario([0, 1, 2])
async def offsets_of_a_queue_count_up(stage: Stage) -> Any:
    async with stage.clients() as (producer, _):
        return [(await producer.send(stage.topic, b"1")).offset for _ in range(3)]


@scenario(["broker-a:2", "broker-a:2"])
async def a_pinned_message_lies_in_its_queue(stage: Stage) -> Any:
    async with stage.clients(queues=4) as (producer, consumer):
        receipt = await producer.send(stage.topic, b"1", queue="broker-a:2")
        return [receipt.queue, (await stage.take(consumer))[0].queue]


@scenario((False, True, True, [b"1"]))
async def a_key_stores_a_message_once(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        first = await producer.send(stage.topic, b"1", idempotency_key="order-1")
        again = await producer.send(stage.topic, b"1", idempotency_key="order-1")
        same = first.message_id == again.message_id
        return first.replayed, again.replayed, same, bodies(await stage.take(consumer))


@scenario("idempotency-key-reused")
async def a_key_of_another_body_is_refused(stage: Stage) -> Any:
    async with stage.clients() as (producer, _):
        await producer.send(stage.topic, b"1", idempotency_key="order-1")
        return await code(producer.send(stage.topic, b"2", idempotency_key="order-1"))


@scenario(([0, 1, 2], []))
async def a_batch_is_stored_in_its_order(stage: Stage) -> Any:
    async with stage.clients() as (producer, _):
        batch = [OutgoingMessage(body=b"%d" % number, message_group="a") for number in range(3)]
        outcome = await producer.send_batch(stage.topic, batch, return_errors=True)
        return [receipt.offset for receipt in outcome.confirmed()], codes(outcome.errors)


@scenario(([True, False, True], {1: "message-too-large"}, [b"1", b"3"]))
async def a_batch_says_which_of_its_messages_failed(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        batch = [OutgoingMessage(body=body, queue="broker-a:0") for body in (b"1", bytes(5 * MIB), b"3")]
        outcome = await producer.send_batch(stage.topic, batch, return_errors=True)
        stored = [receipt is not None for receipt in outcome.receipts]
        errors = {index: error.code for index, error in outcome.errors.items()}
        return stored, errors, sorted(bodies(await stage.take(consumer, 2)))


@scenario("batch-empty")
async def an_empty_batch_is_refused(stage: Stage) -> Any:
    async with stage.clients() as (producer, _):
        return await code(producer.send_batch(stage.topic, []))


@scenario([b"0", b"1", b"2", b"3"])
async def messages_that_are_sent_soon_arrive(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        receipts = [await producer.send_soon(stage.topic, OutgoingMessage(body=b"%d" % n)) for n in range(4)]
        await producer.flush()
        assert [(await receipt).offset for receipt in receipts] == [0, 1, 2, 3]
        return sorted(bodies(await stage.take(consumer, 4)))


@cases(
    {
        "a body over 4 MiB": ({"body": bytes(4 * MIB + 1)}, "message-too-large"),
        "a tag with a bar": ({"tag": "a || b"}, "illegal-tag"),
        "a key with a space": ({"keys": ["a b"]}, "illegal-key"),
        "a reserved property": ({"properties": {"KEYS": "1"}}, "illegal-property"),
        "a queue that there is not": ({"queue": "broker-a:9"}, "queue-not-found"),
        "a malformed queue": ({"queue": "nine"}, "queue-not-found"),
        "two delivery times": ({"delay": "1s", "delay_level": 1}, "illegal-delivery-time"),
        "a malformed delay": ({"delay": "soon"}, "illegal-delivery-time"),
        "a delay of a year": ({"delay": "365d"}, "illegal-delivery-time"),
        "a delay level of -1": ({"delay_level": -1}, "illegal-delivery-time"),
        "an endless idempotency key": ({"idempotency_key": "k" * 2_000}, "illegal-idempotency-key"),
        "an endless message group": ({"message_group": "g" * 200}, "illegal-message-group"),
    }
)
async def a_send_is_refused(stage: Stage, given: dict[str, Any]) -> Any:
    async with stage.clients() as (producer, _):
        return await code(producer.send_message(stage.topic, OutgoingMessage(**{"body": b"1", **given})))


@scenario("illegal-topic")
async def a_malformed_topic_is_refused(stage: Stage) -> Any:
    async with stage.world.producer() as producer:
        return await code(producer.send("no topic!", b"1"))


@scenario(([b"0"], [b"1"]))
async def a_topic_is_made_by_its_first_message_and_a_group_by_its_first_receive(stage: Stage) -> Any:
    async with stage.world.producer() as producer, stage.consumer() as consumer:
        await producer.send(stage.topic, b"0")
        first = await consumer.receive()
        await producer.send(stage.topic, b"1")
        return bodies(first), bodies(await stage.take(consumer))


@scenario("client-closed")
async def a_closed_producer_refuses(stage: Stage) -> Any:
    async with stage.clients() as (producer, _):
        await producer.close()
        return await code(producer.send(stage.topic, b"1"))
