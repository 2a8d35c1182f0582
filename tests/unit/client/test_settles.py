"""What both consumers say of messages that failed, and what both Admins ask about dead letters, against a scripted proxy."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from tern_client import Admin, BlockingAdmin, BlockingConsumer, Consumer, ReceivedMessage, RetryPolicy, SettlesFailed
from tern_wire.errors import InvalidField, NoLeader, ReceiptExpired, TaskNotFound
from tests.support.client.scripted_proxy import Asked, Reply, ScriptedProxy, blocking_proxy, refused, said
from tests.unit.client.deliveries import delivered

QUICK = RetryPolicy(first_delay_ms=1, max_delay_ms=4, deadline_ms=8_000, attempt_timeout_ms=4_000)


def answer(asked: Asked) -> Reply:
    """Two messages at each receive; of settles, the second fails."""
    if asked.path.endswith("/receive"):
        return delivered(1, 2)
    entries = asked.document["entries"]
    results: list[dict[str, Any]] = [{"receipt_handle": entry["receipt_handle"], "status": "ok"} for entry in entries]
    if len(results) > 1:
        results[1] = {"receipt_handle": entries[1]["receipt_handle"], "error": ReceiptExpired().problem()}
    return said({"results": results, "failed": len(results) - 1}, 207)


async def test_nacks_and_dead_letters_are_one_request_for_all_and_tell_errors_by_handle() -> None:
    """A delay of nothing is said, none is not; what was settled is in flight no longer."""
    async with ScriptedProxy(answer=answer) as proxy, Consumer(proxy.url, "t", "g", in_flight_max=2) as consumer:
        first, second = await consumer.receive()
        assert set(await consumer.nack(first, second, return_errors=True)) == {second.receipt_handle}
        first, second = await consumer.receive()
        assert set(await consumer.nack(first, second, delay_ms=0, return_errors=True)) == {second.receipt_handle}
        first, second = await consumer.receive()
        assert set(await consumer.dead_letter("no such shop", first, second, return_errors=True)) == {
            second.receipt_handle
        }
        said_of = [asked.document["entries"] for asked in proxy.asked if asked.path.endswith("/settle")]
        handles = [first.receipt_handle, second.receipt_handle]
        assert said_of == [
            [{"receipt_handle": handle, "action": "nack"} for handle in handles],
            [{"receipt_handle": handle, "action": "nack", "delay": 0} for handle in handles],
            [{"receipt_handle": handle, "action": "dead_letter", "reason": "no such shop"} for handle in handles],
        ]
        assert consumer.expired == 3
        first, second = await consumer.receive()
        assert set(await consumer.release(first, second, return_errors=True)) == {second.receipt_handle}
        released = proxy.asked[-1].document["entries"]
        assert released == [{"receipt_handle": handle, "action": "release"} for handle in handles]
        assert len(await consumer.receive()) == 2  # there is room again


def test_the_blocking_consumer_says_the_same() -> None:
    """And a receive carries its attempt id."""
    with blocking_proxy(answer) as proxy, BlockingConsumer(proxy.url, "t", "g") as consumer:
        first, second = consumer.receive(attempt_id="try-1")
        assert set(consumer.nack(first, second, delay_ms=1_500, return_errors=True)) == {second.receipt_handle}
        assert consumer.dead_letter("", first) == {}
        assert set(consumer.release(first, second, return_errors=True)) == {second.receipt_handle}
        received, nacked, rejected = (asked.document for asked in proxy.asked[:3])
        assert received["attempt_id"] == "try-1"
        assert nacked["entries"][0] == {"receipt_handle": first.receipt_handle, "action": "nack", "delay": 1_500}
        assert rejected["entries"] == [{"receipt_handle": first.receipt_handle, "action": "dead_letter"}]


async def test_a_receive_is_repeated_with_its_attempt_id() -> None:
    """So that what the first may have leased comes with the second."""
    async with ScriptedProxy(refused(NoLeader()), answer=answer) as proxy:
        async with Consumer(proxy.url, "t", "g", policy=QUICK) as consumer:
            await consumer.receive(attempt_id="try-1")
        receives = [asked.document for asked in proxy.asked if asked.path.endswith("/receive")]
        assert [document["attempt_id"] for document in receives] == ["try-1", "try-1"]


TASK = "5b1f0c9a7e2d4c3b8a190f6e"


async def test_the_admin_browses_redrives_and_purges() -> None:
    """Only what is given travels; `from` and `to` have other names in Python."""
    async with ScriptedProxy(answer=lambda _: said({"task": TASK, "purged": 3, "messages": []})) as proxy:
        async with Admin(proxy.url) as admin:
            await admin.dead_letters("g", topic="t", begin=5, end="2026-01-31T12:00:00Z", limit=7)
            await admin.redrive("g", offsets=["broker-a:1"], idempotency_key="k")
            await admin.redrive("g", tag="A", begin=5, rate=10, dry_run=True)
            await admin.redrive("g", to="origin")
            await admin.redrive("g", everything=True, to="origin", end=9)
            with pytest.raises(InvalidField):
                await admin.redrive("g", everything=True, to="elsewhere")
            await admin.task(TASK)
            await admin.cancel_task(TASK)
            assert await admin.purge_dead_letters("g") == 3
        assert [(asked.method, asked.path) for asked in proxy.asked] == [
            ("GET", "/v1/groups/g/dlq?topic=t&from=5&to=2026-01-31T12%3A00%3A00Z&limit=7"),
            *[("POST", "/v1/groups/g/dlq/redrive")] * 4,
            ("GET", f"/v1/tasks/{TASK}"),
            ("DELETE", f"/v1/tasks/{TASK}"),
            ("DELETE", "/v1/groups/g/dlq?confirm=g"),
        ]
        first, second, third, fourth = proxy.asked[1:5]
        assert first.document == {"offsets": ["broker-a:1"], "rate": 0, "dry_run": False}
        assert first.headers["idempotency-key"] == "k"
        assert second.document == {"tag": "A", "from": 5, "rate": 10, "dry_run": True}
        assert "idempotency-key" not in second.headers
        assert third.document == {"to": "origin", "rate": 0, "dry_run": False}
        assert fourth.document == {"all": True, "to": 9, "rate": 0, "dry_run": False}


def test_the_blocking_admin_does_the_same_and_raises_what_the_proxy_says() -> None:
    """A task that nobody knows is an error of its own."""
    with blocking_proxy(lambda _: refused(TaskNotFound(task=TASK))) as proxy, BlockingAdmin(proxy.url) as admin:
        with pytest.raises(TaskNotFound):
            admin.task(TASK)
        with pytest.raises(TaskNotFound):
            admin.cancel_task(TASK)
    with (
        blocking_proxy(lambda _: said({"task": TASK, "purged": 3, "messages": []})) as proxy,
        BlockingAdmin(proxy.url) as admin,
    ):
        assert admin.dead_letters("g")["messages"] == []
        assert admin.redrive("g", everything=True)["task"] == TASK
        assert admin.purge_dead_letters("g") == 3
        assert proxy.asked[1].document == {"all": True, "rate": 0, "dry_run": False}
        admin.redrive("g", offsets=["broker-a:1"], to="origin")
        assert proxy.asked[3].document == {"offsets": ["broker-a:1"], "to": "origin", "rate": 0, "dry_run": False}


async def test_settles_that_fail_are_raised_unless_they_are_asked_for() -> None:
    """A dictionary of errors that nobody looks at would lose them; the error has all of them."""
    calls: tuple[Callable[[Consumer, Sequence[ReceivedMessage]], Awaitable[object]], ...] = (
        lambda consumer, messages: consumer.ack(*messages),
        lambda consumer, messages: consumer.nack(*messages),
        lambda consumer, messages: consumer.release(*messages),
        lambda consumer, messages: consumer.dead_letter("no", *messages),
        lambda consumer, messages: consumer.extend(5_000, *messages),
    )
    async with ScriptedProxy(answer=answer) as proxy, Consumer(proxy.url, "t", "g") as consumer:
        messages = await consumer.receive()
        for call in calls:
            with pytest.raises(SettlesFailed, match="1 of 2 messages were not settled; the first of them: ") as caught:
                await call(consumer, messages)
            assert {handle: type(error) for handle, error in caught.value.errors.items()} == {
                messages[1].receipt_handle: ReceiptExpired
            }
