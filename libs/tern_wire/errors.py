"""Every error, once: its code, HTTP status, retryability, title, and a sentence with the fix.

A core raises the class. The shells map it to an RFC 9457 problem or a link error, and the SDK
raises the same class again. Context is passed as fields, never as prose assembled elsewhere. The
table is one thing: each code is unique and is looked up in one place. Classes of other subjects
(transactions, security, requests, availability) are defined in error_classes/ and imported from
here.
"""

from collections.abc import Mapping
from typing import Any

from tern_wire.error_classes.availability import (
    BrokerGroupNotWritable,
    ConfigurationNotSaved,
    DiskFull,
    LimitReached,
    NodeLacks,
    NoLeader,
    NoNameServer,
    NotLeader,
    OutcomeUnknown,
    Overloaded,
    ShuttingDown,
    StaleRegistration,
    StorageDamaged,
    WarmingUp,
)
from tern_wire.error_classes.publications import (
    BatchPublished,
    BatchTooManyRows,
    PublicationHistoryLost,
    PublicationNotFound,
    QueryElsewhere,
    StageChunkDiffers,
    StageMoved,
    StagesFull,
    StageUnknown,
)
from tern_wire.error_classes.rebuilds import (
    PeerProofRefused,
    RebuildFileGone,
    RebuildFileUnknown,
    RebuildNotHere,
    RebuildNotNow,
)
from tern_wire.error_classes.replies import IllegalCorrelationId, IllegalReplyAddress, NoReply, ReplyTimeout
from tern_wire.error_classes.requests import (
    BodyTooSlow,
    CallbackRefused,
    DocumentTooComplex,
    HeadTooLarge,
    LinkReplyMalformed,
    MethodNotAllowed,
    ProblemNotFound,
    ReadLeaseBroken,
    ReadLeaseNotFound,
    RequestTimeout,
    RouteNotFound,
    ShareExceeded,
    TargetTooLong,
    TooManyTails,
    UnsupportedEncoding,
    UpgradeUnfinished,
)
from tern_wire.error_classes.security import (
    CertificateForbidden,
    ClientKeyNotFound,
    Forbidden,
    HmacNotAccepted,
    PrincipalChanged,
    PrincipalNotFound,
    PrincipalPartlyWritten,
    QuotaExceeded,
    TooManyFailures,
    Unauthenticated,
)
from tern_wire.error_classes.transactions import (
    CheckUrlForbidden,
    ProducerGroupBusy,
    ProducerGroupNotFound,
    TooManyOpenTransactions,
    TopicsApart,
    TransactionExpired,
    TransactionIdInvalid,
    TransactionResolved,
    TransactionUnknown,
)
from tern_wire.tern_error import TernError

