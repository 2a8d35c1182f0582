"""The outbox: messages as rows of the application's own database, added in its own transactions.

    transaction of the application: its rows, and those of the outbox -> commit, or nothing of both
    a relay: waiting rows -> server

`Outbox` is for SQLAlchemy's Engine, `AsyncOutbox` for its AsyncEngine. `DbApiOutbox` (`dbapi.py`)
needs no SQLAlchemy.
"""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, registry, scoped_session

from tern_client.outbox import operations
from tern_client.outbox.engines import AsyncEngineDatabase, EngineDatabase
from tern_client.outbox.listeners import Listeners
from tern_client.outbox.row_calls import RowCalls
from tern_client.outbox.rows import Backlog, FailedRow, NewRow, Span, new_row
from tern_client.outbox.statements import OUTBOX_NAME, OutboxStatements, check_dialect
from tern_client.outbox.tables import outbox_tables
from tern_client.transport.clock import epoch_ms

Target = Session | AsyncSession | scoped_session[Session] | async_scoped_session[AsyncSession] | Connection


class _SqlAlchemyOutbox(Listeners):
    """What both outboxes of SQLAlchemy share: the tables, and `add`."""

    __slots__ = ("_row_class", "lease_table", "metadata", "statements", "table")

    def __init__(self, dialect: str, name: str, metadata: MetaData | None) -> None:
        super().__init__()
        check_dialect(dialect)
        self.statements = OutboxStatements(name)
        self.metadata = MetaData() if metadata is None else metadata
        self.table, self.lease_table = outbox_tables(self.metadata, name)
        self._row_class: type[Any] = type("OutboxRow", (), {})
        registry(metadata=self.metadata).map_imperatively(self._row_class, self.table)

    def add(
        self,
        session: Target,
        topic: str,
        body: Any,
        *,
        message_group: str = "",
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        content_type: str = "",
        queue: str = "",
        delay: Span | None = None,
        deliver_at: str | int | datetime | None = None,
    ) -> str:
        """Add a message to the transaction of *session* (a Session, an AsyncSession or a
        Connection); return the row's id. It is sent when that commits, and never otherwise.

        With an AsyncConnection: `await connection.run_sync(outbox.add, topic, body)`.

        The arguments are those of Producer.send. A *delay* counts from this call. What the server
        would surely refuse raises here: TypeError, IllegalTopic, MessageTooLarge,
        IllegalDeliveryTime; PropertyConflictsWithType for a message group with a delay or a queue.
        """
        row = new_row(
            uuid.uuid4().hex,
            epoch_ms(),
            topic,
            body,
            message_group=message_group,
            tag=tag,
            keys=keys,
            properties=properties,
            content_type=content_type,
            queue=queue,
            delay=delay,
            deliver_at=deliver_at,
        )
        self._insert(session, row)
        return row.id

    def _insert(self, target: Any, row: NewRow) -> None:
        values = {name: getattr(row, name) for name in NewRow.__dataclass_fields__}
        if isinstance(target, AsyncConnection):
            raise TypeError(
                "an AsyncConnection cannot be used here: await connection.run_sync(outbox.add, topic, body)"
            )
        if isinstance(target, Connection):
            target.execute(self.table.insert().values(**values))
            return
        found = target() if isinstance(target, scoped_session | async_scoped_session) else target
        session = found.sync_session if isinstance(found, AsyncSession) else found
        record = self._row_class()
        for name, value in values.items():
            setattr(record, name, value)
        session.add(record)
        if not event.contains(session, "after_commit", self._committed):
            event.listen(session, "after_commit", self._committed)

    def _committed(self, session: Session) -> None:
        self.notify()


