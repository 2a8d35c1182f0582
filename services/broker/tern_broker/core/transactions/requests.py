"""The maps of commands about transactions, decoded in one place: by the link before they cost an
entry, and by apply.

    CLAIM_CHECKS         {producer_group ("": all with a check URL), checker, max, claim_ms,
                          max_bytes}
    REPORT_CHECKS        {reports: [[number, claim, answer, latency_ms], ...]}
    RESOLVE_TRANSACTION  {number, producer_group_id, outcome, reason, by}

*by*: BY_HAND, or BY_CLIENT for a client that ends its own transaction and gives a reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tern_wire.errors import InvalidField
from tern_wire.limits import (
    CHECK_ANSWER_LENGTH_MAX,
    CHECKER_NAME_LENGTH_MAX,
    CHECKS_CLAIMED_MAX,
    CLAIM_MAX_MS,
    ENDS_PER_REQUEST_MAX,
    RECEIVE_SIZE_MAX_BYTES,
    RESOLVE_REASON_LENGTH_MAX,
)
from tern_wire.settings.topic_settings import is_whole
from tern_wire.transactions import BY_CLIENT, BY_HAND, COMMIT, NUMBER_MAX, ROLLBACK

_ID_MAX = _LATENCY_MAX_MS = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A checker's request for a number of checks of a producer group, claimed for a time."""

    producer_group: str
    checker: str
    count_max: int
    claim_ms: int
    size_max_bytes: int

    def packed(self) -> dict[str, Any]:
        """Return the request as a map."""
        limits = {"max": self.count_max, "claim_ms": self.claim_ms, "max_bytes": self.size_max_bytes}
        return {"producer_group": self.producer_group, "checker": self.checker, **limits}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A manual end of a transaction, and its reason."""

    number: int
    producer_group_id: int
    outcome: int
    reason: str
    by: int

    def packed(self) -> dict[str, Any]:
        """Return the request as a map."""
        return {name: getattr(self, name) for name in self.__slots__}


def read_claim(request: Mapping[str, Any]) -> ClaimRequest:
    """Decode a claim; raise InvalidField for a bad value. The existence of the producer group is
    not checked.
    """
    return ClaimRequest(
        producer_group=_text(request, "producer_group", 0, 160),
        checker=_text(request, "checker", 1, CHECKER_NAME_LENGTH_MAX),
        count_max=_number(request, "max", 1, CHECKS_CLAIMED_MAX),
        claim_ms=_number(request, "claim_ms", 1, CLAIM_MAX_MS),
        size_max_bytes=_number(request, "max_bytes", 1, RECEIVE_SIZE_MAX_BYTES),
    )


def read_reports(request: Mapping[str, Any]) -> list[tuple[int, int, str, int]]:
    """Return number, claim, answer and latency (ms) of each report; raise InvalidField for a bad
    value.
    """
    reports = request["reports"]
    is_good = isinstance(reports, list) and len(reports) <= ENDS_PER_REQUEST_MAX
    if not is_good or not all(_is_report(report) for report in reports):
        reason = "'reports' are number, claim, answer and latency_ms of each check"
        raise InvalidField(reason=reason, pointer="/reports")
    return [(number, claim, answer, latency_ms) for number, claim, answer, latency_ms in reports]


def read_resolution(request: Mapping[str, Any]) -> Resolution:
    """Decode a resolution; raise InvalidField for a bad value."""
    return Resolution(
        number=_number(request, "number", 1, NUMBER_MAX),
        producer_group_id=_number(request, "producer_group_id", 0, _ID_MAX),
        outcome=_number(request, "outcome", COMMIT, ROLLBACK),
        reason=_text(request, "reason", 1, RESOLVE_REASON_LENGTH_MAX),
        by=_by(request.get("by", BY_HAND)),
    )


def _by(value: Any) -> int:
    if not is_whole(value, BY_CLIENT, BY_HAND) or value not in {BY_CLIENT, BY_HAND}:
        raise InvalidField(reason="'by' is a client or an operator", pointer="/by")
    return int(value)


def _is_report(report: Any) -> bool:
    if not isinstance(report, list) or len(report) != 4:
        return False
    number, claim, answer, latency_ms = report
    is_answer = isinstance(answer, str) and 1 <= len(answer) <= CHECK_ANSWER_LENGTH_MAX and answer.isprintable()
    are_numbers = is_whole(number, 0, NUMBER_MAX) and is_whole(claim, 0, NUMBER_MAX)
    return is_answer and are_numbers and is_whole(latency_ms, 0, _LATENCY_MAX_MS)


def _number(request: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = request[name]
    if not is_whole(value, least, most):
        raise InvalidField(reason=f"'{name}' is a whole number, {least} to {most}", pointer=f"/{name}")
    return value


def _text(request: Mapping[str, Any], name: str, least: int, most: int) -> str:
    value = request[name]
    if not isinstance(value, str) or not least <= len(value) <= most or not value.isprintable():
        raise InvalidField(reason=f"'{name}' is a text of {least} to {most} printable characters", pointer=f"/{name}")
    return value
