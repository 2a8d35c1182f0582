"""The decision on one chunk: known already, refused, or staged.

A STAGE's payload has the form of a SEND's, with a map behind the records in place of receipts:

    {query, owner, batch, partition, attempt, chunk, life_ms, lost}

Law: a chunk is staged whole or not at all. A repeat of a staged chunk is told so, whatever has
happened to its topics since.
"""

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.applied import Applied, read_map
from tern_broker.core.delivery.slots import Slots
from tern_broker.core.publications.stages import STAGED
from tern_broker.core.sending.placing import Placing
from tern_broker.core.sending.small_sends import WAIT_MAX_MS
from tern_broker.core.topics import Names
from tern_wire.errors import LinkBodyMalformed, QueueNotFound, StageMoved, TopicNotFound, TopicNotWritable
from tern_wire.link.commands import SEND_HEAD
from tern_wire.link.rows import FLAG_SENT_ON, SEND_ROWS
from tern_wire.routing.route import PERM_WRITE

# What a sender says of a message, and would say again.
_SAID = ("size", "topic", "tag", "crc", "message_group")


@dataclass(frozen=True, slots=True)
class StageCommand:
    """A STAGE: *head* is its map, *rows* are SEND_ROWS with topics' ids, *positions* those of its
    records.
    """

    head: dict[str, Any]
    rows: npt.NDArray[Any]
    positions: npt.NDArray[np.int64]

    @property
    def digest(self) -> int:
        """A checksum of what the sender says of the messages.

        Not of their queues and times: these depend on the proxy and the moment.
        """
        said = np.stack([self.rows[name].astype(np.uint64) for name in _SAID])
        return zlib.crc32(said.tobytes(), len(self.rows))

    @property
    def size_bytes(self) -> int:
        """Size of the records."""
        return int(self.rows["size"].astype(np.int64).sum())

    def messages(self) -> bytes:
        """Return the messages as the state keeps them (STAGED)."""
        staged = np.zeros(len(self.rows), STAGED)
        staged["position"] = self.positions
        for name in ("tag", "size", "topic", "queue", "message_group", "deliver_ms"):
            staged[name] = self.rows[name]
        return staged.tobytes()


def read_stage(payload: memoryview, position: int) -> StageCommand:
    """Return the STAGE whose *payload* lies at *position* of the log. LinkBodyMalformed."""
    count, head_size = SEND_HEAD.unpack_from(payload) if len(payload) >= SEND_HEAD.size else (0, 0)
    records_at, records_end = SEND_HEAD.size + count * SEND_ROWS.itemsize, len(payload) - head_size
    if not count or records_end < records_at:
        raise LinkBodyMalformed(reason=f"a STAGE of {count} rows in {len(payload)} bytes")
    rows = np.frombuffer(payload, SEND_ROWS, count, SEND_HEAD.size)
    sizes = rows["size"].astype(np.int64)
    ends = sizes.cumsum()
    if int(ends[-1]) != records_end - records_at:
        raise LinkBodyMalformed(reason="STAGE rows do not describe their records")
    return StageCommand(read_map(payload[records_end:]), rows, ends - sizes + (position + records_at))


def check_rows(rows: npt.NDArray[Any], names: Names, slots: Slots, placing: Placing, applied: Applied) -> None:
    """Raise the refusal of the first topic that does not take its *rows*. Changes nothing but slots
    that leave for another broker group, as a send does.
    """
    now_ms = applied.now_ms
    waits = rows["deliver_ms"] > now_ms
    if (rows["flags"] & ~np.uint32(FLAG_SENT_ON)).any() or rows["producer_group"].any():
        raise LinkBodyMalformed(reason="a STAGE with keys or half messages")
    if (rows["deliver_ms"] > now_ms + WAIT_MAX_MS).any() or (waits & (rows["message_group"] != 0)).any():
        raise LinkBodyMalformed(reason="a STAGE with a delivery time too far, or of a message group")
    for topic_id in np.unique(rows["topic"]).tolist():
        topic = names.topics_by_id.get(topic_id)
        if topic is None:
            raise TopicNotFound(topic=f"number {topic_id}")
        if not topic.perm & PERM_WRITE:
            raise TopicNotWritable(topic=topic.name)
        own = np.flatnonzero(rows["topic"] == topic_id)
        last = int(rows["queue"][own].max())
        if last >= topic.queues:
            raise QueueNotFound(queue=last, topic=topic.name)
        grouped = own[rows["message_group"][own] != 0]
        if not len(grouped):
            continue
        fits = slots.accepts(topic, rows["message_group"][grouped], rows["queue"][grouped])
        if not fits.all() or (topic.is_shared and len(placing.away(topic, rows, grouped)[0])):
            raise StageMoved(topic=topic.name)
