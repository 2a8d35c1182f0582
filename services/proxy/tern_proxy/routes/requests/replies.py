"""POST requests, POST replies, GET requests/{correlation id}: messages whose sender waits for a
reply. See tern_wire.replies.

    POST /requests -> the request is stored
                   -> AWAIT_REPLY at the broker group of its address -> 200 with the reply | 504
    POST /replies  -> the reply is stored in the reply topic of that broker group, with or without a
                      waiting requester -> 201
    GET  /requests/{correlation id}
                   -> AWAIT_REPLY at every broker group of the reply topic -> 200 | 404

Law: once a request is stored, its answer says so whatever happens during the wait, unless its
principal has lost the right to the reply. An election, a leader that dies or a proxy that stops
ends the wait, never loses the reply: a later request finds it, here or at another proxy.
"""

import asyncio
from dataclasses import replace
from typing import Any
from zlib import crc32

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.access.namespaces import namespace_in
from tern_proxy.core.reading.delivery import put_bytes, put_fitting, raw_body, raw_headers, read_records
from tern_proxy.core.requesting import (
    Sought,
    asking_path,
    correlation_id_of,
    is_open,
    read_asking,
    read_reply,
    read_request,
    reply_properties,
    request_properties,
)
from tern_proxy.core.sending.parameters import BASIC, answer_kind
from tern_proxy.exchange import HotRequest, Reply, reply
from tern_proxy.proxy import Proxy
from tern_proxy.routes.messages.first_use import own_topic
from tern_proxy.routes.messages.sends import message_too_large, store_message, topic_to_send
from tern_proxy.sending import usable_groups
from tern_wire.errors import (
    BrokerGroupNotFound,
    NoReply,
    Overloaded,
    ReplyTimeout,
    ShuttingDown,
    TernError,
    TopicNotFound,
)
from tern_wire.limits import APPEND_DEADLINE_MS, MESSAGE_BODY_SIZE_MAX_BYTES, REPLY_CLOCKS_SLACK_MS
from tern_wire.paths import HEADER_REPLAYED, JSON, MSGPACK, OCTETS, pull_path
from tern_wire.replies import ReplyAddress

# The reply itself with its metadata in headers; or a document.
ANSWERED = (OCTETS, JSON, MSGPACK)
# As for pulls: a leader that hangs is detected within this time and a request's own.
WAIT_AT_BROKER_MAX_MS = 10_000
# Pause between two requests of which the first failed, doubled each time.
PAUSE_S, PAUSE_MAX_S = 0.05, 1.0
# Extra time for a broker's own answer at the deadline, which is more reliable than this proxy's.
GRACE_S = 0.25
_REPLAYED = (HEADER_REPLAYED.lower().encode(), b"true")
# Record of one reply, and its broker group.
Found = tuple[str, memoryview]


async def post_request(proxy: Proxy, request: HotRequest, topic_name: str) -> Reply:
    """200 with the reply; 504 reply-timeout when none came in time. The request is stored then."""
    kind = answer_kind(request.header(b"accept"), ANSWERED)
    topic = await topic_to_send(proxy, topic_name, request)
    body = await request.read_body(MESSAGE_BODY_SIZE_MAX_BYTES, message_too_large)
    asked = read_request(request.scope["headers"], request.query_string, body)
    if not request.may_wait(proxy.parking):
        raise Overloaded(what="requests that wait for a reply")
    replies = await own_topic(proxy, proxy.reply_topic(namespace_in(request)))
    correlation_id = correlation_id_of(asked, topic.name_bytes, proxy.ids.take())
    client = asked.client or correlation_id
    groups = usable_groups(proxy, tuple(replies.broker_groups))
    kept = admission_of(request).client(client)
    address = ReplyAddress(groups[crc32(kept.encode()) % len(groups)], kept)
    until = asyncio.get_running_loop().time() + asked.timeout_ms / 1_000
    system = request_properties(correlation_id, address, asked.timeout_ms)
    receipt, is_replay = await store_message(proxy, request, topic, asked.message, system)
    # The request is stored: its wait holds no room for requests, and no copy of the body.
    del body, asked
    request.release_body()
    request.release_messages()
    from_ms = max(0, receipt.born_at - REPLY_CLOCKS_SLACK_MS)
    sought = Sought(correlation_id=correlation_id, client=kept, from_ms=from_ms)
    # Another proxy may have chosen another broker group when it stored the request.
    names = tuple(replies.broker_groups) if is_replay else (address.broker_group,)
    found, _ = await _Waiting(proxy, request, sought, until).find(names)
    if found is None:
        raise ReplyTimeout(
            correlation_id=correlation_id,
            client=client,
            topic=topic.name,
            message_id=receipt.message_id,
            queue=receipt.queue,
            offset=receipt.offset,
            ask_again=asking_path(topic.name, correlation_id, client),
        )
    return _answered(proxy, namespace_in(request), found, kind)


