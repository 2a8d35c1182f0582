"""The SQL of the outbox for each database and driver: parameters, definitions, and what no name may bring into a statement.

PostgreSQL's statements run when TERNMQ_OUTBOX_DATABASE names a server; those of MySQL are compiled and compared only.
"""

import re

import pytest
from sqlalchemy import Engine, MetaData
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from tern_client.outbox.definitions import outbox_ddl
from tern_client.outbox.rows import new_row
from tern_client.outbox.statements import (
    DIALECTS,
    TOPICS_LEFT_OUT_MAX,
    InboxStatements,
    OutboxStatements,
    Statement,
    check_dialect,
    placed,
)
from tern_client.outbox.tables import inbox_table, outbox_tables

SOME = Statement("UPDATE t SET a = :a, b = COALESCE(b, :a) WHERE c = :c_1", {"a": 1, "c_1": 2})


@pytest.mark.parametrize(
    "paramstyle, sql, values",
    [
        ("named", SOME.sql, SOME.values),
        ("qmark", "UPDATE t SET a = ?, b = COALESCE(b, ?) WHERE c = ?", [1, 1, 2]),
        ("format", "UPDATE t SET a = %s, b = COALESCE(b, %s) WHERE c = %s", [1, 1, 2]),
        ("numeric", "UPDATE t SET a = :1, b = COALESCE(b, :2) WHERE c = :3", [1, 1, 2]),
        ("pyformat", "UPDATE t SET a = %(a)s, b = COALESCE(b, %(a)s) WHERE c = %(c_1)s", SOME.values),
    ],
)
def test_a_statement_is_written_for_the_paramstyle_of_the_driver(paramstyle: str, sql: str, values: object) -> None:
    """All five of PEP 249."""
    assert placed(SOME, paramstyle) == (sql, values)


def test_no_statement_holds_a_value_or_what_a_paramstyle_would_take_for_one() -> None:
    """Every parameter has its value and is used, and no percent sign or further colon is there."""
    sql = OutboxStatements("mail")
    row = new_row("0" * 32, 1, "orders", b"x", message_group="%s :a ?")
    statements = [
        *(sql.insert(row), sql.waiting(5, ["a", "b"], hold=True), sql.contents([1, 2]), sql.mark([1], 5)),
        *(sql.mark_unsent([1], 5), sql.delete([1, 2]), sql.keep([1], 5), sql.fail(1, "code", "50 % :of", 5)),
        *(sql.kept_before(5, 9), sql.failed(3), sql.retry(["a"]), sql.discard(["a"]), sql.count_waiting()),
        *(sql.count_failed(), sql.read_lease(), sql.make_lease(), sql.take_lease("me", "you", 3)),
        *(InboxStatements(dialect).insert_new("g", "k", 1) for dialect in DIALECTS),
        InboxStatements("sqlite").purge(1),
    ]
    for statement in statements:
        names = set(re.findall(r":(\w+)", statement.sql))
        assert names == set(statement.values), statement.sql
        assert "%" not in statement.sql and "?" not in statement.sql
    assert len(sql.waiting(1, [f"t{number}" for number in range(1_000)]).values) == TOPICS_LEFT_OUT_MAX


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql"])
def test_both_definitions_have_the_same_columns_for_each_database(dialect: str) -> None:
    """That of the metadata, compiled for the database, and that in plain SQL: names, in one order."""
    compiler = {"sqlite": sqlite, "postgresql": postgresql, "mysql": mysql}[dialect].dialect()
    rows, lease = outbox_tables(MetaData(), "mail")
    for table, plain in zip((rows, lease), outbox_ddl("mail", dialect)[:2], strict=True):
        compiled = str(CreateTable(table).compile(dialect=compiler))
        columns = [column.name for column in table.columns]
        assert re.findall(r"^\t(\w+) [A-Z]", compiled, re.M)[: len(columns)] == columns
        assert [column for column in columns if not re.search(rf"[(,] ?{column} [A-Z]", plain)] == []
    wanted = {"sqlite": "AUTOINCREMENT", "postgresql": "BIGSERIAL", "mysql": "AUTO_INCREMENT"}[dialect]
    assert wanted in str(CreateTable(rows).compile(dialect=compiler)) and wanted in outbox_ddl("mail", dialect)[0]
    for plain in (str(CreateTable(rows).compile(dialect=compiler)), outbox_ddl("mail", dialect)[0]):
        assert plain.count("utf8mb4_bin") == (2 if dialect == "mysql" else 0)
    assert "sent_at, failed_at, seq" in str(CreateIndex(next(iter(rows.indexes))).compile(dialect=compiler))
    assert "PRIMARY KEY" in str(CreateTable(inbox_table(MetaData(), "seen")).compile(dialect=compiler))


def test_another_database_is_refused_by_name() -> None:
    """Its SQL is not spoken here."""
    with pytest.raises(ValueError, match="not for 'oracle'"):
        check_dialect("oracle")


def test_the_database_finds_waiting_rows_by_an_index(engine: Engine) -> None:
    """However many sent rows are kept."""
    if engine.dialect.name != "sqlite":
        pytest.skip("the plan is SQLite's")
    metadata = MetaData()
    outbox_tables(metadata, "mail")
    metadata.create_all(engine)
    with engine.connect() as connection:
        sql = OutboxStatements("mail").waiting(500).sql
        plan = str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}").all())
    assert "USING INDEX mail_waiting" in plan and "TEMP B-TREE" not in plan
