"""Handlers for messages by id and by key, and for the trace of one message through the consumer
groups.

All broker groups of the topic are asked, since only the index of each has its keys. Every answer is
bounded: `truncated` means that a broker stopped before the end, and `next_cursor` continues from
there.
"""

import asyncio

from msgspec.structs import replace

from tern_proxy.core.documents.queries import FoundMessage, FoundMessages, MessageTrace
from tern_proxy.core.reading.delivery import PutBody, put_size, read_records
from tern_proxy.core.reading.searching import (
    FoundPage,
    Place,
    found_message,
    group_trace,
    message_trace,
    put_together,
    read_cursor,
    write_cursor,
)
from tern_proxy.core.sending.parameters import TIME_MAX_MS, number_of, time_of
from tern_proxy.core.sending.topic import Topic
from tern_proxy.routes.call import Call
from tern_proxy.routes.fan_out import ask_each
from tern_proxy.routes.messages.bodies import put_body_of
from tern_wire.errors import InvalidField, MessageNotFound
from tern_wire.limits import PROPERTIES_SIZE_MAX_BYTES, QUERY_MESSAGES_MAX
from tern_wire.link.queries import FindMessages, TraceMessage
from tern_wire.principals.principals import DESCRIBE, GROUP, TOPIC

MESSAGES_DEFAULT = 32
MESSAGE_ID_LENGTH_MAX = 128
# Pages to search for a message id that many other messages have as a key.
PAGES_MAX = 16


async def get_messages(call: Call, topic: str) -> FoundMessages:
    """List messages with a key, newest first: `key` is the whole key, compared exactly; a message's
    id is also a key.

    `from` and `to` bound the time at which it was stored. A message without `offset` is not
    visible: its delivery time has not come, or its place in the queue is gone.
    """
    query, key = call.query, call.needed("key")
    put_body = put_body_of(query, call.form)
    if len(key.encode()) > PROPERTIES_SIZE_MAX_BYTES:
        raise InvalidField(reason="No message has so long a key", pointer="query/key")
    limit = number_of(query.get("limit", MESSAGES_DEFAULT), "limit", 1, QUERY_MESSAGES_MAX)
    begin_ms = time_of(query["from"], "query/from") if "from" in query else 0
    end_ms = time_of(query["to"], "query/to") if "to" in query else TIME_MAX_MS
    if begin_ms > end_ms:
        raise InvalidField(reason="'from' is later than 'to'", pointer="query/from")
    found = await call.proxy.topic(topic)
    after: dict[str, Place | None] = dict.fromkeys(found.broker_groups)
    if query.get("cursor"):
        after = {name: place for name, place in read_cursor(query["cursor"]).items() if name in after}
    asked = FindMessages(topic=topic, key=key, begin_ms=begin_ms, end_ms=end_ms, count=limit)
    pages = await _find(call, found, asked, after, put_body)
    messages, cursor = put_together(pages, limit)
    page = FoundMessages(messages=messages, truncated=any(page.truncated for page in pages.values()))
    if cursor:
        page.next_cursor = write_cursor(cursor)
    return page


async def get_message(call: Call, topic: str, message_id: str) -> FoundMessage:
    """Return one message by its id; 404 message-not-found."""
    put_body = put_body_of(call.query, call.form)
    found = await call.proxy.topic(topic)
    _check_id(message_id)
    after: dict[str, Place | None] = dict.fromkeys(found.broker_groups)
    asked = FindMessages(topic=topic, key=message_id, begin_ms=0, end_ms=TIME_MAX_MS, count=QUERY_MESSAGES_MAX)
    for _ in range(PAGES_MAX):
        pages = await _find(call, found, asked, after, put_body)
        for page in pages.values():
            for message, _place in page.messages:
                if message.message_id == message_id:
                    return message
        after = {name: page.next for name, page in pages.items() if page.next is not None}
        if not after:
            break
    raise MessageNotFound(topic=topic, message_id=message_id)


async def get_trace(call: Call, message_id: str) -> MessageTrace:
    """Return the place of the message in `?topic=`, and its state in each consumer group that has
    begun to read the topic.

    `state`: waiting (never received), leased (until `until`), resting (after a failed attempt,
    until `until`), returned (receivable again), blocked (behind another one of its message group),
    dying, dead-lettered, settled (acked, or skipped by the group's start or a seek), not-begun.
    """
    name = call.needed("topic")
    _check_id(message_id)
    name = call.topic(name)
    call.admission.require(DESCRIBE, TOPIC, name)
    topic = await call.proxy.topic(name)
    asked = TraceMessage(topic=topic.name, message_id=message_id)
    for name, traced, raw in await ask_each(call.proxy, topic, asked):
        if not traced.found:
            continue
        (message,) = read_records(bytes(raw), topic.name, name, put_size)
        groups = [group_trace(group) for group in traced.groups if call.admission.sees(GROUP, group.group)]
        return message_trace(message, traced.visible_ms, groups)
    raise MessageNotFound(topic=topic.name, message_id=message_id)


async def _find(
    call: Call, topic: Topic, asked: FindMessages, after: dict[str, Place | None], put_body: PutBody
) -> dict[str, FoundPage]:
    """Return one page of every broker group in *after*."""

    async def ask(name: str, place: Place | None) -> FoundPage:
        behind = (place[0], place[1]) if place is not None else None
        found, raw = await call.proxy.group(name).link.ask(replace(asked, after=behind), is_repeatable=True)
        messages = [found_message(message) for message in read_records(bytes(raw), topic.name, name, put_body)]
        return FoundPage(
            after=place,
            messages=list(zip(messages, map(list, found.places), strict=True)),
            next=list(found.next) if found.next is not None else None,
            truncated=found.truncated,
        )

    answers = await asyncio.gather(*(ask(name, place) for name, place in after.items()))
    return dict(zip(after, answers, strict=True))


def _check_id(message_id: str) -> None:
    if len(message_id) > MESSAGE_ID_LENGTH_MAX or not message_id.isprintable():
        raise InvalidField(
            reason=f"A message id has at most {MESSAGE_ID_LENGTH_MAX} characters", pointer="path/message_id"
        )
