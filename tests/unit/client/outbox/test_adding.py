"""A row of the outbox belongs to the application's transaction, and what the server would surely refuse is refused before it is written."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tern_client.outbox import AsyncOutbox, Outbox, Relay
from tern_client.outbox.rows import KEYS_GIVEN_MAX, fields_of, new_row, span_ms
from tern_wire.errors import (
    IllegalDeliveryTime,
    IllegalMessageGroup,
    IllegalTopic,
    InvalidField,
    MessageTooLarge,
    PropertyConflictsWithType,
)
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES
from tests.support.client.outbox_server import OutboxServer
from tests.unit.client.outbox.conftest import MakeRelay

NOW_MS = 1_800_000_000_000


def orders(engine: Engine) -> int:
    """Rows of the application's own table."""
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT COUNT(*) FROM shop_orders")).scalar_one())


def test_a_message_is_sent_when_its_transaction_commits_and_not_when_it_is_rolled_back(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """The order and its message are there together, or neither is."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE shop_orders (id INTEGER PRIMARY KEY)"))
    with Session(engine) as session, session.begin():
        session.execute(text("INSERT INTO shop_orders VALUES (1)"))
        outbox.add(session, "orders", b"kept")
        savepoint = session.begin_nested()
        outbox.add(session, "orders", b"taken back by its savepoint")
        savepoint.rollback()
    with pytest.raises(ZeroDivisionError), Session(engine) as session, session.begin():
        session.execute(text("INSERT INTO shop_orders VALUES (2)"))
        outbox.add(session, "orders", b"rolled back")
        session.flush()
        raise ZeroDivisionError
    assert asyncio.run(relay_of().drain()).sent == 1
    assert (server.bodies(), orders(engine)) == ([b"kept"], 1)


def test_a_session_a_scoped_session_and_a_connection_take_messages_in_order(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """All fields arrive, and so does the order of the calls."""
    moment = datetime.now(UTC) + timedelta(hours=1)
    with Session(engine) as session, session.begin():
        for number in range(100):
            outbox.add(session, "orders", b"%d" % number, message_group="g")
    scoped = scoped_session(sessionmaker(engine))
    outbox.add(scoped, "orders", b"scoped", deliver_at=moment, content_type="text/plain", queue="broker-a:1")
    scoped.commit()
    scoped.remove()
    with engine.begin() as connection:
        row_id = outbox.add(connection, "orders", b"plain", tag="new", keys=["4711"], properties={"a": "b"})
    asyncio.run(relay_of().drain())
    assert server.bodies() == [b"%d" % number for number in range(100)] + [b"scoped", b"plain"]
    scoped_message, plain = server.topics["orders"][-2:]
    assert scoped_message["deliver_at"] == round(moment.timestamp() * 1000)
    assert (scoped_message["content_type"], scoped_message["queue"]) == ("text/plain", "broker-a:1")
    assert (plain["tag"], plain["properties"], plain["keys"]) == ("new", {"a": "b"}, ["4711", f"ob-{row_id}"])
    assert plain["idempotency_key"] == f"ob-{row_id}"


def test_async_sessions_and_async_engines_do_the_same(
    async_engine: AsyncEngine, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """`add` is a plain call there, too; an AsyncConnection is told how."""

    async def main() -> None:
        outbox = AsyncOutbox(async_engine)
        await outbox.create()
        async with AsyncSession(async_engine) as session, session.begin():
            outbox.add(session, "orders", b"one")
        async with AsyncSession(async_engine) as session:
            outbox.add(session, "orders", b"never")
            await session.flush()
            await session.rollback()
        async with async_engine.begin() as connection:
            with pytest.raises(TypeError, match="run_sync"):
                outbox.add(connection, "orders", b"two")  # type: ignore[arg-type]
            await connection.run_sync(outbox.add, "orders", b"two")
        assert (await outbox.backlog()).waiting == 2
        server.refused[b"two"] = MessageTooLarge(actual=1, limit=0)
        relay: Relay = relay_of(outbox=outbox)
        await relay.drain()
        (failed,) = await outbox.failed()
        assert (failed.error_code, server.bodies()) == ("message-too-large", [b"one"])
        server.refused.clear()
        assert await outbox.retry([failed.id]) == 1
        await relay.drain()
        assert server.bodies() == [b"one", b"two"]
        assert await outbox.discard([failed.id]) == 0
        await async_engine.dispose()

    asyncio.run(main())


def test_tables_are_in_the_metadata_of_the_application_and_their_name_is_its_choice() -> None:
    """Alembic sees them; two outboxes of one metadata share them; a name that is no name is refused."""
    engine, metadata = create_engine("sqlite://"), MetaData()
    first, second = Outbox(engine, name="mail", metadata=metadata), Outbox(engine, name="mail", metadata=metadata)
    assert set(metadata.tables) == {"mail", "mail_lease"}
    assert first.table is second.table
    with pytest.raises(ValueError, match="no name of a table"):
        Outbox(engine, name="mail; DROP TABLE users")


def test_the_engine_of_the_other_half_is_refused_by_name(engine: Engine, async_engine: AsyncEngine) -> None:
    """A mistake in the first line is told in the first line."""
    with pytest.raises(TypeError, match="AsyncOutbox is for it"):
        Outbox(async_engine)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Outbox is for a plain one"):
        AsyncOutbox(engine)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"body": 7}, TypeError),
        ({"keys": "4711"}, TypeError),
        ({"keys": ["k"] * (KEYS_GIVEN_MAX + 1)}, InvalidField),
        ({"topic": "no topic"}, IllegalTopic),
        ({"body": bytes(MESSAGE_BODY_SIZE_MAX_BYTES + 1)}, MessageTooLarge),
        ({"message_group": "g" * 64}, IllegalMessageGroup),
        ({"message_group": "g", "delay": "1h"}, PropertyConflictsWithType),
        ({"message_group": "g", "queue": "broker-a:0"}, PropertyConflictsWithType),
        ({"delay": "1h", "deliver_at": 1}, IllegalDeliveryTime),
        ({"delay": "soon"}, IllegalDeliveryTime),
        ({"delay": "41d"}, IllegalDeliveryTime),
    ],
)
def test_what_the_server_would_surely_refuse_is_refused_at_once(
    arguments: dict[str, Any], error: type[Exception]
) -> None:
    """In the caller's transaction, where it can still be put right."""
    with pytest.raises(error):
        new_row("0" * 32, NOW_MS, **{"topic": "orders", "body": b"x", **arguments})


def test_a_body_may_be_a_value_as_at_a_producer() -> None:
    """With the content type that it has there, unless the caller gives another."""
    row = new_row("0" * 32, NOW_MS, "orders", {"id": 1})
    assert (row.body, fields_of(row.fields).content_type) == (b'{"id":1}', "application/json")
    named = new_row("0" * 32, NOW_MS, "orders", "one", content_type="text/x-order")
    assert (named.body, fields_of(named.fields).content_type) == (b"one", "text/x-order")


def test_a_delay_counts_from_the_call_and_not_from_the_relay() -> None:
    """A reminder is not an hour later because the relay was."""
    row = new_row("0" * 32, NOW_MS, "orders", b"x", delay=timedelta(hours=1))
    assert fields_of(row.fields).deliver_at == NOW_MS + 3_600_000
    assert span_ms("1.5s") == span_ms(1_500) == span_ms(timedelta(seconds=1.5)) == 1_500
