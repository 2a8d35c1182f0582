"""A database for each test: a file of SQLite, or the one of TERNMQ_OUTBOX_DATABASE (`postgresql+psycopg://...`), whose tables are dropped first."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tern_client import RetryPolicy
from tern_client.outbox import Outbox, Relay
from tests.support.client.outbox_server import URL, OutboxServer

# A relay that gives up a request at its first failure, and goes on soon.
HASTY = RetryPolicy(deadline_ms=5, first_delay_ms=10, max_delay_ms=10)
GIVEN = os.environ.get("TERNMQ_OUTBOX_DATABASE", "")
MakeRelay = Callable[..., Relay]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Where the database is."""
    return GIVEN or f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """An engine, with no table of ours behind it."""
    made = create_engine(url)
    _drop(made)
    yield made
    made.dispose()


@pytest.fixture
def async_engine(engine: Engine, url: str) -> AsyncEngine:
    """An async engine for the same database."""
    driver = "sqlite+aiosqlite" if make_url(url).get_backend_name() == "sqlite" else make_url(url).drivername
    return create_async_engine(make_url(url).set(drivername=driver))


@pytest.fixture
def outbox(engine: Engine) -> Outbox:
    """An outbox with its tables."""
    made = Outbox(engine)
    made.create()
    return made


@pytest.fixture
def server() -> OutboxServer:
    """A server without faults."""
    return OutboxServer()


@pytest.fixture
def relay_of(outbox: Outbox, server: OutboxServer) -> MakeRelay:
    """Makes relays of the outbox to the server."""

    def make(**arguments: Any) -> Relay:
        defaults: dict[str, Any] = {"policy": HASTY, "poll_interval": "5ms", "transport": server.transport}
        return Relay(arguments.pop("outbox", outbox), URL, **{**defaults, **arguments})

    return make


def _drop(engine: Engine) -> None:
    with engine.begin() as connection:
        for table in ("ternmq_outbox", "ternmq_outbox_lease", "ternmq_inbox", "shop_orders"):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
