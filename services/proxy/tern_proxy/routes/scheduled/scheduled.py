"""Handlers for scheduled messages, which wait for their delivery time: listed, recalled."""

import asyncio

from tern_proxy.core.documents.scheduled import ScheduledMessages
from tern_proxy.core.scheduled import GroupPage, after_in, put_together, read_cursor, write_cursor
from tern_proxy.core.sending.parameters import TIME_MAX_MS, number_of, time_of
from tern_proxy.routes.call import Call
from tern_wire.errors import InvalidField
from tern_wire.limits import SCHEDULED_LISTED_MAX
from tern_wire.link.scheduled import ListScheduled, Recall

LISTED_DEFAULT = 100


async def get_scheduled(call: Call, topic: str) -> ScheduledMessages:
    """List scheduled messages in order of delivery, without bodies; `from` and `to` bound the
    delivery time.

    `next_cursor` continues the list; without it the list is complete.
    """
    query = call.query
    limit = number_of(query.get("limit", LISTED_DEFAULT), "limit", 1, SCHEDULED_LISTED_MAX)
    begin_ms = time_of(query["from"], "query/from") if "from" in query else 0
    end_ms = time_of(query["to"], "query/to") if "to" in query else TIME_MAX_MS
    if begin_ms > end_ms:
        raise InvalidField(reason="'from' is later than 'to'", pointer="query/from")
    place = read_cursor(query["cursor"]) if query.get("cursor") else None

    async def ask(name: str) -> GroupPage:
        after = after_in(name, place)
        asked = ListScheduled(topic=topic, begin_ms=begin_ms, end_ms=end_ms, count=limit, after=after)
        listed, _ = await call.proxy.group(name).link.ask(asked, is_repeatable=True)
        return GroupPage(broker_group=name, rows=listed.messages, next=listed.next)

    found = await call.proxy.topic(topic)
    pages = await asyncio.gather(*(ask(name) for name in found.broker_groups))
    messages, behind = put_together(pages, limit, call.proxy.recall_maker(topic))
    page = ScheduledMessages(topic=topic, messages=messages)
    if behind is not None:
        page.next_cursor = write_cursor(behind)
    return page


async def delete_scheduled(call: Call, topic: str, recall_handle: str) -> None:
    """Recall a message that still waits: it will not be delivered. 409 already-delivered when it is
    too late.

    404 not-scheduled when it was recalled before, so this is the answer to a repeat after a lost
    answer.
    """
    await call.proxy.topic(topic)
    recall = call.proxy.recall_maker(topic).read(recall_handle)
    asked = Recall(topic=topic, deliver_ms=recall.deliver_ms, timer_id=recall.timer_id)
    await call.proxy.group(recall.broker_group).link.ask(asked, is_repeatable=False)
