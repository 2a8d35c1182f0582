"""One transaction of a database: what a relay needs of one, and a plain DB-API driver as such.
SQLAlchemy's engines are in `engines.py`. What is done in the transaction is a function of
`Execute`, written once.

    work(execute) -> commit, and its value
                  '-> exception -> rollback

A blocking database is used from a loop through a thread, so that its waits stop no task.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

from tern_client.outbox.statements import PARAMSTYLES, Execute, Result, Statement, placed

T = TypeVar("T")
Work = Callable[[Execute], T]


class Database(Protocol):
    """What a relay uses."""

    async def transact(self, work: Work[T]) -> T:
        """Run *work* in a transaction of its own; the driver's errors are raised as they are."""


@runtime_checkable
class BlockingDatabase(Protocol):
    """What a blocking program uses as well."""

    async def transact(self, work: Work[T]) -> T:
        """Run *work* in a transaction of its own; the driver's errors are raised as they are."""

    def run(self, work: Work[T]) -> T:
        """The same, in this thread."""


class DbApiDatabase:
    """A database behind a DB-API driver. *connect* makes a connection, which is used for one
    transaction and closed: a driver's connection may belong to the thread that made it.
    """

    __slots__ = ("_connect", "paramstyle")

    def __init__(self, connect: Callable[[], Any], paramstyle: str) -> None:
        if paramstyle not in PARAMSTYLES:
            raise ValueError(f"{paramstyle!r} is no paramstyle: {', '.join(PARAMSTYLES)}")
        self._connect = connect
        self.paramstyle = paramstyle

    def execute(self, cursor: Any, statement: Statement) -> Result:
        """Run *statement* on the caller's cursor, in the caller's transaction."""
        cursor.execute(*placed(statement, self.paramstyle))
        if cursor.description is not None:
            return Result(rows=[tuple(row) for row in cursor.fetchall()])
        return Result(count=cursor.rowcount)

    def run(self, work: Work[T]) -> T:
        """Run *work* in a transaction of its own, in this thread."""
        with self._cursor() as cursor:
            return work(lambda statement: self.execute(cursor, statement))

    async def transact(self, work: Work[T]) -> T:
        """Run *work* in a transaction of its own, in another thread."""
        return await asyncio.to_thread(self.run, work)

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        connection = self._connect()
        try:
            cursor = connection.cursor()
            try:
                yield cursor
            except BaseException:
                connection.rollback()
                raise
            connection.commit()
        finally:
            connection.close()
