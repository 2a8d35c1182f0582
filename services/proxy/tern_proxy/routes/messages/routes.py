"""Rows of messages: send, receive, settle, and read by offset."""

from tern_proxy.core.documents.messages import (
    BatchResults,
    LeasedMessage,
    Message,
    Pulled,
    Received,
    SendReceipt,
    SendResult,
)
from tern_proxy.core.documents.receives import AckRequest, ReceiveRequest, SettleRequest
from tern_proxy.core.documents.sends import JsonBatch, JsonMessage, PackedBatch
from tern_proxy.routes.failures import ASKED, BROKER, READ, TOPIC
from tern_proxy.routes.messages.examples import (
    BATCH,
    EXAMPLE_HANDLE,
    JSON_BATCH,
    LEASED,
    LINES,
    PACKED,
    RAW,
    RECEIPT,
    RESULT,
    REUSED,
    STORED,
    document,
    line,
    lines,
    settled,
)
from tern_proxy.routes.messages.parameters import (
    HANDLES,
    MESSAGE_BODY,
    PULL_PARAMETERS,
    RECEIVE_PARAMETERS,
    SEND_EXTENSIONS,
    SEND_PARAMETERS,
    SENT,
)
from tern_proxy.routes.messages.pulls import get_messages
from tern_proxy.routes.messages.receives import post_receive
from tern_proxy.routes.messages.sends import post_batch, post_message
from tern_proxy.routes.messages.settles import post_ack, post_settle
from tern_proxy.routes.route import Gives, Route, Takes, gives, in_query, ref, takes
from tern_wire import limits, paths
from tern_wire.errors import (
    BatchEmpty,
    BatchTooLarge,
    BroadcastGroup,
    ConsumptionDisabled,
    DiskFull,
    GroupNotFound,
    IllegalFilter,
    IllegalGroup,
    IllegalInvisibleTime,
    IllegalTopic,
    IllegalWait,
    LimitReached,
    OffsetExpired,
    QueueNotFound,
    ReceiptExpired,
    ReceiptInvalid,
    SubscriptionConflict,
    TopicNotFound,
    TopicNotReadable,
    UnsupportedBatchFormat,
    UnsupportedEncoding,
)
from tern_wire.paths import JSON, JSONL, MSGPACK, NDJSON, OCTETS, RECORDS

_SENDS = ("PUB topic {topic}", "CREATE topic {topic} if it is created by its first use")
_READS, _SETTLES = ("SUB topic {topic}",), ("SUB topic {topic}", "ACK group {group}")
_SETTLED = (
    *(*ASKED, *READ, *BROKER, IllegalTopic, TopicNotFound, IllegalGroup, GroupNotFound, ReceiptInvalid, ReceiptExpired),
    *(BatchTooLarge, UnsupportedEncoding, DiskFull),
)
_WAITED = (paths.HEADER_WAIT_APPLIED,)
_PLACE = (
    *(paths.HEADER_NEXT_OFFSET, paths.HEADER_MIN_OFFSET, paths.HEADER_MAX_OFFSET, "Link"),
    *(paths.HEADER_WAIT_APPLIED, "ETag", "Cache-Control"),
)

