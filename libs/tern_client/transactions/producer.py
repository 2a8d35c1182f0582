"""The async TransactionProducer: sends messages together with a local transaction, and answers the
checks of its producer group.
"""

import asyncio
import os
from collections.abc import Sequence
from inspect import isawaitable
from typing import Self

from tern_client.asynchronous.transactions import TransactionCalls
from tern_client.calls.sending import unique_keys
from tern_client.transactions.checking import CHECKS_IN_HAND_MAX, CheckCounts, CheckPolls, ask, checker_failed, tell
from tern_client.transactions.models import (
    AsyncChecker,
    AsyncLocalTransaction,
    BegunTransaction,
    Check,
    Decision,
    SentTransaction,
    Span,
    decision_of,
)
from tern_client.transactions.transaction_flow import HalfMessages, begin, local_failures, settle
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport
from tern_wire.errors import TernError
from tern_wire.names import check_group

CHECK_WAIT_MS = 20_000
# The longest wait of `close` for answers in progress. The checks of the others come again, at
# another checker.
CLOSE_PATIENCE_MS = 5_000


class TransactionProducer(TransactionCalls):
    """Sends transactions of one *producer_group*: half messages, then the local transaction, then
    commit or rollback.

    With a *checker* the producer polls for the checks of its group, from `async with` or the first
    begin until `close`. It answers at most *checks_in_hand_max* (16) at a time.

    - The checker looks up, by the transaction's id, what the local transaction has written.
    - It must make a "rollback" final: a transaction that it has answered so may not be committed
      locally later.
    - The checker and the local transaction are functions or coroutine functions. A function runs in
      the event loop, so it must not block for long.

    *idempotent* off: messages get no idempotency keys. The other arguments and the errors are those
    of the Producer. The producer owns its connections and the tasks that answer checks.

    Example:

        import asyncio

        from tern_client import BegunTransaction, Check, HalfMessage, TransactionProducer

        PAID: set[str] = set()


        async def pay(begun: BegunTransaction) -> bool:
            PAID.add(begun.transaction_id)  # in the same database transaction as the payment
            return True


        async def is_paid(check: Check) -> bool:
            return check.transaction_id in PAID


        async def main() -> None:
            endpoint = "http://127.0.0.1:8080"
            async with TransactionProducer(endpoint, "shop", checker=is_paid) as producer:
                sent = await producer.send(HalfMessage(topic="orders", body=b"order 1"), pay)
            print(sent.state)  # -> committed


        asyncio.run(main())
    """

    __slots__ = ("_answering", "_asking", "_checker", "_desk", "_keys", "producer_group")

    def __init__(
        self,
        endpoints: str | Sequence[str],
        producer_group: str,
        *,
        checker: AsyncChecker | None = None,
        checks_in_hand_max: int = CHECKS_IN_HAND_MAX,
        idempotent: bool = True,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.producer_group = check_group(producer_group)
        self._keys = unique_keys(os.urandom(8).hex()) if idempotent else None
        self._checker = checker
        self._desk = CheckPolls(checks_in_hand_max)
        self._asking: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )

    @property
    def checks(self) -> CheckCounts:
        """Counts of the checks that this producer has answered."""
        return self._desk.counts

    async def __aenter__(self) -> Self:
        self._ask_from_now_on()
        return self

    async def send(
        self, messages: HalfMessages, local_transaction: AsyncLocalTransaction, *, check_after: Span | None = None
    ) -> SentTransaction:
        """Store *messages* invisibly, run *local_transaction* with the begun transaction, and end
        the transaction by its result.

        - True commits, False rolls back, None leaves the decision to the checker.
        - *check_after* is the time until the first check (`"60s"`, milliseconds or a timedelta);
          None: the producer group's.
        - LocalTransactionFailed: the local transaction raised. The checker decides.
        - TransactionResolved, TransactionExpired: the transaction has ended against the decision.
        - Other errors: the transaction has not begun. After OutcomeUnknown it may have, and its
          check must be answered with "rollback".
        """
        begun = await self.begin(messages, check_after=check_after)
        with local_failures(begun):
            answer = local_transaction(begun)
            if isawaitable(answer):
                answer = await answer
            decision = decision_of(answer)
        return await self._drive(settle(self._course, begun, decision, now_ms()))

    async def begin(self, messages: HalfMessages, *, check_after: Span | None = None) -> BegunTransaction:
        """Store *messages*, one or up to 256, invisible until `commit`. *check_after* and errors:
        see `send`.
        """
        self._check_open()
        self._ask_from_now_on()
        steps = begin(self._course, self.producer_group, messages, check_after, self._keys, now_ms())
        return await self._drive(steps)

    # Checks -------------------------------------------------------------------------------------
    def _ask_from_now_on(self) -> None:
        if self._checker is not None and self._asking is None and not self._is_closed:
            self._asking = asyncio.get_running_loop().create_task(self._ask(self._checker))

    async def _ask(self, checker: AsyncChecker) -> None:
        """Poll for checks until cancelled. Polling continues after every failure."""
        while True:
            if not self._desk.room:
                await asyncio.wait(self._answering, return_when=asyncio.FIRST_COMPLETED)
                continue
            try:
                steps = ask(self._course, self.producer_group, self._desk.room, CHECK_WAIT_MS, now_ms())
                checks = await self._caller.drive(steps)
            except TernError:
                await asyncio.sleep(self._desk.pause_ms(self._course.chance()) / 1000)
                continue
            for check in self._desk.take(checks):
                task = asyncio.get_running_loop().create_task(self._answer(checker, check))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    async def _answer(self, checker: AsyncChecker, check: Check) -> None:
        told: Decision | None = None
        try:
            answer = checker(check)
            if isawaitable(answer):
                answer = await answer
            told = await self._caller.drive(tell(self._course, check, decision_of(answer), now_ms()))
        except Exception as error:
            # Without an answer the check comes again, here or at another checker.
            checker_failed(check, error)
        finally:
            self._desk.answered(check, told)

    async def _finish(self) -> None:
        if self._asking:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        if self._answering:
            _, late = await asyncio.wait(set(self._answering), timeout=CLOSE_PATIENCE_MS / 1000)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
