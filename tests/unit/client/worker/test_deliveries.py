"""How many messages a worker holds and handles at a time, in which order, under which leases, and how subscriptions share it."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable

import pytest

from tern_client import ReceivedMessage, RetryPolicy, Worker
from tests.support.client.group_proxy import GroupProxy
from tests.support.client.scripted_proxy import HANG_UP, Asked, Reply, ScriptedProxy
from tests.unit.client.worker.running_worker import QUICK, proxy_of, until, working

MIB = 1 << 20


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_no_more_handlers_run_at_a_time_than_it_says(concurrency: int) -> None:
    """And so many do."""
    group, running, most = GroupProxy(), 0, 0
    group.send("t", *([b"x"] * 40))
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", concurrency=concurrency)
        async def handle(_body: bytes) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            for _ in range(5):
                await asyncio.sleep(0)
            if running < concurrency:
                await until(lambda: most == concurrency or len(group.acked) > 30)
            running -= 1

        async with working(worker):
            await until(lambda: len(group.acked) == 40)
    assert most == concurrency
    assert max(group.attempts.values()) == 1


async def test_never_more_messages_or_bytes_than_the_limits_are_leased() -> None:
    """300 messages of 100 KB against 20 messages and 9 MiB: a receive reserves before it asks."""
    group, held, most = GroupProxy("big", "many"), 0, 0
    group.send("big", *([bytes(MIB)] * 30))
    group.send("many", *([b"x"] * 300))
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK, max_messages=20, max_bytes=9 * MIB)

        @worker.on("big", group="g", concurrency=50)
        async def take_big(body: bytes) -> None:
            nonlocal held, most
            held += len(body)
            most = max(most, held, sum(row.in_flight_bytes for row in worker.stats().subscriptions))
            await asyncio.sleep(0)
            held -= len(body)

        @worker.on("many", group="g", concurrency=50)
        async def take_many(_body: bytes) -> None:
            await asyncio.sleep(0)

        async with working(worker):
            await until(lambda: len(group.acked) == 330)
    assert group.leased_max[0] <= 20
    assert group.leased_max[1] <= 9 * MIB
    assert MIB < most <= 9 * MIB
    assert max(group.attempts.values()) == 1
    assert all(row.in_flight_messages == row.in_flight_bytes == 0 for row in worker.stats().subscriptions)


async def test_a_slow_topic_does_not_stop_a_fast_one() -> None:
    """The slow one holds its share and all that is common, and the fast one goes on."""
    group, go_on = GroupProxy("slow", "fast"), asyncio.Event()
    group.send("slow", *([b"x"] * 100))
    group.send("fast", *([b"x"] * 200))
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK, max_messages=20, max_bytes=100 * MIB)

        @worker.on("slow", group="g", concurrency=100)
        async def take_slowly(_body: bytes) -> None:
            await go_on.wait()

        @worker.on("fast", group="g", concurrency=100)
        async def take_fast(_body: bytes) -> None:
            """Does nothing."""

        async with working(worker):
            await until(lambda: worker.stats().subscriptions[1].acked == 200)
            slow, fast = worker.stats().subscriptions
            assert (slow.running, slow.acked, fast.acked) == (15, 0, 200)
            go_on.set()
            await until(lambda: len(group.acked) == 300)
    assert group.leased_max[0] <= 20


@pytest.mark.parametrize("fifo", [True, False], ids=["the group keeps order", "the group does not"])
async def test_ordered_handles_one_at_a_time_per_message_group_and_others_side_by_side(
    fifo: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """In order of arrival. A group that keeps no order itself is told of in the log, once."""
    group, running, side_by_side = GroupProxy(fifo=fifo), defaultdict[str, int](int), 0
    seen: dict[str, list[int]] = defaultdict(list)
    for number in range(60):
        group.send("t", b"%d" % number, message_group=f"g{number % 3}")
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", concurrency=8, ordered=True)
        async def handle(message: ReceivedMessage) -> None:
            nonlocal side_by_side
            running[message.message_group] += 1
            assert running[message.message_group] == 1
            side_by_side = max(side_by_side, sum(running.values()))
            await asyncio.sleep(0)
            seen[message.message_group].append(int(message.body))
            running[message.message_group] -= 1

        with caplog.at_level(logging.WARNING, "tern_client.worker"):
            async with working(worker):
                await until(lambda: len(group.acked) == 60)
    assert seen == {f"g{each}": list(range(each, 60, 3)) for each in range(3)}
    assert 1 < side_by_side <= 3
    warnings = [record for record in caplog.records if "fifo=True" in record.getMessage()]
    assert len(warnings) == (not fifo)
    assert max(group.attempts.values()) == 1


async def test_in_a_group_with_order_a_failed_message_comes_before_its_successors() -> None:
    """Its message group waits, the other one does not."""
    group, seen = GroupProxy(fifo=True, retry_ms=100), list[bytes]()
    for body in (b"a0", b"a1", b"b0", b"b1"):
        group.send("t", body, message_group=body[:1].decode())
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", concurrency=4, ordered=True)
        async def handle(message: ReceivedMessage) -> None:
            seen.append(message.body)
            if message.body == b"a0" and message.attempt == 1:
                raise ZeroDivisionError

        async with working(worker):
            await until(lambda: len(group.acked) == 4)
    assert [body for body in seen if body[:1] == b"a"] == [b"a0", b"a0", b"a1"]
    assert [body for body in seen if body[:1] == b"b"] == [b"b0", b"b1"]


async def test_leases_are_extended_while_handlers_run_all_in_one_request() -> None:
    """Handlers of a second and a half under leases of one second: nothing comes twice."""
    group, go_on = GroupProxy(lease_ms=1_000), asyncio.Event()
    group.send("t", *([b"x"] * 4))
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", concurrency=4)
        async def handle(_body: bytes) -> None:
            await go_on.wait()

        async with working(worker):
            await until(lambda: len(group.extended) == 4 and min(group.extended.values()) >= 4)
            assert group.settle_requests < sum(group.extended.values())
            go_on.set()
            await until(lambda: len(group.acked) == 4)
    assert set(group.attempts.values()) == {1}


async def test_a_handler_whose_lease_is_lost_is_counted_and_its_result_is_not_sent() -> None:
    """Somebody else has the message by then; here the second attempt acks it."""
    group, go_on, attempts = GroupProxy(lease_ms=1_000), asyncio.Event(), list[int]()
    group.send("t", b"x")
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", concurrency=2)
        async def handle(message: ReceivedMessage) -> None:
            attempts.append(message.attempt)
            if message.attempt == 1:
                group.expire(message.message_id)
                await go_on.wait()
                return

        async with working(worker):
            await until(lambda: group.acked == ["m0"] and worker.stats().subscriptions[0].lease_lost == 1)
            assert worker.stats().subscriptions[0].in_flight_messages == 1
            go_on.set()
            await until(lambda: worker.stats().subscriptions[0].in_flight_messages == 0)
    assert attempts == [1, 2]
    assert group.refused == ["extend m0"]
    (row,) = worker.stats().subscriptions
    assert (row.acked, row.lease_lost, row.handled) == (1, 1, 2)


async def test_a_message_whose_lease_ended_while_it_waited_is_not_handed_out() -> None:
    """Nothing can be extended for longer than a lease, while a handler holds the only place: what waited comes again."""
    group, begun = GroupProxy(lease_ms=1_000), list[tuple[bool, int]]()
    go_on, is_held = asyncio.Event(), asyncio.Event()
    group.send("t", *([b"x"] * 200))

    def answer(asked: Asked) -> Reply | Awaitable[Reply]:
        return HANG_UP if is_held.is_set() and not go_on.is_set() else group.answer(asked)

    impatient = RetryPolicy(first_delay_ms=1, max_delay_ms=2, deadline_ms=20, attempt_timeout_ms=1_000)
    async with ScriptedProxy(answer=answer) as proxy:
        worker = Worker(proxy.url, policy=impatient)

        @worker.on("t", group="g")
        async def handle(message: ReceivedMessage) -> None:
            begun.append((group.is_leased(message.message_id, message.attempt), message.attempt))
            if len(begun) == 100:
                is_held.set()
                await go_on.wait()

        async with working(worker):
            await is_held.wait()
            await until(lambda: not group.leased)
            waiting = worker.stats().subscriptions[0].in_flight_messages - 1
            go_on.set()
            await until(lambda: len(group.acked) == 200)
    assert waiting > 0
    assert all(was_leased for was_leased, _ in begun)
    assert worker.stats().subscriptions[0].lease_lost >= waiting
    assert {attempt for _, attempt in begun} == {1, 2}


async def test_of_messages_on_their_third_attempt_one_is_handed_out_until_it_has_shown_what_it_does() -> None:
    """The others of its receive go back, uncounted."""
    group, seen = GroupProxy(), list[str]()
    group.send("t", *([b"x"] * 8))
    for message in group.messages["t"][3:]:
        message.attempt = 2
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", concurrency=8)
        async def handle(message: ReceivedMessage) -> None:
            seen.append(message.message_id)

        async with working(worker):
            await until(lambda: len(group.acked) == 8)
    assert group.released[:3] == ["m4", "m5", "m6"]
    (row,) = worker.stats().subscriptions
    assert (row.received, row.released, row.acked) == (8 + len(group.released), len(group.released), 8)
    assert len(seen) == 8
    assert [message.attempt for message in group.messages["t"]] == [1, 1, 1, 3, 3, 3, 3, 3]