ROUTES = (
    Route(
        "POST",
        paths.messages_path("{topic}"),
        post_message,
        id="sendMessage",
        tag="messages",
        summary="Send one message",
        about="The body is the message, byte for byte, whatever its content type; metadata are headers or query.",
        hot="produce",
        is_brief=True,
        asks=_SENDS,
        parameters=SEND_PARAMETERS,
        takes=Takes(
            content={
                "*/*": {"schema": MESSAGE_BODY},
                JSON: {"schema": {}, "example": {"total": 9.5}},
                "text/plain": {"schema": {"type": "string"}, "example": "hello"},
            }
        ),
        gives={
            200: gives(RECEIPT, "Stored before: the first receipt.", paths.HEADER_REPLAYED),
            201: Gives(
                text="Stored.",
                content=document(RECEIPT),
                kinds=(SendReceipt,),
                headers=("Location",),
                links={
                    "read": {
                        "operationId": "pullMessages",
                        "parameters": {
                            "topic": "$request.path.topic",
                            "queue": "$response.body#/queue",
                            "offset": "$response.body#/offset",
                        },
                    }
                },
            ),
            204: Gives(
                text="Stored, with `Prefer: return=minimal`.",
                headers=(
                    *("MQ-Message-Id", "MQ-Queue", "MQ-Offset", "Preference-Applied", paths.HEADER_REPLAYED),
                    *("MQ-Recall-Handle", paths.HEADER_DELIVER_AT),
                ),
            ),
        },
        errors=SENT,
        query="?tag=created",
        bodies=((JSON, '{"total": 9.5}'), ("text/plain", "hello")),
        extensions=SEND_EXTENSIONS,
    ),
    Route(
        "POST",
        paths.batch_path("{topic}"),
        post_batch,
        id="sendBatch",
        tag="messages",
        summary="Send many messages",
        about=(
            f"1 to {limits.BATCH_MESSAGES_MAX:,} messages in at most {limits.BATCH_SIZE_MAX_BYTES:,} bytes. Illegal messages "
            "fail alone; when all fail for one cause, its problem is the answer."
        ),
        hot="produce_batch",
        is_brief=True,
        asks=_SENDS,
        takes=Takes(
            content={
                JSON: {"schema": ref(JsonBatch), "examples": {"batch": {"value": BATCH}}},
                NDJSON: lines(JsonMessage, LINES),
                JSONL: lines(JsonMessage, LINES),
                MSGPACK: {"schema": ref(PackedBatch), "examples": {"batch": {"value": PACKED}}},
            },
            kinds=(JsonBatch, JsonMessage, PackedBatch),
            is_needed=True,
        ),
        gives={
            200: gives(BatchResults(results=[RESULT], failed=0), "All are stored."),
            207: gives(
                BatchResults(results=[RESULT, SendResult(index=1, error=REUSED)], failed=1),
                "Some failed; each has its result.",
            ),
        },
        errors=(*SENT, BatchEmpty, BatchTooLarge, UnsupportedBatchFormat),
        bodies=((JSON, JSON_BATCH), (NDJSON, LINES)),
    ),
    Route(
        "POST",
        paths.receive_path("{topic}", "{group}"),
        post_receive,
        id="receiveMessages",
        tag="messages",
        summary="Receive with a lease",
        about=(
            "Messages under a lease of this consumer. Settle them before `invisible_until`, or they are delivered again. `settle` in "
            f"the body is applied before the wait begins. NDJSON ends with a line `settled` when the request has settles. `Accept: {OCTETS}` or "
            "`?format=raw` gives one message: its body and content type, all else in MQ-* headers."
        ),
        hot="receive",
        asks=(
            *("SUB topic {topic}", "SUB group {group}", "ACK group {group} if it settles"),
            "CREATE group {group} if it is created by its first use",
        ),
        parameters=RECEIVE_PARAMETERS,
        takes=takes(
            ReceiveRequest,
            long_poll={"max_messages": 32, "wait": "20s", "invisible": "1m"},
            settle_too={"settle": [{"receipt_handle": EXAMPLE_HANDLE}], "wait": 500},
            filtered={"filter": {"tags": ["created", "paid"]}},
        ),
        gives={
            200: Gives(
                text="Messages, possibly none.",
                content={
                    **document(Received(messages=[LEASED], settled=[])),
                    NDJSON: line(LEASED),
                    OCTETS: RAW,
                    "*/*": RAW,
                },
                kinds=(Received, LeasedMessage),
                headers=_WAITED,
                links={
                    "ack": {
                        "operationId": "ackMessages",
                        "parameters": {
                            "topic": "$request.path.topic",
                            "group": "$request.path.group",
                            "receipt_handle": "$response.body#/messages/0/receipt_handle",
                        },
                    }
                },
            ),
            204: Gives(text="Raw form: there is no message.", headers=_WAITED),
        },
        errors=(
            *(*ASKED, *READ, *TOPIC, *BROKER, IllegalGroup, GroupNotFound, IllegalWait, DiskFull),
            *(IllegalInvisibleTime, BatchTooLarge, LimitReached, UnsupportedEncoding),
            *(IllegalFilter, SubscriptionConflict, BroadcastGroup, ConsumptionDisabled, TopicNotReadable),
        ),
        bodies=((JSON, '{"max_messages": 32, "wait": "1s"}'),),
    ),
    Route(
        "POST",
        paths.ack_path("{topic}", "{group}"),
        post_ack,
        id="ackMessages",
        tag="messages",
        summary="Acknowledge",
        about=f"1 to {limits.SETTLE_ENTRIES_MAX:,} receipt handles, in the body or in the query. Any proxy accepts them.",
        hot="ack",
        is_brief=True,
        asks=_SETTLES,
        parameters=(in_query("receipt_handle", HANDLES, "May be repeated; instead of a body."),),
        takes=takes(AckRequest, ack={"receipt_handles": [EXAMPLE_HANDLE]}),
        gives=settled("acknowledged"),
        errors=_SETTLED,
        bodies=((JSON, f'{{"receipt_handles": ["{EXAMPLE_HANDLE}"]}}'),),
    ),
    Route(
        "POST",
        paths.settle_path("{topic}", "{group}"),
        post_settle,
        id="settleMessages",
        tag="messages",
        summary="Acknowledge, extend, return and reject",
        about=(
            f"1 to {limits.SETTLE_ENTRIES_MAX:,} leases. `invisible` belongs to `extend`; `delay` (0 s to 12 h) to `nack`, whose default "
            "is the delay of the group's retry policy; `reason` to `dead_letter`. After its last attempt a nacked message is a dead "
            "letter, too. `release` returns messages that no handler has seen, such as prefetched ones: they are visible at once, and the "
            "attempt does not count. Attempts of earlier leases stay counted, and so does a lease that ends without a settle. A repeat "
            "of a release is answered `receipt-expired`, like every later settle of that lease."
        ),
        hot="settle",
        is_brief=True,
        asks=_SETTLES,
        takes=takes(
            SettleRequest,
            is_needed=True,
            settle={"entries": [{"receipt_handle": EXAMPLE_HANDLE, "action": "extend", "invisible": "1m"}]},
        ),
        gives=settled("settled"),
        errors=(*_SETTLED, IllegalInvisibleTime),
        bodies=(
            (JSON, f'{{"entries": [{{"receipt_handle": "{EXAMPLE_HANDLE}", "action": "extend", "invisible": "1m"}}]}}'),
        ),
    ),
    Route(
        "GET",
        paths.pull_path("{topic}", "{queue}"),
        get_messages,
        id="pullMessages",
        tag="messages",
        summary="Read one queue by offset",
        about=(
            f"For readers that keep their own position; nothing is leased. `Accept: {RECORDS}` gives concatenated records in "
            "RocketMQ's layout, for which `encoding` has no meaning; with `fields=heads` the head of each, with IPv4 hosts, and "
            f"`Content-Type: {RECORDS}; fields=heads`."
        ),
        hot="pull",
        asks=_READS,
        parameters=PULL_PARAMETERS,
        gives={
            200: Gives(
                text="Messages, possibly none.",
                content={
                    **document(Pulled(messages=[STORED], next_offset=43, min_offset=0, max_offset=43)),
                    NDJSON: line(STORED),
                    RECORDS: RAW,
                },
                kinds=(Pulled, Message),
                headers=_PLACE,
            ),
            304: Gives(text="The client has this closed range.", headers=("ETag", "Cache-Control")),
        },
        errors=(
            *(*ASKED, *TOPIC, *BROKER, QueueNotFound, IllegalWait, IllegalFilter, OffsetExpired),
            TopicNotReadable,
        ),
        query="?offset=0&max_messages=10",
    ),
)
