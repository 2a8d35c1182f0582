"""Transfers of `ternmq demo transfer`: money moves between two banks by transactional messages.

  bank-a.db   accounts: account, cents >= 0; transactions: transaction_id, is_debited, transfer,
              creditor, cents
  bank-b.db   accounts: account, cents; credits: transfer, creditor, cents

A transfer is one transaction: its half message is stored, the local transaction debits at bank A or
refuses, the message is committed, and a consumer credits at bank B. One in OPEN_ONE_IN is left
open, as by a producer that dies after the debit: a check ends it.

Law: the outcome of a transaction is decided once. A check of an unrecorded transaction gets the
answer "rollback" and records the transaction, without a transfer, in the same SQLite transaction. A
local transaction that comes later finds this record and does not debit.
"""

import asyncio
import json
import random
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

from rich.progress import Progress

from tern_client import (
    Admin,
    BegunTransaction,
    Check,
    Consumer,
    HalfMessage,
    RetryPolicy,
    TransactionProducer,
    check_app,
)
from tern_wire.errors import TernError, TopicConflict

TOPIC, QUEUES = "transfers", 8
ACCOUNTS, START_CENTS, CENTS_MAX = 1_000, 200_000, 20_000
OPEN_ONE_IN, HOPELESS_ONE_IN = 64, 32  # transactions left open; transfers of more than any account has
PRODUCERS, IN_FLIGHT = 2, 64
INVISIBLE_MS, LOOK_INTERVAL_S = 10_000, 0.25
PATIENCE_S = 60.0  # a run ends incomplete when nothing has moved for this long
POLICY = RetryPolicy(deadline_ms=90_000, max_delay_ms=200)  # longer than an election
BANK_A = """
CREATE TABLE accounts (account INTEGER PRIMARY KEY, cents INTEGER NOT NULL CHECK (cents >= 0));
CREATE TABLE transactions (transaction_id TEXT PRIMARY KEY, is_debited INTEGER NOT NULL DEFAULT 0, transfer INTEGER UNIQUE, creditor INTEGER, cents INTEGER);
"""
BANK_B = """
CREATE TABLE accounts (account INTEGER PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE credits (transfer INTEGER PRIMARY KEY, creditor INTEGER NOT NULL, cents INTEGER NOT NULL);
"""
SUMS = """
WITH debits AS (SELECT transfer, creditor, cents FROM transactions WHERE is_debited)
SELECT (SELECT COUNT(*) FROM debits) AS debited,
       (SELECT COUNT(transfer) FROM transactions WHERE NOT is_debited) AS refused,
       (SELECT COUNT(*) FROM bank_b.credits) AS credited,
       (SELECT COUNT(*) FROM (SELECT * FROM debits INTERSECT SELECT * FROM bank_b.credits)) AS credited_as_debited,
       (SELECT SUM(cents) FROM bank_b.accounts) AS moved_cents,
       (SELECT SUM(cents) FROM accounts) + (SELECT SUM(cents) FROM bank_b.accounts) AS closing_cents
"""
RECORD = (
    "INSERT INTO transactions VALUES (:id, 0, :transfer, :creditor, :cents) ON CONFLICT (transaction_id) DO NOTHING"
)
TAKE = "UPDATE accounts SET cents = cents - :cents WHERE account = :debtor AND cents >= :cents"
CREDIT = "INSERT OR IGNORE INTO credits VALUES (:transfer, :creditor, :cents)"
Transfer = Mapping[
    str, int
]  # transfer (its number), debtor, creditor, cents: a message's body, and parameters of statements


def plan_transfers(seed: int, count: int) -> list[Transfer]:
    """Return *count* transfers, the same for the same *seed*."""
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    plan: list[Transfer] = []
    for number in range(1, count + 1):
        cents = rng.randint(1, CENTS_MAX) + (rng.randrange(HOPELESS_ONE_IN) == 0) * ACCOUNTS * START_CENTS
        debtor, creditor = rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS)
        plan.append({"transfer": number, "debtor": debtor, "creditor": creditor, "cents": cents})
    return plan


def open_bank(path: Path, schema: str, start_cents: int) -> sqlite3.Connection:
    """Open a new bank with *start_cents* in every account.
    Committed data is on the disk (WAL, synchronous FULL).
    """
    bank = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    bank.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; {schema}")
    with bank:
        bank.execute("BEGIN")
        bank.executemany("INSERT INTO accounts VALUES (?, ?)", [(account, start_cents) for account in range(ACCOUNTS)])
    return bank


