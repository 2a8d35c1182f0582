"""A producer process of bank A: debits, and sends the credit as a transactional message. It may be told to die in the middle.

    python -m tests.chaos.transfer.paying ERRAND

A transfer is one `send`: its half message is stored, the local transaction debits, the message is committed. Many are on their way at a
time, and their local transactions share commits of the database: those that come while one is being written wait for the next.
"""

import asyncio
import json
import os
import secrets
import signal
import sys
from collections import deque
from pathlib import Path

from tern_client import BegunTransaction, HalfMessage, RetryPolicy, TransactionProducer
from tests.chaos.transfer.bank_a import BankA, DebitOutcome, DebitRequest
from tests.chaos.transfer.errand import Errand
from tests.chaos.transfer.orders import Crash, CrashStage, Order, plan_orders, share_of

IN_FLIGHT = 64
COMMIT_TRANSFERS_MAX = 256
# While a new leader is elected a producer knocks often, and it waits for crashed transactions to make room.
POLICY = RetryPolicy(deadline_ms=90_000, max_delay_ms=200)
# A request that has left the process, and whose answer has not come.
ON_ITS_WAY_S = 0.002


class DebitDesk:
    """Gathers local transactions into commits of the database. Owner: one producer process, in one event loop."""

    __slots__ = ("_bank", "_waiting", "_writing")

    def __init__(self, bank: BankA) -> None:
        self._bank = bank
        self._waiting: deque[tuple[DebitRequest, asyncio.Future[DebitOutcome]]] = deque()
        self._writing: asyncio.Task[None] | None = None

    async def debit(self, request: DebitRequest) -> DebitOutcome:
        """What became of it; returns when that is on the disk."""
        outcome: asyncio.Future[DebitOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, outcome))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await outcome

    async def _write(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), COMMIT_TRANSFERS_MAX))]
            try:
                # Durable here: every debit of the batch, before anybody hears of one.
                outcomes = await asyncio.to_thread(self._bank.debit, [request for request, _ in batch])
            except Exception as error:
                # Nobody knows whether it was written: each local transaction raises, and its check will tell.
                for _, waiting in batch:
                    if not waiting.done():
                        waiting.set_exception(error)
                continue
            for (_, waiting), outcome in zip(batch, outcomes, strict=True):
                if not waiting.done():
                    waiting.set_result(outcome)


class Death:
    """Kills this process at the moment that was chosen. Owner: one producer process."""

    __slots__ = ("_crash", "_transfers")

    def __init__(self, crash: Crash | None) -> None:
        self._crash = crash
        self._transfers = 0

    def begun(self) -> CrashStage | None:
        """One more transfer has begun; the stage at which it is to be the last, if it is."""
        self._transfers += 1
        is_last = self._crash is not None and self._transfers == self._crash.at
        return self._crash.stage if self._crash and is_last else None

    @staticmethod
    def come() -> None:
        """SIGKILL: nothing is closed, flushed or said."""
        os.kill(os.getpid(), signal.SIGKILL)


async def pay(errand: Errand, bank: BankA) -> None:
    """Do all transfers of the errand's share that are not settled yet."""
    settled = bank.settled()
    orders = share_of(plan_orders(errand.seed, errand.transfers), errand.share, errand.shares)
    waiting = deque(order for order in orders if order.transfer not in settled)
    desk, death = DebitDesk(bank), Death(errand.crash)

    async def work(producer: TransactionProducer) -> None:
        while waiting:
            order = waiting.popleft()
            # Denied: this life was so slow that somebody was asked, and said no. A new transaction, then.
            while await transfer(producer, errand.topic, order, desk, death) is DebitOutcome.DENIED:
                pass

    producer = TransactionProducer(errand.endpoints, errand.group, policy=POLICY)
    async with producer, asyncio.TaskGroup() as workers:
        for _ in range(IN_FLIGHT):
            workers.create_task(work(producer))


async def transfer(
    producer: TransactionProducer, topic: str, order: Order, desk: DebitDesk, death: Death
) -> DebitOutcome:
    """One transfer in one transaction; what became of it at bank A."""
    attempt = f"{order.transfer}-{secrets.token_hex(4)}"
    credit = {"transfer": order.transfer, "creditor": order.creditor, "amount_cents": order.amount_cents}
    message = HalfMessage(
        topic=topic,
        body=json.dumps({**credit, "attempt": attempt}).encode(),
        keys=(f"transfer-{order.transfer}",),
        content_type="application/json",
    )
    outcome = DebitOutcome.DENIED

    async def debit(begun: BegunTransaction) -> bool:
        nonlocal outcome
        stage = death.begun()
        if stage is CrashStage.BEGUN:
            death.come()
        outcome = await desk.debit(DebitRequest(order=order, attempt=attempt, transaction_id=begun.transaction_id))
        if stage is CrashStage.DEBITED:
            death.come()
        if stage is CrashStage.COMMITTING:
            asyncio.get_running_loop().call_later(ON_ITS_WAY_S, death.come)
        return outcome is DebitOutcome.DEBITED

    await producer.send(message, debit)
    return outcome


if __name__ == "__main__":
    own = Errand.read(sys.argv[1])
    asyncio.run(pay(own, BankA(Path(own.bank))))
