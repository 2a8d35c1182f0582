"""Law: each committed row is one message in effect, in the order of its message group, wherever a relay ends and whatever becomes of an answer."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from tern_client.outbox import BlockingRelay, Outbox
from tern_client.outbox.batches import SUSPECT_AFTER_MS
from tern_wire.errors import Forbidden, NoLeader
from tests.support.client.outbox_server import DROPPED, LOST, UNREACHABLE, URL, OutboxServer
from tests.support.loops import eventually
from tests.unit.client.outbox.conftest import HASTY, MakeRelay


class Killed(BaseException):
    """The process of a relay ends: nothing of it runs any more, not even its clean-up."""


def killer(at: str) -> Callable[[str], None]:
    """Ends a relay at a point."""

    def watch(point: str) -> None:
        if point == at:
            raise Killed

    return watch


def add(engine: Engine, outbox: Outbox, *bodies: bytes, topic: str = "orders", group: str = "g") -> None:
    """Commit rows of one transaction."""
    with Session(engine) as session, session.begin():
        for body in bodies:
            outbox.add(session, topic, body, message_group=group)


def age(engine: Engine, by_ms: int = SUSPECT_AFTER_MS + 1_000) -> None:
    """The first attempts of all rows are longer ago."""
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE ternmq_outbox SET attempted_at = attempted_at - {by_ms}"))


def test_rows_are_sent_in_the_order_of_their_groups_and_are_gone_then(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """Small batches of rows and of bytes; several topics."""
    for number in range(40):
        add(engine, outbox, b"%d" % number, topic=f"topic-{number % 2}", group=f"g{number % 3}")
    counts = asyncio.run(relay_of(batch_rows=7, batch_size_bytes=1_000).drain())
    for topic in range(2):
        assert server.bodies(f"topic-{topic}") == [b"%d" % number for number in range(40) if number % 2 == topic]
    assert (counts.sent, outbox.backlog().waiting) == (40, 0)
    assert max(map(len, server.requests)) <= 4


@pytest.mark.parametrize("fault", [LOST, DROPPED, UNREACHABLE, NoLeader(broker_group="broker-a")])
def test_a_request_that_fails_for_now_is_repeated_with_the_same_keys(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay, fault: str | NoLeader
) -> None:
    """Whether it was stored or not: each row once, in order, and rows behind it wait."""
    add(engine, outbox, b"1", b"2")
    server.faults = [fault, fault, fault]
    relay = relay_of(batch_rows=1)

    async def main() -> None:
        async with relay:
            await eventually(lambda: len(server.bodies()) == 2 and not outbox.backlog().waiting, "both are sent")

    asyncio.run(main())
    keys = server.sent_keys()
    assert server.bodies() == [b"1", b"2"]
    assert len(keys) == 5 and len(set(keys[:4])) == 1
    assert relay.counts.postponed == 3


@pytest.mark.parametrize("point, sends", [("claimed", 1), ("sent", 2), ("settled", 1)])
def test_a_relay_that_is_killed_loses_nothing_and_repeats_with_the_same_keys(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay, point: str, sends: int
) -> None:
    """Before the send, behind it, behind the deletion: the next relay takes over when the lease has stood still."""
    add(engine, outbox, b"1", b"2")
    with pytest.raises(Killed):
        asyncio.run(relay_of(watch=killer(point)).drain())
    asyncio.run(relay_of(lease="100ms").drain())
    assert server.bodies() == [b"1", b"2"]
    keys = server.sent_keys()
    assert len(keys) == 2 * sends and len(set(keys)) == 2


@pytest.mark.parametrize("point, sends", [("claimed", 1), ("sent", 1)])
def test_a_row_with_an_old_attempt_is_looked_for_before_it_is_sent_again(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay, point: str, sends: int
) -> None:
    """The server has forgotten the keys meanwhile: a repeat would be stored again. What is not there is sent."""
    add(engine, outbox, b"1", b"2")
    with pytest.raises(Killed):
        asyncio.run(relay_of(watch=killer(point)).drain())
    server.forget_keys()
    age(engine)
    counts = asyncio.run(relay_of(lease="100ms").drain())
    assert server.bodies() == [b"1", b"2"]
    assert len(server.sent_keys()) == 2 * sends
    assert (counts.searched, counts.found) == (2, 2 if point == "sent" else 0)


def test_a_row_that_cannot_be_looked_for_waits(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """Without the right to read, a repeat after a long time could be a second message: drain raises the reason."""
    add(engine, outbox, b"1")
    with pytest.raises(Killed):
        asyncio.run(relay_of(watch=killer("sent")).drain())
    server.forget_keys()
    age(engine)
    server.search_error = Forbidden(principal="p", action="READ", resource="topic orders")
    with pytest.raises(Forbidden):
        asyncio.run(relay_of(lease="100ms").drain())
    assert (len(server.requests), outbox.backlog().waiting) == (1, 1)


def test_a_row_that_commits_late_with_a_lower_number_is_sent_when_it_is_seen(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """Numbers are drawn before commits. A relay has no place behind which it looks."""
    add(engine, outbox, b"drawn early")
    with engine.begin() as connection:
        held = connection.execute(text("SELECT id, fields FROM ternmq_outbox")).one()
        connection.execute(text("DELETE FROM ternmq_outbox"))
    add(engine, outbox, b"drawn late")
    asyncio.run(relay_of().drain())
    with engine.begin() as connection:
        sql = (
            "INSERT INTO ternmq_outbox (seq, id, topic, body, fields, size_bytes, created_at)"
            " VALUES (1, :id, 'orders', :body, :fields, 1, 1)"
        )
        connection.execute(text(sql), {"id": held.id, "body": b"drawn early", "fields": held.fields})
    asyncio.run(relay_of().drain())
    assert server.bodies() == [b"drawn late", b"drawn early"]


def test_a_commit_that_really_is_late_is_sent_when_it_is_seen(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """With two writers at a time, which SQLite has not: the number of the first is lower, its commit later."""
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    with engine.connect() as slow, slow.begin():
        outbox.add(slow, "orders", b"first drawn")
        add(engine, outbox, b"first committed")
        asyncio.run(relay_of().drain())
    asyncio.run(relay_of().drain())
    assert server.bodies() == [b"first committed", b"first drawn"]


def test_numbers_are_not_given_twice(engine: Engine, outbox: Outbox) -> None:
    """A row that is deleted takes its number with it, and ids are drawn at random."""
    add(engine, outbox, b"1")
    with engine.begin() as connection:
        before = connection.execute(text("SELECT seq FROM ternmq_outbox")).scalar_one()
        connection.execute(text("DELETE FROM ternmq_outbox"))
    add(engine, outbox, b"2")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT seq FROM ternmq_outbox")).scalar_one() > before


def test_a_commit_in_this_process_wakes_the_relay(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """The poll is an hour away; a commit from another thread is seen as well."""

    async def main() -> None:
        async with relay_of(poll_interval="1h"):
            add(engine, outbox, b"1")
            await eventually(lambda: len(server.bodies()) == 1, "the first is sent")
            await asyncio.to_thread(add, engine, outbox, b"2")
            await eventually(lambda: len(server.bodies()) == 2, "the second is sent")

    asyncio.run(main())


def test_what_another_process_commits_is_seen_by_the_poll(
    url: str, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """Another engine and another outbox have no word for this relay."""
    other = create_engine(url)

    async def main() -> None:
        async with relay_of():
            add(other, Outbox(other), b"1")
            await eventually(lambda: len(server.bodies()) == 1, "it is sent")

    asyncio.run(main())
    other.dispose()


def test_rows_are_kept_for_as_long_as_asked(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """A kept row is not sent again, and goes with a later batch when its time is over."""
    add(engine, outbox, b"1")
    asyncio.run(relay_of(keep="1d").drain())
    with engine.begin() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM ternmq_outbox WHERE sent_at > 0")).scalar_one() == 1
        connection.execute(text("UPDATE ternmq_outbox SET sent_at = sent_at - 86400001"))
    add(engine, outbox, b"2")
    asyncio.run(relay_of(keep="1d").drain())
    with engine.connect() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM ternmq_outbox")).scalar_one() == 1
    assert server.bodies() == [b"1", b"2"]


def test_a_missing_table_is_an_error_of_the_first_line(engine: Engine, server: OutboxServer) -> None:
    """Not a line of a log every second."""
    relay = BlockingRelay(Outbox(engine, name="nowhere"), URL, policy=HASTY, transport=server.transport)
    with pytest.raises(Exception, match="nowhere"):
        relay.run()
    with pytest.raises(Exception, match="nowhere"), relay:
        raise AssertionError("the block has begun")
    with pytest.raises(Exception, match="nowhere"):
        relay.drain()


def test_a_database_that_fails_meanwhile_is_asked_again(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """The table is renamed while the relay runs, and comes back: the row is sent, the failure is counted."""
    add(engine, outbox, b"1")

    def rename(before: str, after: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(f"ALTER TABLE {before} RENAME TO {after}"))

    async def main() -> None:
        relay = relay_of()
        async with relay:
            await eventually(lambda: server.bodies() == [b"1"], "the first is sent")
            await asyncio.to_thread(rename, "ternmq_outbox", "shop_orders")
            await eventually(lambda: relay.counts.database_errors, "the table is missed")
            await asyncio.to_thread(rename, "shop_orders", "ternmq_outbox")
            add(engine, outbox, b"2")
            await eventually(lambda: server.bodies() == [b"1", b"2"], "the second is sent")

    asyncio.run(main())


def test_a_relay_in_a_thread_sends_until_its_block_ends(engine: Engine, outbox: Outbox, server: OutboxServer) -> None:
    """`with`, `run` and `stop` of the blocking half; a stop before the begin ends it as well."""
    arguments = {"policy": HASTY, "transport": server.transport, "poll_interval": "5ms"}
    with BlockingRelay(outbox, URL, **arguments) as relay:
        add(engine, outbox, b"1")
        seen = threading.Event()

        async def sent() -> None:
            await eventually(lambda: server.bodies() == [b"1"] and not outbox.backlog().waiting, "it is sent")
            seen.set()

        asyncio.run(sent())
    assert seen.is_set() and relay.counts.sent == 1
    stopped = BlockingRelay(outbox, URL, **arguments)
    stopped.stop()
    stopped.run()
