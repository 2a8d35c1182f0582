"""Checks of open transactions, the claims of checkers and proxies, and the ends and reports that
answer them.

Numbers, claims and ends are described in `tern_wire/transactions.py`. This module does not import
numpy, so that an idle checker runs without it.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import ENDS_PER_REQUEST_MAX, WAIT_MAX_MS
from tern_wire.link.heads import Done, LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


# Checks -------------------------------------------------------------------------------------------
class ClaimedMessage(msgspec.Struct, frozen=True, array_like=True):
    """Half message in a check: its future topic and queue, and its record's size.

    *topic* is "" if it was deleted.
    """

    topic: str
    queue: int
    size_bytes: Annotated[int, msgspec.Meta(ge=0)]


class ClaimedCheck(msgspec.Struct, frozen=True, array_like=True):
    """Check number *attempt* of the transaction *number*, assigned to the holder of *claim* until
    *claimed_until_ms*.

    Times are ms since 1970 by the broker group's clock.
    """

    number: int
    claim: int
    attempt: int
    producer_group: str
    producer_group_id: int
    begun_ms: int
    claimed_until_ms: int
    messages: list[ClaimedMessage]


class ClaimedChecks(LinkReply, frozen=True, kw_only=True):
    """Reply: the claimed checks, possibly none.

    Raw bytes: the records of all messages, in the same order. *now_ms* is the broker group's time,
    0 if nothing was claimed.
    """

    checks: list[ClaimedCheck]
    now_ms: int = 0


class ClaimChecks(LinkRequest[ClaimedChecks], frozen=True, kw_only=True):
    """Claim at most *max* due checks, with records of about *max_bytes*, for *checker* and
    *claim_ms*.

    *producer_group*: the producer group, or "" for all that have a check URL. *wait_ms*: how long
    to wait for the first check; 0 for no wait.
    """

    code: ClassVar = RequestCode.CLAIM_CHECKS
    reply: ClassVar = ClaimedChecks

    checker: str
    producer_group: str
    max: int
    claim_ms: int
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=WAIT_MAX_MS)]
    max_bytes: int


class CheckReport(msgspec.Struct, frozen=True, array_like=True):
    """Report of a check that did not end its transaction: the answer or the kind of failure, and
    the latency.
    """

    number: int
    claim: int
    answer: str
    latency_ms: int


class ReportChecks(LinkRequest[Done], frozen=True, kw_only=True):
    """Report results of checks.

    Raw bytes of the reply: one status byte a report, CHECK_NOTED or CHECK_NOT_YOURS.
    """

    code: ClassVar = RequestCode.REPORT_CHECKS
    reply: ClassVar = Done

    reports: list[CheckReport]


# Ends ---------------------------------------------------------------------------------------------
class EndTransactions(LinkRequest[Done], frozen=True, kw_only=True):
    """Commit or roll back transactions.

    Raw bytes: END_ROWS, one a row; of the reply: as many END_VERDICTS.
    """

    code: ClassVar = RequestCode.END_TRANSACTIONS
    reply: ClassVar = Done

    rows: Annotated[int, msgspec.Meta(ge=1, le=ENDS_PER_REQUEST_MAX)]
