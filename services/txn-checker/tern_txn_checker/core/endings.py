"""Verdicts as rows of END_TRANSACTIONS, and the words for its reply. Imports numpy."""

from collections.abc import Iterable

from tern_txn_checker.core import answers
from tern_txn_checker.core.answers import Answer
from tern_txn_checker.core.schedule import Claim
from tern_wire.errors import LinkBodyMalformed
from tern_wire.transactions import (
    BY_CHECK,
    COMMIT,
    END_ROW,
    ENDED,
    ENDED_BEFORE,
    EXPIRED_BEFORE,
    OTHER_OUTCOME,
    ROLLBACK,
    TRANSACTION_UNKNOWN,
)

_OUTCOMES = {answers.COMMIT: COMMIT, answers.ROLLBACK: ROLLBACK}
_SAID = {
    ENDED: "ended",
    ENDED_BEFORE: "ended-before",
    OTHER_OUTCOME: "other-outcome",
    EXPIRED_BEFORE: "expired-before",
    TRANSACTION_UNKNOWN: "transaction-unknown",
}


def end_rows(verdicts: Iterable[tuple[Claim, Answer]]) -> bytes:
    """Return the END_ROWS of *verdicts*, in order."""
    return b"".join(
        END_ROW.pack(claim.number, claim.claim, claim.producer_group_id, _OUTCOMES[answer.text], BY_CHECK)
        for claim, answer in verdicts
    )


def read_endings(raw: memoryview, count: int) -> list[str]:
    """Return the outcome of each of *count* rows, in words.

    LinkBodyMalformed when *raw* is not *count* END_VERDICTS.
    """
    if len(raw) != count * END_ROW.size:
        raise LinkBodyMalformed(reason=f"{len(raw)} bytes of verdicts for {count} ends")
    statuses = (int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), END_ROW.size))
    return [_SAID.get(status, "not-known-here") for status in statuses]
