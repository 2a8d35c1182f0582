"""Link requests for the administration of transactions: describe, list and resolve.

Checks and ends: see `checks.py`.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import LISTED_MAX
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode
from tern_wire.transactions import BY_HAND, EXPIRED, NUMBER_MAX, OPEN

_ID_MAX, _TIME_MAX_MS = (1 << 32) - 1, (1 << 53) - 1
TransactionNumber = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
# State of a transaction that has not ended; "" for both states.
OpenState = Annotated[str, msgspec.Meta(pattern=rf"^(?:{OPEN}|{EXPIRED})?\Z")]


# Descriptions -------------------------------------------------------------------------------------
class TransactionMessage(msgspec.Struct, frozen=True, array_like=True):
    """Message: its present or future topic and queue, its record's size, and its *offset*, -1 while
    it is invisible.
    """

    topic: str
    queue: int
    size_bytes: int
    offset: int


class TransactionCheck(msgspec.Struct, frozen=True, array_like=True):
    """Check number *attempt*: its time, its checker, the answer, and the latency."""

    attempt: int
    at_ms: int
    checker: str
    answer: str
    latency_ms: int


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """Transaction. *state*: `open`, `expired`, `committed` or `rolled-back`; times are ms since
    1970.

    *check_at_ms*: of the next check, 0 for none. *attempts*: the number of checks. *ended_ms*, *by*
    and *reason*: time, origin and reason of its end, 0 and "" before the end. *messages*: the first
    ones of *message_count*; after the end only the first. *checks*: the newest ones.
    *producer_group*: "" if it was deleted.
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
    """Reply: the transaction as the broker group knows it."""

    transaction: Transaction


class DescribeTransaction(LinkRequest[DescribedTransaction], frozen=True, kw_only=True):
    """Describe the transaction *number* of the producer group with this id, open or ended.

    TransactionUnknown.
    """

    code: ClassVar = RequestCode.DESCRIBE_TRANSACTION
    reply: ClassVar = DescribedTransaction

    number: TransactionNumber
    producer_group_id: Annotated[int, msgspec.Meta(ge=0, le=_ID_MAX)]


# Lists --------------------------------------------------------------------------------------------
class ListedTransactions(LinkReply, frozen=True, kw_only=True):
    """Reply: the next transactions by number. *more*: there are further ones."""

    transactions: list[Transaction]
    more: bool


class ListTransactions(LinkRequest[ListedTransactions], frozen=True, kw_only=True):
    """List at most *limit* transactions that have not ended, behind the number *after*, begun at
    least *older_than_ms* ago.

    *producer_group*: the group, or "" for all producer groups of *namespace* ("" for those without
    one). *state*: only these; "" for both.
    """

    code: ClassVar = RequestCode.LIST_TRANSACTIONS
    reply: ClassVar = ListedTransactions

    producer_group: str
    state: OpenState
    older_than_ms: Annotated[int, msgspec.Meta(ge=0, le=_TIME_MAX_MS)]
    after: TransactionNumber
    limit: Annotated[int, msgspec.Meta(ge=1, le=LISTED_MAX)]
    namespace: str = ""


# Resolutions --------------------------------------------------------------------------------------
class Resolved(LinkReply, frozen=True, kw_only=True):
    """Reply: the result, with the fields of END_VERDICTS.

    *topic_id* is the verdict's topic. Brokers also send it as *topic*, which is not read.
    """

    status: int
    outcome: int
    queue: int
    messages: int
    topic: int = 0
    by: int
    offset: int
    topic_id: int


class ResolveTransaction(LinkRequest[Resolved], frozen=True, kw_only=True):
    """End a transaction, even an expired one, with a *reason* that is stored with it.

    *outcome*: COMMIT or ROLLBACK. *by*: BY_HAND, or BY_CLIENT for a client that ends its own
    transaction with a reason.
    """

    code: ClassVar = RequestCode.RESOLVE_TRANSACTION
    reply: ClassVar = Resolved

    number: int
    producer_group_id: int
    outcome: int
    reason: str
    by: int = BY_HAND
