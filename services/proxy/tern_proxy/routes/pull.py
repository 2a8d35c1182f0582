"""GET messages of one queue by offset: for readers that keep their own place, in documents or as raw records."""

import asyncio
from typing import Any

from tern_proxy.core.delivery import read_records
from tern_proxy.core.parameters import PULLED, answer_kind, number_of, read_query_once, wait_of
from tern_proxy.core.topic import Queue, Topic
from tern_proxy.exchange import CONTENT_TYPES, HotRequest, RawHeaders, Reply, encode
from tern_proxy.proxy import Proxy
from tern_proxy.routes.receive import put_body_of
from tern_wire.codec import encode_json
from tern_wire.errors import InvalidField
from tern_wire.limits import PULL_MESSAGES_MAX, RECEIVE_SIZE_DEFAULT_BYTES, RECEIVE_SIZE_MAX_BYTES
from tern_wire.paths import (
    HEADER_MAX_OFFSET,
    HEADER_MIN_OFFSET,
    HEADER_NEXT_OFFSET,
    NDJSON,
    RECORDS,
    pull_path,
)
from tern_wire.requests import RequestCode, body_parts

_PARAMETERS = ("offset", "end_offset", "max_messages", "max_bytes", "wait", "encoding")
# Pulls have no notification in this release; a waiting one looks this often.
LOOK_INTERVAL_S = 0.1
MESSAGES_DEFAULT = 256
_OFFSET_MAX = (1 << 63) - 1
_NEXT, _MIN, _MAX = (name.lower().encode() for name in (HEADER_NEXT_OFFSET, HEADER_MIN_OFFSET, HEADER_MAX_OFFSET))


async def get_messages(proxy: Proxy, request: HotRequest, topic_name: str, queue_name: str) -> Reply:
    """200 with messages (perhaps none) from `offset` on; 410 when `offset` is below the oldest message kept."""
    kind = answer_kind(request.header(b"accept"), PULLED)
    query = read_query_once(request.query_string, _PARAMETERS)
    topic = await proxy.topic(topic_name)
    queue = topic.pinned(queue_name)
    if kind == RECORDS and "encoding" in query:
        raise InvalidField(reason=f"'encoding' has no meaning for {kind}", pointer="query/encoding")
    put_body = put_body_of(query, kind)
    wait_ms = wait_of(query.get("wait", 0))
    messages_max = number_of(query.get("max_messages", MESSAGES_DEFAULT), "max_messages", 1, PULL_MESSAGES_MAX)
    bytes_max = number_of(query.get("max_bytes", RECEIVE_SIZE_DEFAULT_BYTES), "max_bytes", 1, RECEIVE_SIZE_MAX_BYTES)
    end_offset = number_of(query["end_offset"], "end_offset", 0, _OFFSET_MAX) if "end_offset" in query else -1
    asked = {
        "topic": topic.name,
        "queue": queue.number,
        "offset": await _offset_of(proxy, topic, queue, query.get("offset", "earliest")),
        "end_offset": end_offset,
        "max_messages": messages_max,
        "max_bytes": bytes_max,
    }
    head, raw = await _pull(proxy, queue, asked, wait_ms)
    headers = _headers(kind, head, topic, queue)
    if kind == RECORDS:
        return 200, headers, bytes(raw)
    messages = list(read_records(bytes(raw), topic.name, queue.broker_group, put_body))
    proxy.counters.messages["pulled"] += len(messages)
    if kind == NDJSON:
        return 200, headers, b"".join(encode_json(message) + b"\n" for message in messages)
    document = {"messages": messages, **{name: head[name] for name in ("next_offset", "min_offset", "max_offset")}}
    return 200, headers, encode(document, kind)


async def _offset_of(proxy: Proxy, topic: Topic, queue: Queue, text: str) -> int:
    if text not in {"earliest", "latest"}:
        return number_of(text, "offset", 0, _OFFSET_MAX)
    for number, least, most in await queue_offsets(proxy, topic, queue.broker_group):
        if number == queue.number:
            return least if text == "earliest" else most
    return 0  # a queue that the broker group has yet to hear of holds nothing


async def queue_offsets(proxy: Proxy, topic: Topic, broker_group: str) -> list[tuple[int, int, int]]:
    """(queue, min offset, max offset) of the topic's queues in one broker group."""
    head, _ = await proxy.group(broker_group).link.request(
        RequestCode.OFFSETS, body_parts({"topic": topic.name}), is_repeatable=True
    )
    return [(int(queue), int(least), int(most)) for queue, least, most in head.get("queues", ())]


async def _pull(proxy: Proxy, queue: Queue, asked: dict[str, Any], wait_ms: int) -> tuple[dict[str, Any], memoryview]:
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_ms / 1_000
    link = proxy.group(queue.broker_group).link
    while True:
        head, raw = await link.request(RequestCode.PULL, body_parts(asked), is_repeatable=True)
        left_s = until - loop.time()
        at_end = -1 < asked["end_offset"] <= asked["offset"]
        if len(raw) or left_s <= 0 or at_end or proxy.is_stopping:
            return head, raw
        await asyncio.sleep(min(left_s, LOOK_INTERVAL_S))


def _headers(kind: str, head: dict[str, Any], topic: Topic, queue: Queue) -> RawHeaders:
    next_offset = int(head["next_offset"])
    link = f'<{pull_path(topic.name, queue.name)}?offset={next_offset}>; rel="next"'
    return [
        CONTENT_TYPES[kind],
        (_NEXT, b"%d" % next_offset),
        (_MIN, b"%d" % int(head["min_offset"])),
        (_MAX, b"%d" % int(head["max_offset"])),
        (b"link", link.encode()),
    ]
