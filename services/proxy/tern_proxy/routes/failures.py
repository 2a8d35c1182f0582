"""Errors that many routes share, by what a route does. A row names these, and what is its alone."""

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
    MalformedBody,
    MessageTooLarge,
    NodeLacks,
    NoLeader,
    NoNameServer,
    NotAcceptable,
    OutcomeUnknown,
    Overloaded,
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
GUARD: Errors = (Unauthenticated, Forbidden, TooManyFailures, QuotaExceeded)
# It has a query and a form of its answer; it reads a body; it asks broker groups.
ASKED: Errors = (InvalidField, UnknownParameter, NotAcceptable)
READ: Errors = (MalformedBody, UnknownField, DocumentTooComplex)
BROKER: Errors = (NoLeader, OutcomeUnknown, StorageDamaged, NodeLacks)
# It needs the routes; the topic; the group.
ROUTED: Errors = (NoNameServer, WarmingUp)
TOPIC: Errors = (IllegalTopic, TopicNotFound, *ROUTED)
GROUP: Errors = (IllegalGroup, GroupNotFound, *ROUTED)
# It declares or alters something.
DECLARED: Errors = (*ASKED, *READ, *BROKER, *ROUTED, MessageTooLarge, LimitReached, DiskFull)
