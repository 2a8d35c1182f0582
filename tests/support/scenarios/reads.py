"""Scenarios of reads and of administration: pulls by offset, seeks, searches, lags, topics and groups."""

from typing import Any

from tern_client import GroupOffsets, OutgoingMessage
from tests.support.scenarios.stage import Stage, bodies, cases, code, scenario


async def _pull(stage: Stage, count: int, **options: Any) -> list[bytes]:
    found = []
    async with stage.world.pull_consumer(stage.topic, **options) as consumer:
        async for message in consumer:
            found.append(message.body)
            if len(found) == count:
                await consumer.commit()
                return found
    return found


@cases(
    {
        "all": ({}, [b"0", b"1", b"2", b"3"]),
        "a tag": ({"tags": "odd"}, [b"1", b"3"]),
        "sql": ({"sql": "number > 1"}, [b"2", b"3"]),
        "small pages": ({"max_messages": 1}, [b"0", b"1", b"2", b"3"]),
    }
)
async def a_pull_reads(stage: Stage, given: dict[str, Any]) -> Any:
    async with stage.clients() as (producer, _):
        for number in range(4):
            tag = "odd" if number % 2 else "even"
            await producer.send(stage.topic, b"%d" % number, tag=tag, properties={"number": str(number)})
    return await _pull(stage, 2 if "tags" in given or "sql" in given else 4, **given)


@scenario(([b"0", b"1"], [b"2"]))
async def a_pull_goes_on_where_its_group_was(stage: Stage) -> Any:
    async with stage.clients() as (producer, _):
        await stage.send(producer, b"0", b"1", b"2")
    offsets = GroupOffsets(f"{stage.group}-pull")
    return await _pull(stage, 2, offsets=offsets), await _pull(stage, 1, offsets=offsets)


@scenario([(0, 3)])
async def a_queue_has_its_offsets(stage: Stage) -> Any:
    async with stage.clients() as (producer, _), stage.world.admin() as admin:
        await stage.send(producer, b"0", b"1", b"2")
        return [(row.min_offset, row.max_offset) for row in await admin.offsets(stage.topic)]


@cases(
    {
        "the start": ("earliest", [b"0", b"1", b"2"]),
        "the end": ("latest", []),
        "an offset": ({"offsets": {"broker-a:0": 1}}, [b"1", b"2"]),
        "one back": ({"shift": -1}, [b"2"]),
        "a time": ({"time": 1}, [b"0", b"1", b"2"]),
    }
)
async def a_group_is_moved_to(stage: Stage, to: Any) -> Any:
    async with stage.clients() as (producer, consumer), stage.world.admin() as admin:
        await stage.send(producer, b"0", b"1", b"2")
        await consumer.ack(*await stage.take(consumer, 3))
        (moved,) = await admin.seek(stage.group, stage.topic, to)
        count = 3 - moved["after"]
        return bodies(await stage.take(consumer, count)) if count else await consumer.receive(wait_ms=0)


@scenario((3, 0, 3))
async def a_dry_seek_moves_nothing(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer), stage.world.admin() as admin:
        await stage.send(producer, b"0", b"1", b"2")
        await consumer.ack(*await stage.take(consumer, 3))
        (moved,) = await admin.seek(stage.group, stage.topic, "earliest", dry_run=True)
        after = await admin.group_offsets(stage.group, stage.topic)
        return moved["before"], moved["after"], after["broker-a:0"]


@scenario([3, 3, 2, 0])
async def the_lag_of_a_group_falls_with_its_acks(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer), stage.world.admin() as admin:
        lags = []

        async def look() -> None:
            lags.append((await admin.lag(stage.group, stage.topic))["lag"])

        await stage.send(producer, b"0", b"1", b"2")
        first = await consumer.receive(1, wait_ms=0)
        await look()
        rest = await stage.take(consumer, 2)
        await look()
        await consumer.ack(*first)
        await look()
        await consumer.ack(*rest)
        await look()
        return lags


@scenario((b"1", ["17"], "new"))
async def a_message_is_found_by_its_id(stage: Stage) -> Any:
    async with stage.clients() as (producer, _), stage.world.admin() as admin:
        receipt = await producer.send(stage.topic, b"1", keys=["17"], tag="new")
        found = await admin.message(stage.topic, receipt.message_id)
        return found["body"], found["keys"], found["tag"]