# All errors: `tern_client` has the same names.
__all__ = [
    "AlreadyDelivered",
    "AlreadyExists",
    "BatchEmpty",
    "BatchPublished",
    "BatchTooLarge",
    "BatchTooManyRows",
    "BodyTooSlow",
    "BroadcastGroup",
    "BrokerGroupNotFound",
    "BrokerGroupNotWritable",
    "CallbackRefused",
    "CertificateForbidden",
    "CheckUrlForbidden",
    "ClientKeyNotFound",
    "CompressionNotInstalled",
    "ConfigurationNotFound",
    "ConfigurationNotSaved",
    "ConfirmationNeeded",
    "ConsumptionDisabled",
    "DeadLetterGone",
    "DiskFull",
    "DocumentTooComplex",
    "Forbidden",
    "GroupConflict",
    "GroupNotFound",
    "HeadTooLarge",
    "HmacNotAccepted",
    "IdempotencyKeyReused",
    "IllegalCorrelationId",
    "IllegalDeliveryTime",
    "IllegalFilter",
    "IllegalGroup",
    "IllegalIdempotencyKey",
    "IllegalInvisibleTime",
    "IllegalKey",
    "IllegalMember",
    "IllegalMessageGroup",
    "IllegalProperty",
    "IllegalReplyAddress",
    "IllegalTag",
    "IllegalTimeout",
    "IllegalTopic",
    "IllegalWait",
    "InvalidField",
    "LimitReached",
    "LinkBodyMalformed",
    "LinkReplyMalformed",
    "MalformedBody",
    "MemberNotFound",
    "MessageExpired",
    "MessageNotFound",
    "MessageTooLarge",
    "MethodNotAllowed",
    "NoLeader",
    "NoNameServer",
    "NoReply",
    "NodeLacks",
    "NotAcceptable",
    "NotLeader",
    "NotScheduled",
    "OffsetExpired",
    "OffsetMoved",
    "OutcomeUnknown",
    "Overloaded",
    "OwnerUnknown",
    "PeerProofRefused",
    "PlacementChanged",
    "PlacementMoving",
    "PrincipalChanged",
    "PrincipalNotFound",
    "PrincipalPartlyWritten",
    "ProblemNotFound",
    "ProducerGroupBusy",
    "ProducerGroupNotFound",
    "PropertiesTooLarge",
    "PropertyConflictsWithType",
    "PublicationHistoryLost",
    "PublicationNotFound",
    "QueryElsewhere",
    "QueueLockLost",
    "QueueNotFound",
    "QuotaExceeded",
    "ReadLeaseBroken",
    "ReadLeaseNotFound",
    "RebuildFileGone",
    "RebuildFileUnknown",
    "RebuildNotHere",
    "RebuildNotNow",
    "RecallHandleInvalid",
    "ReceiptExpired",
    "ReceiptInvalid",
    "RecordMalformed",
    "ReplyTimeout",
    "RequestMalformed",
    "RequestTimeout",
    "RouteNotFound",
    "ShareExceeded",
    "ShuttingDown",
    "StageChunkDiffers",
    "StageMoved",
    "StageUnknown",
    "StagesFull",
    "StaleRegistration",
    "StorageDamaged",
    "SubscriptionConflict",
    "TargetTooLong",
    "TaskNotFound",
    "TernError",
    "TooManyFailures",
    "TooManyOpenTransactions",
    "TooManyTails",
    "TopicConflict",
    "TopicNotFound",
    "TopicNotReadable",
    "TopicNotWritable",
    "TopicReserved",
    "TopicsApart",
    "TransactionExpired",
    "TransactionIdInvalid",
    "TransactionResolved",
    "TransactionUnknown",
    "Unauthenticated",
    "UnknownField",
    "UnknownParameter",
    "UnsupportedBatchFormat",
    "UnsupportedEncoding",
    "UpgradeUnfinished",
    "WarmingUp",
]


# 400: the request is wrong ------------------------------------------------------------------------
class MalformedBody(TernError):
    code, status, title = "malformed-body", 400, "The body cannot be parsed"
    fix = "{reason} (at {pointer}). Send a body that matches the Content-Type."


class UnknownField(TernError):
    code, status, title = "unknown-field", 400, "An unknown field"
    fix = "{field} at {pointer} is not a field of this request. Remove it or correct its spelling."


class InvalidField(TernError):
    code, status, title = "invalid-field", 400, "A field has a value that is not allowed"
    fix = "{reason} (at {pointer})."


class UnknownParameter(TernError):
    code, status, title = "unknown-parameter", 400, "An unknown query parameter"
    fix = "'{parameter}' is not a parameter of this request; allowed: {allowed}."


class TopicReserved(TernError):
    code, status, title = "topic-reserved", 400, "The topic's name is reserved"
    fix = "The name '{topic}' is reserved for {keeper}. Choose another name."


class IllegalTopic(TernError):
    code, status, title = "illegal-topic", 400, "The topic's name is not allowed"
    fix = "'{topic}' is not a topic name. Use 1 to 127 letters, digits, '_' or '-', beginning with a letter or digit."


class IllegalGroup(TernError):
    code, status, title = "illegal-group", 400, "The group's name is not allowed"
    fix = "'{group}' is not a group name. Use 1 to 120 letters, digits, '_' or '-', beginning with a letter or digit."


class IllegalMember(TernError):
    code, status, title = "illegal-member", 400, "The member's id is not allowed"
    fix = "'{member}' is not a member id. Use 1 to 128 letters, digits or '._:@#+-', beginning with a letter or digit."


class IllegalTag(TernError):
    code, status, title = "illegal-tag", 400, "The tag is not allowed"
    fix = "A tag is 1 to 255 bytes without '|' or control characters (at {pointer})."


