"""Names of topics, groups, queues and broker groups: what is legal, and how a queue is written.

A queue is written `broker-a:3`: the broker group and the queue's number in it. Topic names follow RocketMQ's rule
without its punctuation, so that an exported store is accepted there.
"""

import re
from dataclasses import dataclass

from tern_wire.errors import IllegalGroup, IllegalTopic, QueueNotFound

_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,126}")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,119}")
_QUEUE = re.compile(r"([a-z0-9][a-z0-9-]{0,30}):(0|[1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True, order=True)
class QueueName:
    """One queue of a topic: broker group and number in that group (0-based)."""

    broker_group: str
    queue: int

    def __str__(self) -> str:
        return f"{self.broker_group}:{self.queue}"


def check_topic(name: str) -> str:
    """Return *name*; IllegalTopic unless it is 1 to 127 letters, digits, `_` or `-`, the first a letter or digit."""
    if _TOPIC.fullmatch(name) is None:
        raise IllegalTopic(topic=name[:160])
    return name


def check_group(name: str) -> str:
    """Return *name*; IllegalGroup unless it is 1 to 120 letters, digits, `_` or `-`, the first a letter or digit."""
    if _GROUP.fullmatch(name) is None:
        raise IllegalGroup(group=name[:160])
    return name


def parse_queue(text: str, topic: str) -> QueueName:
    """Read `broker-a:3`; QueueNotFound when it is not written so (*topic* is for the message)."""
    match = _QUEUE.fullmatch(text)
    if match is None:
        raise QueueNotFound(queue=text[:80], topic=topic)
    return QueueName(match[1], int(match[2]))
