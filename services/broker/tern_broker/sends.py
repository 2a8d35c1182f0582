"""A link SEND, checked before it is proposed: what the log accepts must be true on every node and for every reader."""

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.machine import StateMachine
from tern_wire.commands import SEND_HEAD
from tern_wire.errors import LinkBodyMalformed
from tern_wire.limits import ENTRY_SIZE_MAX_BYTES
from tern_wire.record import OVERHEAD_SIZE_BYTES, TAGS, decode_record, has_magic, stamp_stored, tag_hash
from tern_wire.requests import Parts
from tern_wire.rows import SEND_ROWS

# A topic id that no topic has: apply answers NO_TOPIC.
UNKNOWN_TOPIC_ID = 0
# Room for the entry's and the command's heads.
SEND_SIZE_MAX_BYTES = ENTRY_SIZE_MAX_BYTES - 4096


@dataclass(slots=True)
class CheckedSend:
    """Rows with topic ids, records with zero offsets, ready to be stamped and proposed."""

    rows: npt.NDArray[Any]
    records: bytearray
    starts: npt.NDArray[np.int64]

    @property
    def size_bytes(self) -> int:
        """What it adds to an entry."""
        return len(self.records) + self.rows.nbytes + SEND_HEAD.size

    def payload(self, now_ms: int, host: bytes) -> Parts:
        """The command's payload, every record stamped with store time and host."""
        stamp_stored(self.records, self.starts, now_ms, host)
        return [SEND_HEAD.pack(len(self.rows), 0), self.rows.tobytes(), self.records]


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
    known = state.names.topics
    ids = np.array([known[name].topic_id if name in known else UNKNOWN_TOPIC_ID for name in topics], "<u4")
    rows["topic"] = ids[rows["topic"]]
    return CheckedSend(rows, records, starts)


def _check_one(
    rows: npt.NDArray[Any], records: bytearray, starts: npt.NDArray[np.int64], topics: list[str], number: int
) -> None:
    """Derive one record's row again: a proxy whose rows disagree with its records is found within a few entries."""
    row, record = rows[number], decode_record(records, int(starts[number]))
    tag = record.properties.get(TAGS, "")
    is_true = (
        record.size_bytes == row["size"]
        and record.topic == topics[row["topic"]]
        and record.queue == row["queue"]
        and record.body_crc == row["crc"]
        and (tag_hash(tag) if tag else 0) == row["tag"]
    )
    if not is_true:
        raise LinkBodyMalformed(reason=f"SEND row {number} does not describe its record")
