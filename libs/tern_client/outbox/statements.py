"""The SQL of the outbox and of the inbox, written once for SQLite, PostgreSQL, MySQL and MariaDB,
and for every way to pass parameters. Pure.

A parameter is written `:name`, which SQLAlchemy's `text` takes as it is; `placed` turns it into a
driver's paramstyle. No other colon and no percent sign occurs in a statement.

    waiting:  sent_at IS NULL and failed_at IS NULL
    failed:   failed_at IS NOT NULL
    sent:     sent_at IS NOT NULL, only where rows are kept; deleted otherwise

Law: rows are chosen by what they are, never by "greater than the last one". A row that commits late
with a lower number is sent when it is seen, and never skipped.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tern_client.outbox.rows import NewRow

Value = str | int | bytes | None
DIALECTS = ("sqlite", "postgresql", "mysql", "mariadb")
PARAMSTYLES = ("qmark", "named", "format", "pyformat", "numeric")
OUTBOX_NAME, INBOX_NAME = "ternmq_outbox", "ternmq_inbox"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}", re.ASCII)
_PARAMETER = re.compile(r":([a-z_][a-z0-9_]*)", re.ASCII)
# The most topics that one query leaves out; those of a whole application, and a short statement.
TOPICS_LEFT_OUT_MAX = 200


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement with its values by name."""

    sql: str
    values: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement gave: `rows` of a query, and the `count` of rows that it changed."""

    rows: Sequence[Sequence[Value]] = ()
    count: int = 0


# Runs one statement in the transaction that is under way.
Execute = Callable[[Statement], Result]


def check_table_name(name: str) -> str:
    """Return *name*, or raise ValueError: it becomes a part of statements."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:60]!r} is no name of a table: letters, digits and underscores, at most 48")
    return name


def check_dialect(name: str) -> str:
    """Return *name*, or raise ValueError for a database whose SQL is not spoken here."""
    if name not in DIALECTS:
        raise ValueError(f"The outbox is for {', '.join(DIALECTS)}, not for {name[:40]!r}")
    return name


def placed(statement: Statement, paramstyle: str) -> tuple[str, Mapping[str, Value] | Sequence[Value]]:
    """Return *statement* as a driver of that *paramstyle* takes it."""
    names = _PARAMETER.findall(statement.sql)
    match paramstyle:
        case "named":
            return statement.sql, statement.values
        case "pyformat":
            return _PARAMETER.sub(r"%(\1)s", statement.sql), statement.values
        case "numeric":
            numbers = iter(range(1, len(names) + 1))
            sql = _PARAMETER.sub(lambda _: f":{next(numbers)}", statement.sql)
        case "qmark" | "format":
            sql = _PARAMETER.sub("?" if paramstyle == "qmark" else "%s", statement.sql)
        case _:
            raise ValueError(f"{paramstyle!r} is no paramstyle: {', '.join(PARAMSTYLES)}")
    return sql, [statement.values[name] for name in names]


def _listed(prefix: str, values: Sequence[Value]) -> tuple[str, dict[str, Value]]:
    """Return `(:p0, :p1)` and its values."""
    named = {f"{prefix}{at}": value for at, value in enumerate(values)}
    return f"({', '.join(f':{name}' for name in named)})", named


