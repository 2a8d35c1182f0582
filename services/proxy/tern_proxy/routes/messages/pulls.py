"""GET messages of one queue by offset, for readers that keep their own position, as documents or
raw records.

A pull waits at the queue's broker, in requests of up to WAIT_AT_BROKER_MAX_MS each, without
polling.
"""

import asyncio
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import replace

from tern_proxy.access.authorization import admission_of
from tern_proxy.brokers.follower_reads import pull_old
from tern_proxy.core.documents.messages import Message
from tern_proxy.core.documents.messages import Pulled as PulledMessages
from tern_proxy.core.reading.delivery import read_records
from tern_proxy.core.reading.ranges import CACHE_CONTROL, is_known, range_tag
from tern_proxy.core.sending.parameters import PULLED, answer_kind, number_of, read_query_once, time_of, wait_of
from tern_proxy.core.sending.topic import Queue, Topic
from tern_proxy.exchange import CONTENT_TYPES, HotRequest, RawHeaders, Reply, encode, encode_lines
from tern_proxy.proxy import Proxy
from tern_proxy.routes.messages.bodies import put_body_of
from tern_wire.errors import InvalidField, TernError
from tern_wire.filters import compile_filter
from tern_wire.limits import (
    APPEND_DEADLINE_MS,
    KIB,
    PULL_MESSAGES_MAX,
    RECEIVE_SIZE_DEFAULT_BYTES,
    RECEIVE_SIZE_MAX_BYTES,
)
from tern_wire.link.pulls import ListOffsets, Pull, Pulled
from tern_wire.paths import (
    HEADER_MAX_OFFSET,
    HEADER_MIN_OFFSET,
    HEADER_NEXT_OFFSET,
    HEADER_WAIT_APPLIED,
    NDJSON,
    RECORDS,
    pull_path,
)
from tern_wire.records.columns import heads_of

_PARAMETERS = ("offset", "end_offset", "max_messages", "max_bytes", "wait", "tags", "sql", "encoding", "fields")
# The one choice of `fields`, for records, and the type of its answer.
_HEADS = "heads"
_HEADS_TYPE = (b"content-type", f"{RECORDS}; fields={_HEADS}".encode())
# A leader that hangs is detected within this time and a request's own.
WAIT_AT_BROKER_MAX_MS = 10_000
# Pause between two requests of which the first returned nothing: a broker group in trouble must not
# be asked in a loop.
PAUSE_S = 0.05
MESSAGES_DEFAULT = 256
_OFFSET_MAX = (1 << 63) - 1
# Larger pages have a buffer of their own and are sent from it. A smaller one may lie in a larger
# read of the link, which would stay in memory until a slow client has taken its part.
_VIEW_SIZE_MIN_BYTES = 256 * KIB
# Fields of a pull on which its answer depends, in the order of the ETag that clients have stored.
_ANSWERED_BY = ("topic", "queue", "offset", "end_offset", "max_messages", "max_bytes", "tags", "sql")
_NEXT, _MIN, _MAX = (name.lower().encode() for name in (HEADER_NEXT_OFFSET, HEADER_MIN_OFFSET, HEADER_MAX_OFFSET))
_WAIT_APPLIED = HEADER_WAIT_APPLIED.lower().encode()
Found = tuple[Pulled, memoryview]


async def get_messages(proxy: Proxy, request: HotRequest, topic_name: str, queue_name: str) -> Reply:
    """200 with messages (possibly none) from `offset` on; 410 when `offset` is below the oldest
    kept message.

    304 for a closed range that the client has.
    """
    kind = answer_kind(request.header(b"accept"), PULLED)
    query = read_query_once(request.query_string, _PARAMETERS)
    topic = await proxy.topic(topic_name)
    queue = topic.pinned(queue_name)
    if kind == RECORDS and "encoding" in query:
        raise InvalidField(reason=f"'encoding' has no meaning for {kind}", pointer="query/encoding")
    heads_only = _heads_only(query, kind)
    put_body = put_body_of(query, kind)
    wait_ms = wait_of(query.get("wait", 0))
    wanted = compile_filter(query.get("tags"), query.get("sql"))
    end_offset = number_of(query["end_offset"], "end_offset", 0, _OFFSET_MAX) if "end_offset" in query else -1
    max_messages = number_of(query.get("max_messages", MESSAGES_DEFAULT), "max_messages", 1, PULL_MESSAGES_MAX)
    max_bytes = number_of(query.get("max_bytes", RECEIVE_SIZE_DEFAULT_BYTES), "max_bytes", 1, RECEIVE_SIZE_MAX_BYTES)
    asked = Pull(
        topic=topic.name,
        queue=queue.number,
        reader=admission_of(request).principal,
        offset=await _offset_of(proxy, topic, queue, query.get("offset", "earliest")),
        end_offset=end_offset,
        max_messages=max_messages,
        max_bytes=max_bytes,
        tags=wanted.tags,
        sql=wanted.sql,
        heads_only=heads_only,
    )
    tag = ""
    if asked.end_offset >= 0 and query.get("offset", "").isdecimal():
        topic_id = topic.route[queue.broker_group].topic_id
        answered_by = [(name, getattr(asked, name)) for name in _ANSWERED_BY]
        answered_by += [("fields", _HEADS)] if heads_only else []
        tag = range_tag(topic_id, queue.name, [*answered_by, query.get("encoding")], kind)
        if is_known(request.header(b"if-none-match"), tag):
            return 304, _cached(tag), b""
    pulled, raw, waited = await _Waiting(proxy, request, queue, asked, wait_ms).pull()
    headers = _headers(kind, pulled, topic, queue, query) + waited
    if heads_only:
        headers[0] = _HEADS_TYPE
        if not pulled.heads_only:  # a broker of the release before has sent whole records
            raw = memoryview(heads_of(raw))
    if tag and asked.end_offset <= min(pulled.next_offset, pulled.max_offset):
        headers += _cached(tag)
    if kind == RECORDS:
        return 200, headers, raw if len(raw) >= _VIEW_SIZE_MIN_BYTES else bytes(raw)
    messages: list[Message] = list(read_records(bytes(raw), topic.name, queue.broker_group, put_body))
    proxy.counters.messages["pulled"] += len(messages)
    if kind == NDJSON:
        return 200, headers, encode_lines(messages)
    document = PulledMessages(
        messages=messages,
        next_offset=pulled.next_offset,
        min_offset=pulled.min_offset,
        max_offset=pulled.max_offset,
    )
    return 200, headers, encode(document, kind)


