"""Bank A: a SQLite database in which a debit and the transaction it belongs to are recorded together. Owner of bank-a.db.

    accounts    account, balance_cents >= 0
    transfers   transfer, is_debited (0: refused, the account has not so much), attempt, transaction_id, creditor, amount_cents
    denied      transaction_id: a check was answered with "rollback"

Law: a transaction is answered for once. Who asks after one that is not recorded gets "rollback", and that is written down in the same
SQLite transaction, so that a local transaction which comes later (its producer was only slow) finds it, and does not debit.
"""

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.chaos.transfer.orders import ACCOUNTS, START_CENTS, Order

# How long one process waits for another's commit.
BUSY_TIMEOUT_S = 30.0
_SCHEMA = """
CREATE TABLE accounts (account INTEGER PRIMARY KEY, balance_cents INTEGER NOT NULL CHECK (balance_cents >= 0));
CREATE TABLE transfers (
    transfer INTEGER PRIMARY KEY, is_debited INTEGER NOT NULL, attempt TEXT NOT NULL, transaction_id TEXT NOT NULL UNIQUE,
    debtor INTEGER NOT NULL, creditor INTEGER NOT NULL, amount_cents INTEGER NOT NULL
);
CREATE TABLE denied (transaction_id TEXT PRIMARY KEY);
"""


class DebitOutcome(StrEnum):
    """What became of a local transaction: debited; refused for want of money; denied because a check was answered before."""

    DEBITED = "debited"
    REFUSED = "refused"
    DENIED = "denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class DebitRequest:
    """A transfer, in which attempt, by which transaction."""

    order: Order
    attempt: str
    transaction_id: str


def open_bank(path: Path) -> sqlite3.Connection:
    """A bank's database; every commit is on the disk when it returns (WAL, synchronous FULL). Transactions are begun by hand."""
    database = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    return database


def make_accounts(database: sqlite3.Connection, schema: str, balance_cents: int) -> None:
    """The tables of *schema*, and ACCOUNTS accounts with *balance_cents* each."""
    database.executescript(schema)
    rows = [(account, balance_cents) for account in range(ACCOUNTS)]
    with database:
        database.execute("BEGIN")
        database.executemany("INSERT INTO accounts VALUES (?, ?)", rows)


class BankA:
    """The bank of those who pay. One connection; any thread may use it, one at a time, and other processes have their own."""

    __slots__ = ("_database", "_lock")

    def __init__(self, path: Path) -> None:
        self._database = open_bank(path)
        self._lock = threading.Lock()

    def make(self) -> None:
        """The tables, once, with START_CENTS in every account."""
        make_accounts(self._database, _SCHEMA, START_CENTS)

    def debit(self, requests: Sequence[DebitRequest]) -> list[DebitOutcome]:
        """Many local transactions in one commit: each outcome is true, and on the disk, when this returns."""
        with self._lock, self._database:
            self._database.execute("BEGIN IMMEDIATE")
            return [self._debit(request) for request in requests]

    def _debit(self, request: DebitRequest) -> DebitOutcome:
        execute, order = self._database.execute, request.order
        if execute("SELECT 1 FROM denied WHERE transaction_id = ?", (request.transaction_id,)).fetchone():
            return DebitOutcome.DENIED
        paid = execute(
            "UPDATE accounts SET balance_cents = balance_cents - :amount WHERE account = :debtor AND balance_cents >= :amount",
            {"amount": order.amount_cents, "debtor": order.debtor},
        )
        is_debited = paid.rowcount == 1
        row = (order.transfer, is_debited, request.attempt, request.transaction_id, order.debtor, order.creditor)
        # The primary key: a transfer that is debited twice would stop the run.
        execute("INSERT INTO transfers VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, order.amount_cents))
        return DebitOutcome.DEBITED if is_debited else DebitOutcome.REFUSED

    def is_debited(self, transaction_id: str) -> bool:
        """What became of a transaction, for good: one that is not recorded is denied from now on."""
        with self._lock, self._database:
            self._database.execute("BEGIN IMMEDIATE")
            found = self._database.execute(
                "SELECT is_debited FROM transfers WHERE transaction_id = ?", (transaction_id,)
            ).fetchone()
            if found is None:
                self._database.execute("INSERT OR IGNORE INTO denied VALUES (?)", (transaction_id,))
            return bool(found and found[0])

    def settled(self) -> set[int]:
        """The transfers that are debited or refused."""
        with self._lock:
            return {transfer for (transfer,) in self._database.execute("SELECT transfer FROM transfers")}

    def counts(self) -> tuple[int, int]:
        """How many transfers are debited, and how many refused."""
        with self._lock:
            settled, debited = self._database.execute("SELECT COUNT(*), TOTAL(is_debited) FROM transfers").fetchone()
        return int(debited), int(settled) - int(debited)

    def debits(self) -> list[tuple[int, str, int, int, int]]:
        """Transfer, attempt, debtor, creditor and amount of all that are debited."""
        with self._lock:
            return self._database.execute(
                "SELECT transfer, attempt, debtor, creditor, amount_cents FROM transfers WHERE is_debited ORDER BY transfer"
            ).fetchall()

    def balances(self) -> dict[int, int]:
        """Cents by account."""
        with self._lock:
            return dict(self._database.execute("SELECT account, balance_cents FROM accounts").fetchall())

    def close(self) -> None:
        """Close the database."""
        self._database.close()
