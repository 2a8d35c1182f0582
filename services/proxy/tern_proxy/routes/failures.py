"""Errors that many routes share, by what a route does. A row names these, and what is its alone."""

from collections.abc import Mapping

from tern_proxy.core.access.requirements import Rule
from tern_wire.errors import (
    BodyTooSlow,
    CallbackRefused,
    DiskFull,
    DocumentTooComplex,
    Forbidden,
    GroupNotFound,
    HeadTooLarge,
    IllegalGroup,
    IllegalTopic,
    InvalidField,
    LimitReached,
    LinkReplyMalformed,
    MalformedBody,
    MessageTooLarge,
    NodeLacks,
    NoLeader,
    NoNameServer,
    NotAcceptable,
    OutcomeUnknown,
    Overloaded,
    ProducerGroupNotFound,
    QuotaExceeded,
    RequestMalformed,
    RequestTimeout,
    ShareExceeded,
    ShuttingDown,
    StorageDamaged,
    TargetTooLong,
    TernError,
    TooManyFailures,
    TopicNotFound,
    Unauthenticated,
    UnknownField,
    UnknownParameter,
    WarmingUp,
)
from tern_wire.principals.principals import CREATE

Errors = tuple[type[TernError], ...]
# What the server itself refuses can meet every route; what the guard refuses, every one that asks for credentials.
SERVER: Errors = (
    TargetTooLong,
    HeadTooLarge,
    RequestMalformed,
    RequestTimeout,
    BodyTooSlow,
    CallbackRefused,
    TernError,
    Overloaded,
    ShareExceeded,
    ShuttingDown,
)
GUARD: Errors = (Unauthenticated, Forbidden, TooManyFailures, QuotaExceeded, WarmingUp)
# What the caller may not even see is not there for it.
UNSEEN: Mapping[str, type[TernError]] = {
    "topic": TopicNotFound,
    "group": GroupNotFound,
    "producer-group": ProducerGroupNotFound,
}
# It has a query and a form of its answer; it reads a body; it asks broker groups.
ASKED: Errors = (InvalidField, UnknownParameter, NotAcceptable)
READ: Errors = (MalformedBody, UnknownField, DocumentTooComplex)
BROKER: Errors = (NoLeader, OutcomeUnknown, StorageDamaged, NodeLacks, LinkReplyMalformed)
# It needs the routes; the topic; the group.
ROUTED: Errors = (NoNameServer, WarmingUp)
TOPIC: Errors = (IllegalTopic, TopicNotFound, *ROUTED)
GROUP: Errors = (IllegalGroup, GroupNotFound, *ROUTED)
# It declares or alters something.
DECLARED: Errors = (*ASKED, *READ, *BROKER, *ROUTED, MessageTooLarge, LimitReached, DiskFull)


def before_handlers(rule: Rule) -> Errors:
    """What a route of *rule* may be answered before its handler is asked: by the server, and by the guard."""
    if rule.is_anonymous:
        return SERVER
    asked = [each for each in rule.requirements if each.kind in UNSEEN and each.action != CREATE]
    unseen = dict.fromkeys(UNSEEN[each.kind] for each in asked)
    return (*SERVER, *GUARD, *unseen)
