"""Time in a TestMesh: it stands still, moves by what a test asks for, and waits for whoever gets an answer."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tern_client import ReceivedMessage, TernError
from tern_testing import TestMesh

pytestmark = pytest.mark.anyio
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def anyio_backend() -> str:
    """asyncio only."""
    return "asyncio"


async def test_a_delayed_message_comes_when_time_has_passed() -> None:
    """The example of the guide; half of the delay is not enough."""
    async with TestMesh() as mesh, mesh.producer() as producer:
        await producer.send("orders", b"1", delay="5m")
        async with mesh.consumer("orders", "billing") as consumer:
            await mesh.advance("150s")
            assert await consumer.receive() == []
            await mesh.advance(minutes=10)
            (message,) = await consumer.receive()
            assert message.body == b"1"
        assert [each.body for each in mesh.sent("orders")] == [b"1"]
        assert mesh.dead_letters("billing") == []


async def test_time_stands_still_and_moves_by_what_was_asked() -> None:
    """From the start that was given, by each form of a duration; what comes due at the very end has happened."""
    async with TestMesh(start=START) as mesh:
        before = mesh.now
        assert timedelta(0) <= before - START < timedelta(seconds=5)
        for by in ("90s", 90_000, timedelta(seconds=90)):
            await mesh.advance(by)
        await mesh.advance(days=1, hours=1, minutes=1, seconds=1, milliseconds=1)
        assert mesh.now - before == timedelta(seconds=270, days=1, hours=1, minutes=1, milliseconds=1_001)
        assert mesh.now_ms() == round(mesh.now.timestamp() * 1000)


@pytest.mark.parametrize("by", ["soon", -1, timedelta(seconds=-1)])
async def test_time_does_not_move_by_what_is_no_duration(by: str | int | timedelta) -> None:
    """ValueError, and nothing has passed."""
    async with TestMesh() as mesh:
        before = mesh.now
        with pytest.raises(ValueError, match=r"duration|negative|back"):
            await mesh.advance(by)
        assert mesh.now == before


async def test_a_task_that_waits_is_answered_by_an_advance() -> None:
    """A long poll, by the message that comes due; its handler has run when the advance returns, at the time of that message."""
    async with TestMesh() as mesh, mesh.producer() as producer:
        await producer.send("orders", b"1", delay="10s")
        sent_at = mesh.now
        async with mesh.consumer("orders", "billing", wait_ms=20_000) as consumer:
            handled: list[tuple[ReceivedMessage, timedelta]] = []

            async def work() -> None:
                async for message in consumer:
                    handled.append((message, mesh.now - sent_at))
                    consumer.confirm(message)

            working = asyncio.create_task(work())
            await mesh.advance("5m")
            ((message, after),) = handled
            assert message.body == b"1"
            assert timedelta(seconds=9.9) < after < timedelta(seconds=11)
            assert mesh.pending("orders", "billing") == 0
            working.cancel()


async def test_retries_happen_at_their_times_within_one_advance() -> None:
    """A handler that always fails sees each attempt, the pauses between them are the group's, and the dead letter is there."""
    async with TestMesh() as mesh, mesh.producer() as producer, mesh.admin() as admin:
        await admin.create_group("billing", max_attempts=3, retry={"policy": "custom", "delays": ["10s", "60s"]})
        await producer.send("orders", b"1")
        async with mesh.consumer("orders", "billing", wait_ms=30_000) as consumer:
            attempts: list[tuple[int, datetime]] = []

            async def work() -> None:
                async for message in consumer:
                    attempts.append((message.attempt, mesh.now))
                    await consumer.nack(message)

            working = asyncio.create_task(work())
            await mesh.advance("5m")
            working.cancel()
        assert [attempt for attempt, _ in attempts] == [1, 2, 3]
        pauses = [(later - sooner).total_seconds() for (_, sooner), (_, later) in pairwise(attempts)]
        assert pauses == [pytest.approx(10, abs=1), pytest.approx(60, abs=1)]
        (letter,) = mesh.dead_letters("billing")
        assert (letter.body, letter.topic, letter.attempts, letter.cause) == (b"1", "orders", 3, "nacked")


