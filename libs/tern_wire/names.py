"""Names of topics, groups, queues, broker groups and namespaces: what is legal, and how they are written.

A queue is written `broker-a:3`: the broker group and the queue's number in it. Topic names follow RocketMQ's rule
without its punctuation, so that an exported store is accepted there.

Two tenants may use the same names, each in a namespace of its own: behind the proxy, topic `orders` of namespace `shop` is `shop%orders`,
as RocketMQ's clients write it (NamespaceUtil.wrapNamespace), and so in every store, route, record and export. Clients never write a `%`:
the proxy puts the namespace in front of their names and takes it off its answers, so that no name reaches into another namespace.
"""

import re
from dataclasses import dataclass

from tern_wire.errors import IllegalGroup, IllegalTopic, InvalidField, QueueNotFound
from tern_wire.paths import HEADER_NAMESPACE

# RocketMQ's limits; those of topics and groups are of the whole name, its namespace included.
TOPIC_LENGTH_MAX, GROUP_LENGTH_MAX, NAMESPACE_LENGTH_MAX = 127, 120, 63
SEPARATOR = "%"
_OWN = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_PLAIN = re.compile(_OWN)
_WHOLE = re.compile(rf"(?:[A-Za-z0-9][A-Za-z0-9_-]{{0,{NAMESPACE_LENGTH_MAX - 1}}}{SEPARATOR})?{_OWN}")
_BROKER_GROUP = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_QUEUE = re.compile(r"([a-z0-9][a-z0-9-]{0,30}):(0|[1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True, order=True)
class QueueName:
    """One queue of a topic: broker group and number in that group (0-based)."""

    broker_group: str
    queue: int

    def __str__(self) -> str:
        return f"{self.broker_group}:{self.queue}"


def check_topic(name: str) -> str:
    """Return *name*; IllegalTopic unless it is 1 to 127 letters, digits, `_` or `-`, the first a letter or digit, or that in a namespace."""
    if len(name) > TOPIC_LENGTH_MAX or _WHOLE.fullmatch(name) is None:
        raise IllegalTopic(topic=name[:160])
    return name


def check_group(name: str) -> str:
    """Return *name*; IllegalGroup unless it is 1 to 120 letters, digits, `_` or `-`, the first a letter or digit, or that in a namespace."""
    if len(name) > GROUP_LENGTH_MAX or _WHOLE.fullmatch(name) is None:
        raise IllegalGroup(group=name[:160])
    return name


def is_broker_group(name: str) -> bool:
    """Whether *name* is 1 to 31 lower-case letters, digits or `-`."""
    return _BROKER_GROUP.fullmatch(name) is not None


# Namespaces -------------------------------------------------------------------------------------------------------
def check_namespace(name: str, pointer: str) -> str:
    """Return *name*; InvalidField at *pointer* unless it is 1 to 63 letters, digits, `_` or `-`, the first a letter or digit."""
    if len(name) > NAMESPACE_LENGTH_MAX or _PLAIN.fullmatch(name) is None:
        reason = f"A namespace is 1 to {NAMESPACE_LENGTH_MAX} letters, digits, '_' or '-', the first a letter or digit"
        raise InvalidField(reason=reason, pointer=pointer)
    return name


def topic_in(namespace: str, name: str) -> str:
    """The whole name of topic *name*, as a client wrote it, in *namespace* ("": in none). IllegalTopic when the client wrote a namespace into
    it or it is no name; InvalidField when both together are too long."""
    if SEPARATOR in name:
        raise IllegalTopic(topic=name[:160])
    check_topic(name)
    return _joined(namespace, name, TOPIC_LENGTH_MAX) if namespace else name


def group_in(namespace: str, name: str) -> str:
    """As topic_in, of a consumer or producer group. IllegalGroup, InvalidField."""
    if SEPARATOR in name:
        raise IllegalGroup(group=name[:160])
    check_group(name)
    return _joined(namespace, name, GROUP_LENGTH_MAX) if namespace else name


def _joined(namespace: str, name: str, length_max: int) -> str:
    whole = f"{namespace}{SEPARATOR}{name}"
    if len(whole) > length_max:
        reason = (
            f"'{name}' and its namespace '{namespace}' have {len(whole) - 1} characters, at most {length_max - 1} fit"
        )
        raise InvalidField(reason=reason, pointer=f"header/{HEADER_NAMESPACE}")
    return whole


def namespace_of(name: str) -> str:
    """The namespace of a whole name; "" for none."""
    return name.partition(SEPARATOR)[0] if SEPARATOR in name else ""


def own_name(name: str) -> str:
    """A whole name as its own clients know it, without the namespace."""
    return name.rpartition(SEPARATOR)[2]


def is_of(namespace: str, name: str) -> bool:
    """Whether *name*, a whole one, is of *namespace* ("": of none)."""
    return namespace_of(name) == namespace


def parse_queue(text: str, topic: str) -> QueueName:
    """Read `broker-a:3`; QueueNotFound when it is not written so (*topic* is for the message)."""
    match = _QUEUE.fullmatch(text)
    if match is None:
        raise QueueNotFound(queue=text[:80], topic=topic)
    return QueueName(match[1], int(match[2]))
