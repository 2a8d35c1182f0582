"""POST messages: one (the body is the message) or a batch.

Both have one encoder and travel in the send lanes.
"""

from collections.abc import Sequence

from msgspec import UNSET

from tern_proxy.core.documents.messages import BatchResults, SendReceipt
from tern_proxy.core.documents.sends import JsonMessage, PackedMessage
from tern_proxy.core.sending.batches import read_batch
from tern_proxy.core.sending.parameters import BASIC, answer_kind, read_query, read_send
from tern_proxy.core.sending.results import SendResults, receipt_of
from tern_proxy.core.sending.topic import Topic
from tern_proxy.exchange import HotRequest, Reply, reply
from tern_proxy.proxy import Proxy
from tern_proxy.routes.messages.first_use import complete_soon, find_or_create_topic
from tern_proxy.sending import store_messages
from tern_wire.errors import BatchTooLarge, MessageTooLarge, TernError
from tern_wire.limits import BATCH_SIZE_MAX_BYTES, MESSAGE_BODY_SIZE_MAX_BYTES
from tern_wire.paths import HEADER_REPLAYED, pull_path
from tern_wire.records.hosts import host_bytes

REPLAYED = (HEADER_REPLAYED.lower().encode(), b"true")


def message_too_large(size_bytes: int) -> TernError:
    """Return the refusal of a body of *size_bytes*."""
    return MessageTooLarge(actual=size_bytes, limit=MESSAGE_BODY_SIZE_MAX_BYTES)


def batch_too_large(size_bytes: int) -> TernError:
    """Return the refusal of a batch of *size_bytes*."""
    return BatchTooLarge(actual=size_bytes, limit=BATCH_SIZE_MAX_BYTES, unit="bytes")


async def topic_to_send(proxy: Proxy, name: str, request: HotRequest) -> Topic:
    """Return the topic, from the cache if possible.

    Raise TopicReserved for a reserved name, and the errors of `find_or_create_topic`.
    """
    proxy.kept.require_clients(name)
    found = proxy.cache.topics.get(name)
    if found is None:
        return await find_or_create_topic(proxy, name, request)
    if found.late:
        complete_soon(proxy, found, may_create=proxy.auto_create.topics)
    return found


async def post_message(proxy: Proxy, request: HotRequest, topic_name: str) -> Reply:
    """201 with a receipt; 200 with the first receipt when the idempotency key is known; 204 for
    `Prefer: return=minimal`.
    """
    kind = answer_kind(request.header(b"accept"), BASIC)
    topic = await topic_to_send(proxy, topic_name, request)
    body = await request.read_body(MESSAGE_BODY_SIZE_MAX_BYTES, message_too_large)
    message = read_send(request.scope["headers"], request.query_string, body)
    receipt, is_replay = await store_message(proxy, request, topic, message)
    if "return=minimal" in request.header(b"prefer"):
        headers = [
            (b"mq-message-id", receipt.message_id.encode()),
            (b"mq-queue", receipt.queue.encode()),
            (b"mq-offset", b"%d" % receipt.offset),
            (b"preference-applied", b"return=minimal"),
        ]
        if receipt.recall_handle is not UNSET and receipt.deliver_at is not UNSET:
            headers.append((b"mq-recall-handle", receipt.recall_handle.encode()))
            headers.append((b"mq-deliver-at", b"%d" % receipt.deliver_at))
        return 204, [*headers, REPLAYED] if is_replay else headers, b""
    status, headers, answer = reply(200 if is_replay else 201, receipt, kind)
    if is_replay:
        headers.append(REPLAYED)
    elif receipt.offset >= 0:
        where = f"{pull_path(topic.name, receipt.queue)}?offset={receipt.offset}&max_messages=1"
        headers.append((b"location", where.encode()))
    return status, headers, answer


async def post_batch(proxy: Proxy, request: HotRequest, topic_name: str) -> Reply:
    """200 when all are stored, 207 when some failed; when all failed for one cause, its problem."""
    kind = answer_kind(request.header(b"accept"), BASIC)
    topic = await topic_to_send(proxy, topic_name, request)
    body = await request.read_body(BATCH_SIZE_MAX_BYTES, batch_too_large)
    read_query(request.query_string, ())
    messages = read_batch(body, request.header(b"content-type"))
    results = await _send(proxy, request, topic, messages, at="/messages")
    if results.errors:
        error = results.common_error
        if error is not None:
            raise error
    answer = BatchResults(results=results.entries, failed=len(results.errors))
    return reply(207 if results.errors else 200, answer, kind)


async def store_message(
    proxy: Proxy, request: HotRequest, topic: Topic, message: PackedMessage, system: str = ""
) -> tuple[SendReceipt, bool]:
    """Store one message; return its receipt, and whether an earlier send with its idempotency key
    had stored it.

    Raise its refusal. *system*: properties that no producer may set, in the form of a record.
    """
    results = await _send(proxy, request, topic, [message], at="", system=system)
    if results.errors:
        raise results.errors[0]
    return receipt_of(results.entries[0]), bool(results.replayed)


async def _send(
    proxy: Proxy,
    request: HotRequest,
    topic: Topic,
    messages: Sequence[PackedMessage | JsonMessage],
    at: str,
    system: str = "",
) -> SendResults:
    topic.require_writable()
    request.charge_messages(len(messages))
    client = request.scope.get("client")
    results = await store_messages(
        proxy,
        topic,
        messages,
        born_ms=proxy.clock.now_ms(),
        born_host=host_bytes(client[0], client[1]) if client else host_bytes("", 0),
        at=at,
        system=system,
    )
    _count(proxy, results)
    return results


def _count(proxy: Proxy, results: SendResults) -> None:
    counts = proxy.counters.messages
    counts["stored"] += len(results.entries) - len(results.errors) - len(results.replayed)
    if results.replayed:
        counts["replayed"] += len(results.replayed)
    if results.errors:
        counts["send_failed"] += len(results.errors)
        if results.common_error is None:
            # A common error is the answer, and counted there.
            proxy.counters.count_refused(results.errors.values())