class Outbox(_SqlAlchemyOutbox, RowCalls):
    """Messages as rows of the database behind *engine*, for blocking code and for SQLite,
    PostgreSQL, MySQL and MariaDB.

    - *name*: its table (`ternmq_outbox`); `NAME_lease` beside it is for the relays.
    - *metadata*: yours, so that Alembic and `metadata.create_all` make the tables; `create` makes
      them, too.

    `add` works in a transaction of yours, a Relay sends what was committed.

    Example:

        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        from tern_client.outbox import BlockingRelay, Outbox

        engine = create_engine("sqlite:///shop.db")
        outbox = Outbox(engine)
        outbox.create()
        with Session(engine) as session, session.begin():
            # session.add(order), and beside it, in the same transaction:
            outbox.add(session, "orders", b"order 1", message_group="customer-4", tag="new")
        with Session(engine) as session:
            outbox.add(session, "orders", b"order 2")
            session.rollback()
        print(outbox.backlog().waiting)  # -> 1
        print(BlockingRelay(outbox, "http://127.0.0.1:8080").drain().sent)  # -> 1
    """

    __slots__ = ("_engine", "database")

    database: EngineDatabase

    def __init__(self, engine: Engine, *, name: str = OUTBOX_NAME, metadata: MetaData | None = None) -> None:
        """ValueError for another database or an illegal name; TypeError for the other engine."""
        if isinstance(engine, AsyncEngine):
            raise TypeError("engine is an AsyncEngine; AsyncOutbox is for it")
        super().__init__(engine.dialect.name, name, metadata)
        self._engine = engine
        self.database = EngineDatabase(engine)

    def create(self) -> None:
        """Make the tables that are missing."""
        self.metadata.create_all(self._engine, tables=[self.table, self.lease_table])


class AsyncOutbox(_SqlAlchemyOutbox):
    """Messages as rows of the database behind *engine*, an AsyncEngine; otherwise as Outbox. `add`
    is a plain call, also with an AsyncSession; what reads the table is awaited.

    Example:

        import asyncio

        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        from tern_client.outbox import AsyncOutbox, Relay


        async def main() -> None:
            engine = create_async_engine("sqlite+aiosqlite:///shop.db")
            outbox = AsyncOutbox(engine)
            await outbox.create()
            async with Relay(outbox, "http://127.0.0.1:8080"):
                async with AsyncSession(engine) as session, session.begin():
                    outbox.add(session, "orders", b"order 1", delay="1h")
                while (await outbox.backlog()).waiting:
                    await asyncio.sleep(0.01)
            print("sent")  # -> sent
            await engine.dispose()


        asyncio.run(main())
    """

    __slots__ = ("_engine", "database")

    def __init__(self, engine: AsyncEngine, *, name: str = OUTBOX_NAME, metadata: MetaData | None = None) -> None:
        """ValueError for another database or an illegal name; TypeError for the other engine."""
        if not isinstance(engine, AsyncEngine):
            raise TypeError("engine is no AsyncEngine; Outbox is for a plain one")
        super().__init__(engine.dialect.name, name, metadata)
        self._engine = engine
        self.database = AsyncEngineDatabase(engine)

    async def create(self) -> None:
        """Make the tables that are missing."""
        tables = [self.table, self.lease_table]
        async with self._engine.begin() as connection:
            await connection.run_sync(lambda plain: self.metadata.create_all(plain, tables=tables))

    async def failed(self, limit: int = 100) -> list[FailedRow]:
        """Return the first *limit* rows that the server refused for good, with its reasons."""
        return await self.database.transact(lambda execute: operations.failed_rows(execute, self.statements, limit))

    async def retry(self, ids: Sequence[str]) -> int:
        """Let failed rows wait again, in their old places before younger rows; return how many."""
        count = await self.database.transact(lambda execute: operations.retry(execute, self.statements, ids))
        self.notify()
        return count

    async def discard(self, ids: Sequence[str]) -> int:
        """Delete failed rows, which are then never sent; return how many."""
        return await self.database.transact(lambda execute: operations.discard(execute, self.statements, ids))

    async def backlog(self) -> Backlog:
        """Count what waits and what failed; for an alert when no relay runs."""
        return await self.database.transact(lambda execute: operations.backlog(execute, self.statements))
