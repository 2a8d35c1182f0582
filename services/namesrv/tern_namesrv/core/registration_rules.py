"""Checks of a registration's form, made before its content is used. Pure.

The time is linear in the number of topics.
"""

import re

from tern_wire.errors import InvalidField, LimitReached
from tern_wire.limits import QUEUES_PER_TOPIC_MAX, TOPICS_MAX
from tern_wire.names import check_topic, is_broker_group
from tern_wire.routing.placement import read_placement
from tern_wire.routing.route import PERM_MAX, TOPIC_TYPES, Registration, TopicRoute

# Bounds the table (about 1 KiB a node) and the scan; far above any cluster whose proxies poll whole
# routes.
NODES_MAX = 1_000

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENDPOINT = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([1-9][0-9]{0,4})")


def check_broker_group(name: str, pointer: str = "/broker_group") -> str:
    """Return *name*; raise InvalidField unless it is 1 to 31 lower-case letters, digits or `-`."""
    if not is_broker_group(name):
        reason = "A broker group is 1 to 31 lower-case letters, digits or '-', such as 'broker-a'"
        raise InvalidField(reason=reason, pointer=pointer)
    return name


def check_registration(registration: Registration) -> None:
    """Raise InvalidField, IllegalTopic or LimitReached when *registration* is malformed.

    The registry checks the cluster's name.
    """
    check_broker_group(registration.broker_group)
    if _NODE.fullmatch(registration.node) is None:
        raise InvalidField(reason="A node is 1 to 64 letters, digits, '.', '_' or '-'", pointer="/node")
    for name, endpoint in (("link", registration.link), ("http", registration.http)):
        match = _ENDPOINT.fullmatch(endpoint)
        if match is None or int(match[1]) > 65_535:
            raise InvalidField(reason="An endpoint is host:port, such as '127.0.0.1:10911'", pointer=f"/{name}")
    for name, number in (("term", registration.term), ("data_version", registration.data_version)):
        if number < 0:
            raise InvalidField(reason=f"{number} is negative", pointer=f"/{name}")
    if not 1 <= registration.group_size <= NODES_MAX:
        raise InvalidField(reason=f"A group has 1 to {NODES_MAX} nodes", pointer="/group_size")
    if len(registration.topics) > TOPICS_MAX:
        raise LimitReached(what="Topics", actual=len(registration.topics), limit=TOPICS_MAX)
    if registration.topics and not registration.has_topics:
        raise InvalidField(reason="Topics are left out or listed, not both", pointer="/has_topics")
    for topic, route in registration.topics.items():
        check_topic(topic)
        _check_route(topic, route)


def _check_route(topic: str, route: TopicRoute) -> None:
    if not 1 <= route.queues <= QUEUES_PER_TOPIC_MAX or route.topic_id < 0:
        reason = f"A topic has an id from 0 and 1 to {QUEUES_PER_TOPIC_MAX} queues"
        raise InvalidField(reason=reason, pointer=f"/topics/{topic}")
    if route.type not in TOPIC_TYPES:
        raise InvalidField(reason=f"A type is one of {', '.join(sorted(TOPIC_TYPES))}", pointer=f"/topics/{topic}/type")
    if not 0 <= route.perm <= PERM_MAX:
        reason = f"A permission is 0 to {PERM_MAX}: read 4, write 2"
        raise InvalidField(reason=reason, pointer=f"/topics/{topic}/perm")
    if route.placement:
        read_placement(route.placement)
