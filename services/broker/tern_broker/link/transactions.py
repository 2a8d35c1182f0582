"""Requests on transactions: clients and checkers end them, claim checks and report on them;
operators list and resolve them.

    CLAIM_CHECKS -> nothing due? -> parked -> a check came due -> an entry claims it
                        |              |         -> its records are read -> reply
                        |              |         -> others were faster: parked again
                        |              +-> the deadline, a new leader
                        +-> no: claim at once
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tern_broker.config import BrokerConfig
from tern_broker.core.applied import Applied
from tern_broker.core.delivery.picking import Pick
from tern_broker.core.transactions.ends import Transactions, are_ends
from tern_broker.core.transactions.requests import ClaimRequest, read_claim, read_reports, read_resolution
from tern_broker.core.transactions.views import claimed_checks, describe_transaction, list_transactions
from tern_broker.engine import Engine
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.proposal import Done, Proposal
from tern_broker.waiting.check_waiters import CheckWaiter, CheckWaiters
from tern_remoting import Link
from tern_store import StoreError
from tern_wire.errors import LinkBodyMalformed, TernError
from tern_wire.link import heads
from tern_wire.link.checks import ClaimChecks, ClaimedChecks, EndTransactions, ReportChecks
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import ERROR, RequestCode, error_parts
from tern_wire.link.transactions import (
    DescribedTransaction,
    DescribeTransaction,
    ListedTransactions,
    ListTransactions,
    Resolved,
    ResolveTransaction,
    Transaction,
)
from tern_wire.transactions import COMMIT, END_ROWS

# Size of the records that one END_TRANSACTIONS makes visible, roughly: every node reads them for
# their keys when it applies the entry ...
COMMIT_STEP_SIZE_BYTES = 4 << 20
# ... at a small part of the cost of storing them; that part counts for the size of the entry.
_COMMIT_COST = 32


class TransactionRequests(Requests):
    """END_TRANSACTIONS, CLAIM_CHECKS, REPORT_CHECKS, RESOLVE_TRANSACTION, DESCRIBE_TRANSACTION,
    LIST_TRANSACTIONS.

    Owner: the core loop.
    """

    reads = frozenset({RequestCode.DESCRIBE_TRANSACTION, RequestCode.LIST_TRANSACTIONS})

    def __init__(self, config: BrokerConfig, engine: Engine, *, monotonic: Callable[[], float]) -> None:
        super().__init__(config, engine)
        self._monotonic = monotonic
        self.waiters = CheckWaiters()
        engine.on_applied.append(self._applied)
        engine.on_clock.append(self._sweep)

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [
            handler(EndTransactions, self._end),
            handler(ClaimChecks, self._claim),
            handler(ReportChecks, self._report),
            handler(ResolveTransaction, self._resolve),
            handler(DescribeTransaction, self._describe),
            handler(ListTransactions, self._list),
        ]

    @property
    def _transactions(self) -> Transactions:
        return self._engine.state.transactions

    # Ends -----------------------------------------------------------------------------------------
    def _end(self, link: Link, opaque: int, request: EndTransactions, raw: memoryview) -> None:
        if len(raw) != request.rows * END_ROWS.itemsize:
            raise LinkBodyMalformed(reason=f"END_TRANSACTIONS of {request.rows} rows in {len(raw)} bytes")
        rows = np.frombuffer(bytes(raw), END_ROWS)
        if not are_ends(rows):
            raise LinkBodyMalformed(reason="END_TRANSACTIONS with an unknown outcome or originator")
        steps = self._steps(rows)
        ends = _Ends(link, opaque, [None] * len(steps))
        for number, (begin, end, size_bytes) in enumerate(steps):
            self._propose_step(rows[begin:end].tobytes(), size_bytes, ends.done(number))

    def _propose_step(self, part: bytes, commit_size_bytes: int, done: Done) -> None:
        size_bytes = len(part) + commit_size_bytes // _COMMIT_COST
        proposal = Proposal(CommandKind.END_TRANSACTIONS, size_bytes, done, build=lambda _now: [part])
        self._engine.proposer.submit(proposal)

    def _steps(self, rows: npt.NDArray[Any]) -> list[tuple[int, int, int]]:
        """Return *rows* in steps, (begin, end, bytes of records that become visible), none far
        above COMMIT_STEP_SIZE_BYTES.
        """
        table = self._transactions.table
        steps, begin, total = [], 0, 0
        for row, (number, outcome) in enumerate(zip(rows["number"].tolist(), rows["outcome"].tolist(), strict=True)):
            slot = table.slots.get(number)
            size = table.get("size", slot) if slot is not None and outcome == COMMIT else 0
            if row > begin and total + size > COMMIT_STEP_SIZE_BYTES:
                steps.append((begin, row, total))
                begin, total = row, 0
            total += size
        return [*steps, (begin, len(rows), total)]

    def _resolve(self, link: Link, opaque: int, request: ResolveTransaction, _raw: memoryview) -> None:
        command = read_resolution(msgspec.structs.asdict(request)).packed()
        self.propose(link, opaque, CommandKind.RESOLVE_TRANSACTION, command, Resolved)

    # Checks ---------------------------------------------------------------------------------------
    def _claim(self, link: Link, opaque: int, request: ClaimChecks, _raw: memoryview) -> None:
        claim = read_claim(msgspec.structs.asdict(request))
        if claim.producer_group:
            self._engine.state.producers.require(claim.producer_group)
        self._claim_or_wait(link, opaque, claim, self._monotonic() + request.wait_ms / 1000)

    def _claim_or_wait(self, link: Link, opaque: int, request: ClaimRequest, deadline_s: float) -> None:
        """Claim due checks; if there are none, wait for one until *deadline_s*."""

        def woken(answer: bool | TernError) -> None:
            if isinstance(answer, TernError):
                self.refuse(link, opaque, answer)
            elif answer:
                self._propose_claim(link, opaque, request, deadline_s)
            else:
                self.answer(link, opaque, ClaimedChecks(checks=[]))

        if self._available(request.producer_group):
            woken(True)
        elif deadline_s <= self._monotonic():
            woken(False)
        else:
            self.waiters.park(CheckWaiter(request.producer_group, deadline_s, woken, lambda: link.closed))

    def _propose_claim(self, link: Link, opaque: int, request: ClaimRequest, deadline_s: float) -> None:
        payload = encode_msgpack(request.packed())

        def done(verdict: Any, _picks: list[Pick]) -> None:
            if isinstance(verdict, TernError):
                self.refuse(link, opaque, verdict)
            elif not self._tell(link, opaque, verdict):
                self._claim_or_wait(link, opaque, request, deadline_s)

        self._engine.proposer.submit(
            Proposal(CommandKind.CLAIM_CHECKS, len(payload), done, build=lambda _now: [payload])
        )

    def _tell(self, link: Link, opaque: int, verdict: dict[str, Any]) -> bool:
        """Answer with the claimed checks; return False, without an answer, if there are none, or
        all have ended in the same entry.
        """
        names = self._engine.state.names
        told, messages = claimed_checks(self._transactions, names, verdict["checks"])
        if not told:
            return False
        where, sizes = (messages[name].astype(np.int64) for name in ("position", "size"))
        try:
            records = self._engine.store.log.read_records(where, sizes)
        except (OSError, StoreError) as error:
            # The claims expire, and are passed on.
            self.unreadable(link, opaque, error)
            return True
        self.answer(link, opaque, ClaimedChecks(checks=told, now_ms=self._engine.state.now_ms), [records])
        return True

    def _report(self, link: Link, opaque: int, request: ReportChecks, _raw: memoryview) -> None:
        reports = [[one.number, one.claim, one.answer, one.latency_ms] for one in request.reports]
        payload = encode_msgpack({"reports": read_reports({"reports": reports})})

        def done(verdict: Any, _picks: list[Pick]) -> None:
            if isinstance(verdict, TernError):
                self.refuse(link, opaque, verdict)
            else:
                self.answer(link, opaque, heads.Done(), [verdict])

        self._engine.proposer.submit(
            Proposal(CommandKind.REPORT_CHECKS, len(payload), done, build=lambda _now: [payload])
        )

    def _available(self, producer_group: str) -> int:
        if not producer_group:
            return self._transactions.schedule.available(0)
        group = self._engine.state.producers.by_name.get(producer_group)
        return self._transactions.schedule.available(group.producer_group_id) if group is not None else 0

    def _applied(self, applied: Applied) -> None:
        if applied.checks_due and len(self.waiters):
            self.waiters.due(self._available)

    def _sweep(self) -> None:
        if len(self.waiters):
            if not self._engine.raft.is_serving:
                self.waiters.refuse_all(self.not_leader())
            self.waiters.sweep(self._monotonic())

    # Reads ----------------------------------------------------------------------------------------
    def _describe(self, link: Link, opaque: int, request: DescribeTransaction, _raw: memoryview) -> None:
        found = describe_transaction(
            self._transactions, self._engine.state.names, request.number, request.producer_group_id
        )
        self.answer(link, opaque, DescribedTransaction(transaction=msgspec.convert(found, Transaction)))

    def _list(self, link: Link, opaque: int, request: ListTransactions, _raw: memoryview) -> None:
        name = request.producer_group
        found = list_transactions(
            self._transactions,
            self._engine.state.names,
            namespace=request.namespace,
            producer_group_id=self._engine.state.producers.require(name).producer_group_id if name else 0,
            state=request.state,
            begun_before_ms=self._engine.proposer.now_ms() - request.older_than_ms,
            after=request.after,
            limit=request.limit,
        )
        self.answer(link, opaque, msgspec.convert(found, ListedTransactions))


@dataclass(slots=True)
class _Ends:
    """One END_TRANSACTIONS in steps: replies when all of them are answered, in their order, or with
    the first error.
    """

    link: Link
    opaque: int
    parts: list[bytes | None]
    error: TernError | None = field(default=None)
    answered: int = 0

    def done(self, number: int) -> Done:
        """Return the callback of the proposal of step *number*."""

        def answer(verdict: Any, _picks: list[Pick]) -> None:
            self.answered += 1
            if isinstance(verdict, TernError):
                # Transactions ended by other steps stay ended: a repeat of the request gets their
                # results.
                self.error = self.error or verdict
            else:
                self.parts[number] = verdict.tobytes()
            if self.answered < len(self.parts):
                return
            if self.error is not None:
                self.link.reply(self.opaque, ERROR, error_parts(self.error))
            else:
                told = [part for part in self.parts if part is not None]
                self.link.reply(self.opaque, 0, heads.head_parts(heads.Done(), told))

        return answer
