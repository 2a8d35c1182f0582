"""The tables of the outbox in plain SQL, for programs without SQLAlchemy; `tables.py` has the same
for its metadata.

Law: the number of a row is never given twice, not even after the youngest row was deleted; SQLite
needs AUTOINCREMENT for that.
"""

from tern_client.outbox.statements import check_dialect, check_table_name

# The server bounds topics at 127 bytes and message groups at 63.
TOPIC_LENGTH, GROUP_LENGTH, CODE_LENGTH = 255, 255, 64
# Names differ by case; MySQL's texts do not by default.
MYSQL_CHARSET, MYSQL_COLLATION = "utf8mb4", "utf8mb4_bin"
_NUMBERS = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGSERIAL PRIMARY KEY",
    "mysql": "BIGINT AUTO_INCREMENT PRIMARY KEY",
    "mariadb": "BIGINT AUTO_INCREMENT PRIMARY KEY",
}
_BODIES = {"sqlite": "BLOB", "postgresql": "BYTEA", "mysql": "MEDIUMBLOB", "mariadb": "MEDIUMBLOB"}


def outbox_ddl(name: str, dialect: str) -> list[str]:
    """Return the statements that make both tables of the outbox where they are missing."""
    check_table_name(name)
    number, body = _NUMBERS[check_dialect(dialect)], _BODIES[dialect]
    is_mysql = dialect in {"mysql", "mariadb"}
    exact = f" CHARACTER SET {MYSQL_CHARSET} COLLATE {MYSQL_COLLATION}" if is_mysql else ""
    columns = (
        f"seq {number}",
        "id VARCHAR(32) NOT NULL UNIQUE",
        f"topic VARCHAR({TOPIC_LENGTH}){exact} NOT NULL",
        f"message_group VARCHAR({GROUP_LENGTH}){exact} DEFAULT '' NOT NULL",
        f"body {body} NOT NULL",
        "fields TEXT NOT NULL",
        "size_bytes INTEGER NOT NULL",
        "created_at BIGINT NOT NULL",
        "attempts INTEGER DEFAULT 0 NOT NULL",
        "attempted_at BIGINT",
        "sent_at BIGINT",
        "failed_at BIGINT",
        f"error_code VARCHAR({CODE_LENGTH})",
        "error_detail TEXT",
    )
    lines = [*columns, f"INDEX {name}_waiting (sent_at, failed_at, seq)"] if is_mysql else [*columns]
    lease = "name VARCHAR(32) NOT NULL PRIMARY KEY, owner VARCHAR(64) NOT NULL, version BIGINT NOT NULL"
    made = [
        f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(lines)})",
        f"CREATE TABLE IF NOT EXISTS {name}_lease ({lease})",
    ]
    if not is_mysql:  # MySQL has no IF NOT EXISTS for an index of its own
        made.append(f"CREATE INDEX IF NOT EXISTS {name}_waiting ON {name} (sent_at, failed_at, seq)")
    return made
