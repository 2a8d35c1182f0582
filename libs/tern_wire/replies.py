"""Request-reply: the properties of a request and its reply, and the address of the reply.

The property names are RocketMQ's; the form of reply addresses is ours.

    request, stored in topic orders            reply, stored in topic {cluster}_REPLY_TOPIC
    CORRELATION_ID    7F3A...                  CORRELATION_ID, KEYS, TAGS   7F3A...
    REPLY_TO_CLIENT   broker-a:shop-7          REPLY_TO_CLIENT              broker-a:shop-7
    TTL               10000 (ms)               MSG_TYPE                     reply

Both are messages, stored as durably as any other. A proxy that dies between them loses nothing: the
reply is available at another proxy, and a late reply is kept. RocketMQ also keeps replies in one
topic of the cluster and finds the requester by its client id. A topic for each client would
accumulate in every broker, name server and proxy; one topic has ordinary retention. The client is
identified by the address `broker group:client id`, which is opaque to the replier. The broker group
is where the requester's proxy waits. The client id allows two clients to use the same correlation
ids. An address grants only the right to send to the reply topic, which every sender has, so it is
not sealed.

A reply's tag is its correlation id. The queue entry holds the tag's hash, so a broker detects a
possible match without reading a record. The correlation id is also a key, so the index finds a
reply that is already stored. The ids in the record decide.
"""

import re
from dataclasses import dataclass

from tern_wire.errors import IllegalCorrelationId, IllegalReplyAddress, InvalidField
from tern_wire.limits import CLIENT_ID_LENGTH_MAX, CORRELATION_ID_LENGTH_MAX
from tern_wire.names import TOPIC_LENGTH_MAX, is_broker_group, topic_in

# Value of MSG_TYPE in a reply.
REPLY = "reply"
REPLY_TOPIC_END = "_REPLY_TOPIC"
# No space (it separates keys), no '|' (it separates tags), no '/' (ids are parts of paths), no
# separator of properties.
CORRELATION_PATTERN = f"^[A-Za-z0-9][A-Za-z0-9._:@#+=~-]{{0,{CORRELATION_ID_LENGTH_MAX - 1}}}$"
CLIENT_PATTERN = f"^[A-Za-z0-9][A-Za-z0-9._:@#+=~-]{{0,{CLIENT_ID_LENGTH_MAX - 1}}}$"
_CORRELATION, _CLIENT = re.compile(CORRELATION_PATTERN[1:-1]), re.compile(CLIENT_PATTERN[1:-1])
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9_-]")
_CLUSTER_DEFAULT = "dev"


@dataclass(frozen=True, slots=True)
class ReplyAddress:
    """Address of the replies to one client: the broker group at which its proxy waits, and the
    client's id.
    """

    broker_group: str
    client: str

    def __str__(self) -> str:
        return f"{self.broker_group}:{self.client}"


def read_reply_address(text: str, pointer: str) -> ReplyAddress:
    """Parse the reply address of a request; raise IllegalReplyAddress at *pointer* if *text* is not
    one.
    """
    broker_group, colon, client = text.partition(":")
    if not colon or not is_broker_group(broker_group) or _CLIENT.fullmatch(client) is None:
        raise IllegalReplyAddress(reply_to=text[:160], pointer=pointer)
    return ReplyAddress(broker_group, client)


def check_correlation_id(text: str, pointer: str) -> str:
    """Return *text* if it is a legal correlation id; raise IllegalCorrelationId at *pointer*
    otherwise.
    """
    if _CORRELATION.fullmatch(text) is None:
        raise IllegalCorrelationId(correlation_id=text[:80], pointer=pointer)
    return text


def check_client(text: str, pointer: str) -> str:
    """Return *text* if it is a legal client id; raise InvalidField at *pointer* otherwise."""
    if _CLIENT.fullmatch(text) is None:
        reason = (
            f"A client id is 1 to {CLIENT_ID_LENGTH_MAX} letters, digits or '._:@#+=~-', the first a letter or digit"
        )
        raise InvalidField(reason=reason, pointer=pointer)
    return text


def reply_topic_of(cluster: str, namespace: str = "") -> str:
    """Return the reply topic of *cluster*, or of one namespace in it. Characters illegal in topics
    become `_`.
    """
    name = _NOT_IN_TOPICS.sub("_", cluster).lstrip("_-") or _CLUSTER_DEFAULT
    room = TOPIC_LENGTH_MAX - len(REPLY_TOPIC_END) - (len(namespace) + 1 if namespace else 0)
    return topic_in(namespace, name[:room] + REPLY_TOPIC_END)
