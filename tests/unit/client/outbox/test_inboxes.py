"""Law: a message is handled once in effect: its record and the handler's rows are one transaction."""

import asyncio
import threading
from dataclasses import dataclass

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from tern_client.outbox import AsyncInbox, Inbox
from tern_client.outbox.inboxes import identity_of


@dataclass(frozen=True)
class Delivered:
    """A message as the inbox sees it."""

    message_id: str
    keys: tuple[str, ...] = ()


@pytest.fixture
def inbox(engine: Engine) -> Inbox:
    """The inbox of a consumer group, and a table of the handler's own."""
    made = Inbox(engine, group="billing")
    made.create()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE shop_orders (id INTEGER)"))
    return made


def handle(engine: Engine, inbox: Inbox, message: Delivered, *, fails: bool = False) -> bool:
    """A handler that writes one row."""
    with Session(engine) as session, session.begin():
        if not inbox.once(session, message):
            return False
        session.execute(text("INSERT INTO shop_orders VALUES (1)"))
        if fails:
            raise ZeroDivisionError
    return True


def count(engine: Engine) -> int:
    """Effects of handlers."""
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT COUNT(*) FROM shop_orders")).scalar_one())


def test_a_message_that_is_delivered_again_is_handled_once(engine: Engine, inbox: Inbox) -> None:
    """Other messages, and the same one in another consumer group, are new."""
    assert [handle(engine, inbox, Delivered("m1")) for _ in range(3)] == [True, False, False]
    assert handle(engine, inbox, Delivered("m2"))
    with engine.begin() as connection:
        assert inbox.once(connection, Delivered("m1"), group="mail")
        assert not inbox.once(connection, Delivered("m1"))
    assert count(engine) == 2


def test_a_handler_that_fails_leaves_no_record(engine: Engine, inbox: Inbox) -> None:
    """The next delivery handles the message."""
    with pytest.raises(ZeroDivisionError):
        handle(engine, inbox, Delivered("m1"), fails=True)
    assert handle(engine, inbox, Delivered("m1"))
    assert count(engine) == 1


def test_two_messages_of_one_row_of_an_outbox_are_one(engine: Engine, inbox: Inbox) -> None:
    """Should a relay ever repeat a row behind all its precautions, the inbox sees it by the row's key."""
    key = "ob-" + "0" * 32
    assert handle(engine, inbox, Delivered("m1", ("4711", key)))
    assert not handle(engine, inbox, Delivered("m2", ("4711", key)))
    assert identity_of(Delivered("m1", ("4711", "ob-short"))) == "m1"


def test_two_deliveries_at_a_time_have_one_effect(engine: Engine, inbox: Inbox) -> None:
    """The second one waits for the end of the first."""
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(handle(engine, inbox, Delivered("m1")))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sorted(results), count(engine)) == ([False, False, False, True], 1)


def test_old_records_are_deleted(engine: Engine, inbox: Inbox) -> None:
    """By age; the younger ones stay."""
    handle(engine, inbox, Delivered("m1"))
    with engine.begin() as connection:
        connection.execute(text("UPDATE ternmq_inbox SET handled_at = handled_at - 90000000"))
    handle(engine, inbox, Delivered("m2"))
    assert (inbox.purge("1d"), inbox.purge("1d")) == (1, 0)
    assert not handle(engine, inbox, Delivered("m2"))
    assert handle(engine, inbox, Delivered("m1"))


def test_an_inbox_without_a_group_says_what_to_do(engine: Engine) -> None:
    """A record of no group would be one of all."""
    inbox = Inbox(engine)
    inbox.create()
    with engine.begin() as connection, pytest.raises(ValueError, match="group"):
        inbox.once(connection, Delivered("m1"))


def test_the_async_inbox_does_the_same(async_engine: AsyncEngine) -> None:
    """With sessions and with connections."""

    async def main() -> list[bool]:
        inbox = AsyncInbox(async_engine, group="billing")
        await inbox.create()
        seen = []
        for _ in range(2):
            async with AsyncSession(async_engine) as session:
                seen.append(await inbox.once(session, Delivered("m1")))
                await session.rollback()
        async with async_engine.begin() as connection:
            seen.append(await inbox.once(connection, Delivered("m1")))
        async with AsyncSession(async_engine) as session, session.begin():
            seen.append(await inbox.once(session, Delivered("m1")))
        assert await inbox.purge("1d") == 0
        await async_engine.dispose()
        return seen

    assert asyncio.run(main()) == [True, True, True, False]
