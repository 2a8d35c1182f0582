"""Claims turned into callback bodies: CloudEvents in JSON, one for each transaction. Imports numpy.

    claim:    ClaimedChecks (tern_wire/link/checks.py) and the records of their messages
    callback: {specversion, type, source, id, subject, time, datacontenttype,
               data: {transaction_id, producer_group, attempt, begun_at, messages}}

A message looks as in `receive`, and has its body only if the producer group requests bodies.

Reference: CloudEvents 1.0.2, JSON event format in structured mode.
"""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.checks import ClaimedChecks
from tern_wire.link.codec import encode_json
from tern_wire.names import namespace_of, own_name
from tern_wire.paths import JSON, producer_group_path
from tern_wire.records.properties import CONTENT_TYPE, KEYS, MESSAGE_ID, RESERVED_PROPERTIES, TAGS
from tern_wire.records.read import Record, decode_record
from tern_wire.transactions import TransactionId, TransactionIds

EVENT_TYPE = "ternmq.transaction.check.v1"
CLOUD_EVENT = "application/cloudevents+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """One check of a claim. *records*: its messages, one after the other.

    *claim_ms*: duration of the claim, from the time when the broker group made it.
    """

    number: int
    claim: int
    attempt: int
    producer_group: str
    producer_group_id: int
    begun_ms: int
    claim_ms: int
    sizes: tuple[int, ...]
    records: memoryview


def read_claimed(said: ClaimedChecks, raw: memoryview) -> list[Claimed]:
    """Return the checks of a reply, in order, each with its part of the records *raw*.

    LinkBodyMalformed when checks and records do not match.
    """
    if said.checks and not said.now_ms:
        raise LinkBodyMalformed(reason="a claim that does not say when it was made")
    found: list[Claimed] = []
    at = 0
    for one in said.checks:
        sizes = tuple(message.size_bytes for message in one.messages)
        end = at + sum(sizes)
        found.append(
            Claimed(
                number=one.number,
                claim=one.claim,
                attempt=one.attempt,
                producer_group=one.producer_group,
                producer_group_id=one.producer_group_id,
                begun_ms=one.begun_ms,
                claim_ms=one.claimed_until_ms - said.now_ms,
                sizes=sizes,
                records=raw[at:end],
            )
        )
        at = end
    if at != len(raw):
        raise LinkBodyMalformed(reason=f"a claim with {len(raw)} bytes of records instead of {at}")
    return found


class CallbackBodies:
    """Makes the callback bodies of one broker group's checks. Immutable."""

    __slots__ = ("_broker_group", "_cluster_key")

    def __init__(self, cluster_key: bytes, broker_group: str) -> None:
        self._cluster_key = cluster_key
        self._broker_group = broker_group

    def transaction_id(self, claimed: Claimed) -> str:
        """Return the transaction's id in the form that its producer has."""
        ids = TransactionIds(self._cluster_key, namespace_of(claimed.producer_group))
        return ids.make(TransactionId(self._broker_group, claimed.number, claimed.producer_group_id))

    def body(self, claimed: Claimed, transaction_id: str, *, time: str, include_body: bool) -> bytes:
        """Return the body of the callback; *time* is the current time in RFC 3339.

        LinkBodyMalformed when the records are malformed.
        """
        namespace = namespace_of(claimed.producer_group)
        return encode_json(
            {
                "specversion": "1.0",
                "type": EVENT_TYPE,
                "source": producer_group_path(own_name(claimed.producer_group)),
                "id": transaction_id,
                "subject": transaction_id,
                "time": time,
                "datacontenttype": JSON,
                "data": {
                    "transaction_id": transaction_id,
                    **({"namespace": namespace} if namespace else {}),
                    "producer_group": own_name(claimed.producer_group),
                    "attempt": claimed.attempt,
                    "begun_at": claimed.begun_ms,
                    "messages": [_message(record, include_body=include_body) for record in _records(claimed)],
                },
            }
        )


def _records(claimed: Claimed) -> Iterator[Record]:
    at = 0
    for size in claimed.sizes:
        record = decode_record(claimed.records[at : at + size])
        if record.size_bytes != size:
            raise LinkBodyMalformed(reason=f"a record of {record.size_bytes} bytes in place of {size}")
        yield record
        at += size


def _message(record: Record, *, include_body: bool) -> dict[str, Any]:
    properties = record.properties
    message: dict[str, Any] = {
        "topic": own_name(record.topic),
        "message_id": properties.get(MESSAGE_ID, ""),
        "keys": properties.get(KEYS, "").split(),
        "tag": properties.get(TAGS, ""),
        "properties": {name: value for name, value in properties.items() if name not in RESERVED_PROPERTIES},
    }
    if CONTENT_TYPE in properties:
        message["content_type"] = properties[CONTENT_TYPE]
    if record.content_encoding:
        message["content_encoding"] = record.content_encoding
    if include_body:
        message["body"] = b64encode(record.body).decode()
    return message
