"""TestMesh as a test of an application uses it: looks inside, faults, its begin and its end. Time: `test_time.py`."""

import asyncio
import gc
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints
from urllib.request import urlopen

import pytest

from tern_client import (
    Admin,
    BlockingProducer,
    Consumer,
    OutgoingMessage,
    Producer,
    ProxyUnreachable,
    PullConsumer,
    TernError,
    TransactionProducer,
)
from tern_testing import MeshFailed, TestMesh
from tern_testing.options import ClientOptions, ConsumerOptions, ProducerOptions, PullOptions, TransactionOptions
from tern_wire.errors import OutcomeUnknown

pytestmark = pytest.mark.anyio
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def anyio_backend() -> str:
    """asyncio only."""
    return "asyncio"


# Looks inside ----------------------------------------------------------------------------------------------------
async def test_what_was_sent_is_there_in_its_order() -> None:
    """Over all queues, with what a message carries; one that waits has no offset yet, and a topic that nobody used is empty."""
    async with TestMesh() as mesh, mesh.producer() as producer:
        await producer.send("orders", b"1", tag="new", keys=["17"], properties={"region": "eu"})
        await producer.send("orders", b"2", delay="1h")
        receipt = await producer.send("orders", b"3", message_group="a")
        first, waiting, last = mesh.sent("orders")
        assert (first.body, first.tag, first.keys, first.properties) == (b"1", "new", ("17",), {"region": "eu"})
        assert (waiting.body, waiting.offset) == (b"2", -1)
        assert waiting.deliver_at - mesh.now_ms() == pytest.approx(3_600_000, abs=5_000)
        assert (last.message_id, last.queue, last.offset) == (receipt.message_id, receipt.queue, receipt.offset)
        assert last.message_group == "a"
        await mesh.advance("2h")
        assert [(each.body, each.offset >= 0) for each in mesh.sent("orders")] == [
            (b"1", True),
            (b"2", True),
            (b"3", True),
        ]
        assert mesh.sent("payments") == []
        assert mesh.dead_letters("nobody") == []


async def test_pending_counts_what_a_group_has_not_acked() -> None:
    """GroupNotFound for a group that there is not: 0 would hide a wrong name."""
    async with TestMesh() as mesh, mesh.producer() as producer:
        for body in (b"1", b"2"):
            await producer.send("orders", body)
        async with mesh.consumer("orders", "billing") as consumer:
            messages = await consumer.receive()
            assert mesh.pending("orders", "billing") == 2
            await consumer.ack(messages[0])
            assert mesh.pending("orders", "billing") == 1
        with pytest.raises(TernError) as caught:
            mesh.pending("orders", "biling")
        assert caught.value.code == "group-not-found"


async def test_many_dead_letters_are_listed_page_by_page() -> None:
    """All 250, in more than one page."""
    async with TestMesh() as mesh, mesh.producer() as producer:
        (await producer.send_batch("orders", [OutgoingMessage(body=b"%d" % n) for n in range(250)])).confirmed()
        async with mesh.consumer("orders", "billing", max_messages=256) as consumer:
            while messages := await consumer.receive():
                await consumer.dead_letter("a bug", *messages)
        assert len({letter.body for letter in mesh.dead_letters("billing")}) == 250


# Faults ----------------------------------------------------------------------------------------------------------
async def test_the_sdk_repeats_what_fails_for_now_and_its_pauses_take_no_time() -> None:
    """Three refusals, one message, and the mesh's clock has hardly moved."""
    async with TestMesh() as mesh, mesh.producer() as producer:
        await producer.send("orders", b"0")
        before = mesh.now
        mesh.fail_next("send", code="overloaded", times=3)
        await producer.send("orders", b"1")
        assert [each.body for each in mesh.sent("orders")] == [b"0", b"1"]
        assert mesh.now - before < timedelta(milliseconds=200)


async def test_a_call_that_fails_for_ever_ends_at_its_deadline() -> None:
    """Half a minute of pauses passes for this call, and at once."""
    async with TestMesh() as mesh, mesh.producer() as producer:
        mesh.fail_next("send", times=10_000)
        with pytest.raises(TernError) as caught:
            await producer.send("orders", b"1")
        assert (caught.value.code, mesh.sent("orders")) == ("overloaded", [])
        mesh.clear_faults()
        await producer.send("orders", b"1")


async def test_an_error_for_good_reaches_the_program() -> None:
    """With the fields that the test gave it; the next request is an ordinary one."""
    async with TestMesh() as mesh, mesh.producer() as producer:
        mesh.fail_next("send", code="topic-not-found", topic="orders")
        with pytest.raises(TernError, match="orders") as caught:
            await producer.send("orders", b"1")
        assert caught.value.code == "topic-not-found"
        await producer.send("orders", b"1")


async def test_faults_meet_their_own_operation_only() -> None:
    """In the order in which they were asked for; an operationId names one as well."""
    async with TestMesh() as mesh, mesh.producer() as producer, mesh.admin() as admin:
        mesh.fail_next("receive", code="internal")
        mesh.fail_next("putTopic", code="forbidden")
        await producer.send("orders", b"1")
        with pytest.raises(TernError) as caught:
            await admin.create_topic("orders")
        assert caught.value.code == "forbidden"
        async with mesh.consumer("orders", "billing") as consumer:
            receiving = asyncio.create_task(consumer.receive())
            await mesh.advance("1s")
            assert receiving.done(), "who gets an error reacts before time passes, too"
            with pytest.raises(TernError) as caught:
                await receiving
            assert caught.value.code == "internal"
            assert len(await consumer.receive()) == 1