class IllegalKey(TernError):
    code, status, title = "illegal-key", 400, "A key is not allowed"
    fix = "Keys are at most 32, each without spaces or control characters (at {pointer})."


class IllegalProperty(TernError):
    code, status, title = "illegal-property", 400, "A property is not allowed"
    fix = "{reason} (at {pointer})."


class IllegalIdempotencyKey(TernError):
    code, status, title = "illegal-idempotency-key", 400, "The idempotency key is not allowed"
    fix = "An idempotency key is 1 to 255 bytes without control characters (at {pointer})."


class IllegalMessageGroup(TernError):
    code, status, title = "illegal-message-group", 400, "The message group is not allowed"
    fix = "A message group is 1 to 63 bytes without control characters (at {pointer})."


class IllegalDeliveryTime(TernError):
    code, status, title = "illegal-delivery-time", 400, "The delivery time is not allowed"
    fix = "{reason} (at {pointer}). Give one of delay ('30s'), deliver_at (RFC 3339 or ms since 1970), delay_level (1 to 18)."


class IllegalInvisibleTime(TernError):
    code, status, title = "illegal-invisible-time", 400, "The invisible time is out of range"
    fix = "'invisible' is {actual}; use 1 s to 12 h, such as '30s'."


class IllegalWait(TernError):
    code, status, title = "illegal-wait", 400, "The wait is out of range"
    fix = "'wait' is {actual}; use 0 s to 30 s, such as '20s'."


class IllegalTimeout(TernError):
    code, status, title = "illegal-timeout", 400, "The timeout is out of range"
    fix = "'timeout' is {actual}; use 1 ms to 30 s, such as '10s'."


class IllegalFilter(TernError):
    code, status, title = "illegal-filter", 400, "The filter is not allowed"
    fix = (
        "At character {position} of the filter (counted from 0): {reason}. "
        "Write tags such as 'A || B', or SQL such as \"price > 5 AND region = 'eu'\"."
    )


class PropertyConflictsWithType(TernError):
    code, status, title = "property-conflicts-with-type", 400, "Properties of the message exclude each other"
    fix = "{reason} (at {pointer})."


class BatchEmpty(TernError):
    code, status, title = "batch-empty", 400, "The batch holds no message"
    fix = "Send at least one message in 'messages'."


class RecallHandleInvalid(TernError):
    code, status, title = "recall-handle-invalid", 400, "The recall handle was not made by this cluster for this topic"
    fix = "Use the recall_handle exactly as the send or the list of scheduled messages returned it, with the same topic in the path."


class ReceiptInvalid(TernError):
    code, status, title = (
        "receipt-invalid",
        400,
        "The receipt handle was not made by this cluster for this topic and group",
    )
    fix = "Use the receipt_handle exactly as 'receive' returned it, with the same topic and group in the path."


class RequestMalformed(TernError):
    code, status, title = "request-malformed", 400, "The request cannot be read"
    fix = "{reason}. Send a well-formed HTTP/1.1 request."


class LinkBodyMalformed(TernError):
    code, status, title = "link-body-malformed", 400, "A link request cannot be read"
    fix = "{reason}. Proxy and broker must be of the same release."


class RecordMalformed(TernError):
    code, status, title = "record-malformed", 400, "These bytes are not what RocketMQ writes"
    fix = "At byte {position}: {reason}. Read from a place where a record begins, or restore the file."


class CompressionNotInstalled(TernError):
    code, status, title = "compression-not-installed", 501, "A body is compressed in a way that is not installed"
    fix = "A body compressed with {compression} needs a library: pip install 'ternmq[rocketmq]'."


class ConfirmationNeeded(TernError):
    code, status, title = "confirmation-needed", 400, "A deletion must be confirmed"
    fix = "This deletes {what} '{name}' and {loss}. Repeat the request with ?confirm={name}."


# 401: authentication failed -----------------------------------------------------------------------
# 403: the settings forbid it ----------------------------------------------------------------------
class TopicNotWritable(TernError):
    code, status, title = "topic-not-writable", 403, "The topic takes no messages"
    fix = "Topic '{topic}' may not be written. Allow it: `ternmq topic alter {topic} --permission rw`."


