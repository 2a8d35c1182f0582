"""Bank B: a SQLite database that credits every transfer once, by its number. Owner of bank-b.db.

    accounts   account, balance_cents
    credits    transfer, attempt, creditor, amount_cents
    messages   message_id, transfer, attempt, deliveries

Delivery is at least once: a message that comes again (its lease ended before its ack arrived) is counted and credits nothing.
"""

import json
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chaos.transfer.bank_a import make_accounts, open_bank

_SCHEMA = """
CREATE TABLE accounts (account INTEGER PRIMARY KEY, balance_cents INTEGER NOT NULL);
CREATE TABLE credits (
    transfer INTEGER PRIMARY KEY, attempt TEXT NOT NULL, creditor INTEGER NOT NULL, amount_cents INTEGER NOT NULL
);
CREATE TABLE messages (
    message_id TEXT PRIMARY KEY, transfer INTEGER NOT NULL, attempt TEXT NOT NULL, deliveries INTEGER NOT NULL
);
"""


class BankB:
    """The bank of those who are paid. One connection; any thread may use it, one at a time, and other processes have their own."""

    __slots__ = ("_database", "_lock")

    def __init__(self, path: Path) -> None:
        self._database: sqlite3.Connection = open_bank(path)
        self._lock = threading.Lock()

    def make(self) -> None:
        """The tables, once, with nothing in any account."""
        make_accounts(self._database, _SCHEMA, 0)

    def credit(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Message ids and bodies: all are on the disk when this returns, so all may be acked."""
        with self._lock, self._database:
            self._database.execute("BEGIN IMMEDIATE")
            for message_id, body in messages:
                self._credit(message_id, json.loads(body))

    def _credit(self, message_id: str, transfer: dict[str, Any]) -> None:
        execute = self._database.execute
        execute(
            "INSERT INTO messages VALUES (:message_id, :transfer, :attempt, 1) "
            "ON CONFLICT (message_id) DO UPDATE SET deliveries = deliveries + 1",
            {"message_id": message_id, **transfer},
        )
        is_new = execute(
            "INSERT OR IGNORE INTO credits VALUES (:transfer, :attempt, :creditor, :amount_cents)", transfer
        ).rowcount
        if is_new:
            execute(
                "UPDATE accounts SET balance_cents = balance_cents + :amount_cents WHERE account = :creditor", transfer
            )

    def count(self) -> int:
        """How many transfers are credited."""
        with self._lock:
            return int(self._database.execute("SELECT COUNT(*) FROM credits").fetchone()[0])

    def credits(self) -> list[tuple[int, str, int, int]]:
        """Transfer, attempt, creditor and amount of all."""
        with self._lock:
            return self._database.execute(
                "SELECT transfer, attempt, creditor, amount_cents FROM credits ORDER BY transfer"
            ).fetchall()

    def messages(self) -> list[tuple[str, int, str, int]]:
        """Message id, transfer, attempt and number of deliveries of all that were delivered."""
        with self._lock:
            return self._database.execute("SELECT message_id, transfer, attempt, deliveries FROM messages").fetchall()

    def balances(self) -> dict[int, int]:
        """Cents by account."""
        with self._lock:
            return dict(self._database.execute("SELECT account, balance_cents FROM accounts").fetchall())

    def close(self) -> None:
        """Close the database."""
        self._database.close()
