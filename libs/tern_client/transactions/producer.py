"""The async TransactionProducer: sends messages together with a local transaction, and answers the checks of its producer group."""

import asyncio
import os
from collections.abc import Sequence
from inspect import isawaitable
from typing import Self

from tern_client.asynchronous.transactions import TransactionCalls
from tern_client.calls.sending import unique_keys
from tern_client.transactions.checking import CHECKS_IN_HAND_MAX, CheckCounts, CheckDesk, ask, checker_failed, tell
from tern_client.transactions.course import HalfMessages, begin, local_failures, settle
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
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport
from tern_wire.errors import TernError
from tern_wire.names import check_group

CHECK_WAIT_MS = 20_000
# Checks that are being answered when this closes may take so long; then they are left to whoever is asked next.
CLOSE_PATIENCE_MS = 5_000


class TransactionProducer(TransactionCalls):
    """Sends transactions of one *producer_group*: half messages, then the local transaction, then commit or rollback.

    With a *checker* it answers the checks of its group by pull, from `async with` or the first begin until `close`. The checker must look
    into what the local transaction has written, by the transaction's id, and must see to it that one it has answered with "rollback" can
    not be committed locally later. It and the local transaction may be functions or coroutine functions; a function runs in the event loop, so it must not block for long.

    Owns its connections and the tasks that answer. *endpoints* and errors as the Producer's. *idempotent* off: no keys of its own.
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
        self._desk = CheckDesk(checks_in_hand_max)
        self._asking: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )

    @property
    def checks(self) -> CheckCounts:
        """What became of the checks that were answered here."""
        return self._desk.counts

    async def __aenter__(self) -> Self:
        self._ask_from_now_on()
        return self

    async def send(
        self, messages: HalfMessages, local_transaction: AsyncLocalTransaction, *, check_after: Span | None = None
    ) -> SentTransaction:
        """Store *messages* invisibly, run *local_transaction* with the transaction that has begun, and end it as that says.

        True commits, False rolls back, None leaves it to the checker. LocalTransactionFailed when it raises: that is left to the checker,
        too. *check_after*: the first check, instead of the producer group's own. Other errors: it has not begun (OutcomeUnknown: may
        have; its check will be answered with "rollback"), or has ended otherwise than it was decided (TransactionResolved, -Expired).
        """
        begun = await self.begin(messages, check_after=check_after)
        with local_failures(begun):
            answer = local_transaction(begun)
            if isawaitable(answer):
                answer = await answer
            decision = decision_of(answer)
        return await self._drive(settle(self._course, begun, decision, now_ms()))

    async def begin(self, messages: HalfMessages, *, check_after: Span | None = None) -> BegunTransaction:
        """Store *messages*, one or up to 256, invisible until `commit`."""
        self._check_open()
        self._ask_from_now_on()
        steps = begin(self._course, self.producer_group, messages, check_after, self._keys, now_ms())
        return await self._drive(steps)

    # Checks -------------------------------------------------------------------------------------------------------
    def _ask_from_now_on(self) -> None:
        if self._checker is not None and self._asking is None and not self._is_closed:
            self._asking = asyncio.get_running_loop().create_task(self._ask(self._checker))

    async def _ask(self, checker: AsyncChecker) -> None:
        """Until it is cancelled. Whatever goes wrong with asking, it is asked again."""
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
            # No answer is an answer: the check comes again, here or at another checker.
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