class TopicNotReadable(TernError):
    code, status, title = "topic-not-readable", 403, "The topic gives no messages"
    fix = "Topic '{topic}' may not be read. Allow it: `ternmq topic alter {topic} --permission rw`."


# 404 to 431: it is not there, or too large --------------------------------------------------------
class TopicNotFound(TernError):
    code, status, title = "topic-not-found", 404, "The topic does not exist"
    fix = "Topic '{topic}' does not exist. Create it: PUT /v1/topics/{topic}, or `ternmq topic create {topic}`."


class GroupNotFound(TernError):
    code, status, title = "group-not-found", 404, "The consumer group does not exist"
    fix = "Group '{group}' does not exist. Create it: PUT /v1/groups/{group}, or `ternmq group create {group}`."


class MemberNotFound(TernError):
    code, status, title = "member-not-found", 404, "The client is not a member of the group"
    fix = "'{member}' is no member of group '{group}' now. Send POST /v1/groups/{group}/members/heartbeat every 30 s, and at once before this."


class QueueNotFound(TernError):
    code, status, title = "queue-not-found", 404, "The queue does not exist"
    fix = "'{queue}' is not a queue of topic '{topic}'. GET /v1/topics/{topic}/offsets lists them, written like 'broker-a:3'."


class BrokerGroupNotFound(TernError):
    code, status, title = "broker-group-not-found", 404, "The broker group is not known"
    fix = "No broker of group '{broker_group}' has registered here; known: {known}. Correct the name, or start its brokers."


class ConfigurationNotFound(TernError):
    code, status, title = "configuration-not-found", 404, "There is no such configuration"
    fix = (
        "Namespace '{namespace}' has no key '{key}'. Put it: PUT /v1/kv/{namespace}/{key}, or `ternmq namesrv kv put`."
    )


class NotScheduled(TernError):
    code, status, title = "not-scheduled", 404, "No message waits under this recall handle"
    fix = "It was recalled before, or its topic was deleted since. GET /v1/topics/{topic}/scheduled lists what waits."


class TaskNotFound(TernError):
    code, status, title = "task-not-found", 404, "There is no such task"
    fix = (
        "No broker group knows task '{task}': it never began, or ended so long ago that others took its place. "
        "Begin it again: what was done is not done twice."
    )


class NotAcceptable(TernError):
    code, status, title = "not-acceptable", 406, "No representation fits the Accept header"
    fix = "Accept asks for '{accept}'; this path can answer {supported}."


class MessageNotFound(TernError):
    code, status, title = "message-not-found", 404, "The message does not exist"
    fix = "Topic '{topic}' keeps no message with the id '{message_id}'. It was never sent there, or retention has dropped it."


class BroadcastGroup(TernError):
    code, status, title = "broadcast-group", 409, "Every client of this group reads everything"
    fix = (
        "Group '{group}' is a broadcast group, so there is nothing to share out. Pull with offsets that the client keeps: "
        "GET /v1/topics/{topic}/queues/broker-a:0/messages?offset=N, or PullConsumer of the SDK."
    )


class SubscriptionConflict(TernError):
    code, status, title = "subscription-conflict", 409, "Members of the group want different messages"
    fix = (
        "Consumers of group '{group}' subscribe to topic '{topic}' with different filters, so that each would take messages of the others. Give "
        "them one subscription, or groups of their own; or send 'filter' with every receive."
    )


class OffsetMoved(TernError):
    code, status, title = "offset-moved", 409, "The committed offset is not what was expected"
    fix = "Queue {queue} is at offset {actual}, expected {expected} (-1: not begun). Read the offsets again and decide."


class QueueLockLost(TernError):
    code, status, title = "queue-lock-lost", 409, "The queue is no longer locked with this epoch"
    fix = "Queue {queue} was released or has another holder since epoch {epoch}. Drop the messages read from it; lock it again and continue from its committed offset."


class TopicConflict(TernError):
    code, status, title = "topic-conflict", 409, "The topic exists with other settings"
    fix = "Topic '{topic}' has {actual} queues, {wanted} were asked for. Queue counts only grow; use at least {actual}."


