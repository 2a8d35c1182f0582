"""Checks of open transactions, as checkers and proxies ask for them, and the ends and reports that answer them.

Numbers, claims and ends are described in `tern_wire/transactions.py`. Nothing here brings numpy, which a checker does without while there is
nothing to check.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import ENDS_PER_REQUEST_MAX, WAIT_MAX_MS
from tern_wire.link.heads import Done, LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


# Checks ------------------------------------------------------------------------------------------------------------
class ClaimedMessage(msgspec.Struct, frozen=True, array_like=True):
    """Where a half message will be visible, and the size of its record. *topic*: "" of one that was deleted."""

    topic: str
    queue: int
    size_bytes: Annotated[int, msgspec.Meta(ge=0)]


class ClaimedCheck(msgspec.Struct, frozen=True, array_like=True):
    """The transaction *number* is asked about for the *attempt*-th time, by whoever holds this *claim*, until *claimed_until_ms*.

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
    """What was claimed, perhaps nothing. Behind it: the records of all messages, in the same order.

    *now_ms*: the broker group's time; 0 where nothing was claimed.
    """

    checks: list[ClaimedCheck]
    now_ms: int = 0


class ClaimChecks(LinkRequest[ClaimedChecks], frozen=True, kw_only=True):
    """At most *max* checks that are due, with records of about *max_bytes*, are *checker*'s for *claim_ms*.

    *producer_group*: whose; "": of all that have a check URL. *wait_ms*: how long to wait for the first; 0: do not.
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
    """A check that ended nothing: what its producer answered, or why it did not, in a word, and after how long."""

    number: int
    claim: int
    answer: str
    latency_ms: int


class ReportChecks(LinkRequest[Done], frozen=True, kw_only=True):
    """What came of checks. Behind the reply: one status byte a report, CHECK_NOTED or CHECK_NOT_YOURS."""

    code: ClassVar = RequestCode.REPORT_CHECKS
    reply: ClassVar = Done

    reports: list[CheckReport]


# Ends --------------------------------------------------------------------------------------------------------------
class EndTransactions(LinkRequest[Done], frozen=True, kw_only=True):
    """Commit or roll back: behind it are so many END_ROWS. Behind the reply: as many END_VERDICTS."""

    code: ClassVar = RequestCode.END_TRANSACTIONS
    reply: ClassVar = Done

    rows: Annotated[int, msgspec.Meta(ge=1, le=ENDS_PER_REQUEST_MAX)]
