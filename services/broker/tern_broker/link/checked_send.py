"""A link SEND, checked before it is proposed: the log accepts only what is true on every node and
for every reader.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.machine import StateMachine
from tern_broker.core.sending.sending import keys_of
from tern_wire.array_thresholds import CHECKED_ROWS_ONE_BY_ONE_MAX
from tern_wire.errors import LinkBodyMalformed, Overloaded, PropertyConflictsWithType
from tern_wire.limits import CHECK_AFTER_MAX_MS, ENTRY_SIZE_MAX_BYTES, IDEMPOTENCY_TABLES_WAITING_MAX
from tern_wire.link.commands import SEND_HEAD
from tern_wire.link.key_rows import RECEIPT_ROW_SIZE_BYTES, RECEIPT_ROWS, Receipt
from tern_wire.link.requests import Parts
from tern_wire.link.rows import (
    FLAG_HALF,
    FLAG_KEYED,
    FLAG_SAME_TRANSACTION,
    FLAGS,
    NO_PRODUCER_GROUP,
    PLAIN_FLAGS,
    SEND_ROW,
    SEND_ROWS,
    TOO_MANY_OPEN,
    message_group_hash,
)
from tern_wire.link.sends import Send
from tern_wire.records.columns import is_whole
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.layout import MAGIC, OVERHEAD_SIZE_BYTES
from tern_wire.records.properties import DELIVER_MS, MESSAGE_GROUP, PRODUCER_GROUP, TAGS, TRANSACTIONAL
from tern_wire.records.read import decode_record
from tern_wire.records.write import fill_queues, stamp_stored

# A topic id of no topic: apply answers NO_TOPIC.
UNKNOWN_TOPIC_ID = 0
# A producer group id of no group: apply answers NO_PRODUCER_GROUP.
UNKNOWN_PRODUCER_GROUP_ID = 0
# Concatenated 16-byte key hashes -> the receipts of known keys, by number of the key.
FindKeys = Callable[[bytes], dict[int, Receipt]]
# Leaves room for the heads of the entry and the command.
SEND_SIZE_MAX_BYTES = ENTRY_SIZE_MAX_BYTES - 4096
_SIZE_AND_MAGIC = struct.Struct(">II")
_NO_ROWS, _NO_GROUPS = np.zeros(0, np.intp), np.zeros(0, np.uint32)


@dataclass(slots=True)
class CheckedSend:
    """Rows with topic ids, records with zero offsets, ready to be stamped and proposed."""

    rows: npt.NDArray[Any]
    records: bytearray
    starts: npt.NDArray[np.int64]
    # The queue of a message group and the id of a producer group are decided when the entry is
    # built.
    state: StateMachine
    producer_groups: list[str] = field(default_factory=list)
    # The flags that any row may have.
    flags: int = FLAGS
    # Places of producer groups that must begin no transaction, since their namespace has used up
    # its share.
    full_groups: frozenset[int] = frozenset()
    # Numbers of the rows with an idempotency key.
    keyed: npt.NDArray[np.intp] = field(init=False)
    # Numbers of the rows with half messages, and of their producer groups' names.
    half: npt.NDArray[np.intp] = field(init=False)
    half_groups: npt.NDArray[np.uint32] = field(init=False)

    def __post_init__(self) -> None:
        self.keyed, self.half, self.half_groups = _NO_ROWS, _NO_ROWS, _NO_GROUPS
        if self.flags & FLAG_KEYED:
            self.keyed = (self.rows["flags"] & FLAG_KEYED).nonzero()[0]
        if self.flags & FLAG_HALF:
            self.half = (self.rows["flags"] & FLAG_HALF).nonzero()[0]
            self.half_groups = self.rows["producer_group"][self.half]

    @property
    def size_bytes(self) -> int:
        """The largest size that it adds to an entry."""
        return len(self.records) + self.rows.nbytes + SEND_HEAD.size + len(self.keyed) * RECEIPT_ROW_SIZE_BYTES

    def require_room_for_keys(self, tables_waiting: int) -> None:
        """Raise Overloaded if it has keys and *tables_waiting* sealed tables are still in memory:
        the disk is slower than the senders.
        """
        if len(self.keyed) and tables_waiting >= IDEMPOTENCY_TABLES_WAITING_MAX:
            raise Overloaded(what="idempotency keys")

    def payload(self, now_ms: int, host: bytes, find_keys: FindKeys = lambda _keys: {}) -> Parts:
        """Return the command's payload: every record stamped with store time and host, and with its
        slot's queue if it has a message group.

        *find_keys* looks up keys in the sealed tables, and raises what `SentKeys.find` raises. The
        found receipts are part of the payload.
        """
        grouped = self.rows["message_group"].nonzero()[0]
        if len(grouped):
            self._fill_in_queues(grouped)
        if len(self.half):
            self._fill_in_producer_groups()
        stamp_stored(self.records, self.starts, now_ms, host)
        known = find_keys(keys_of(self.rows[self.keyed])) if len(self.keyed) else {}
        receipts = [(int(self.keyed[number]), *receipt, 0) for number, receipt in known.items()]
        payload: Parts = [SEND_HEAD.pack(len(self.rows), len(receipts)), self.rows.tobytes(), self.records]
        return [*payload, np.array(receipts, RECEIPT_ROWS).tobytes()] if receipts else payload

    def tell_full(self, verdicts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return *verdicts* for the sender: rows refused because of `full_groups` get
        TOO_MANY_OPEN.

        Apply has refused these rows as rows of an unknown producer group.
        """
        if not self.full_groups:
            return verdicts
        verdicts = verdicts.copy()
        refused = self.half[np.isin(self.half_groups, list(self.full_groups))]
        unknown = refused[verdicts["status"][refused] == NO_PRODUCER_GROUP]
        verdicts["status"][unknown] = TOO_MANY_OPEN
        return verdicts

    def _fill_in_producer_groups(self) -> None:
        known = self.state.producers.by_name
        ids = [
            known[name].producer_group_id
            if name in known and number not in self.full_groups
            else UNKNOWN_PRODUCER_GROUP_ID
            for number, name in enumerate(self.producer_groups)
        ]
        self.rows["producer_group"][self.half] = np.array(ids, "<u4")[self.half_groups]

    def _fill_in_queues(self, grouped: npt.NDArray[np.int64]) -> None:
        for topic_id in np.unique(self.rows["topic"][grouped]).tolist():
            topic = self.state.names.topics_by_id.get(topic_id)
            if topic is not None:
                of_topic = grouped[self.rows["topic"][grouped] == topic_id]
                queues = self.state.slots.route(topic, self.rows["message_group"][of_topic])
                self.rows["queue"][of_topic] = queues
                fill_queues(self.records, self.starts[of_topic], queues)


