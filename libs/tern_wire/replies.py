"""Request-reply: what a request and its reply carry, and where a reply goes. RocketMQ's property names; reply addresses are ours.

    request, stored in topic orders            reply, stored in topic {cluster}_REPLY_TOPIC
    CORRELATION_ID    7F3A...                  CORRELATION_ID, KEYS, TAGS   7F3A...
    REPLY_TO_CLIENT   broker-a:shop-7          REPLY_TO_CLIENT              broker-a:shop-7
    TTL               10000 (ms)               MSG_TYPE                     reply

Both are messages, stored as durably as any other: a proxy that dies between them loses nothing, the reply can be asked for at another
one, and one that comes too late is kept. RocketMQ, too, keeps replies in one topic of the cluster and finds the requester by its client
id. A topic for each client would pile up in every broker, name server and proxy; one topic has retention like all others. What is "per
client" is the address: `broker group:client id`, opaque to whoever replies. The broker group is where the requester's proxy waits; the
client id says whose replies these are, so that two clients may use the same correlation ids. An address grants one thing only, to send a
message to the reply topic, which whoever may send at all can do anyway: so nothing seals it.

A reply's tag is its correlation id: the hash of it lies in the queue's entry, so that a broker sees without reading a record that this
may be what somebody waits for. It is a key, too: under it the index finds a reply that is already stored. The real ids decide.
"""

import re
from dataclasses import dataclass

from tern_wire.errors import IllegalCorrelationId, IllegalReplyAddress, InvalidField
from tern_wire.limits import CLIENT_ID_LENGTH_MAX, CORRELATION_ID_LENGTH_MAX
from tern_wire.names import TOPIC_LENGTH_MAX, is_broker_group, topic_in

# What a reply's MSG_TYPE says.
REPLY = "reply"
REPLY_TOPIC_END = "_REPLY_TOPIC"
# No space (it separates keys), no '|' (it separates tags), no '/' (ids stand in paths), nothing that ends a property.
CORRELATION_PATTERN = f"^[A-Za-z0-9][A-Za-z0-9._:@#+=~-]{{0,{CORRELATION_ID_LENGTH_MAX - 1}}}$"
CLIENT_PATTERN = f"^[A-Za-z0-9][A-Za-z0-9._:@#+=~-]{{0,{CLIENT_ID_LENGTH_MAX - 1}}}$"
_CORRELATION, _CLIENT = re.compile(CORRELATION_PATTERN[1:-1]), re.compile(CLIENT_PATTERN[1:-1])
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9_-]")
_CLUSTER_DEFAULT = "dev"


@dataclass(frozen=True, slots=True)
class ReplyAddress:
    """Where the replies to one client go: the broker group that its proxy waits at, and its id."""

    broker_group: str
    client: str

    def __str__(self) -> str:
        return f"{self.broker_group}:{self.client}"


def read_reply_address(text: str, pointer: str) -> ReplyAddress:
    """The address that a request carries; IllegalReplyAddress at *pointer* when *text* is none."""
    broker_group, colon, client = text.partition(":")
    if not colon or not is_broker_group(broker_group) or _CLIENT.fullmatch(client) is None:
        raise IllegalReplyAddress(reply_to=text[:160], pointer=pointer)
    return ReplyAddress(broker_group, client)


def check_correlation_id(text: str, pointer: str) -> str:
    """Return *text*; IllegalCorrelationId at *pointer* unless it may be one."""
    if _CORRELATION.fullmatch(text) is None:
        raise IllegalCorrelationId(correlation_id=text[:80], pointer=pointer)
    return text


def check_client(text: str, pointer: str) -> str:
    """Return *text*; InvalidField at *pointer* unless it may be a client id."""
    if _CLIENT.fullmatch(text) is None:
        reason = (
            f"A client id is 1 to {CLIENT_ID_LENGTH_MAX} letters, digits or '._:@#+=~-', the first a letter or digit"
        )
        raise InvalidField(reason=reason, pointer=pointer)
    return text


def reply_topic_of(cluster: str, namespace: str = "") -> str:
    """The topic that holds the replies of *cluster*, or of one namespace in it; what no topic's name may have becomes `_`."""
    name = _NOT_IN_TOPICS.sub("_", cluster).lstrip("_-") or _CLUSTER_DEFAULT
    room = TOPIC_LENGTH_MAX - len(REPLY_TOPIC_END) - (len(namespace) + 1 if namespace else 0)
    return topic_in(namespace, name[:room] + REPLY_TOPIC_END)
