"""Ends of transactions: a commit or rollback becomes a row for the transaction's broker group, its
verdict an answer.

A repeat of the same end gets the first answer; a different end is refused with the transaction's
state.
"""

import struct

from tern_proxy.core.documents.transactions import EndedTransaction, TransactionEnd, TransactionResolution
from tern_proxy.core.sending.topic import is_printable
from tern_wire.errors import (
    InvalidField,
    LinkReplyMalformed,
    TernError,
    TransactionExpired,
    TransactionResolved,
    TransactionUnknown,
)
from tern_wire.limits import ENDS_PER_REQUEST_MAX, KIB, LANE_SIZE_MAX_BYTES, RESOLVE_REASON_LENGTH_MAX
from tern_wire.link.codec import read_json, read_msgpack
from tern_wire.link.transactions import Resolved
from tern_wire.transactions import (
    BY_CLIENT,
    BY_TEXTS,
    COMMIT,
    END_ROW,
    ENDED,
    ENDED_BEFORE,
    EXPIRED_BEFORE,
    OTHER_OUTCOME,
    OUTCOME_STATES,
    ROLLBACK,
    TRANSACTION_UNKNOWN,
    TransactionId,
)

# A reason of the longest kind, every character of it escaped, and some room.
END_BODY_SIZE_MAX_BYTES = 4 * KIB
# Names of outcomes in the API, and their values on the link.
OUTCOMES = {"commit": COMMIT, "rollback": ROLLBACK}
_VERDICT = struct.Struct("<IIIIIIq")
# Size of an end in a lane: more than its row, so that a full flight has no more ends than a broker
# accepts.
_SIZE_BYTES = LANE_SIZE_MAX_BYTES // ENDS_PER_REQUEST_MAX
assert END_ROW.size <= _SIZE_BYTES

# One verdict: status, outcome, queue, messages, topic id, by, offset. See END_VERDICTS.
Ended = tuple[int, int, int, int, int, int, int]


class EndParcel:
    """One end for its broker group."""

    __slots__ = ("broker_group", "row", "size_bytes")

    def __init__(self, transaction: TransactionId, outcome: int) -> None:
        self.broker_group = transaction.broker_group
        # No claim: a client answers a check with an ordinary end, which counts with or without a
        # claim.
        self.row = END_ROW.pack(transaction.number, 0, transaction.producer_group_id, outcome, BY_CLIENT)
        self.size_bytes = _SIZE_BYTES


def read_ended(raw: memoryview, count: int) -> list[Ended]:
    """Return the verdicts of *count* ends, in order.

    Raise LinkReplyMalformed for another number of them.
    """
    if len(raw) != count * _VERDICT.size:
        raise LinkReplyMalformed(reason=f"{len(raw)} bytes of verdicts for {count} ends")
    return list(_VERDICT.iter_unpack(raw))


def ended_of(said: Resolved) -> Ended:
    """Return the verdict in the reply to RESOLVE_TRANSACTION."""
    return said.status, said.outcome, said.queue, said.messages, said.topic_id, said.by, said.offset


def refusal_of_end(ended: Ended) -> TernError | None:
    """Return the error of an end that was refused; None if the transaction has ended so, now or
    before.
    """
    status, outcome = ended[0], ended[1]
    if status in {ENDED, ENDED_BEFORE}:
        return None
    if status == OTHER_OUTCOME:
        return TransactionResolved(state=OUTCOME_STATES.get(outcome, "ended"))
    if status == EXPIRED_BEFORE:
        return TransactionExpired()
    if status == TRANSACTION_UNKNOWN:
        return TransactionUnknown()
    return LinkReplyMalformed(reason=f"the broker answered an end with status {status}")


def ended_document(transaction_id: str, broker_group: str, ended: Ended, topic: str) -> EndedTransaction:
    """Return the answer to an end.

    *topic*: the name of the verdict's topic; "" when it is unknown, such as of a deleted topic.
    """
    _, outcome, queue, messages, _, by, offset = ended
    document = EndedTransaction(
        transaction_id=transaction_id,
        state=OUTCOME_STATES[outcome],
        by=BY_TEXTS.get(by, ""),
        messages=messages,
    )
    if outcome == COMMIT and offset >= 0 and topic:
        document.topic, document.queue, document.offset = topic, f"{broker_group}:{queue}", offset
    return document


def read_reason(body: bytes, *, packed: bool) -> str:
    """Return the reason in the body of a commit or rollback; "" for none."""
    if not body:
        return ""
    reason = (read_msgpack(body, TransactionEnd) if packed else read_json(body, TransactionEnd)).reason
    return _check_reason(reason)


def read_resolution(asked: TransactionResolution) -> tuple[int, str]:
    """Return the outcome and the reason of an operator's resolution. Raise InvalidField."""
    outcome = OUTCOMES.get(asked.outcome)
    if outcome is None:
        raise InvalidField(reason="'outcome' is commit or rollback", pointer="/outcome")
    if not asked.reason.strip():
        raise InvalidField(reason="Say why: the 'reason' is kept with the transaction", pointer="/reason")
    return outcome, _check_reason(asked.reason)


def _check_reason(reason: str) -> str:
    if len(reason) > RESOLVE_REASON_LENGTH_MAX or not is_printable(reason):
        text = f"A reason has at most {RESOLVE_REASON_LENGTH_MAX} characters, none of them a control character"
        raise InvalidField(reason=text, pointer="/reason")
    return reason
