"""Scenarios of settles: acks, retries, leases, dead letters and their way back."""

from dataclasses import replace
from typing import Any

from tests.support.scenarios.stage import Stage, bodies, cases, codes, scenario


@scenario(([], True, 0))
async def an_ack_ends_a_message(stage: Stage) -> Any:
    async with stage.clients(invisible_ms=3_000) as (producer, consumer), stage.world.admin() as admin:
        await stage.send(producer, b"1")
        errors = await consumer.ack(*await stage.take(consumer), return_errors=True)
        await stage.world.pass_time(3_200)
        return codes(errors), await stage.none(consumer), (await admin.lag(stage.group, stage.topic))["lag"]


@scenario([[], []])
async def a_second_ack_is_as_good_as_the_first(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.send(producer, b"1")
        found = await stage.take(consumer)
        return [
            codes(await consumer.ack(*found, return_errors=True)),
            codes(await consumer.ack(*found, return_errors=True)),
        ]


@scenario((True, [(b"1", 2)]))
async def a_lease_that_ends_brings_its_message_back(stage: Stage) -> Any:
    async with stage.clients(invisible_ms=3_000) as (producer, consumer):
        await stage.send(producer, b"1")
        await stage.take(consumer)
        is_leased = await stage.none(consumer)
        return is_leased, [(message.body, message.attempt) for message in await stage.take(consumer)]


@scenario((["receipt-expired"], 2))
async def an_ack_after_the_end_of_the_lease_comes_too_late(stage: Stage) -> Any:
    async with stage.clients(invisible_ms=1_000) as (producer, consumer):
        await stage.send(producer, b"1")
        found = await stage.take(consumer)
        (again,) = await stage.take(consumer)
        return codes(await consumer.ack(*found, return_errors=True)), again.attempt


@scenario((True, []))
async def an_extended_lease_lasts(stage: Stage) -> Any:
    async with stage.clients(invisible_ms=3_000) as (producer, consumer):
        await stage.send(producer, b"1")
        found = await stage.take(consumer)
        assert not await consumer.extend(20_000, *found)
        await stage.world.pass_time(3_500)
        return await stage.none(consumer), codes(await consumer.ack(*found, return_errors=True))


@scenario([1, 2, 3])
async def a_nacked_message_comes_again_with_the_next_attempt(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.send(producer, b"1")
        seen = []
        for _ in range(3):
            (message,) = await stage.take(consumer)
            seen.append(message.attempt)
            await consumer.nack(message, delay_ms=0)
        return seen


@scenario((True, 2))
async def a_nack_with_a_delay_waits(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.send(producer, b"1")
        await consumer.nack(*await stage.take(consumer), delay_ms=3_000)
        is_away = await stage.none(consumer)
        return is_away, (await stage.take(consumer))[0].attempt


@scenario([1, 2, 3])
async def the_group_s_delays_decide_over_a_nack_without_one(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.settings(retry={"policy": "custom", "delays": ["200ms", "400ms"]})
        await stage.send(producer, b"1")
        seen = []
        for _ in range(3):
            (message,) = await stage.take(consumer)
            seen.append(message.attempt)
            await consumer.nack(message)
        return seen


@scenario((1, 1))
async def a_released_message_comes_at_once_and_uncounted(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.send(producer, b"1")
        (first,) = await stage.take(consumer)
        await consumer.release(first)
        return first.attempt, (await consumer.receive(wait_ms=500))[0].attempt


@scenario((True, ["nacked"], [2]))
async def the_last_attempt_makes_a_dead_letter(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer), stage.world.admin() as admin:
        await stage.settings(max_attempts=2)
        await stage.send(producer, b"1")
        for _ in range(2):
            await consumer.nack(*await stage.take(consumer), delay_ms=0)
        letters = await _letters(stage, admin)
        deaths = [letter["dlq"] for letter in letters]
        return await stage.none(consumer), [each["cause"] for each in deaths], [each["attempts"] for each in deaths]


@scenario((["expired"], [1]))
async def a_lease_that_ends_at_the_last_attempt_makes_a_dead_letter(stage: Stage) -> Any:
    async with stage.clients(invisible_ms=1_000) as (producer, consumer), stage.world.admin() as admin:
        await stage.settings(max_attempts=1)
        await stage.send(producer, b"1")
        await stage.take(consumer)
        deaths = [letter["dlq"] for letter in await _letters(stage, admin)]
        return [each["cause"] for each in deaths], [each["attempts"] for each in deaths]


@scenario((b"1", "rejected", "no such shop", {"region": "eu"}))
async def a_consumer_rejects_a_message_with_its_reason(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer), stage.world.admin() as admin:
        await stage.send(producer, b"1", properties={"region": "eu"})
        await consumer.dead_letter("no such shop", *await stage.take(consumer))
        (letter,) = await _letters(stage, admin)
        return letter["body"], letter["dlq"]["cause"], letter["dlq"]["reason"], letter["properties"]


@scenario(([b"1"], 1, "done", 1))
async def a_redriven_message_begins_again(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer), stage.world.admin() as admin:
        await stage.send(producer, b"1")
        await consumer.dead_letter("a bug", *await stage.take(consumer))
        await _letters(stage, admin)
        task = await admin.redrive(stage.group, everything=True)
        (message,) = await stage.take(consumer)

        async def state() -> str:
            return str((await admin.task(task["task"]))["state"])

        done = await stage.until(state, "done")
        return [message.body], message.attempt, done, (await admin.task(task["task"]))["redriven"]


@scenario(([b"2"], [b"1", b"3"]))
async def one_dead_letter_of_some_is_redriven(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer), stage.world.admin() as admin:
        await stage.send(producer, b"1", b"2", b"3")
        await consumer.dead_letter("a bug", *await stage.take(consumer, 3))
        letters = await _letters(stage, admin, 3)
        place = next(letter["dlq"]["offset"] for letter in letters if letter["body"] == b"2")
        await admin.redrive(stage.group, offsets=[place])
        came = bodies(await stage.take(consumer))

        async def left() -> list[bytes]:
            return sorted(letter["body"] for letter in (await admin.dead_letters(stage.group))["messages"])

        return came, await stage.until(left, [b"1", b"3"])


@scenario((2, []))
async def purged_dead_letters_are_gone(stage: Stage) -> Any:
    async with stage.clients() as (producer, consumer), stage.world.admin() as admin:
        await stage.send(producer, b"1", b"2")
        await consumer.dead_letter("a bug", *await stage.take(consumer, 2))
        await _letters(stage, admin, 2)
        purged = await admin.purge_dead_letters(stage.group)
        return purged, (await admin.dead_letters(stage.group))["messages"]


@cases(
    {
        "an ack": ("ack", ["receipt-invalid"]),
        "a nack": ("nack", ["receipt-invalid"]),
        "a release": ("release", ["receipt-invalid"]),
    }
)
async def a_forged_handle_is_refused(stage: Stage, action: str) -> Any:
    async with stage.clients() as (producer, consumer):
        await stage.send(producer, b"1")
        (message,) = await stage.take(consumer)
        return codes(await getattr(consumer, action)(replace(message, receipt_handle="AAAA"), return_errors=True))


async def _letters(stage: Stage, admin: Any, count: int = 1) -> Any:
    """The dead letters of the group once there are *count*."""

    async def letters() -> int:
        return len((await admin.dead_letters(stage.group))["messages"])

    await stage.until(letters, count)
    return (await admin.dead_letters(stage.group))["messages"]
