"""Scenarios of receives: filters, limits of one receive, several groups, what a group reads first, and message groups."""

from typing import Any

from tern_client import OutgoingMessage
from tests.support.scenarios.stage import Stage, bodies, cases, code, scenario


async def _varied(stage: Stage, producer: Any) -> None:
    for body, tag, region in ((b"1", "new", "eu"), (b"2", "old", "us"), (b"3", "", "eu")):
        await producer.send(stage.topic, body, tag=tag, properties={"region": region, "price": body.decode()})


@cases(
    {
        "a tag": ({"tags": "new"}, [b"1"]),
        "two tags": ({"tags": "new || old"}, [b"1", b"2"]),
        "no message has the tag": ({"tags": "none"}, []),
        "all tags": ({"tags": "*"}, [b"1", b"2", b"3"]),
        "a property": ({"sql": "region = 'eu'"}, [b"1", b"3"]),
        "a range": ({"sql": "price BETWEEN 2 AND 3"}, [b"2", b"3"]),
        "tag and property": ({"sql": "TAGS = 'new' AND region = 'eu'"}, [b"1"]),
        "a missing property": ({"sql": "colour IS NULL"}, [b"1", b"2", b"3"]),
        "one of some": ({"sql": "region IN ('us', 'ca')"}, [b"2"]),
    }
)
async def a_filter_passes(stage: Stage, given: dict[str, Any]) -> Any:
    async with stage.clients(**given) as (producer, consumer):
        await _varied(stage, producer)
        found = await stage.take(consumer, 1) if given.get("tags") != "none" else await consumer.receive(wait_ms=0)
        return sorted(bodies(found + await consumer.receive(wait_ms=0)))


@cases(
    {
        "sql without a condition": ({"sql": "region ="}, "illegal-filter"),
        "both": ({"sql": "a = 1", "tags": "b"}, "illegal-filter"),
    }
)
async def a_filter_is_refused(stage: Stage, given: dict[str, Any]) -> Any:
    async with stage.clients() as (producer, _):
        await stage.send(producer, b"1")
        try:
            consumer = stage.consumer(**given)
        except Exception as error:
            return getattr(error, "code", type(error).__name__)
        async with consumer:
            return await code(consumer.receive(wait_ms=0))


@scenario([1, 2, 0])
async def a_receive_has_as_many_messages_as_it_asks_for(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.send(producer, b"1", b"2", b"3")
        first = await consumer.receive(1, wait_ms=0)
        return [len(first), len(await consumer.receive(wait_ms=0)), len(await consumer.receive(wait_ms=0))]


@scenario([2, 1])
async def a_receive_has_as_many_bytes_as_it_asks_for(stage: Stage) -> Any:
    async with stage.clients(max_bytes=2_500) as (producer, consumer):
        for _ in range(3):
            await producer.send(stage.topic, bytes(1_000))
        return [len(await consumer.receive(wait_ms=0)), len(await consumer.receive(wait_ms=0))]


@scenario(([b"1"], [b"1"]))
async def each_group_gets_every_message(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer), stage.consumer(f"{stage.group}-2") as other:
        async with stage.world.admin() as admin:
            await admin.create_group(f"{stage.group}-2", start="earliest")
        await stage.send(producer, b"1")
        return bodies(await stage.take(consumer)), bodies(await stage.take(other))


@scenario([b"1", b"2"])
async def consumers_of_a_group_share_its_messages(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer), stage.consumer() as other:
        await stage.send(producer, b"1", b"2")
        return sorted(bodies(await consumer.receive(1, wait_ms=0)) + bodies(await other.receive(wait_ms=0)))


@cases({"earliest": ("earliest", [b"1", b"2"]), "latest": ("latest", [b"2"])})
async def a_new_group_begins_at(stage: Stage, start: str) -> Any:
    async with stage.clients() as (producer, _), stage.world.admin() as admin:
        await stage.send(producer, b"1")
        await admin.create_group(f"{stage.group}-2", start=start)
        async with stage.consumer(f"{stage.group}-2") as consumer:
            found = await consumer.receive(wait_ms=0)
            await stage.send(producer, b"2")
            return bodies(found + await stage.take(consumer))


@scenario(([b"1", b"2"], [b"1", b"2"]))
async def an_attempt_id_gets_the_same_messages_again(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.send(producer, b"1", b"2")
        first = await consumer.receive(wait_ms=0, attempt_id="a-1")
        return bodies(first), bodies(await consumer.receive(wait_ms=0, attempt_id="a-1"))


@scenario([b"1", b"2"])
async def a_loop_hands_out_messages_and_confirms_them(stage: Stage) -> Any:
    found = []
    async with stage.clients() as (producer, consumer):
        await stage.send(producer, b"1", b"2")
        async for message in consumer:
            found.append(message.body)
            consumer.confirm(message)
            if len(found) == 2:
                break
    async with stage.world.admin() as admin:
        assert (await admin.lag(stage.group, stage.topic))["lag"] == 0
    return found


@scenario((1, 1))
async def a_loop_that_ends_releases_what_it_has_not_handed_out(stage: Stage) -> Any:
    async with stage.clients(max_messages=2) as (producer, consumer):
        await stage.send(producer, b"1", b"2", b"3", b"4")
        handed = []
        async for message in consumer:
            handed.append(message)
            await consumer.ack(message)
            if len(handed) == 2:
                break
        rest = await stage.take(consumer, 2)
        return rest[0].attempt, rest[1].attempt


@scenario([[b"a1"], [b"a2"], [b"a3"]])
async def a_message_group_has_one_message_in_flight(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.settings(fifo=True)
        await stage.send(producer, b"a1", b"a2", b"a3", message_group="a")
        turns = []
        for _ in range(3):
            found = await stage.take(consumer)
            turns.append(bodies(found))
            assert await stage.none(consumer)
            await consumer.ack(*found)
        return turns


@scenario([b"a1", b"b1"])
async def message_groups_go_on_beside_each_other(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.settings(fifo=True)
        batch = [OutgoingMessage(body=name, message_group=name[:1].decode()) for name in (b"a1", b"a2", b"b1", b"b2")]
        (await producer.send_batch(stage.topic, batch)).confirmed()
        return sorted(bodies(await stage.take(consumer, 2)))


@scenario([(b"a1", 1), (b"a1", 2), (b"a2", 1)])
async def a_failed_message_comes_again_before_its_successors(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.settings(fifo=True)
        await stage.send(producer, b"a1", b"a2", message_group="a")
        seen = []
        for turn in range(3):
            (message,) = await stage.take(consumer)
            seen.append((message.body, message.attempt))
            await (consumer.nack(message, delay_ms=300) if turn == 0 else consumer.ack(message))
        return seen


@scenario("consumption-disabled")
async def a_group_that_does_not_consume_is_refused(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.settings(consume=False)
        await stage.send(producer, b"1")
        return await code(consumer.receive(wait_ms=0))


@cases({"a topic that there is not": ("", "topic-not-found"), "a malformed group": ("no group!", "illegal-group")})
async def a_receive_is_refused(stage: Stage, group: str) -> Any:
    try:
        async with stage.consumer(group) as consumer:
            return await code(consumer.receive(wait_ms=0))
    except Exception as error:
        return getattr(error, "code", type(error).__name__)
