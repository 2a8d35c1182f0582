"""Transactions as people look after them, through proxies: described, listed, resolved. Checks and ends are in `checks.py`."""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import LISTED_MAX
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode
from tern_wire.transactions import BY_HAND, EXPIRED, NUMBER_MAX, OPEN

_ID_MAX, _TIME_MAX_MS = (1 << 32) - 1, (1 << 53) - 1
TransactionNumber = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
# A state in which a transaction has not ended; "": both of them.
OpenState = Annotated[str, msgspec.Meta(pattern=rf"^(?:{OPEN}|{EXPIRED})?\Z")]


# What one is -------------------------------------------------------------------------------------------------------
class TransactionMessage(msgspec.Struct, frozen=True, array_like=True):
    """One message: where it is or will be visible, the size of its record, and its *offset*, -1 while it is not visible."""

    topic: str
    queue: int
    size_bytes: int
    offset: int


class TransactionCheck(msgspec.Struct, frozen=True, array_like=True):
    """The *attempt*-th time that it was asked about: when, by which checker, what the answer was, and after how long."""

    attempt: int
    at_ms: int
    checker: str
    answer: str
    latency_ms: int


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction. *state*: `open`, `expired`, `committed` or `rolled-back`; times are ms since 1970.

    *check_at_ms*: of the next check, 0 for none; *attempts*: how often it was asked about; *ended_ms*, *by* and *reason*: when, by whom and
    why it ended, 0 and "" while it has not. *messages*: of *message_count* the first ones, of an ended one only the first; *checks*: the newest
    ones. *producer_group*: "" of one that was deleted.
    """

    number: int
    producer_group: str
    producer_group_id: int
    state: str
    begun_ms: int
    check_at_ms: int
    attempts: int
    ended_ms: int
    by: str
    reason: str
    message_count: int
    messages: list[TransactionMessage]
    checks: list[TransactionCheck]


class DescribedTransaction(LinkReply, frozen=True, kw_only=True):
    """What the broker group knows of it."""

    transaction: Transaction


class DescribeTransaction(LinkRequest[DescribedTransaction], frozen=True, kw_only=True):
    """The transaction *number* of the producer group with this id, open or ended; TransactionUnknown."""

    code: ClassVar = RequestCode.DESCRIBE_TRANSACTION
    reply: ClassVar = DescribedTransaction

    number: TransactionNumber
    producer_group_id: Annotated[int, msgspec.Meta(ge=0, le=_ID_MAX)]


# Lists -------------------------------------------------------------------------------------------------------------
class ListedTransactions(LinkReply, frozen=True, kw_only=True):
    """The next ones by number; *more*: there are some behind them."""

    transactions: list[Transaction]
    more: bool


class ListTransactions(LinkRequest[ListedTransactions], frozen=True, kw_only=True):
    """At most *limit* transactions that have not ended, behind the number *after*, begun at least *older_than_ms* ago.

    *producer_group*: whose; "": of all producer groups of *namespace*, which is "" for those without one. *state*: only these, "": both.
    """

    code: ClassVar = RequestCode.LIST_TRANSACTIONS
    reply: ClassVar = ListedTransactions

    producer_group: str
    state: OpenState
    older_than_ms: Annotated[int, msgspec.Meta(ge=0, le=_TIME_MAX_MS)]
    after: TransactionNumber
    limit: Annotated[int, msgspec.Meta(ge=1, le=LISTED_MAX)]
    namespace: str = ""


# Resolutions -------------------------------------------------------------------------------------------------------
class Resolved(LinkReply, frozen=True, kw_only=True):
    """What became of it, as END_VERDICTS say it. *topic_id* is their topic, which brokers also say as *topic*; nobody reads that."""

    status: int
    outcome: int
    queue: int
    messages: int
    topic: int = 0
    by: int
    offset: int
    topic_id: int


class ResolveTransaction(LinkRequest[Resolved], frozen=True, kw_only=True):
    """End a transaction, an expired one too, with a *reason* that is kept with it.

    *outcome*: COMMIT or ROLLBACK; *by*: BY_HAND, or BY_CLIENT, which says why it ends its own.
    """

    code: ClassVar = RequestCode.RESOLVE_TRANSACTION
    reply: ClassVar = Resolved

    number: int
    producer_group_id: int
    outcome: int
    reason: str
    by: int = BY_HAND
