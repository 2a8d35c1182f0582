r"""Dead letters on the wire: the note of a dead message, the selection of a redrive, and the states
of a redrive task.

A note is a record with an empty body in queue 1 of the group's dead-letter topic. Its properties:

     DLQ_ORIGIN_TOPIC \x01 orders \x02 DLQ_ORIGIN_MESSAGE_ID \x01 ... \x02
     MQ_DLQ_TOPIC_ID \x01 5 \x02 MQ_DLQ_QUEUE \x01 3 \x02 MQ_DLQ_OFFSET \x01 17 \x02
     RECONSUME_TIME \x01 attempts \x02 MQ_DLQ_CAUSE \x01 rejected \x02
     MQ_DLQ_REASON \x01 text \x02 MQ_DLQ_AT \x01 ms \x02

The names of the first line and RECONSUME_TIME are RocketMQ's. The topic's id distinguishes it from
a later topic of the same name. TAGS and UNIQ_KEY are those of the dead message, so the note can be
found by them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tern_wire.records.hosts import NO_HOST
from tern_wire.records.properties import MESSAGE_GROUP, MESSAGE_ID, TAGS, encode_properties
from tern_wire.records.write import encode_record

ORIGIN_TOPIC, ORIGIN_MESSAGE_ID, ATTEMPTS = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "RECONSUME_TIME"
ORIGIN_TOPIC_ID, ORIGIN_QUEUE, ORIGIN_OFFSET, CAUSE, REASON, DIED_MS = (
    *("MQ_DLQ_TOPIC_ID", "MQ_DLQ_QUEUE", "MQ_DLQ_OFFSET"),
    *("MQ_DLQ_CAUSE", "MQ_DLQ_REASON", "MQ_DLQ_AT"),
)
# Prefix of a group's dead-letter topic, which is illegal in the topic names of clients; and its two
# queues.
PREFIX = "%DLQ%"
ORIGINALS_QUEUE, NOTES_QUEUE = 0, 1
# Causes of death: the last lease ended, the last attempt was nacked, or a consumer rejected the
# message.
EXPIRED, NACKED, REJECTED = "expired", "nacked", "rejected"
# States of a redrive task.
RUNNING, DONE, CANCELLED = "running", "done", "cancelled"
# Result of one dead letter in a redrive: redriven, no longer a dead letter, or the original message
# is no longer in its queue.
REDRIVEN, LETTER_GONE, ORIGIN_GONE = range(3)
_CONTROLS = dict.fromkeys(range(32), " ")


def is_dead_topic(name: bytes) -> bool:
    """Return whether *name* (UTF-8) is the name of a group's dead-letter topic."""
    return name.startswith(PREFIX.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Note of a dead message: its id, tag and origin (*topic*, *queue*, *offset*), its attempts,
    and the time of death *died_ms*.
    """

    topic: str
    topic_id: int
    queue: int
    offset: int
    message_id: str
    tag: str
    attempts: int
    cause: str
    reason: str
    died_ms: int
    message_group: str = ""

    def record(self, dead_topic: str, queue: int) -> bytes:
        """Return the note as a record of *dead_topic*.

        Control characters of the reason become spaces, because they separate properties.
        """
        pairs = [
            (ORIGIN_TOPIC, self.topic),
            (ORIGIN_TOPIC_ID, str(self.topic_id)),
            (ORIGIN_QUEUE, str(self.queue)),
            (ORIGIN_OFFSET, str(self.offset)),
            (ATTEMPTS, str(self.attempts)),
            (CAUSE, self.cause),
            (REASON, self.reason.translate(_CONTROLS)),
            (DIED_MS, str(self.died_ms)),
        ]
        if self.message_id:
            pairs += [(ORIGIN_MESSAGE_ID, self.message_id), (MESSAGE_ID, self.message_id)]
        if self.tag:
            pairs.append((TAGS, self.tag))
        if self.message_group:
            pairs.append((MESSAGE_GROUP, self.message_group))
        properties = encode_properties(pairs)
        return encode_record(dead_topic.encode(), queue, b"", properties, born_ms=self.died_ms, born_host=NO_HOST)

    @classmethod
    def read(cls, properties: Mapping[str, str]) -> "Note":
        """Return the note in the *properties* of a record. Raise KeyError or ValueError if there is
        none.
        """
        return cls(
            topic=properties[ORIGIN_TOPIC],
            topic_id=int(properties[ORIGIN_TOPIC_ID]),
            queue=int(properties[ORIGIN_QUEUE]),
            offset=int(properties[ORIGIN_OFFSET]),
            message_id=properties.get(ORIGIN_MESSAGE_ID, ""),
            tag=properties.get(TAGS, ""),
            attempts=int(properties[ATTEMPTS]),
            cause=properties[CAUSE],
            reason=properties.get(REASON, ""),
            died_ms=int(properties[DIED_MS]),
            message_group=properties.get(MESSAGE_GROUP, ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selection of dead letters: of *topic*, with *tag*, with *reason* as a part of their reason,
    died in [*from_ms*, *to_ms*).

    Empty texts and a *to_ms* of 0 select all. With *offsets*, only those offsets are considered.
    """

    topic: str = ""
    tag: str = ""
    reason: str = ""
    from_ms: int = 0
    to_ms: int = 0
    offsets: tuple[int, ...] | None = None

    def takes(self, note: Note) -> bool:
        """Return whether *note* is selected."""
        return (
            (not self.topic or note.topic == self.topic)
            and (not self.tag or note.tag == self.tag)
            and (self.reason in note.reason)
            and self.from_ms <= note.died_ms
            and (not self.to_ms or note.died_ms < self.to_ms)
        )

    def pack(self) -> dict[str, Any]:
        """Return the selection as a map of MessagePack types."""
        packed: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return {**packed, "offsets": list(self.offsets) if self.offsets is not None else None}

    @classmethod
    def unpack(cls, packed: Mapping[str, Any]) -> "Selection":
        """Return the selection that `pack` has packed. Raise TypeError, ValueError or KeyError for
        other maps.
        """
        offsets = packed["offsets"]
        return cls(
            topic=str(packed["topic"]),
            tag=str(packed["tag"]),
            reason=str(packed["reason"]),
            from_ms=int(packed["from_ms"]),
            to_ms=int(packed["to_ms"]),
            offsets=None if offsets is None else tuple(int(offset) for offset in offsets),
        )
