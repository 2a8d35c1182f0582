r"""Dead letters on the wire: what a note says of a message that died, which ones a redrive means, and how a task is going.

A note is a record with an empty body in the group's dead-letter topic, queue 1. Its properties:

     DLQ_ORIGIN_TOPIC \x01 orders \x02 DLQ_ORIGIN_MESSAGE_ID \x01 ... \x02 MQ_DLQ_TOPIC_ID \x01 5 \x02
     MQ_DLQ_QUEUE \x01 3 \x02 MQ_DLQ_OFFSET \x01 17 \x02
     RECONSUME_TIME \x01 attempts \x02 MQ_DLQ_CAUSE \x01 rejected \x02 MQ_DLQ_REASON \x01 text \x02 MQ_DLQ_AT \x01 ms \x02

The first two and RECONSUME_TIME are RocketMQ's names. The topic's id tells it from a later topic of its name. TAGS and UNIQ_KEY are those of the message, so that it is found by them.
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
# A group's dead-letter topic: its name begins with this, which no name that people give can; and its two queues.
PREFIX = "%DLQ%"
ORIGINALS_QUEUE, NOTES_QUEUE = 0, 1
# Why a message died: its last lease ended, its last attempt was nacked, a consumer said so.
EXPIRED, NACKED, REJECTED = "expired", "nacked", "rejected"
# How a task is going.
RUNNING, DONE, CANCELLED = "running", "done", "cancelled"
# What became of one dead letter in a redrive: done, not a dead letter any more, its message is not in its queue any more.
REDRIVEN, LETTER_GONE, ORIGIN_GONE = range(3)
_CONTROLS = dict.fromkeys(range(32), " ")


def is_dead_topic(name: bytes) -> bool:
    """Whether *name* (UTF-8) is that of a group's dead-letter topic."""
    return name.startswith(PREFIX.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a note says: the message of *message_id* and *tag* at *offset* of *queue* of *topic* died at *died_ms* after so many attempts."""

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
        """The note as a record of *dead_topic*. Control characters of the reason become spaces: they separate properties."""
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
        """What the *properties* of a note's record say. KeyError, ValueError if they are no note's."""
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
    """Which dead letters are meant: those of *topic*, with *tag*, with *reason* somewhere in their reason, died in [*from_ms*, *to_ms*).

    Empty texts and a *to_ms* of 0 mean all. With *offsets*, only those are looked at.
    """

    topic: str = ""
    tag: str = ""
    reason: str = ""
    from_ms: int = 0
    to_ms: int = 0
    offsets: tuple[int, ...] | None = None

    def takes(self, note: Note) -> bool:
        """Whether *note* is one of them."""
        return (
            (not self.topic or note.topic == self.topic)
            and (not self.tag or note.tag == self.tag)
            and (self.reason in note.reason)
            and self.from_ms <= note.died_ms
            and (not self.to_ms or note.died_ms < self.to_ms)
        )

    def pack(self) -> dict[str, Any]:
        """As a map of MessagePack's types."""
        packed: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return {**packed, "offsets": list(self.offsets) if self.offsets is not None else None}

    @classmethod
    def unpack(cls, packed: Mapping[str, Any]) -> "Selection":
        """What was packed; TypeError, ValueError, KeyError if it was not."""
        offsets = packed["offsets"]
        return cls(
            topic=str(packed["topic"]),
            tag=str(packed["tag"]),
            reason=str(packed["reason"]),
            from_ms=int(packed["from_ms"]),
            to_ms=int(packed["to_ms"]),
            offsets=None if offsets is None else tuple(int(offset) for offset in offsets),
        )
