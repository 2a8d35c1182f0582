"""The blocking TransactionProducer, for threads: the course and the checks of the async one, in
another shell.
"""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Self

from tern_client.blocking.transactions import BlockingTransactionCalls
from tern_client.calls.sending import unique_keys
from tern_client.transactions.checking import CHECKS_IN_HAND_MAX, CheckCounts, CheckPolls, ask, checker_failed, tell
from tern_client.transactions.models import (
    BegunTransaction,
    Check,
    Checker,
    Decision,
    LocalTransaction,
    SentTransaction,
    Span,
    decision_of,
)
from tern_client.transactions.transaction_flow import HalfMessages, begin, local_failures, settle
from tern_client.transport.blocking_transport import BlockingTransport
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_wire.errors import TernError
from tern_wire.names import check_group

# A thread that polls cannot be interrupted: `close` waits at most so long for the poll under way.
CHECK_WAIT_MS = 2_000


class BlockingTransactionProducer(BlockingTransactionCalls):
    """Sends transactions of one *producer_group*: half messages, then the local transaction, then
    commit or rollback. Threads may share it.

    With a *checker* the producer polls for the checks of its group, from `with` or the first begin
    until `close`. One thread polls, and at most *checks_in_hand_max* (16) others run the checker,
    which must be safe to run in several threads. `close` returns when the last of them is done. The
    other arguments, the duties of a checker and the errors are those of TransactionProducer.

    Example:

        import sqlite3

        from tern_client import BegunTransaction, BlockingTransactionProducer, Check, HalfMessage

        database = sqlite3.connect("shop.db", check_same_thread=False, isolation_level=None)
        database.execute("CREATE TABLE paid (transaction_id TEXT PRIMARY KEY, is_paid INTEGER)")


        def pay(begun: BegunTransaction) -> bool:
            # Fails when a check was answered with "rollback" before: the row is there then.
            database.execute("INSERT INTO paid VALUES (?, 1)", [begun.transaction_id])
            return True


        def is_paid(check: Check) -> bool:
            row = [check.transaction_id]
            database.execute("INSERT OR IGNORE INTO paid VALUES (?, 0)", row)
            found = database.execute("SELECT is_paid FROM paid WHERE transaction_id = ?", row)
            return bool(found.fetchone()[0])


        endpoint = "http://127.0.0.1:8080"
        with BlockingTransactionProducer(endpoint, "shop", checker=is_paid) as producer:
            sent = producer.send(HalfMessage(topic="orders", body=b"order 1 is paid"), pay)
        database.close()
        print(sent.state)  # -> committed
    """

    def __init__(
        self,
        endpoints: str | Sequence[str],
        producer_group: str,
        *,
        checker: Checker | None = None,
        checks_in_hand_max: int = CHECKS_IN_HAND_MAX,
        idempotent: bool = True,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: BlockingTransport | None = None,
    ) -> None:
        self.producer_group = check_group(producer_group)
        self._keys = unique_keys(os.urandom(8).hex()) if idempotent else None
        self._checker = checker
        self._desk = CheckPolls(checks_in_hand_max)
        self._checks_in_hand_max = checks_in_hand_max
        self._closing = threading.Event()
        self._starting = threading.Lock()
        self._asking: threading.Thread | None = None
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )

    @property
    def checks(self) -> CheckCounts:
        """Counts of the checks that this producer has answered; up to 2 s old."""
        return self._desk.counts

    def __enter__(self) -> Self:
        self._ask_from_now_on()
        return self

    def send(
        self, messages: HalfMessages, local_transaction: LocalTransaction, *, check_after: Span | None = None
    ) -> SentTransaction:
        """Send a transaction, as TransactionProducer.send does. *local_transaction* runs in the
        calling thread.
        """
        begun = self.begin(messages, check_after=check_after)
        with local_failures(begun):
            decision = decision_of(local_transaction(begun))
        return self._drive(settle(self._course, begun, decision, now_ms()))

    def begin(self, messages: HalfMessages, *, check_after: Span | None = None) -> BegunTransaction:
        """Store *messages*, one or up to 256, invisible until `commit`. Errors: see
        TransactionProducer.send.
        """
        self._check_open()
        self._ask_from_now_on()
        return self._drive(begin(self._course, self.producer_group, messages, check_after, self._keys, now_ms()))

    # Checks -------------------------------------------------------------------------------------
    def _ask_from_now_on(self) -> None:
        with self._starting:
            if self._checker is not None and self._asking is None and not self._closing.is_set():
                name = f"checks-{self.producer_group}"
                # A daemon thread: a program that does not call `close` still ends.
                self._asking = threading.Thread(target=self._ask, args=(self._checker,), name=name, daemon=True)
                self._asking.start()

    def _ask(self, checker: Checker) -> None:
        """Poll for checks until the producer closes. Polling continues after every failure. This
        thread owns the polls.
        """
        answering: dict[Future[Decision | None], Check] = {}
        with ThreadPoolExecutor(self._checks_in_hand_max, f"checker-{self.producer_group}") as threads:
            while not self._closing.is_set():
                if not self._desk.room:
                    wait(answering, CHECK_WAIT_MS / 1000, FIRST_COMPLETED)
                    self._note_done(answering)
                    continue
                try:
                    steps = ask(self._course, self.producer_group, self._desk.room, CHECK_WAIT_MS, now_ms())
                    checks = self._caller.drive(steps)
                except TernError:
                    self._closing.wait(self._desk.pause_ms(self._course.chance()) / 1000)
                    continue
                self._note_done(answering)
                for check in self._desk.take(checks):
                    answering[threads.submit(self._answer, checker, check)] = check
        self._note_done(answering)

    def _note_done(self, answering: dict[Future[Decision | None], Check]) -> None:
        for done in [future for future in answering if future.done()]:
            self._desk.answered(answering.pop(done), done.result())

    def _answer(self, checker: Checker, check: Check) -> Decision | None:
        try:
            decision = decision_of(checker(check))
            return self._caller.drive(tell(self._course, check, decision, now_ms()))
        except Exception as error:
            # Without an answer the check comes again, here or at another checker.
            checker_failed(check, error)
            return None

    def _finish(self) -> None:
        with self._starting:
            self._closing.set()
        if self._asking and self._asking is not threading.current_thread():
            self._asking.join()