def _heads_only(query: dict[str, str], kind: str) -> bool:
    """Return whether the heads of records are wanted, and nothing else of them."""
    if "fields" not in query:
        return False
    if kind != RECORDS:
        raise InvalidField(reason=f"'fields' has no meaning for {kind}", pointer="query/fields")
    if query["fields"] != _HEADS:
        raise InvalidField(reason=f"'fields' is '{_HEADS}', or is left out", pointer="query/fields")
    return True


async def _offset_of(proxy: Proxy, topic: Topic, queue: Queue, text: str) -> int:
    is_time = text.startswith("@")
    if not is_time and text not in {"earliest", "latest"}:
        return number_of(text, "offset", 0, _OFFSET_MAX)
    time_ms = time_of(text[1:], "query/offset") if is_time else -1
    asked = ListOffsets(topic=topic.name, time_ms=time_ms)
    found, _ = await proxy.group(queue.broker_group).link.ask(asked, is_repeatable=True)
    for number, *offsets in found.queues:
        if number == queue.number:
            return offsets[{"earliest": 0, "latest": 1}.get(text, 2)]
    return 0  # a queue that the broker group does not have yet is empty


class _Waiting:
    """One pull that may wait.

    Owner of the end of the wait: a disconnect, the stop of the proxy, the deadline.
    """

    def __init__(self, proxy: Proxy, request: HotRequest, queue: Queue, asked: Pull, wait_ms: int) -> None:
        self._proxy, self._request, self._asked = proxy, request, asked
        self._queue, self._wait_ms = queue, wait_ms

    async def pull(self) -> tuple[Pulled, memoryview, RawHeaders]:
        """Return the answer, its records, and the header with the granted wait."""
        if not self._wait_ms:
            link = self._proxy.group(self._queue.broker_group).link
            old = await pull_old(self._proxy.follower_reads, link, self._queue, self._asked)
            return *(old or await self._ask(0)), []
        parking = self._proxy.parking
        # Without room the pull does not wait; the header has the granted wait.
        wait_ms = self._wait_ms if self._request.may_wait(parking) else 0
        waited: RawHeaders = [(_WAIT_APPLIED, b"%dms" % wait_ms)]
        until = asyncio.get_running_loop().time() + wait_ms / 1_000
        with self._request.interrupt() as gone:
            poll = parking.enter(until, gone)
            asking: asyncio.Future[Found] = asyncio.ensure_future(self._ask_until(until))
            try:
                ends: set[asyncio.Future[Any]] = {asking, poll.future}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                gone.check()
                if asking.done():
                    return *asking.result(), waited
            finally:
                parking.leave(poll)
                asking.cancel()
        # The proxy stops: return the present messages without a wait.
        return *(await self._ask(0)), waited

    async def _ask_until(self, until: float) -> Found:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            left_ms = max(0, int((until - began) * 1_000))
            try:
                pulled, raw = await self._ask(min(left_ms, WAIT_AT_BROKER_MAX_MS))
            except TernError as error:
                # An election or a busy broker: the pull continues to wait, until its own deadline.
                if not error.retryable or loop.time() + PAUSE_S >= until:
                    raise
                await asyncio.sleep(PAUSE_S)
                continue
            # Messages that the filter dropped are not read again.
            is_idle = self._asked.offset == pulled.next_offset
            self._asked = replace(self._asked, offset=pulled.next_offset)
            if len(raw) or loop.time() >= until or -1 < self._asked.end_offset <= pulled.next_offset:
                return pulled, raw
            if is_idle and loop.time() < began + PAUSE_S:
                await asyncio.sleep(PAUSE_S)

    async def _ask(self, wait_ms: int) -> Found:
        link = self._proxy.group(self._queue.broker_group).link
        pulled, raw = await link.ask(
            replace(self._asked, wait_ms=wait_ms),
            is_repeatable=True,
            deadline_ms=APPEND_DEADLINE_MS + wait_ms,
            is_prompt=not wait_ms,
        )
        self._proxy.follower_reads.suggested(self._asked.topic, self._queue, pulled.suggested_node)
        return pulled, raw


def _cached(tag: str) -> RawHeaders:
    return [(b"etag", tag.encode()), (b"cache-control", CACHE_CONTROL.encode())]


def _headers(kind: str, pulled: Pulled, topic: Topic, queue: Queue, query: dict[str, str]) -> RawHeaders:
    rest = urlencode({name: text for name, text in query.items() if name != "offset"})
    link = f'<{pull_path(topic.name, queue.name)}?offset={pulled.next_offset}{rest and "&" + rest}>; rel="next"'
    return [
        CONTENT_TYPES[kind],
        (_NEXT, b"%d" % pulled.next_offset),
        (_MIN, b"%d" % pulled.min_offset),
        (_MAX, b"%d" % pulled.max_offset),
        (b"link", link.encode()),
    ]
