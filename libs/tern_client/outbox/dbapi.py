"""The outbox for a plain DB-API driver (PEP 249): no SQLAlchemy is imported."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from tern_client.outbox.databases import DbApiDatabase
from tern_client.outbox.definitions import outbox_ddl
from tern_client.outbox.row_calls import RowCalls
from tern_client.outbox.rows import Span, new_row
from tern_client.outbox.statements import OUTBOX_NAME, Execute, OutboxStatements, Statement, check_dialect
from tern_client.transport.clock import epoch_ms


class DbApiOutbox(RowCalls):
    """Messages as rows of a database that a DB-API driver reaches: sqlite3, psycopg, PyMySQL and
    others.

    - *connect*: makes a connection, such as `lambda: sqlite3.connect("shop.db")`. Relays use one
      for each transaction, each in a thread of its own; the driver may pool.
    - *paramstyle*: that of the driver's module (`sqlite3.paramstyle`).
    - *dialect*: sqlite, postgresql, mysql or mariadb. *name*: its table.

    `add` takes a cursor of yours, in whose transaction the row is inserted. Call `notify` behind
    the commit, or leave it to the relay's poll.

    Example:

        import sqlite3

        from tern_client.outbox import BlockingRelay, DbApiOutbox

        outbox = DbApiOutbox(lambda: sqlite3.connect("shop.db"), sqlite3.paramstyle)
        outbox.create()
        database = sqlite3.connect("shop.db")
        with database:
            outbox.add(database.cursor(), "orders", b"order 1", message_group="customer-4")
        outbox.notify()
        print(BlockingRelay(outbox, "http://127.0.0.1:8080").drain().sent)  # -> 1
        database.close()
    """

    __slots__ = ("_dialect", "database", "statements")

    database: DbApiDatabase

    def __init__(
        self, connect: Callable[[], Any], paramstyle: str, *, dialect: str = "sqlite", name: str = OUTBOX_NAME
    ) -> None:
        """ValueError for an unknown paramstyle or dialect, or an illegal name."""
        super().__init__()
        self._dialect = check_dialect(dialect)
        self.statements = OutboxStatements(name)
        self.database = DbApiDatabase(connect, paramstyle)

    def create(self) -> None:
        """Make the tables that are missing."""

        def work(execute: Execute) -> None:
            for sql in outbox_ddl(self.statements.name, self._dialect):
                execute(Statement(sql))

        self.database.run(work)

    def add(
        self,
        cursor: Any,
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
        """Add a message to the transaction of *cursor*; return the row's id. Arguments and errors:
        see Outbox.add.
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
        self.database.execute(cursor, self.statements.insert(row))
        return row.id
