"""What goes in and comes out of transactions: half messages, decisions, what a transaction is, and checks. Frozen; times are ms since 1970.

A half message is stored and invisible until its transaction is committed. A check is the question what became of a transaction, asked of
its producer group when nobody has ended it in time.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TypedDict

from tern_client.calls.models import OutgoingMessage
from tern_wire.errors import TernError

# `"60s"`, milliseconds, or a timedelta.
Span = str | int | timedelta


class Decision(StrEnum):
    """How a transaction ends. UNKNOWN: it stays open, and its producer group is asked again."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


class State(StrEnum):
    """What a transaction is. EXPIRED: its producer group was asked in vain as often as it says; it is ended by hand only.

    As tern_wire.transactions has them, which a client does not import: it brings numpy.
    """

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage(OutgoingMessage):
    """One message of a transaction, and its topic (of type TRANSACTION or MIXED). It has no delay and no message group."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunTransaction:
    """Half messages that are stored. From `check_at` on the producer group is asked, until nobody asks any more at `expires_at`.

    `replayed`: an earlier begin with the same idempotency key had stored them.
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
    """How a transaction has ended: `state` committed or rolled-back, `by` client, check or hand.

    `topic`, `queue` and `offset` are of its first message, when it was committed.
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
    """What became of a transaction that was sent with its local transaction.

    `state` is committed, rolled-back or open. Open: the local transaction did not know, or nobody could be told what it had decided (then
    `error` says why): the checker asks.
    """

    begun: BegunTransaction
    decision: Decision
    state: str
    error: TernError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMessage:
    """One message of a transaction; `queue` and `offset` (-1: none) are where it became visible."""

    topic: str
    queue: str
    size: int
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRecord:
    """One check as it went: who asked, and `answer`: commit, rollback, unknown, or why there was none."""

    attempt: int
    at: int
    checker: str
    answer: str
    latency_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transaction as its broker group knows it: `state` open, committed, rolled-back or expired (asked in vain, ended by hand only)."""

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
    # Of one that has ended, `messages` has the first alone.
    message_count: int = 0
    messages: tuple[TransactionMessage, ...] = ()
    checks: tuple[CheckRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPage:
    """Open and expired transactions; with `next_cursor`, "" at the end, the list goes on."""

    transactions: tuple[Transaction, ...]
    next_cursor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedMessage:
    """One message of a transaction that is asked about. A callback carries bodies only if its producer group says so: None without."""

    topic: str
    message_id: str
    body: bytes | None = None
    content_type: str = ""
    tag: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The question what became of a transaction. `attempt` is 1-based; an answer after `answer_by` (0: not said) counts, too."""

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
    """What *answer* means; ValueError for what is none, such as 1 or a forgotten `await`."""
    if answer is None:
        return Decision.UNKNOWN
    if isinstance(answer, bool):
        return Decision.COMMIT if answer else Decision.ROLLBACK
    if isinstance(answer, str) and answer in _WORDS:
        return Decision(answer)
    raise ValueError(f"{repr(answer)[:80]} is no outcome: True or 'commit', False or 'rollback', None or 'unknown'")


_WORDS = frozenset(Decision)


class ProducerGroupOptions(TypedDict, total=False):
    """Settings of a producer group. `check_url`: asked there by callback, "" by pull; `check_secret` signs callbacks, made by the proxy
    when there is none. `timeout`: how long a callback may take (3s); `max_checks` (15); `check_after`: first check (6s); `check_interval` (30s).
    What is left out (None) stays as it is, or gets its default in a new one."""

    check_url: str | None
    check_secret: str | None
    timeout: Span | None
    max_checks: int | None
    check_after: Span | None
    check_interval: Span | None
    include_body: bool | None


class TransactionFilter(TypedDict, total=False):
    """Which transactions to list: `state` open or expired, both by default; `older_than`: begun at least so long ago."""

    producer_group: str
    state: str
    older_than: Span | None
    limit: int
    cursor: str