class OutboxStatements:
    """The statements of one outbox: its table *name*, and the table of its lease beside it."""

    __slots__ = ("lease", "name")

    def __init__(self, name: str = OUTBOX_NAME) -> None:
        self.name = check_table_name(name)
        self.lease = f"{name}_lease"

    # Rows ---------------------------------------------------------------------------------------
    def insert(self, row: NewRow) -> Statement:
        """Insert a row."""
        columns = ("id", "topic", "message_group", "body", "fields", "size_bytes", "created_at")
        values: dict[str, Value] = {column: getattr(row, column) for column in columns}
        marks = ", ".join(f":{column}" for column in columns)
        return Statement(f"INSERT INTO {self.name} ({', '.join(columns)}, attempts) VALUES ({marks}, 0)", values)

    def waiting(self, limit: int, left_out: Sequence[str] = (), *, hold: bool = False) -> Statement:
        """Select the heads of waiting rows in order, without those of the topics *left_out*; with
        *hold*, without those of a message group that has a failed row.
        """
        where, values = "w.sent_at IS NULL AND w.failed_at IS NULL", dict[str, Value]()
        if left_out:
            listed, values = _listed("topic_", left_out[:TOPICS_LEFT_OUT_MAX])
            where += f" AND w.topic NOT IN {listed}"
        if hold:
            where += (
                f" AND (w.message_group = '' OR NOT EXISTS (SELECT 1 FROM {self.name} f WHERE f.failed_at IS NOT NULL"
                " AND f.topic = w.topic AND f.message_group = w.message_group))"
            )
        columns = "w.seq, w.id, w.topic, w.message_group, w.size_bytes, w.attempted_at"
        sql = f"SELECT {columns} FROM {self.name} w WHERE {where} ORDER BY w.seq LIMIT {int(limit)}"
        return Statement(sql, values)

    def contents(self, seqs: Sequence[int]) -> Statement:
        """Select the number, body and fields of rows."""
        listed, values = _listed("seq_", seqs)
        return Statement(f"SELECT seq, body, fields FROM {self.name} WHERE seq IN {listed}", values)

    def mark(self, seqs: Sequence[int], now_ms: int) -> Statement:
        """Note that rows are about to be sent. The time of the first attempt stays."""
        listed, values = _listed("seq_", seqs)
        sql = f"UPDATE {self.name} SET attempts = attempts + 1, attempted_at = COALESCE(attempted_at, :now)"
        return Statement(f"{sql} WHERE seq IN {listed}", {**values, "now": now_ms})

    def mark_unsent(self, seqs: Sequence[int], now_ms: int) -> Statement:
        """Note that rows were not found at the server: their first attempt is now."""
        listed, values = _listed("seq_", seqs)
        return Statement(f"UPDATE {self.name} SET attempted_at = :now WHERE seq IN {listed}", {**values, "now": now_ms})

    def delete(self, seqs: Sequence[int]) -> Statement:
        """Delete rows."""
        listed, values = _listed("seq_", seqs)
        return Statement(f"DELETE FROM {self.name} WHERE seq IN {listed}", values)

    def keep(self, seqs: Sequence[int], now_ms: int) -> Statement:
        """Note that rows were sent."""
        listed, values = _listed("seq_", seqs)
        return Statement(f"UPDATE {self.name} SET sent_at = :now WHERE seq IN {listed}", {**values, "now": now_ms})

    def fail(self, seq: int, code: str, detail: str, now_ms: int) -> Statement:
        """Set a row aside with the server's reason."""
        sql = f"UPDATE {self.name} SET failed_at = :now, error_code = :code, error_detail = :detail WHERE seq = :seq"
        return Statement(sql, {"now": now_ms, "code": code[:64], "detail": detail[:1_000], "seq": seq})

    def kept_before(self, before_ms: int, limit: int) -> Statement:
        """Select the numbers of rows that were sent before a time."""
        sql = f"SELECT seq FROM {self.name} WHERE sent_at < :before ORDER BY sent_at LIMIT {int(limit)}"
        return Statement(sql, {"before": before_ms})

    # For people ---------------------------------------------------------------------------------
    def failed(self, limit: int) -> Statement:
        """Select failed rows in the order of their numbers."""
        columns = "id, topic, message_group, created_at, attempts, failed_at, error_code, error_detail"
        where = "failed_at IS NOT NULL ORDER BY seq"
        return Statement(f"SELECT {columns} FROM {self.name} WHERE {where} LIMIT {int(limit)}")

    def retry(self, ids: Sequence[str]) -> Statement:
        """Let failed rows wait again, in their old places. The time of the first attempt stays, so
        that a relay looks before it repeats.
        """
        listed, values = _listed("id_", ids)
        sql = f"UPDATE {self.name} SET failed_at = NULL, error_code = NULL, error_detail = NULL, attempts = 0"
        return Statement(f"{sql} WHERE failed_at IS NOT NULL AND id IN {listed}", values)

    def discard(self, ids: Sequence[str]) -> Statement:
        """Delete failed rows."""
        listed, values = _listed("id_", ids)
        return Statement(f"DELETE FROM {self.name} WHERE failed_at IS NOT NULL AND id IN {listed}", values)

    def count_waiting(self) -> Statement:
        """Select the number of waiting rows, and when the oldest was added."""
        where = "sent_at IS NULL AND failed_at IS NULL"
        return Statement(f"SELECT COUNT(*), COALESCE(MIN(created_at), 0) FROM {self.name} WHERE {where}")

    def count_failed(self) -> Statement:
        """Select the number of failed rows."""
        return Statement(f"SELECT COUNT(*) FROM {self.name} WHERE failed_at IS NOT NULL")

    # The lease ----------------------------------------------------------------------------------
    def read_lease(self) -> Statement:
        """Select the owner and the version of the lease."""
        return Statement(f"SELECT owner, version FROM {self.lease} WHERE name = 'relay'")

    def make_lease(self) -> Statement:
        """Insert the lease, owned by nobody."""
        return Statement(f"INSERT INTO {self.lease} (name, owner, version) VALUES ('relay', '', 0)")

    def take_lease(self, owner: str, seen_owner: str, version: int) -> Statement:
        """Make *owner* the owner, and the version higher, if the lease is still as it was seen."""
        sql = f"UPDATE {self.lease} SET owner = :owner, version = version + 1"
        where = "name = 'relay' AND owner = :seen AND version = :version"
        return Statement(f"{sql} WHERE {where}", {"owner": owner, "seen": seen_owner, "version": version})


class InboxStatements:
    """The statements of one inbox, in the SQL of *dialect*."""

    __slots__ = ("_dialect", "name")

    def __init__(self, dialect: str, name: str = INBOX_NAME) -> None:
        self.name, self._dialect = check_table_name(name), check_dialect(dialect)

    def insert_new(self, group: str, key: str, now_ms: int) -> Statement:
        """Insert a message of a consumer group unless it is there. Another transaction that inserts
        the same is waited for.
        """
        into = f"INTO {self.name} (consumer_group, message_key, handled_at) VALUES (:consumer_group, :key, :now)"
        values: dict[str, Value] = {"consumer_group": group, "key": key, "now": now_ms}
        if self._dialect in {"mysql", "mariadb"}:
            return Statement(f"INSERT IGNORE {into}", values)
        return Statement(f"INSERT {into} ON CONFLICT DO NOTHING", values)

    def purge(self, before_ms: int) -> Statement:
        """Delete what was handled before a time."""
        return Statement(f"DELETE FROM {self.name} WHERE handled_at < :before", {"before": before_ms})
