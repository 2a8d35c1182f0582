"""Values of transactions: half messages, decisions, states and checks. Frozen; times are
milliseconds since 1970.

A half message is stored, and invisible until its transaction is committed. A check asks a producer
group for the outcome of a transaction that has not ended in time.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypedDict

from tern_client.calls.models import OutgoingMessage
from tern_wire.errors import TernError

# `"60s"`, milliseconds, or a timedelta.
Span = str | int | timedelta


class Decision(StrEnum):
    """How a transaction ends. UNKNOWN: it stays open, and its check comes again.

    Example:

        from tern_client import BegunTransaction, BlockingTransactionProducer, Decision, HalfMessage


        def pay(begun: BegunTransaction) -> Decision:
            return Decision.ROLLBACK


        with BlockingTransactionProducer("http://127.0.0.1:8080", "shop") as producer:
            sent = producer.send(HalfMessage(topic="orders", body=b"paid"), pay)
        print(sent.decision, sent.state)  # -> rollback rolled-back
    """

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class State(StrEnum):
    """States of a transaction. EXPIRED: as many checks as its producer group allows had no answer;
    it can only be ended by hand.

    tern_wire.transactions has the same words. A client does not import it, since it brings numpy.
    """

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage(OutgoingMessage):
    """One message of a transaction, with its *topic*, of type TRANSACTION or MIXED.

    It has no delay and no message group, since it is visible when it is committed: TypeError. A row
    of an outbox (`tern_client.outbox`) can have them.

    Example:

        from tern_client import BlockingTransactionProducer, HalfMessage

        messages = [HalfMessage(topic="orders", body=body) for body in (b"order 1", b"order 2")]
        with BlockingTransactionProducer("http://127.0.0.1:8080", "shop") as producer:
            begun = producer.begin(messages)  # both are committed, or neither
            print(producer.commit(begun.transaction_id).messages)  # -> 2
    """

    topic: str
    # What a transaction cannot carry is no argument.
    message_group: str = field(default="", init=False, repr=False)
    delay: Span | None = field(default=None, init=False, repr=False)
    deliver_at: str | int | datetime | None = field(default=None, init=False, repr=False)
    delay_level: int | None = field(default=None, init=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunTransaction:
    """A transaction whose half messages are stored.

    - `check_at`: the first check of its producer group. `expires_at`: the end of the checks.
    - `replayed`: an earlier begin with the same idempotency key had stored the messages.

    Example:

        from tern_client import BegunTransaction, BlockingTransactionProducer, HalfMessage

        with BlockingTransactionProducer("http://127.0.0.1:8080", "shop") as producer:
            message = HalfMessage(topic="orders", body=b"paid")
            begun: BegunTransaction = producer.begin(message, check_after="60s")
            print(begun.state, begun.check_at < begun.expires_at)  # -> open True
            producer.rollback(begun.transaction_id)
    """

    transaction_id: str
    producer_group: str
    message_ids: tuple[str, ...]
    state: str
    check_at: int = 0
    expires_at: int = 0
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTransaction:
    """The end of a transaction: `state` is committed or rolled-back; `by` is client, check or hand.

    `topic`, `queue` and `offset` are those of its first message after a commit.

    Example:

        from tern_client import BlockingTransactionProducer, EndedTransaction, HalfMessage

        with BlockingTransactionProducer("http://127.0.0.1:8080", "shop") as producer:
            begun = producer.begin(HalfMessage(topic="orders", body=b"paid"))
            ended: EndedTransaction = producer.commit(begun.transaction_id)
        print(ended.state, ended.by, ended.queue, ended.offset)  # -> committed client broker-a:0 0
    """

    transaction_id: str
    state: str
    by: str
    messages: int = 0
    topic: str = ""
    queue: str = ""
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTransaction:
    """The result of TransactionProducer.send: `state` is committed, rolled-back or open.

    A transaction is open when its local transaction returned no decision, or when the decision
    could not be sent; `error` gives the reason then. Its check follows.

    Example:

        from tern_client import BlockingTransactionProducer, HalfMessage, SentTransaction

        with BlockingTransactionProducer("http://127.0.0.1:8080", "shop") as producer:
            message = HalfMessage(topic="orders", body=b"paid")
            sent: SentTransaction = producer.send(message, lambda begun: True)
        print(sent.state, sent.error)  # -> committed None
    """

    begun: BegunTransaction
    decision: Decision
    state: str
    error: TernError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMessage:
    """One message of a transaction. `queue` and `offset` (-1: none) are its place after a
    commit.
    """

    topic: str
    queue: str
    size: int
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRecord:
    """One check that was made: the checker, and `answer`: commit, rollback, unknown, or the reason
    why there was none.
    """

    attempt: int
    at: int
    checker: str
    answer: str
    latency_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transaction as its broker group stores it: `state` is open, committed, rolled-back or
    expired (ended by hand only).

    Example:

        from tern_client import BlockingAdmin, BlockingTransactionProducer, HalfMessage, Transaction

        with BlockingTransactionProducer("http://127.0.0.1:8080", "shop") as producer:
            begun = producer.begin(HalfMessage(topic="orders", body=b"paid"))
        with BlockingAdmin("http://127.0.0.1:8080") as admin:
            found: Transaction = admin.transaction(begun.transaction_id)
            print(found.state, found.attempts, found.message_count)  # -> open 0 1
    """

    transaction_id: str
    producer_group: str
    state: str
    begun_at: int
    # The next check, 0 for none.
    check_at: int = 0
    attempts: int = 0
    ended_at: int = 0
    by: str = ""
    reason: str = ""
    # Of an ended transaction, `messages` holds only the first.
    message_count: int = 0
    messages: tuple[TransactionMessage, ...] = ()
    checks: tuple[CheckRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPage:
    """One page of open and expired transactions. `next_cursor` continues the list; it is "" at the
    end.

    Example:

        from tern_client import (
            BlockingAdmin,
            BlockingTransactionProducer,
            Decision,
            HalfMessage,
            TransactionPage,
        )

        with BlockingTransactionProducer("http://127.0.0.1:8080", "shop") as producer:
            producer.begin(HalfMessage(topic="orders", body=b"paid"))
        with BlockingAdmin("http://127.0.0.1:8080") as admin:
            page: TransactionPage = admin.transactions(producer_group="shop")
            for transaction in page.transactions:
                ended = admin.resolve(transaction.transaction_id, Decision.ROLLBACK, "unpaid")
                print(ended.state, ended.by)  # -> rolled-back hand
    """

    transactions: tuple[Transaction, ...]
    next_cursor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedMessage:
    """One message of a transaction that is checked. `body` is None in a callback, unless the
    producer group includes bodies.

    Example:

        from tern_client import Check, CheckedMessage


        def checker(check: Check) -> bool:
            return all(message.body == b"paid" for message in check.messages)


        message = CheckedMessage(topic="orders", message_id="m1", body=b"paid")
        check = Check(
            transaction_id="t1", producer_group="shop", attempt=1, begun_at=0, messages=(message,)
        )
        print(checker(check))  # -> True
    """

    topic: str
    message_id: str
    body: bytes | None = None
    content_type: str = ""
    tag: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A request for the outcome of a transaction. `attempt` counts from 1. An answer after
    `answer_by` (0: not given) is also valid.

    Example:

        from tern_client import Check

        PAID = {"t1"}


        def checker(check: Check) -> bool | None:
            if check.transaction_id in PAID:
                return True
            return False if check.attempt > 3 else None  # None: the check comes again


        # A test of the checker; a TransactionProducer takes it as its `checker` argument.
        check = Check(transaction_id="t2", producer_group="shop", attempt=4, begun_at=0)
        print(checker(check))  # -> False
    """

    transaction_id: str
    producer_group: str
    attempt: int
    begun_at: int
    answer_by: int = 0
    messages: tuple[CheckedMessage, ...] = ()


# True or "commit", False or "rollback", None or "unknown".
Answer = Decision | bool | str | None
LocalTransaction = Callable[[BegunTransaction], Answer]
AsyncLocalTransaction = Callable[[BegunTransaction], Answer | Awaitable[Answer]]
Checker = Callable[[Check], Answer]
AsyncChecker = Callable[[Check], Answer | Awaitable[Answer]]


def decision_of(answer: object) -> Decision:
    """Return the decision that *answer* stands for; ValueError for any other value, such as 1 or a
    forgotten `await`.
    """
    if answer is None:
        return Decision.UNKNOWN
    if isinstance(answer, bool):
        return Decision.COMMIT if answer else Decision.ROLLBACK
    if isinstance(answer, str) and answer in _WORDS:
        return Decision(answer)
    raise ValueError(f"{repr(answer)[:80]} is not a decision: True or 'commit', False or 'rollback', None or 'unknown'")


_WORDS = frozenset(Decision)


class ProducerGroupOptions(TypedDict, total=False):
    """Settings of a producer group. A setting that is None or left out stays as it is, or gets its
    default in a new group.

    - `check_url`: the URL of callbacks; "": checks by pull. `check_secret` signs callbacks; the
      proxy makes one when there is none.
    - `timeout`: the time limit of a callback (3s). `include_body`: whether callbacks carry bodies.
    - `check_after`: the time until the first check (6s). `check_interval`: between checks (30s).
      `max_checks`: how many (15).
    """

    check_url: str | None
    check_secret: str | None
    timeout: Span | None
    max_checks: int | None
    check_after: Span | None
    check_interval: Span | None
    include_body: bool | None


class TransactionFilter(TypedDict, total=False):
    """Which transactions to list: `state` open or expired, both by default; `older_than`: the least
    time since their begin.
    """

    producer_group: str
    state: str
    older_than: Span | None
    limit: int
    cursor: str