def check_send(request: Send, raw: memoryview, state: StateMachine, rng: Random) -> CheckedSend:
    """Check sizes and magics of all records, and all fields of one record; LinkBodyMalformed names
    the fault.
    """
    topics, count, producer_groups = request.topics, request.rows, request.producer_groups
    records_at = count * SEND_ROWS.itemsize
    if not count > 0 or records_at >= len(raw) or len(raw) > SEND_SIZE_MAX_BYTES:
        raise LinkBodyMalformed(reason=f"SEND of {count} rows in {len(raw)} bytes")
    known = state.names.topics
    ids = [known[name].topic_id if name in known else UNKNOWN_TOPIC_ID for name in topics]
    rows = np.frombuffer(bytearray(raw[:records_at]), SEND_ROWS)
    records = bytearray(raw[records_at:])
    number = rng.randrange(count)
    if count <= CHECKED_ROWS_ONE_BY_ONE_MAX and (few := _check_few(raw[:records_at], records, len(topics))) is not None:
        starts, flags = np.array(few[0]), few[1]
    else:
        starts, flags = _check_all(rows, records, len(topics), len(producer_groups))
    _check_one(SEND_ROW.unpack_from(raw, number * SEND_ROW.size), records, int(starts[number]), request, number)
    rows["topic"] = ids[0] if len(ids) == 1 else np.array(ids, "<u4")[rows["topic"]]
    send = CheckedSend(rows, records, starts, state, producer_groups, flags)
    if send.size_bytes > SEND_SIZE_MAX_BYTES:
        raise LinkBodyMalformed(reason=f"SEND of {count} rows in {len(raw)} bytes, with {len(send.keyed)} keys")
    return send


