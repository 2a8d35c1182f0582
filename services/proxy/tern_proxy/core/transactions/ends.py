"""Ends of transactions: a commit or rollback becomes a row for the broker group that holds the transaction, its verdict an answer.

The same end again is answered as the first one was; another end is refused with what the transaction has become.
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

# A reason of the longest kind, every character of it escaped, and some air.
END_BODY_SIZE_MAX_BYTES = 4 * KIB
# What people say, and what it is on the link.
OUTCOMES = {"commit": COMMIT, "rollback": ROLLBACK}
_VERDICT = struct.Struct("<IIIIIIq")
# What an end counts for in a lane: more than its row, so that a full flight has no more of them than a broker takes.
_SIZE_BYTES = LANE_SIZE_MAX_BYTES // ENDS_PER_REQUEST_MAX
assert END_ROW.size <= _SIZE_BYTES

# One verdict: status, outcome, queue, messages, topic id, by, offset. See END_VERDICTS.
Ended = tuple[int, int, int, int, int, int, int]


class EndParcel:
    """One end on its way to its broker group."""

    __slots__ = ("broker_group", "row", "size_bytes")

    def __init__(self, transaction: TransactionId, outcome: int) -> None:
        self.broker_group = transaction.broker_group
        # No claim: whoever answers a check does it as any client does, and an answer counts with or without it.
        self.row = END_ROW.pack(transaction.number, 0, transaction.producer_group_id, outcome, BY_CLIENT)
        self.size_bytes = _SIZE_BYTES


def read_ended(raw: memoryview, count: int) -> list[Ended]:
    """The verdicts of *count* ends, in order; LinkReplyMalformed when they are not as many."""
    if len(raw) != count * _VERDICT.size:
        raise LinkReplyMalformed(reason=f"{len(raw)} bytes of verdicts for {count} ends")
    return list(_VERDICT.iter_unpack(raw))


def ended_of(said: Resolved) -> Ended:
    """The verdict in the reply to RESOLVE_TRANSACTION."""
    return said.status, said.outcome, said.queue, said.messages, said.topic_id, said.by, said.offset


def refusal_of_end(ended: Ended) -> TernError | None:
    """Why a transaction did not end as it was asked to; None: it has, now or before."""
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
    """What an end is answered with. *topic*: the name of the verdict's topic; "" when nobody can say, such as of a deleted one."""
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
    """The reason in the body of a commit or rollback; "" for none."""
    if not body:
        return ""
    reason = (read_msgpack(body, TransactionEnd) if packed else read_json(body, TransactionEnd)).reason
    return _check_reason(reason)


def read_resolution(asked: TransactionResolution) -> tuple[int, str]:
    """Outcome and reason that a person decides for; InvalidField."""
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
