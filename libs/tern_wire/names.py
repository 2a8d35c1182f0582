"""Names of topics, groups, queues, broker groups and namespaces: their rules and their written
forms.

A queue is written `broker-a:3`: the broker group and the queue's number in it. Topic names follow
RocketMQ's rule without its punctuation, so RocketMQ accepts an exported store.

Two tenants may use the same names, each in its own namespace. Behind the proxy, topic `orders` of
namespace `shop` is `shop%orders`, as RocketMQ's clients write it (NamespaceUtil.wrapNamespace);
this full name is used in every store, route, record and export. Clients never write a `%`: the
proxy adds the namespace to the names in requests and removes it from answers, so no name reaches
into another namespace.
"""

import re
from dataclasses import dataclass

from tern_wire.errors import IllegalGroup, IllegalTopic, InvalidField, QueueNotFound
from tern_wire.paths import HEADER_NAMESPACE

# RocketMQ's limits; those of topics and groups apply to the full name with its namespace.
TOPIC_LENGTH_MAX, GROUP_LENGTH_MAX, NAMESPACE_LENGTH_MAX = 127, 120, 63
SEPARATOR = "%"
_OWN = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_PLAIN = re.compile(_OWN)
_WHOLE = re.compile(rf"(?:[A-Za-z0-9][A-Za-z0-9_-]{{0,{NAMESPACE_LENGTH_MAX - 1}}}{SEPARATOR})?{_OWN}")
_BROKER_GROUP = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_QUEUE = re.compile(r"([a-z0-9][a-z0-9-]{0,30}):(0|[1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True, order=True)
class QueueName:
    """One queue of a topic: its broker group and its number in that group (0-based)."""

    broker_group: str
    queue: int

    def __str__(self) -> str:
        return f"{self.broker_group}:{self.queue}"


def check_topic(name: str) -> str:
    """Return *name* if it is a legal topic name; raise IllegalTopic otherwise.

    A legal name is 1 to 127 letters, digits, `_` or `-`, beginning with a letter or digit,
    optionally behind a namespace and `%`.
    """
    if len(name) > TOPIC_LENGTH_MAX or _WHOLE.fullmatch(name) is None:
        raise IllegalTopic(topic=name[:160])
    return name


def check_group(name: str) -> str:
    """Return *name* if it is a legal group name; raise IllegalGroup otherwise.

    A legal name is 1 to 120 letters, digits, `_` or `-`, beginning with a letter or digit,
    optionally behind a namespace and `%`.
    """
    if len(name) > GROUP_LENGTH_MAX or _WHOLE.fullmatch(name) is None:
        raise IllegalGroup(group=name[:160])
    return name


def is_broker_group(name: str) -> bool:
    """Return whether *name* is 1 to 31 lower-case letters, digits or `-`."""
    return _BROKER_GROUP.fullmatch(name) is not None


# Namespaces ---------------------------------------------------------------------------------------
def check_namespace(name: str, pointer: str) -> str:
    """Return *name* if it is a legal namespace; raise InvalidField at *pointer* otherwise.

    A legal name is 1 to 63 letters, digits, `_` or `-`, beginning with a letter or digit.
    """
    if len(name) > NAMESPACE_LENGTH_MAX or _PLAIN.fullmatch(name) is None:
        reason = f"A namespace is 1 to {NAMESPACE_LENGTH_MAX} letters, digits, '_' or '-', the first a letter or digit"
        raise InvalidField(reason=reason, pointer=pointer)
    return name


def topic_in(namespace: str, name: str) -> str:
    """Return the full name of a client's topic *name* in *namespace* ("" for none).

    Raise IllegalTopic when the client's name contains a namespace or is illegal, InvalidField when
    the full name is too long.
    """
    if SEPARATOR in name:
        raise IllegalTopic(topic=name[:160])
    check_topic(name)
    return _joined(namespace, name, TOPIC_LENGTH_MAX) if namespace else name


def group_in(namespace: str, name: str) -> str:
    """Return the full name of a client's consumer or producer group in *namespace* ("" for none).

    Raise IllegalGroup when the client's name contains a namespace or is illegal, InvalidField when
    the full name is too long.
    """
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
    """Return the namespace of a full name; "" for none."""
    return name.partition(SEPARATOR)[0] if SEPARATOR in name else ""


def own_name(name: str) -> str:
    """Return the client's part of a full name, without the namespace."""
    return name.rpartition(SEPARATOR)[2]


def is_of(namespace: str, name: str) -> bool:
    """Return whether the full *name* is in *namespace* ("" for none)."""
    return namespace_of(name) == namespace


def parse_queue(text: str, topic: str) -> QueueName:
    """Parse `broker-a:3`. Raise QueueNotFound for another form; *topic* is for the error's text."""
    match = _QUEUE.fullmatch(text)
    if match is None:
        raise QueueNotFound(queue=text[:80], topic=topic)
    return QueueName(match[1], int(match[2]))