async def get_reply(proxy: Proxy, request: HotRequest, topic_name: str, correlation_id: str) -> Reply:
    """200 with the reply to a request that was stored before, 404 no-reply when none came within
    `wait`.
    """
    kind = answer_kind(request.header(b"accept"), ANSWERED)
    asked, wait_ms = read_asking(request.query_string, correlation_id)
    sought = replace(asked, client=admission_of(request).client(asked.client))
    await proxy.topic(topic_name)
    if wait_ms and not request.may_wait(proxy.parking):
        raise Overloaded(what="requests that wait for a reply")
    try:
        names = tuple((await proxy.topic(proxy.reply_topic(namespace_in(request)))).broker_groups)
    except TopicNotFound:
        # No request exists in this cluster; or another proxy has just stored one, and the brokers
        # have it.
        names = tuple(proxy.groups)
    until = asyncio.get_running_loop().time() + wait_ms / 1_000
    found, trouble = await _Waiting(proxy, request, sought, until).find(names)
    if found is None:
        if proxy.is_stopping:
            # The wait was cut short, so the outcome is unknown.
            raise ShuttingDown()
        if trouble is not None and not isinstance(trouble, TopicNotFound):
            raise trouble
        raise NoReply(correlation_id=correlation_id, client=asked.client)
    return _answered(proxy, namespace_in(request), found, kind)


async def post_reply(proxy: Proxy, request: HotRequest, topic_name: str) -> Reply:
    """201 with the receipt of the reply; 200 with the first receipt when its idempotency key is
    known.
    """
    kind = answer_kind(request.header(b"accept"), BASIC)
    await proxy.topic(topic_name)
    body = await request.read_body(MESSAGE_BODY_SIZE_MAX_BYTES, message_too_large)
    answer = read_reply(request.scope["headers"], request.query_string, body)
    replies = await own_topic(proxy, proxy.reply_topic(namespace_in(request)))
    queues = replies.broker_groups.get(answer.address.broker_group)
    if queues is None:
        raise BrokerGroupNotFound(
            broker_group=answer.address.broker_group, known=", ".join(replies.broker_groups) or "none"
        )
    # One queue for each client, so that a reader of that queue gets its replies in order.
    answer.message.queue = queues[crc32(answer.address.client.encode()) % len(queues)].name
    receipt, is_replay = await store_message(proxy, request, replies, answer.message, reply_properties(answer))
    status, headers, document = reply(200 if is_replay else 201, receipt, kind)
    where = f"{pull_path(replies.name, receipt.queue)}?offset={receipt.offset}&max_messages=1"
    headers.append(_REPLAYED if is_replay else (b"location", where.encode()))
    return status, headers, document


def _answered(proxy: Proxy, namespace: str, found: Found, kind: str) -> Reply:
    broker_group, raw = found
    put_body = put_fitting if kind == JSON else put_bytes
    (message,) = read_records(bytes(raw), proxy.reply_topic(namespace), broker_group, put_body)
    proxy.counters.messages["replied"] += 1
    if kind != OCTETS:
        return reply(200, message, kind)
    return 200, raw_headers(message), raw_body(message)


class _Waiting:
    """One wait for a reply until *until* (loop time).

    Owner of the end of the wait: a disconnect, the stop of the proxy, the deadline.
    """

    def __init__(self, proxy: Proxy, request: HotRequest, sought: Sought, until: float) -> None:
        self._proxy, self._request, self._sought, self._until = proxy, request, sought, until
        self._replies = proxy.reply_topic(namespace_in(request))
        self._trouble: TernError | None = None

    async def find(self, broker_groups: tuple[str, ...]) -> tuple[Found | None, TernError | None]:
        """Return the first reply of *broker_groups*; without one, the error of a broker group that
        failed.
        """
        loop = asyncio.get_running_loop()
        # A request without a wait gives a broker the time to answer once.
        end = self._until + GRACE_S if self._until > loop.time() else loop.time() + APPEND_DEADLINE_MS / 1_000
        with self._request.interrupt() as gone:
            poll = self._proxy.parking.enter(end, gone)
            asking = {asyncio.ensure_future(self._ask_until(name)) for name in broker_groups}
            pending: set[asyncio.Future[Any]] = {poll.future, *asking}
            try:
                while asking & pending:
                    done, pending = await asyncio.wait(
                        pending, timeout=max(0.0, end - loop.time()), return_when=asyncio.FIRST_COMPLETED
                    )
                    gone.check()
                    for task in asking & done:
                        if (found := task.result()) is not None:
                            return found, None
                    if not done or poll.future in done:
                        # The deadline, or the proxy stops: another proxy can return the reply
                        # later.
                        break
            finally:
                self._proxy.parking.leave(poll)
                for task in asking:
                    task.cancel()
        return None, self._trouble

    async def _ask_until(self, broker_group: str) -> Found | None:
        loop = asyncio.get_running_loop()
        is_first, pause_s = True, PAUSE_S
        while is_first or loop.time() < self._until:
            is_first = False
            left_ms = max(0, int((self._until - loop.time()) * 1_000))
            try:
                found = await self._ask(broker_group, min(left_ms, WAIT_AT_BROKER_MAX_MS))
                self._trouble, pause_s = None, PAUSE_S
            except TernError as error:
                self._trouble = error
                if not is_open(error) or loop.time() >= self._until:
                    break
                # An election, a busy broker, or a deleted reply topic: repeated until the deadline.
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
                if isinstance(error, TopicNotFound):
                    self._proxy.cache.refresh_soon()
                continue
            if found is not None:
                return broker_group, found
        return None

    async def _ask(self, broker_group: str, wait_ms: int) -> memoryview | None:
        answer, raw = await self._proxy.group(broker_group).link.ask(
            self._sought.question(self._replies, broker_group, wait_ms),
            is_repeatable=True,
            deadline_ms=APPEND_DEADLINE_MS + wait_ms,
            is_prompt=not wait_ms,
        )
        return raw if answer.found else None
