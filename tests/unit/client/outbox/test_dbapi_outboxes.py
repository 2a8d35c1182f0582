"""The outbox for a plain driver: the same rows, and no SQLAlchemy."""

import importlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, make_url
from sqlalchemy.orm import Session

from tern_client.outbox import BlockingRelay, DbApiOutbox, Outbox
from tern_wire.errors import MessageTooLarge
from tests.support.client.outbox_server import URL, OutboxServer
from tests.unit.client.outbox.conftest import HASTY


@pytest.fixture
def connect(engine: Engine, url: str) -> Callable[[], Any]:
    """Connections of the driver itself, to the database of the engine."""
    place = make_url(url)
    if place.get_backend_name() == "sqlite":
        return lambda: sqlite3.connect(place.database or "")
    driver = importlib.import_module("psycopg")
    return lambda: driver.connect(place.set(drivername="postgresql").render_as_string())


@pytest.fixture
def plain(connect: Callable[[], Any], engine: Engine) -> DbApiOutbox:
    """An outbox with its tables, made by its own SQL."""
    is_sqlite = engine.dialect.name == "sqlite"
    made = DbApiOutbox(connect, "qmark" if is_sqlite else "pyformat", dialect=engine.dialect.name)
    made.create()
    made.create()
    return made


def relay_of(outbox: DbApiOutbox | Outbox, server: OutboxServer) -> BlockingRelay:
    """A relay that gives up soon."""
    return BlockingRelay(outbox, URL, policy=HASTY, transport=server.transport)


def test_a_cursor_takes_messages_into_its_transaction(
    plain: DbApiOutbox, connect: Callable[[], Any], server: OutboxServer
) -> None:
    """Committed ones are sent, others never; refused ones are listed and come back."""
    connection = connect()
    cursor = connection.cursor()
    plain.add(cursor, "orders", b"1", message_group="g", tag="new", properties={"a": "%s ? :b"})
    plain.add(cursor, "orders", b"bad", message_group="g")
    connection.commit()
    plain.add(cursor, "orders", b"never")
    connection.rollback()
    server.refused[b"bad"] = MessageTooLarge(actual=1, limit=0)
    assert relay_of(plain, server).drain().sent == 1
    assert (server.bodies(), server.topics["orders"][0]["properties"]) == ([b"1"], {"a": "%s ? :b"})
    (failed,) = plain.failed()
    assert (failed.error_code, plain.backlog().failed) == ("message-too-large", 1)
    server.refused.clear()
    assert (plain.retry([failed.id]), plain.discard([failed.id])) == (1, 0)
    relay_of(plain, server).drain()
    assert server.bodies() == [b"1", b"bad"]
    connection.close()


def test_its_table_is_that_of_the_other_outboxes(
    plain: DbApiOutbox, connect: Callable[[], Any], engine: Engine, server: OutboxServer
) -> None:
    """One half of an application may use SQLAlchemy, the other its driver; any relay sends both."""
    outbox = Outbox(engine)
    outbox.create()
    with Session(engine) as session, session.begin():
        outbox.add(session, "orders", b"1")
    connection = connect()
    plain.add(connection.cursor(), "orders", b"2")
    connection.commit()
    connection.close()
    assert relay_of(plain, server).drain().sent == 2
    assert server.bodies() == [b"1", b"2"]


async def test_a_blocking_relay_in_an_event_loop_names_the_one_to_take(tmp_path: Path) -> None:
    """In the lifespan of a web application, for instance."""
    outbox = DbApiOutbox(lambda: sqlite3.connect(tmp_path / "shop.db"), "qmark")
    outbox.create()
    with pytest.raises(RuntimeError, match=r"use `async with Relay\(\.\.\.\)` here"):
        BlockingRelay(outbox, "http://127.0.0.1:9").__enter__()


def test_no_sqlalchemy_is_imported(tmp_path: Path) -> None:
    """Nor is it needed: its import is an error in that program."""
    program = """
import sqlite3, sys
sys.modules["sqlalchemy"] = None
from tern_client.outbox import BlockingRelay, DbApiOutbox
outbox = DbApiOutbox(lambda: sqlite3.connect("shop.db"), sqlite3.paramstyle)
outbox.create()
with sqlite3.connect("shop.db") as database:
    outbox.add(database.cursor(), "orders", b"1")
BlockingRelay(outbox, "http://127.0.0.1:9")
print(outbox.backlog().waiting)
try:
    from tern_client.outbox import Outbox
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    waiting, told = done.stdout.splitlines() or ["", done.stderr]
    assert (waiting, "pip install 'ternmq-client[outbox]'" in told) == ("1", True), done.stderr


def test_an_unknown_paramstyle_is_refused() -> None:
    """By the constructor, with those that there are."""
    with pytest.raises(ValueError, match="qmark, named"):
        DbApiOutbox(lambda: None, "dollar")
