"""Errors shared by many routes, by their actions. A row names these, and errors of its own."""

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
# Errors of the server can occur on every route; errors of the guard on every route that requires
# credentials.
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
# Objects that the caller may not see are answered as missing.
UNSEEN: Mapping[str, type[TernError]] = {
    "topic": TopicNotFound,
    "group": GroupNotFound,
    "producer-group": ProducerGroupNotFound,
}
# The route has a query and a form of its answer; it reads a body; it sends requests to broker
# groups.
ASKED: Errors = (InvalidField, UnknownParameter, NotAcceptable)
READ: Errors = (MalformedBody, UnknownField, DocumentTooComplex)
BROKER: Errors = (NoLeader, OutcomeUnknown, StorageDamaged, NodeLacks, LinkReplyMalformed)
# The route needs the routes; the topic; the group.
ROUTED: Errors = (NoNameServer, WarmingUp)
TOPIC: Errors = (IllegalTopic, TopicNotFound, *ROUTED)
GROUP: Errors = (IllegalGroup, GroupNotFound, *ROUTED)
# The route declares or alters an object.
DECLARED: Errors = (*ASKED, *READ, *BROKER, *ROUTED, MessageTooLarge, LimitReached, DiskFull)


def before_handlers(rule: Rule) -> Errors:
    """Return the errors that a route of *rule* can have before its handler runs: of the server, and
    of the guard.
    """
    if rule.is_anonymous:
        return SERVER
    asked = [each for each in rule.requirements if each.kind in UNSEEN and each.action != CREATE]
    unseen = dict.fromkeys(UNSEEN[each.kind] for each in asked)
    return (*SERVER, *GUARD, *unseen)
