"""The tables of the outbox and the inbox in SQLAlchemy's metadata, so that Alembic sees them."""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text
from sqlalchemy.dialects import mysql

from tern_client.outbox.definitions import CODE_LENGTH, GROUP_LENGTH, MYSQL_CHARSET, MYSQL_COLLATION, TOPIC_LENGTH
from tern_client.outbox.statements import check_table_name
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES


def _name(length: int) -> String:
    """The type of a name. MySQL compares texts without case, unless it is told to."""
    exact = mysql.VARCHAR(length, charset=MYSQL_CHARSET, collation=MYSQL_COLLATION)
    return String(length).with_variant(exact, "mysql", "mariadb")


def outbox_tables(metadata: MetaData, name: str) -> tuple[Table, Table]:
    """Return the table of rows and that of the lease in *metadata*; those that are there already,
    if they are.
    """
    check_table_name(name)
    lease_name = f"{name}_lease"
    if name in metadata.tables:
        return metadata.tables[name], metadata.tables[lease_name]
    rows = Table(
        name,
        metadata,
        Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        Column("id", String(32), nullable=False, unique=True),
        Column("topic", _name(TOPIC_LENGTH), nullable=False),
        Column("message_group", _name(GROUP_LENGTH), nullable=False, default="", server_default=""),
        Column("body", LargeBinary(MESSAGE_BODY_SIZE_MAX_BYTES), nullable=False),
        Column("fields", Text, nullable=False),
        Column("size_bytes", Integer, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("attempts", Integer, nullable=False, default=0, server_default="0"),
        Column("attempted_at", BigInteger),
        Column("sent_at", BigInteger),
        Column("failed_at", BigInteger),
        Column("error_code", String(CODE_LENGTH)),
        Column("error_detail", Text),
        Index(f"{name}_waiting", "sent_at", "failed_at", "seq"),
        sqlite_autoincrement=True,
    )
    lease = Table(
        lease_name,
        metadata,
        Column("name", String(32), primary_key=True),
        Column("owner", String(64), nullable=False),
        Column("version", BigInteger, nullable=False),
    )
    return rows, lease


def inbox_table(metadata: MetaData, name: str) -> Table:
    """Return the table of handled messages in *metadata*; the one that is there already, if it
    is.
    """
    check_table_name(name)
    if name in metadata.tables:
        return metadata.tables[name]
    return Table(
        name,
        metadata,
        Column("consumer_group", _name(GROUP_LENGTH), primary_key=True),
        Column("message_key", String(CODE_LENGTH), primary_key=True),
        Column("handled_at", BigInteger, nullable=False),
        Index(f"{name}_handled", "handled_at"),
    )
