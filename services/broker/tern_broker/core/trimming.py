"""Apply retention: the first message of each queue, and the new positions of records that were
copied forward.

A TRIM's map: {index, position, term, crc} of the last entry that is dropped, and mins: [[topic id,
[min of queue 0, ...]], ...]. The leader takes them from the state saved at the future begin of the
log, so that every node drops the same. From the level of read leases on also spares_leases: whether
the trim drops nothing if a lease would lose messages.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.fifo import FifoDelivery
from tern_broker.core.topics import Names
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.commands import SEND_HEAD
from tern_wire.link.rows import MOVE_ROWS

# A trim that drops nothing.
NO_TRIM: dict[str, Any] = {"index": 0, "position": 0, "term": 0, "crc": 0, "mins": []}


@dataclass(frozen=True, slots=True)
class Moves:
    """Records that now lie at *positions*, shape (n,), described by *rows* (MOVE_ROWS)."""

    rows: npt.NDArray[Any]
    positions: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """What to drop: the log up to the entry *index*, queue entries below *floors* (topic id, queue,
    offset).

    *lost*: (group id, topic id, queue, messages) that a group had not read.
    """

    index: int
    position: int
    term: int
    crc: int
    floors: list[tuple[int, int, int]]
    lost: list[tuple[int, int, int, int]]


def read_moves(payload: memoryview, position: int) -> Moves:
    """Return the rows of a COPY whose payload lies at *position*, and the positions of its records.

    Raise LinkBodyMalformed if they disagree.
    """
    count = SEND_HEAD.unpack_from(payload)[0] if len(payload) >= SEND_HEAD.size else 0
    records_at = SEND_HEAD.size + count * MOVE_ROWS.itemsize
    if len(payload) < records_at:
        raise LinkBodyMalformed(reason=f"a COPY of {count} rows in {len(payload)} bytes")
    rows = np.frombuffer(payload, MOVE_ROWS, count, SEND_HEAD.size)
    sizes = rows["size"].astype(np.int64)
    ends = np.cumsum(sizes)
    if int(ends[-1] if count else 0) != len(payload) - records_at:
        raise LinkBodyMalformed(reason="COPY rows do not describe their records")
    return Moves(rows, ends - sizes + (position + records_at))


def apply_trim(request: dict[str, Any], names: Names, deliveries: dict[tuple[int, int], list[Delivery | None]]) -> Trim:
    """Move every queue's min, and the cursors of groups that are below it."""
    for topic_id, mins in request["mins"]:
        topic = names.topics_by_id.get(int(topic_id))
        for queue, offset in enumerate(mins if topic is not None else ()):
            assert topic is not None
            topic.mins[queue] = max(topic.mins[queue], min(int(offset), topic.ends[queue]))
    floors = {
        (topic.topic_id, queue): offset
        for topic in names.topics_by_id.values()
        for queue, offset in enumerate(topic.mins)
        if offset
    }
    lost: list[tuple[int, int, int, int]] = []
    for (group_id, topic_id), row in deliveries.items():
        mins = names.topics_by_id[topic_id].mins
        for queue, delivery in enumerate(row):
            if delivery is None:
                continue
            if delivery.cursor < mins[queue]:
                lost.append((group_id, topic_id, queue, mins[queue] - delivery.cursor))
                # Proposals for the dropped messages are refused.
                delivery.cursor, delivery.version = mins[queue], delivery.version + 1
            if isinstance(delivery, FifoDelivery) and (unread := delivery.drop_parked(mins[queue])):
                lost.append((group_id, topic_id, queue, unread))
            # A message that is leased or waits to be delivered again keeps its queue entry; its
            # record was copied.
            held = min(delivery.committed(), floors.get((topic_id, queue), 0))
            if (topic_id, queue) in floors:
                floors[topic_id, queue] = held
    return Trim(
        index=int(request["index"]),
        position=int(request["position"]),
        term=int(request["term"]),
        crc=int(request["crc"]),
        floors=[(*key, offset) for key, offset in floors.items()],
        lost=lost,
    )
