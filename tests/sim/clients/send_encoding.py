"""Sends as bytes of the link protocol: records and their rows, of ordinary and of half messages; and what is answered to them."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from zlib import crc32

from tern_wire.link.requests import Parts, RequestCode, body_parts
from tern_wire.link.rows import (
    FLAG_HALF,
    FLAG_KEYED,
    FLAG_SAME_TRANSACTION,
    NO_KEY,
    SEND_ROW,
    key_hash,
    message_group_hash,
)
from tern_wire.records.properties import (
    DELIVER_MS,
    MESSAGE_GROUP,
    MESSAGE_ID,
    PRODUCER_GROUP,
    TRANSACTIONAL,
    encode_properties,
)
from tern_wire.records.write import encode_record
from tests.sim.clients.bodies import body_of, message_id
from tests.sim.history.history import Send, Sending, Sent
from tests.sim.history.transaction_values import Begin

_VERDICT = struct.Struct("<IIq")


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the link, ready to be sent; *is_repeatable*: doing it twice is doing it once, or asked for again on purpose."""

    code: int
    parts: Parts
    is_repeatable: bool


def encode_send(asked: Send, operation: int, born_ms: int) -> Request:
    """The request for *asked*; *operation* is its number in the history."""
    packed, is_keyed = encode_messages(asked.topic, asked.messages, operation, born_ms)
    return Request(
        RequestCode.SEND, body_parts({"topics": [asked.topic], "rows": len(asked.messages)}, [packed]), is_keyed
    )


def encode_messages(
    name_of_topic: str, messages: Sequence[Sending], operation: int, born_ms: int
) -> tuple[bytes, bool]:
    """Rows and records, and whether each has a key."""
    topic = name_of_topic.encode()
    rows, records, is_keyed = [], [], True
    for row, (queue, name, key, size_bytes, message_group, deliver_ms) in enumerate(messages):
        body = body_of(name, size_bytes)
        crc = crc32(body) & 0x7FFFFFFF
        pairs = [(MESSAGE_ID, message_id(operation, row))]
        hashed_group = 0
        if message_group:
            pairs.append((MESSAGE_GROUP, message_group))
            hashed_group = message_group_hash(message_group.encode())
        if deliver_ms:
            pairs.append((DELIVER_MS, str(deliver_ms)))
        properties = encode_properties(pairs)
        record = encode_record(topic, queue, body, properties, born_ms=born_ms, body_crc=crc)
        hashed, flags = (key_hash(topic, key.encode()), FLAG_KEYED) if key else (NO_KEY, 0)
        is_keyed = is_keyed and bool(key)
        rows.append(SEND_ROW.pack(len(record), 0, queue, flags, 0, crc, 0, hashed, deliver_ms, hashed_group))
        records.append(record)
    return b"".join(rows + records), is_keyed


def encode_begin(asked: Begin, operation: int, born_ms: int) -> Request:
    """As `encode_send`; it may be repeated if every transaction's first message has a key."""
    topics = sorted({half.topic for half in chain(*asked.transactions)})
    rows: list[bytes] = []
    records: list[bytes] = []
    for halves in asked.transactions:
        for number, half in enumerate(halves):
            topic, body = half.topic.encode(), body_of(half.name, half.size_bytes)
            crc = crc32(body) & 0x7FFFFFFF
            pairs = [(MESSAGE_ID, message_id(operation, len(rows)))]
            pairs += [(TRANSACTIONAL, "true"), (PRODUCER_GROUP, asked.producer_group)]
            record = encode_record(topic, half.queue, body, encode_properties(pairs), born_ms=born_ms, body_crc=crc)
            hashed, keyed = (key_hash(topic, half.key.encode()), FLAG_KEYED) if half.key else (NO_KEY, 0)
            flags = FLAG_HALF | keyed | (FLAG_SAME_TRANSACTION if number else 0)
            where = (len(record), topics.index(half.topic), half.queue)
            rows.append(SEND_ROW.pack(*where, flags, 0, crc, 0, hashed, asked.check_after_ms, 0))
            records.append(record)
    head = {"topics": topics, "rows": len(rows), "producer_groups": [asked.producer_group]}
    is_keyed = all(halves[0].key for halves in asked.transactions)
    return Request(RequestCode.SEND, body_parts(head, [b"".join(rows + records)]), is_keyed)


def read_verdicts(head: dict[str, Any], raw: memoryview) -> tuple[Sent, ...]:
    """What the reply says of each message."""
    firsts = {row: first_id for row, first_id, *_ in head["replays"]}
    verdicts = enumerate(_VERDICT.iter_unpack(raw))
    return tuple([Sent(status, queue, at, firsts.get(row, "")) for row, (status, queue, at) in verdicts])