def debit(bank_a: sqlite3.Connection, batch: Mapping[str, Transfer]) -> dict[str, bool | None]:
    """Run local transactions by id, in one commit, and return their outcomes.
    True: debited. False: refused. None: denied by an earlier check.
    """
    outcomes: dict[str, bool | None] = {}
    with bank_a:
        bank_a.execute("BEGIN IMMEDIATE")
        for transaction_id, transfer in batch.items():
            row = {"id": transaction_id, **transfer}
            is_new = bank_a.execute(RECORD, row).rowcount == 1
            outcomes[transaction_id] = bank_a.execute(TAKE, row).rowcount == 1 if is_new else None
            if outcomes[transaction_id]:
                bank_a.execute("UPDATE transactions SET is_debited = 1 WHERE transaction_id = :id", row)
    return outcomes


def is_debited(bank_a: sqlite3.Connection, transaction_id: str) -> bool:
    """Return the final answer to a check; an unrecorded transaction is denied from now on."""
    bank_a.execute("INSERT OR IGNORE INTO transactions (transaction_id) VALUES (?)", (transaction_id,))
    found = bank_a.execute("SELECT is_debited FROM transactions WHERE transaction_id = ?", (transaction_id,)).fetchone()
    return bool(found[0])


def credit(bank_b: sqlite3.Connection, transfers: Sequence[Transfer]) -> None:
    """Store credits in one commit. A repeated credit changes nothing: delivery is at least once."""
    with bank_b:
        bank_b.execute("BEGIN IMMEDIATE")
        for transfer in transfers:
            if bank_b.execute(CREDIT, transfer).rowcount:
                bank_b.execute("UPDATE accounts SET cents = cents + :cents WHERE account = :creditor", transfer)


