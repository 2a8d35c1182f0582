"""The inbox: which messages a consumer group has handled, written in the handler's own transaction.

    delivered -> once(): recorded -> the handler's rows -> commit -> ack
              -> once(): was there already -------------------------> ack, nothing else
    a handler that fails rolls back both, and the next delivery handles the message

Delivery is at least once: a lease may end, an ack may be lost. With the inbox, side effects in the
same database happen once.

Law: the record and the side effects are one transaction. An ack follows the commit.
"""

import re
from collections.abc import Sequence
from typing import Protocol

from sqlalchemy import Connection, Engine, MetaData
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from tern_client.outbox.engines import on_connection
from tern_client.outbox.rows import KEY_PREFIX, Span, span_ms
from tern_client.outbox.statements import INBOX_NAME, InboxStatements
from tern_client.outbox.tables import inbox_table
from tern_client.transport.clock import epoch_ms

# A row of an outbox has the same key in each of its messages, should there be two.
_ROW_KEY = re.compile(KEY_PREFIX + r"[0-9a-f]{32}")
# How long records stay by default. A message must not come again behind that.
KEPT = "30d"


class Identified(Protocol):
    """A message as the inbox needs it; ReceivedMessage and PulledMessage are such."""

    @property
    def message_id(self) -> str:
        """Its id."""

    @property
    def keys(self) -> Sequence[str]:
        """Its keys."""


def identity_of(message: Identified) -> str:
    """Return what makes *message* the same one at each delivery: its id; of a message that came
    through an outbox the key of its row, which also a second message of the same row has.
    """
    return next((key for key in message.keys if _ROW_KEY.fullmatch(key)), message.message_id)


class _SqlAlchemyInbox:
    __slots__ = ("_group", "metadata", "statements", "table")

    def __init__(self, dialect: str, group: str, name: str, metadata: MetaData | None) -> None:
        self._group = group
        self.statements = InboxStatements(dialect, name)
        self.metadata = MetaData() if metadata is None else metadata
        self.table = inbox_table(self.metadata, name)

    def _record(self, connection: Connection, message: Identified, group: str) -> bool:
        consumer_group = group or self._group
        if not consumer_group:
            raise ValueError("group is empty; Inbox(engine, group=...) or once(session, message, group=...)")
        statement = self.statements.insert_new(consumer_group, identity_of(message), epoch_ms())
        return on_connection(connection)(statement).count == 1


class Inbox(_SqlAlchemyInbox):
    """The messages that were handled, in the database behind *engine*.

    - *group*: the consumer group; each has records of its own. `once` may name another.
    - *name*: its table (`ternmq_inbox`). *metadata*: yours, for Alembic.

    Example:

        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        from tern_client import BlockingConsumer, BlockingProducer
        from tern_client.outbox import Inbox

        engine = create_engine("sqlite:///shop.db")
        inbox = Inbox(engine, group="billing")
        inbox.create()
        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 1")
        with BlockingConsumer("http://127.0.0.1:8080", "orders", "billing") as consumer:
            for message in consumer.until_idle():
                for delivery in (1, 2):  # as if it were delivered twice
                    with Session(engine) as session, session.begin():
                        print(inbox.once(session, message))  # -> True
                        # -> False
                consumer.ack(message)
    """

    __slots__ = ("_engine",)

    def __init__(
        self, engine: Engine, *, group: str = "", name: str = INBOX_NAME, metadata: MetaData | None = None
    ) -> None:
        """ValueError for another database or an illegal name; TypeError for the other engine."""
        if isinstance(engine, AsyncEngine):
            raise TypeError("engine is an AsyncEngine; AsyncInbox is for it")
        super().__init__(engine.dialect.name, group, name, metadata)
        self._engine = engine

    def create(self) -> None:
        """Make the table if it is missing."""
        self.metadata.create_all(self._engine, tables=[self.table])

    def once(self, session: Session | Connection, message: Identified, *, group: str = "") -> bool:
        """Record *message* in the transaction of *session*. True: it is new, handle it; False: it
        was handled before, ack it. While another transaction handles it, this call waits for the
        end of that one.
        """
        connection = session if isinstance(session, Connection) else session.connection()
        return self._record(connection, message, group)

    def purge(self, older_than: Span = KEPT) -> int:
        """Delete records of messages that were handled longer ago; return how many. A message that
        is delivered again behind that is handled again: keep them for longer than the topic keeps
        messages, or than a group's retries and redrives take.
        """
        with self._engine.begin() as connection:
            return on_connection(connection)(self.statements.purge(epoch_ms() - span_ms(older_than))).count


class AsyncInbox(_SqlAlchemyInbox):
    """The messages that were handled, in the database behind *engine*, an AsyncEngine; otherwise as
    Inbox.

    Example:

        import asyncio

        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        from tern_client import Consumer, Producer
        from tern_client.outbox import AsyncInbox


        async def main() -> None:
            engine = create_async_engine("sqlite+aiosqlite:///shop.db")
            inbox = AsyncInbox(engine, group="billing")
            await inbox.create()
            async with Producer("http://127.0.0.1:8080") as producer:
                await producer.send("orders", b"order 1")
            async with Consumer("http://127.0.0.1:8080", "orders", "billing") as consumer:
                async for message in consumer:
                    async with AsyncSession(engine) as session, session.begin():
                        print(await inbox.once(session, message))  # -> True
                    await consumer.ack(message)
                    break
            await engine.dispose()


        asyncio.run(main())
    """

    __slots__ = ("_engine",)

    def __init__(
        self, engine: AsyncEngine, *, group: str = "", name: str = INBOX_NAME, metadata: MetaData | None = None
    ) -> None:
        """ValueError for another database or an illegal name; TypeError for the other engine."""
        if not isinstance(engine, AsyncEngine):
            raise TypeError("engine is no AsyncEngine; Inbox is for a plain one")
        super().__init__(engine.dialect.name, group, name, metadata)
        self._engine = engine

    async def create(self) -> None:
        """Make the table if it is missing."""
        async with self._engine.begin() as connection:
            await connection.run_sync(lambda plain: self.metadata.create_all(plain, tables=[self.table]))

    async def once(self, session: AsyncSession | AsyncConnection, message: Identified, *, group: str = "") -> bool:
        """Record *message* in the transaction of *session*. True: it is new, handle it; False: it
        was handled before, ack it.
        """
        connection = session if isinstance(session, AsyncConnection) else await session.connection()
        return await connection.run_sync(lambda plain: self._record(plain, message, group))

    async def purge(self, older_than: Span = KEPT) -> int:
        """Delete records of messages that were handled longer ago; return how many: see
        Inbox.purge.
        """
        statement = self.statements.purge(epoch_ms() - span_ms(older_than))
        async with self._engine.begin() as connection:
            return await connection.run_sync(lambda plain: on_connection(plain)(statement).count)