@scenario([b"3", b"1"])
async def messages_are_found_by_a_key_the_newest_first(stage: Stage) -> Any:
    async with stage.clients() as (producer, _), stage.world.admin() as admin:
        for body, key in ((b"1", "a"), (b"2", "b"), (b"3", "a")):
            await producer.send(stage.topic, body, keys=[key])
        return [message["body"] for message in (await admin.find(stage.topic, "a"))["messages"]]


@scenario([])
async def a_key_that_no_message_has_finds_none(stage: Stage) -> Any:
    async with stage.clients() as (producer, _), stage.world.admin() as admin:
        await producer.send(stage.topic, b"1", keys=["a"])
        return (await admin.find(stage.topic, "none"))["messages"]


@scenario(["leased", "settled"])
async def a_trace_says_what_a_group_has_done_with_a_message(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer), stage.world.admin() as admin:
        receipt = await producer.send(stage.topic, b"1")
        found = await stage.take(consumer)
        states = []
        for step in range(2):
            if step:
                await consumer.ack(*found)
            trace = await admin.trace(stage.topic, receipt.message_id)
            states.append(next(row["state"] for row in trace["groups"] if row["group"] == stage.group))
        return states


@scenario((4, "FIFO", "rw"))
async def a_topic_has_the_settings_that_it_was_made_with(stage: Stage) -> Any:
    async with stage.world.admin() as admin:
        await admin.create_topic(stage.topic, queues=4, type="FIFO")
        found = await admin.topic(stage.topic)
        return (
            len(found["queues"]) if isinstance(found["queues"], list) else found["queues"],
            found["type"],
            found["permission"],
        )


@scenario((7, 45_000))
async def a_group_has_the_settings_that_it_was_made_with(stage: Stage) -> Any:
    async with stage.world.admin() as admin:
        await admin.create_group(stage.group, max_attempts=7, invisible_ms=45_000)
        found = await admin.group(stage.group)
        return found["max_attempts"], found["invisible_ms"]


@scenario([True, False])
async def a_deleted_topic_is_gone(stage: Stage) -> Any:
    async with stage.world.admin() as admin:
        await admin.create_topic(stage.topic)
        there = [bool(await admin.topics(stage.topic))]
        await admin.delete_topic(stage.topic)
        return [*there, bool(await admin.topics(stage.topic))]


@cases(
    {
        "an unordered message": (({"type": "FIFO"}, {}), "property-conflicts-with-type"),
        "a delayed message": (({"type": "NORMAL"}, {"delay": "1s"}), "property-conflicts-with-type"),
        "any message": (({"permission": "r"}, {}), "topic-not-writable"),
    }
)
async def a_topic_refuses(stage: Stage, given: Any) -> Any:
    settings, fields = given
    async with stage.world.admin() as admin, stage.world.producer() as producer:
        await admin.create_topic(stage.topic, queues=1, **settings)
        return await code(producer.send_message(stage.topic, OutgoingMessage(body=b"1", **fields)))


@cases(
    {
        "a topic": (lambda admin, stage: admin.topic(stage.topic), "topic-not-found"),
        "a group": (lambda admin, stage: admin.group(stage.group), "group-not-found"),
        "a producer group": (
            lambda admin, stage: admin.producer_group(stage.producer_group),
            "producer-group-not-found",
        ),
        "a deleted topic": (lambda admin, stage: admin.delete_topic(stage.topic), "topic-not-found"),
        "a task": (lambda admin, stage: admin.task("broker-a:999999"), "task-not-found"),
        "a transaction": (lambda admin, stage: admin.transaction("AAAA"), "transaction-id-invalid"),
        "the lag of a group": (lambda admin, stage: admin.lag(stage.group), "group-not-found"),
    }
)
async def there_is_no_such(stage: Stage, asking: Any) -> Any:
    async with stage.world.admin() as admin:
        return await code(asking(admin, stage))


@scenario("message-not-found")
async def there_is_no_message_with_an_unknown_id(stage: Stage) -> Any:
    async with stage.clients() as (producer, _), stage.world.admin() as admin:
        await stage.send(producer, b"1")
        return await code(admin.message(stage.topic, "0" * 32))


@scenario("already-exists")
async def a_topic_that_is_to_be_new_must_be(stage: Stage) -> Any:
    async with stage.world.admin() as admin:
        await admin.create_topic(stage.topic)
        return await code(admin.create_topic(stage.topic, only_new=True))


@scenario("topic-conflict")
async def a_topic_does_not_shrink(stage: Stage) -> Any:
    async with stage.world.admin() as admin:
        await admin.create_topic(stage.topic, queues=4)
        return await code(admin.create_topic(stage.topic, queues=2))