def _check_few(rows: memoryview, records: bytearray, topics: int) -> tuple[list[int], int] | None:
    """Check a few rows without arrays, which cost the same for one as for fifty.

    Return the starts of the records, and all flags together. None: the arrays check them, because a
    row is not plain or not valid.
    """
    starts: list[int] = []
    at, end, flags = 0, len(records), 0
    for size, topic, queue, row_flags, _, _, producer_group, _, _, message_group in SEND_ROW.iter_unpack(rows):
        if topic >= topics or row_flags & ~PLAIN_FLAGS or producer_group or (message_group and queue):
            return None
        is_there = size >= OVERHEAD_SIZE_BYTES and at + size <= end
        if not is_there or _SIZE_AND_MAGIC.unpack_from(records, at) != (size, MAGIC):
            return None
        flags |= row_flags
        starts.append(at)
        at += size
    return (starts, flags) if at == end else None


def _check_all(
    rows: npt.NDArray[Any], records: bytearray, topics: int, producer_groups: int
) -> tuple[npt.NDArray[np.int64], int]:
    """Check any number of rows; return the starts of the records, and all flags together.

    Raise LinkBodyMalformed, PropertyConflictsWithType.
    """
    sizes = rows["size"].astype(np.int64)
    ends = sizes.cumsum()
    if int(ends[-1]) != len(records) or int(sizes.min()) < OVERHEAD_SIZE_BYTES or int(rows["topic"].max()) >= topics:
        raise LinkBodyMalformed(reason="SEND rows do not describe their records")
    starts = ends - sizes
    if not is_whole(records, starts, sizes):
        raise LinkBodyMalformed(reason="a SEND record without RocketMQ's magic, or of another size than its row")
    if int(rows["flags"].max()) > FLAG_KEYED or rows["producer_group"].any():
        _check_halves(rows, producer_groups)
    if ((rows["message_group"] != 0) & (rows["queue"] != 0)).any():
        raise PropertyConflictsWithType(
            reason="A message group has its own queue, so no queue can be named", pointer="/queue"
        )
    return starts, int(np.bitwise_or.reduce(rows["flags"]))


def _check_halves(rows: npt.NDArray[Any], producer_groups: int) -> None:
    """Raise LinkBodyMalformed unless half messages have no order and no delivery time, and those of
    one transaction are adjacent.
    """
    flags, groups = rows["flags"], rows["producer_group"]
    is_half, is_same = (flags & FLAG_HALF) != 0, (flags & FLAG_SAME_TRANSACTION) != 0
    follows = np.zeros(len(rows), bool)
    follows[1:] = is_half[1:] & is_half[:-1] & (groups[1:] == groups[:-1])
    is_wrong = (flags & ~np.uint32(FLAGS)) != 0
    is_wrong |= is_same & (~follows | ((flags & FLAG_KEYED) != 0))
    is_wrong |= np.where(is_half, groups >= producer_groups, groups != 0)
    is_early_or_late = (rows["deliver_ms"] < 0) | (rows["deliver_ms"] > CHECK_AFTER_MAX_MS)
    is_wrong |= is_half & (is_early_or_late | (rows["message_group"] != 0))
    if is_wrong.any():
        raise LinkBodyMalformed(reason=f"SEND row {int(np.argmax(is_wrong))} is not a valid half message")


def _check_one(row: tuple[Any, ...], records: bytearray, start: int, request: Send, number: int) -> None:
    """Derive one record's row again: a proxy whose rows disagree with its records is detected
    within a few entries.
    """
    size, topic, queue, flags, tag_code, crc, producer_group, _, row_deliver_ms, message_group_code = row
    record = decode_record(records, start)
    tag = record.properties.get(TAGS, "")
    message_group = record.properties.get(MESSAGE_GROUP, "")
    deliver_ms = int(record.properties.get(DELIVER_MS, 0))
    if flags & FLAG_HALF:
        is_as_said = (
            not deliver_ms
            and record.properties.get(TRANSACTIONAL) == "true"
            and record.properties.get(PRODUCER_GROUP) == request.producer_groups[producer_group]
        )
    else:
        is_as_said = deliver_ms == row_deliver_ms
    is_true = (
        record.size_bytes == size
        and record.topic == request.topics[topic]
        and record.queue == queue
        and record.body_crc == crc
        and (tag_hash(tag) if tag else 0) == tag_code
        and is_as_said
        and (message_group_hash(message_group.encode()) if message_group else 0) == message_group_code
    )
    if not is_true:
        raise LinkBodyMalformed(reason=f"SEND row {number} does not describe its record")