async def test_a_confirmed_message_is_acked_before_time_passes() -> None:
    """The half second after which a consumer acks is one of the machine's clock: an hour of the mesh must not come first."""
    async with TestMesh() as mesh, mesh.producer() as producer:
        await producer.send("orders", b"1")
        async with mesh.consumer("orders", "billing") as consumer:
            (message,) = await consumer.receive()
            consumer.confirm(message)
            await mesh.advance("1h")
            assert await consumer.receive() == []


async def test_a_lease_ends_by_the_mesh_s_time_for_the_consumer_too() -> None:
    """What a loop has received ahead is not handed out beyond its lease."""
    async with TestMesh() as mesh, mesh.producer() as producer:
        await producer.send("orders", b"1")
        async with mesh.consumer("orders", "billing", invisible_ms=30_000) as consumer:
            (message,) = await consumer.receive()
            assert message.invisible_until - mesh.now_ms() == pytest.approx(30_000, abs=1_000)
            await mesh.advance("31s")
            (again,) = await consumer.receive()
            assert again.attempt == 2


async def test_with_the_real_clock_time_passes_by_itself() -> None:
    """A delayed message comes without an advance, and with one sooner."""
    async with TestMesh(clock="real") as mesh, mesh.producer() as producer:
        await producer.send("orders", b"1", delay="50ms")
        await producer.send("orders", b"2", delay="1h")
        async with mesh.consumer("orders", "billing", wait_ms=20_000) as consumer:
            (message,) = await consumer.receive()
            await consumer.ack(message)
            await mesh.advance("2h")
            (late,) = await consumer.receive()
            assert [message.body, late.body] == [b"1", b"2"]


async def test_a_long_advance_notices_at_its_time_what_comes_due() -> None:
    """A message became visible when its delay was over, within the seconds of a month."""
    async with TestMesh() as mesh, mesh.producer() as producer, mesh.admin() as admin:
        receipt = await producer.send("orders", b"1", delay="6h", queue="broker-a:0")
        await mesh.advance(days=30)
        visible = [(await admin.offsets_at("orders", receipt.deliver_at + ms))["broker-a:0"] for ms in (0, 1_000)]
        assert visible == [0, 1]


async def test_an_advance_that_is_given_up_leaves_time_where_it_is() -> None:
    """And the next one goes on from there."""
    async with TestMesh() as mesh, mesh.producer() as producer:
        before = mesh.now
        advancing = asyncio.create_task(mesh.advance(days=3_000))
        while mesh.now == before:
            await asyncio.sleep(0)
        advancing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await advancing
        await producer.send("orders", b"1")
        stopped = mesh.now
        assert stopped - before < timedelta(days=3_000)
        await mesh.advance("1h")
        assert timedelta(hours=1) <= mesh.now - stopped < timedelta(hours=2)


@pytest.mark.parametrize("what", ["reply", "check", "pull"])
async def test_a_wait_of_any_kind_does_not_move_time(what: str) -> None:
    """It is parked, and an advance ends it."""
    async with TestMesh() as mesh, mesh.producer() as producer, mesh.admin() as admin:
        await producer.send("orders", b"1", queue="broker-a:0")
        await admin.create_producer_group("shop")
        waiting: asyncio.Task[Any]
        if what == "reply":
            waiting = asyncio.create_task(producer.find_reply("orders", "c-1", "shop", wait_ms=20_000))
        elif what == "check":
            asking = mesh.transaction_producer("shop", checker=lambda check: True)
            waiting = asyncio.create_task(asking.__aenter__())
        else:
            pull = mesh.pull_consumer("orders", start="latest", wait_ms=20_000)
            waiting = asyncio.create_task(anext(pull))
        await mesh.advance(0)
        before = mesh.now
        for _ in range(20):
            await mesh.advance(0)
        assert mesh.now - before < timedelta(seconds=1)
        if what == "reply":
            await mesh.advance("30s")
            with pytest.raises(TernError) as caught:
                await waiting
            assert caught.value.code == "no-reply"
        elif what == "check":
            await asking.close()
        else:
            await producer.send("orders", b"2", queue="broker-a:0")
            assert (await waiting).body == b"2"
            await pull.close()
