"""A link SEND, checked before it is proposed: what the log accepts must be true on every node and for every reader."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.machine import StateMachine
from tern_broker.core.sending import keys_of
from tern_wire.commands import SEND_HEAD
from tern_wire.errors import LinkBodyMalformed, Overloaded, PropertyConflictsWithType
from tern_wire.key_rows import RECEIPT_ROW_SIZE_BYTES, RECEIPT_ROWS, Receipt
from tern_wire.limits import ENTRY_SIZE_MAX_BYTES, IDEMPOTENCY_TABLES_WAITING_MAX
from tern_wire.record import (
    DELIVER_MS,
    MESSAGE_GROUP,
    OVERHEAD_SIZE_BYTES,
    TAGS,
    decode_record,
    fill_queues,
    has_magic,
    stamp_stored,
    tag_hash,
)
from tern_wire.requests import Parts
from tern_wire.rows import FLAG_KEYED, SEND_ROWS, message_group_hash

# A topic id that no topic has: apply answers NO_TOPIC.
UNKNOWN_TOPIC_ID = 0
# The receipts of those of concatenated 16-byte key hashes that are known, by their number.
FindKeys = Callable[[bytes], dict[int, Receipt]]
# Room for the entry's and the command's heads.
SEND_SIZE_MAX_BYTES = ENTRY_SIZE_MAX_BYTES - 4096


@dataclass(slots=True)
class CheckedSend:
    """Rows with topic ids, records with zero offsets, ready to be stamped and proposed."""

    rows: npt.NDArray[Any]
    records: bytearray
    starts: npt.NDArray[np.int64]
    # Which queue a message group has is decided when the entry is built.
    state: StateMachine
    # Numbers of the rows with an idempotency key.
    keyed: npt.NDArray[np.intp] = field(init=False)

    def __post_init__(self) -> None:
        self.keyed = np.flatnonzero(self.rows["flags"] & FLAG_KEYED)

    @property
    def size_bytes(self) -> int:
        """What it adds to an entry, at most."""
        return len(self.records) + self.rows.nbytes + SEND_HEAD.size + len(self.keyed) * RECEIPT_ROW_SIZE_BYTES

    def require_room_for_keys(self, tables_waiting: int) -> None:
        """Overloaded if it has keys and *tables_waiting* sealed tables are in memory still, the disk being slower than the senders."""
        if len(self.keyed) and tables_waiting >= IDEMPOTENCY_TABLES_WAITING_MAX:
            raise Overloaded(what="idempotency keys")

    def payload(self, now_ms: int, host: bytes, find_keys: FindKeys = lambda _keys: {}) -> Parts:
        """The command's payload, every record stamped with store time and host; those with a message group lie in their slot's queue.

        *find_keys* looks into the sealed tables of keys, and raises what `SentKeys.find` raises. What it finds goes along.
        """
        grouped = np.flatnonzero(self.rows["message_group"])
        if len(grouped):
            self._fill_in_queues(grouped)
        stamp_stored(self.records, self.starts, now_ms, host)
        known = find_keys(keys_of(self.rows[self.keyed])) if len(self.keyed) else {}
        receipts = [(int(self.keyed[number]), *receipt, 0) for number, receipt in known.items()]
        payload: Parts = [SEND_HEAD.pack(len(self.rows), len(receipts)), self.rows.tobytes(), self.records]
        return [*payload, np.array(receipts, RECEIPT_ROWS).tobytes()] if receipts else payload

    def _fill_in_queues(self, grouped: npt.NDArray[np.int64]) -> None:
        for topic_id in np.unique(self.rows["topic"][grouped]).tolist():
            topic = self.state.names.topics_by_id.get(topic_id)
            if topic is not None:
                of_topic = grouped[self.rows["topic"][grouped] == topic_id]
                queues = self.state.slots.route(topic, self.rows["message_group"][of_topic])
                self.rows["queue"][of_topic] = queues
                fill_queues(self.records, self.starts[of_topic], queues)


def check_send(head: dict[str, Any], raw: memoryview, state: StateMachine, rng: Random) -> CheckedSend:
    """Check sizes and magics of all records, and everything about one of them; LinkBodyMalformed names what is wrong."""
    topics = head.get("topics")
    count = head.get("rows")
    if not (isinstance(topics, list) and all(isinstance(name, str) for name in topics) and isinstance(count, int)):
        raise LinkBodyMalformed(reason="SEND needs 'topics' and 'rows'")
    records_at = count * SEND_ROWS.itemsize
    if not count > 0 or records_at >= len(raw) or len(raw) > SEND_SIZE_MAX_BYTES:
        raise LinkBodyMalformed(reason=f"SEND of {count} rows in {len(raw)} bytes")
    rows = np.frombuffer(raw, SEND_ROWS, count).copy()
    records = bytearray(raw[records_at:])
    sizes = rows["size"].astype(np.int64)
    ends = np.cumsum(sizes)
    if (
        int(ends[-1]) != len(records)
        or int(sizes.min()) < OVERHEAD_SIZE_BYTES
        or int(rows["topic"].max()) >= len(topics)
    ):
        raise LinkBodyMalformed(reason="SEND rows do not describe their records")
    starts = ends - sizes
    if not has_magic(records, starts):
        raise LinkBodyMalformed(reason="a SEND record without RocketMQ's magic")
    _check_one(rows, records, starts, topics, rng.randrange(count))
    if ((rows["message_group"] != 0) & (rows["queue"] != 0)).any():
        raise PropertyConflictsWithType(
            reason="A message group has its own queue, so no queue can be named", pointer="/queue"
        )
    known = state.names.topics
    ids = np.array([known[name].topic_id if name in known else UNKNOWN_TOPIC_ID for name in topics], "<u4")
    rows["topic"] = ids[rows["topic"]]
    send = CheckedSend(rows, records, starts, state)
    if send.size_bytes > SEND_SIZE_MAX_BYTES:
        raise LinkBodyMalformed(reason=f"SEND of {count} rows in {len(raw)} bytes, with {len(send.keyed)} keys")
    return send


def _check_one(
    rows: npt.NDArray[Any], records: bytearray, starts: npt.NDArray[np.int64], topics: list[str], number: int
) -> None:
    """Derive one record's row again: a proxy whose rows disagree with its records is found within a few entries."""
    row, record = rows[number], decode_record(records, int(starts[number]))
    tag = record.properties.get(TAGS, "")
    message_group = record.properties.get(MESSAGE_GROUP, "")
    is_true = (
        record.size_bytes == row["size"]
        and record.topic == topics[row["topic"]]
        and record.queue == row["queue"]
        and record.body_crc == row["crc"]
        and (tag_hash(tag) if tag else 0) == row["tag"]
        and int(record.properties.get(DELIVER_MS, 0)) == row["deliver_ms"]
        and (message_group_hash(message_group.encode()) if message_group else 0) == row["message_group"]
    )
    if not is_true:
        raise LinkBodyMalformed(reason=f"SEND row {number} does not describe its record")