class TransferRun:
    """One run, from two new banks in *folder* to the sums.
    Bank A is used under its lock, bank B by one task.
    """

    def __init__(self, folder: Path, endpoints: Sequence[str], *, transfers: int, seed: int) -> None:
        self._endpoints, self._total = endpoints, transfers
        self.producer_group, self.group = f"bank-a-{folder.name}", f"bank-b-{folder.name}"
        self._bank_a, self._lock = open_bank(folder / "bank-a.db", BANK_A, START_CENTS), asyncio.Lock()
        self._bank_b = open_bank(folder / "bank-b.db", BANK_B, 0)
        self._books = sqlite3.connect(folder / "bank-a.db", check_same_thread=False)
        self._books.execute("ATTACH ? AS bank_b", (str(folder / "bank-b.db"),))
        self._ordered = deque(plan_transfers(seed, transfers))
        self._undebited: dict[str, Transfer] = {}
        self._outcomes: dict[str, bool | None] = {}

    async def move(self, *, by_callback: bool, progress: Progress) -> dict[str, int]:
        """Move all the money and return the figures once nothing moves any more.
        *by_callback*: the txn-checker calls bank A; otherwise bank A polls for checks.
        """
        async with AsyncExitStack() as stack:
            admin = await stack.enter_async_context(Admin(self._endpoints, policy=POLICY))
            with suppress(TopicConflict):  # an existing topic that has grown since serves as well
                await admin.create_topic(TOPIC, QUEUES, type="TRANSACTION")
            starting = {queue.queue: queue.max_offset for queue in await admin.offsets(TOPIC)}
            await admin.create_group(self.group, invisible_ms=INVISIBLE_MS)
            await admin.commit_offsets(self.group, TOPIC, starting)
            create = partial(admin.create_producer_group, self.producer_group, check_after="2s", check_interval="2s")
            await (self._answer_calls(create, stack) if by_callback else create())
            checker = None if by_callback else self._is_paid
            async with asyncio.TaskGroup() as work:
                tasks = [work.create_task(self._credit())]
                for _ in range(PRODUCERS):
                    producer = TransactionProducer(self._endpoints, self.producer_group, checker=checker, policy=POLICY)
                    await stack.enter_async_context(producer)
                    tasks += [work.create_task(self._pay(producer)) for _ in range(IN_FLIGHT)]
                figures = await self._follow(admin, sum(starting.values()), progress)
                for task in tasks:
                    task.cancel()
            return figures

    async def _answer_calls(self, create: Callable[..., Awaitable[Mapping[str, str]]], stack: AsyncExitStack) -> None:
        """Create the producer group with this process's URL, and serve it until *stack* ends."""
        from tern_service.connections.bounds import Bounds  # noqa: PLC0415 - checks by pull need no server
        from tern_service.server import open_socket, serve  # noqa: PLC0415

        listener = stack.enter_context(open_socket("127.0.0.1", 0, "--checks"))
        group = await create(check_url=f"http://127.0.0.1:{listener.getsockname()[1]}/checks")
        app, stop = check_app(self._is_paid, group["check_secret"]), asyncio.Event()
        serving = asyncio.create_task(serve(app, listener, stop=stop, bounds=Bounds(takes_callbacks=True)))
        stack.push_async_callback(asyncio.wait, [serving])
        stack.callback(stop.set)

    async def _is_paid(self, check: Check) -> bool:
        async with self._lock:
            return await asyncio.to_thread(is_debited, self._bank_a, check.transaction_id)

    async def _pay(self, producer: TransactionProducer) -> None:
        """Make transfers one after the other until none is left."""
        while self._ordered:
            transfer = self._ordered.popleft()
            message = HalfMessage(topic=TOPIC, body=json.dumps(transfer).encode())
            await producer.send(message, partial(self._debit, transfer))

    async def _debit(self, transfer: Transfer, begun: BegunTransaction) -> bool | None:
        """Run the local transaction.
        Calls that arrive while a commit is written share the next commit.
        """
        self._undebited[begun.transaction_id] = transfer
        async with self._lock:
            if begun.transaction_id in self._undebited:
                batch, self._undebited = self._undebited, {}
                # Durable here: every debit of the batch, before one of its messages is committed.
                self._outcomes |= await asyncio.to_thread(debit, self._bank_a, batch)
        outcome = self._outcomes.pop(begun.transaction_id)
        if outcome is None:
            # The check came before the debit: the transfer needs another transaction.
            self._ordered.append(transfer)
        return bool(outcome) if transfer["transfer"] % OPEN_ONE_IN else None

    async def _credit(self) -> None:
        """Receive, credit and ack until cancelled."""
        async with Consumer(self._endpoints, TOPIC, self.group, policy=POLICY) as consumer:
            while True:
                # Unacked messages are delivered again, and are credited once.
                with suppress(TernError):
                    if messages := await consumer.receive():
                        # Durable here: every credit of the batch, before its ack.
                        await asyncio.to_thread(credit, self._bank_b, [json.loads(one.body) for one in messages])
                        await consumer.ack(*messages)

    async def _follow(self, admin: Admin, starting: int, progress: Progress) -> dict[str, int]:
        """Show the progress until the sums are right, or nothing has moved for PATIENCE_S."""
        settled, credited = (progress.add_task(what, total=self._total) for what in ("settled at A", "credited at B"))
        seen, moved_s = dict[str, int](), time.monotonic()
        while not seen or (differences(seen) and time.monotonic() - moved_s < PATIENCE_S):
            await asyncio.sleep(LOOK_INTERVAL_S)
            if (now := await self._look(admin, starting)) != seen:
                seen, moved_s = now, time.monotonic()
            progress.update(settled, completed=now["debited"] + now["refused"])
            # Refused transfers are never credited, so they reduce the bar's total.
            progress.update(credited, completed=now["credited"], total=self._total - now["refused"])
        return seen

    async def _look(self, admin: Admin, starting: int) -> dict[str, int]:
        """Return the sums of both banks, and the broker groups' counts since this run began."""
        sums = await asyncio.to_thread(self._books.execute, SUMS)
        stats = (await admin.producer_group(self.producer_group))["stats"]
        return {
            "transfers": self._total,
            "opening_cents": ACCOUNTS * START_CENTS,
            **dict(zip([column[0] for column in sums.description], sums.fetchone(), strict=True)),
            "messages": sum(queue.max_offset for queue in await admin.offsets(TOPIC)) - starting,
            "acked": sum((await admin.group_offsets(self.group, TOPIC)).values()) - starting,
            "checks": stats["checks"],
            **{f"transactions_{state}": stats[state] for state in ("committed", "rolled_back", "open", "expired")},
        }


def differences(figures: Mapping[str, int]) -> list[str]:
    """Return the right value of each wrong sum; empty when every cent is accounted for."""
    debited = ("credited", "credited_as_debited", "messages", "acked", "transactions_committed")
    wanted = {
        "closing_cents": figures["opening_cents"],
        "refused": figures["transfers"] - figures["debited"],
        **dict.fromkeys(debited, figures["debited"]),
        **dict.fromkeys(("transactions_open", "transactions_expired"), 0),
    }
    off = {name: right for name, right in wanted.items() if figures[name] != right}
    return [f"{name.replace('_', ' ')}: {figures[name]:,}, not {right:,}" for name, right in off.items()]
