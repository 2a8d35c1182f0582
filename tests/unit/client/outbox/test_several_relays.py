"""Several relays of one outbox: one sends at a time, another takes over, and no message group is out of order meanwhile."""

import asyncio
import random
from typing import Any

import pytest
from sqlalchemy import Engine

from tern_client.outbox import Outbox, Relay
from tern_client.outbox.lease import LeaseWatch, SeenLease
from tests.support.client.outbox_server import DROPPED, LOST, OutboxServer
from tests.support.loops import eventually
from tests.unit.client.outbox.conftest import MakeRelay
from tests.unit.client.outbox.test_relays import add

GROUPS = 5


def in_order(server: OutboxServer, count: int) -> bool:
    """Whether each row was stored once, and each group in order."""
    numbers = [int(body) for body in server.bodies()]
    by_group = [[number for number in numbers if number % GROUPS == group] for group in range(GROUPS)]
    return sorted(numbers) == list(range(count)) and all(each == sorted(each) for each in by_group)


@pytest.mark.parametrize("seed", range(4))
def test_relays_that_come_and_go_store_each_row_once_and_in_order(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay, seed: int
) -> None:
    """Three relays over a shaky server; one after the other is cancelled and begins again."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    count = 60
    server.faults = [chance.choice((LOST, DROPPED, "", "", "")) for _ in range(40)]

    async def some_turns(messages: list[dict[str, Any]]) -> None:
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)

    server.before = some_turns

    async def main() -> None:
        relays = [asyncio.create_task(relay_of(lease="100ms", batch_rows=4).run()) for _ in range(3)]
        for number in range(count):
            add(engine, outbox, b"%d" % number, group=f"g{number % GROUPS}")
            await asyncio.sleep(0)
            if number % 15 == 14:
                gone = relays.pop(0)
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
                relays.append(asyncio.create_task(relay_of(lease="100ms", batch_rows=4).run()))
        await eventually(lambda: not outbox.backlog().waiting, "all are sent")
        for relay in relays:
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)

    asyncio.run(main())
    assert in_order(server, count)


def test_one_relay_sends_while_the_others_look_on(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """Nobody sends a row that another one has in hand: every key is sent once, by whoever has the lease."""

    async def main() -> list[int]:
        relays: list[Relay] = [relay_of(batch_rows=3) for _ in range(2)]
        async with relays[0], relays[1]:
            for number in range(30):
                add(engine, outbox, b"%d" % number, group=f"g{number % GROUPS}")
                await asyncio.sleep(0)
            await eventually(lambda: not outbox.backlog().waiting, "all are sent")
        return [relay.counts.sent for relay in relays]

    sent = asyncio.run(main())
    assert (sum(sent), min(sent)) == (30, 0)
    assert len(server.sent_keys()) == 30 and in_order(server, 30)


def test_a_relay_that_is_stopped_or_cancelled_gives_its_lease_back(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """The next one need not wait for its end, half a minute; the first one has hung in a send when it was cancelled."""
    is_stuck = asyncio.Event()

    async def hang(messages: list[dict[str, Any]]) -> None:
        is_stuck.set()
        await asyncio.Event().wait()

    def owner() -> str:
        with engine.connect() as connection:
            return str(connection.exec_driver_sql("SELECT owner FROM ternmq_outbox_lease").scalar_one())

    async def main() -> None:
        server.before = hang
        cancelled = asyncio.create_task(relay_of().run())
        add(engine, outbox, b"0")
        await is_stuck.wait()
        assert owner()
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert not owner()
        server.before = OutboxServer().before
        async with relay_of():
            await eventually(lambda: not outbox.backlog().waiting, "the other one has sent it")
        assert not owner()

    asyncio.run(main())
    assert server.bodies() == [b"0"]


def test_a_relay_that_stood_still_finds_its_lease_gone_and_stores_nothing_twice(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """It hangs in a send for longer than its lease; another one sends the rows and the next ones. Then its own request arrives."""
    add(engine, outbox, b"0", b"5")
    is_stuck, go_on = asyncio.Event(), asyncio.Event()

    async def hang_once(messages: list[dict[str, Any]]) -> None:
        if not is_stuck.is_set():
            is_stuck.set()
            await go_on.wait()

    server.before = hang_once

    async def main() -> None:
        stuck = asyncio.create_task(relay_of(lease="30s").drain())
        await is_stuck.wait()
        add(engine, outbox, b"10")
        await relay_of(lease="100ms").drain()
        assert server.bodies() == [b"0", b"5", b"10"]
        go_on.set()
        await stuck

    asyncio.run(main())
    assert server.bodies() == [b"0", b"5", b"10"]


def test_a_lease_is_taken_when_it_is_free_or_has_stood_still_and_not_before() -> None:
    """Measured with the clock of the one that looks on, from when it first saw the version."""
    watch = LeaseWatch("me", 1_000)
    assert watch.may_take(SeenLease("", 0), 0)
    assert watch.may_take(SeenLease("me", 1), 0)
    assert not watch.may_take(SeenLease("you", 2), 5_000)
    assert not watch.may_take(SeenLease("you", 2), 5_999)
    assert not watch.may_take(SeenLease("you", 3), 6_500)
    assert watch.may_take(SeenLease("you", 3), 7_500)
