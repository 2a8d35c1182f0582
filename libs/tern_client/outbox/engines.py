"""Transactions of databases that SQLAlchemy's Engine and AsyncEngine reach."""

import asyncio
from typing import TypeVar

from sqlalchemy import Connection, Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine

from tern_client.outbox.databases import Work
from tern_client.outbox.statements import Execute, Result, Statement

T = TypeVar("T")


def on_connection(connection: Connection) -> Execute:
    """Return the function that runs statements on *connection*."""

    def execute(statement: Statement) -> Result:
        done = connection.execute(text(statement.sql), dict(statement.values))
        if done.returns_rows:
            return Result(rows=[tuple(row) for row in done])
        return Result(count=done.rowcount)

    return execute


class EngineDatabase:
    """A database behind SQLAlchemy's Engine."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, work: Work[T]) -> T:
        """Run *work* in a transaction of its own, in this thread."""
        with self._engine.begin() as connection:
            return work(on_connection(connection))

    async def transact(self, work: Work[T]) -> T:
        """Run *work* in a transaction of its own, in another thread."""
        return await asyncio.to_thread(self.run, work)


class AsyncEngineDatabase:
    """A database behind SQLAlchemy's AsyncEngine."""

    __slots__ = ("_engine",)

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def transact(self, work: Work[T]) -> T:
        """Run *work* in a transaction of its own."""
        async with self._engine.begin() as connection:
            return await connection.run_sync(lambda plain: work(on_connection(plain)))
