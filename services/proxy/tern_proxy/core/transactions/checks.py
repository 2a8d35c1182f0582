"""Checks claimed by this proxy: parsed from a CLAIM_CHECKS reply, and converted to documents for
the producer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tern_proxy.core.documents import transactions
from tern_proxy.core.documents.messages import ReadMessage
from tern_proxy.core.documents.transactions import HalfMessage
from tern_proxy.core.reading.delivery import PutBody, read_records
from tern_wire.errors import LinkReplyMalformed
from tern_wire.limits import RECEIVE_SIZE_DEFAULT_BYTES
from tern_wire.link.checks import ClaimChecks, ClaimedCheck
from tern_wire.transactions import TransactionId, TransactionIds

# Duration of a producer's claim of a check. Then the check is issued once more, and after that the
# attempt counts as lost.
CLAIM_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Check of a transaction.

    *messages*: topic and size of each record; the records are concatenated in *records*.
    """

    broker_group: str
    number: int
    attempt: int
    producer_group: str
    producer_group_id: int
    begun_ms: int
    claimed_until_ms: int
    messages: Sequence[tuple[str, int]]
    records: bytes


def claim_of(producer_group: str, checker: str, count: int, wait_ms: int) -> ClaimChecks:
    """Return the request for *count* checks of one producer group."""
    return ClaimChecks(
        checker=checker,
        producer_group=producer_group,
        max=count,
        claim_ms=CLAIM_MS,
        wait_ms=wait_ms,
        max_bytes=RECEIVE_SIZE_DEFAULT_BYTES,
    )


def read_checks(claimed: Sequence[ClaimedCheck], raw: memoryview, broker_group: str) -> list[Check]:
    """Return the claimed checks in order, with their records from *raw*.

    Raise LinkReplyMalformed when checks and records do not match.
    """
    checks: list[Check] = []
    at = 0
    for one in claimed:
        end = at + sum(message.size_bytes for message in one.messages)
        if end > len(raw):
            raise LinkReplyMalformed(reason=f"checks whose records run past {len(raw)} bytes")
        checks.append(
            Check(
                broker_group=broker_group,
                number=one.number,
                attempt=one.attempt,
                producer_group=one.producer_group,
                producer_group_id=one.producer_group_id,
                begun_ms=one.begun_ms,
                claimed_until_ms=one.claimed_until_ms,
                messages=[(message.topic, message.size_bytes) for message in one.messages],
                records=bytes(raw[at:end]),
            )
        )
        at = end
    if at != len(raw):
        raise LinkReplyMalformed(reason=f"{len(raw) - at} bytes behind the records of the last check")
    return checks


def check_document(check: Check, ids: TransactionIds, put_body: PutBody) -> transactions.Check:
    """Return the document of *check*. Its messages have no offsets, because they are invisible."""
    transaction = TransactionId(check.broker_group, check.number, check.producer_group_id)
    messages: list[HalfMessage] = []
    at = 0
    for topic, size in check.messages:
        (message,) = read_records(check.records[at : at + size], topic, check.broker_group, put_body)
        messages.append(_half(message))
        at += size
    return transactions.Check(
        transaction_id=ids.make(transaction),
        attempt=check.attempt,
        producer_group=check.producer_group,
        begun_at=check.begun_ms,
        answer_by=check.claimed_until_ms,
        messages=messages,
    )


def _half(message: ReadMessage) -> HalfMessage:
    return HalfMessage(
        message_id=message.message_id,
        topic=message.topic,
        queue=message.queue,
        body=message.body,
        json=message.json,
        body_base64=message.body_base64,
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        tag=message.tag,
        keys=message.keys,
        properties=message.properties,
        born_at=message.born_at,
        stored_at=message.stored_at,
    )