class PlacementMoving(TernError):
    code, status, title = "placement-moving", 409, "The topic is still moving"
    fix = (
        "Topic '{topic}' still moves to where its placement of epoch {epoch} says. It ends when {left}: repeat that change, "
        "`ternmq topic place {topic}` with the same broker groups, until it has ended. Then change it again."
    )


class PlacementChanged(TernError):
    code, status, retryable, title = "placement-changed", 503, True, "The topic has just moved"
    fix = "Topic '{topic}' takes messages with this key or message group in another broker group now. Nothing was stored: send again."


class OwnerUnknown(TernError):
    code, status, retryable, title = "owner-unknown", 503, True, "The broker group of the key is not in the routes"
    fix = "About this key or message group of topic '{topic}': {missing}. Nothing was stored: send again."


class AlreadyDelivered(TernError):
    code, status, title = "already-delivered", 409, "It is too late to recall the message"
    fix = "Its delivery time has come: it was delivered, or recalled before. Recall a message before its delivery time."


class GroupConflict(TernError):
    code, status, title = "group-conflict", 409, "The group's state does not allow this setting"
    fix = "Group '{group}': {reason}."


class ConsumptionDisabled(TernError):
    code, status, title = "consumption-disabled", 409, "The group's consumption is disabled"
    fix = "Group '{group}' receives nothing until it is switched on: `ternmq group alter {group} --consume`."


class AlreadyExists(TernError):
    code, status, title = "already-exists", 412, "The object exists"
    fix = "There is a {what} '{name}', and If-None-Match asks for a new one. Choose another name, or leave the header out."


class ReceiptExpired(TernError):
    code, status, title = "receipt-expired", 410, "The lease is over"
    fix = "The message became visible again before it was settled; receive it again. Ask for a longer 'invisible', or extend in time."


class OffsetExpired(TernError):
    code, status, title = "offset-expired", 410, "The offset is below the oldest message kept"
    fix = "Offset {offset} was removed; the oldest one is {min_offset}. Start there, or keep messages longer."


class MessageExpired(TernError):
    code, status, title = "message-expired", 410, "Retention has dropped the message from its queue"
    fix = (
        "{message} is not in its queue any more, so it cannot be delivered from there again. Its body is still in the dead-letter queue: "
        "read it with GET /v1/groups/{group}/dlq and send it anew."
    )


class DeadLetterGone(TernError):
    code, status, title = "dead-letter-gone", 410, "There is no such dead letter any more"
    fix = "{offset} of group '{group}' was redriven, purged, or dropped by retention. GET /v1/groups/{group}/dlq lists what is there."


class MessageTooLarge(TernError):
    code, status, title = "message-too-large", 413, "The message is too large"
    fix = "The body has {actual} bytes, the limit is {limit}. Store it elsewhere and send a reference."


class BatchTooLarge(TernError):
    code, status, title = "batch-too-large", 413, "The batch is too large"
    fix = "The batch has {actual} {unit}, the limit is {limit}. Split it."


class PropertiesTooLarge(TernError):
    code, status, title = "properties-too-large", 413, "The properties are too large"
    fix = "Tag, keys and properties have {actual} bytes together, the limit is {limit}."


class UnsupportedBatchFormat(TernError):
    code, status, title = "unsupported-batch-format", 415, "The batch's content type is not supported"
    fix = "'{content_type}' is not a batch format. Use {supported}."


class IdempotencyKeyReused(TernError):
    code, status, title = "idempotency-key-reused", 422, "The idempotency key belongs to another message"
    fix = "This key was used for a message with another body. Use a new key for a new message."


def _all_errors() -> Mapping[str, type[TernError]]:
    return {error.code: error for error in TernError.__subclasses__()} | {TernError.code: TernError}


ERRORS: Mapping[str, type[TernError]] = _all_errors()


def error_from(code: str, fields: Mapping[str, Any]) -> TernError:
    """Return the error of *code* with the fields of a problem document or a link error."""
    error = ERRORS.get(code)
    if error is None:
        return TernError(code=code, **{key: value for key, value in fields.items() if key != "code"})
    return error(**{key: value for key, value in fields.items() if key not in _PROBLEM_FIELDS})


_PROBLEM_FIELDS = frozenset({"type", "title", "status", "detail", "instance", "code", "retryable", "request_id"})