@pytest.mark.parametrize("stored", [True, False])
async def test_a_send_whose_connection_is_lost_is_repeated_and_stored_once(stored: bool) -> None:
    """Whether or not it had been carried out: its idempotency key tells."""
    async with TestMesh() as mesh, mesh.producer() as producer:
        mesh.lose_connection("send", stored=stored)
        receipt = await producer.send("orders", b"1")
        assert (receipt.replayed, len(mesh.sent("orders"))) == (stored, 1)


async def test_without_a_key_the_outcome_of_a_lost_send_stays_unknown() -> None:
    """And the message is there."""
    async with TestMesh() as mesh, mesh.producer(idempotent=False) as producer:
        mesh.lose_connection("send")
        with pytest.raises(OutcomeUnknown):
            await producer.send("orders", b"1")
        assert len(mesh.sent("orders")) == 1


@pytest.mark.parametrize(
    ("operation", "code", "times", "complaint"),
    [("sned", "overloaded", 1, "operation"), ("send", "overlaoded", 1, "error"), ("send", "overloaded", 0, "times")],
)
async def test_a_fault_that_could_never_be_met_is_refused(
    operation: str, code: str, times: int, complaint: str
) -> None:
    """A test with a slip of the pen would pass for ever."""
    async with TestMesh() as mesh:
        with pytest.raises(ValueError, match=complaint):
            mesh.fail_next(operation, code=code, times=times)


async def test_a_full_mesh_refuses_sends_as_a_full_disk_does() -> None:
    """Its memory is bounded; reads go on."""
    async with TestMesh(capacity_bytes=4 << 20) as mesh, mesh.producer() as producer:
        with pytest.raises(TernError) as caught:
            while True:
                await producer.send("orders", bytes(500_000))
        assert caught.value.code == "disk-full"
        assert mesh.sent("orders")


# Begin and end ---------------------------------------------------------------------------------------------------
async def test_meshes_live_side_by_side() -> None:
    """With their own messages and their own time."""
    async with TestMesh(start=START) as one, TestMesh(start=START) as other:
        async with one.producer() as producer:
            await producer.send("orders", b"1")
        await one.advance("1h")
        assert other.sent("orders") == []
        assert one.now - other.now > timedelta(minutes=59)


async def test_what_is_left_open_at_the_end_is_told_so() -> None:
    """A poll that waits is answered, and a client that outlives its mesh gets `proxy-unreachable`; nothing is left behind."""
    async with TestMesh() as mesh:
        producer = mesh.producer()
        await producer.send("orders", b"1")
        consumer = mesh.consumer("orders", "billing", wait_ms=20_000)
        await consumer.ack(*await consumer.receive())
        waiting = asyncio.create_task(consumer.receive())
        await mesh.advance(0)
        assert not waiting.done()
    assert await waiting == []
    with pytest.raises(ProxyUnreachable, match="has ended"):
        await producer.send("orders", b"2")
    await producer.close()
    await consumer.close()
    gc.collect()


async def test_a_mesh_is_used_once_and_while_it_runs() -> None:
    """RuntimeError says what to do instead."""
    mesh = TestMesh()
    with pytest.raises(RuntimeError, match="async with"):
        mesh.sent("orders")
    async with mesh:
        with pytest.raises(RuntimeError, match="listen"):
            _ = mesh.endpoint
    with pytest.raises(RuntimeError, match="make another one"):
        async with mesh:
            pass
    with pytest.raises(ValueError, match="clock"):
        TestMesh(clock="fast")  # type: ignore[arg-type]


async def test_a_mesh_that_has_failed_inside_says_so_at_its_end() -> None:
    """What no request was told of is no secret."""
    with pytest.raises(MeshFailed, match="ZeroDivisionError"):
        async with TestMesh() as mesh:
            mesh._loop_thread.loop.call_soon_threadsafe(lambda: 1 // 0)
            await mesh.advance("1s")


async def test_other_programs_reach_it_by_http() -> None:
    """A blocking client in this very thread, and plain HTTP; faults are answers there as well."""
    async with TestMesh() as mesh:
        url = await mesh.listen()
        assert (url, await mesh.listen()) == (mesh.endpoint, mesh.endpoint)
        with BlockingProducer(url) as producer:
            assert producer.send("orders", b"1").offset == 0
            mesh.fail_next("send", code="forbidden")
            with pytest.raises(TernError) as caught:
                producer.send("orders", b"2")
            assert caught.value.code == "forbidden"
        with urlopen(f"{url}/healthz") as answer:
            assert answer.status == 200
        await mesh.advance("1m")
        assert [each.body for each in mesh.sent("orders")] == [b"1"]


# Arguments -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (ProducerOptions, Producer),
        (ConsumerOptions, Consumer),
        (PullOptions, PullConsumer),
        (TransactionOptions, TransactionProducer),
        (ClientOptions, Admin),
    ],
)
def test_a_client_takes_what_its_class_takes(options: type, kind: Any) -> None:
    """By name and by type: none is made up here."""
    wanted, taken = get_type_hints(options), get_type_hints(kind.__init__)
    assert {name: taken.get(name) for name in wanted} == wanted


async def test_the_credentials_of_the_environment_are_not_the_mesh_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have a key for another mesh."""
    monkeypatch.setenv("TERNMQ_KEY_FILE", "no-such.key")
    async with TestMesh() as mesh, mesh.producer() as producer:
        await producer.send("orders", b"1")
        async with mesh.consumer("orders", "billing") as consumer:
            assert len(await consumer.receive()) == 1
