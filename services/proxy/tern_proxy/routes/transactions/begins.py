"""Begins of transactions with one message or several. A hot route.

    begin -> half messages as one parcel in the ordinary send lane of a broker group that has all
             topics -> 201 with the transaction's id

A begin without an idempotency key is sent once, like any send.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.access.namespaces import namespace_in, whole_group, whole_topic
from tern_proxy.core.documents.transactions import (
    BegunTransaction,
    BegunTransactions,
    JsonTopicMessage,
    PackedTopicMessage,
)
from tern_proxy.core.sending.parameters import BASIC, answer_kind, read_query
from tern_proxy.core.sending.results import Outcome, find_missing_topic
from tern_proxy.core.sending.results import moved_from as moved_of
from tern_proxy.core.transactions.begin_requests import read_begin, read_begin_document, read_key
from tern_proxy.core.transactions.begins import (
    Begin,
    Encoded,
    HalfMessage,
    broker_group_of_key,
    broker_group_of_turn,
    common_broker_groups,
    encode_begin,
)
from tern_proxy.core.transactions.documents import begun_document
from tern_proxy.exchange import HotRequest, Reply, reply
from tern_proxy.proxy import Proxy
from tern_proxy.routes.messages.first_use import create_producer_group
from tern_proxy.routes.messages.sends import REPLAYED, batch_too_large, message_too_large, topic_to_send
from tern_proxy.routes.transactions.owners import remember_owner
from tern_proxy.sending import NEWS_INTERVAL_S, usable_groups
from tern_wire.errors import OwnerUnknown, PlacementChanged, ProducerGroupNotFound
from tern_wire.limits import BATCH_SIZE_MAX_BYTES, MESSAGE_BODY_SIZE_MAX_BYTES, PLACEMENT_NEWS_MS
from tern_wire.paths import transaction_path
from tern_wire.principals.principals import PRODUCER_GROUP, PUB, TOPIC, TXN
from tern_wire.records.hosts import host_bytes


async def post_begin(proxy: Proxy, request: HotRequest, topic_name: str) -> Reply:
    """201 with the transaction; 200 with the first one when the idempotency key is known."""
    kind = answer_kind(request.header(b"accept"), BASIC)
    topic = await topic_to_send(proxy, topic_name, request)
    body = await request.read_body(MESSAGE_BODY_SIZE_MAX_BYTES, message_too_large)
    message, producer_group, check_after_ms = read_begin(request.scope["headers"], request.query_string, body)
    halves = (HalfMessage(topic=topic, message=message, at=""),)
    begin = Begin(
        producer_group=whole_group(request, producer_group),
        check_after_ms=check_after_ms,
        key=message.idempotency_key,
        halves=halves,
    )
    return await _begin(proxy, request, begin, kind)


async def post_begin_several(proxy: Proxy, request: HotRequest) -> Reply:
    """Begin a transaction of several messages, also in several topics: all become visible together,
    or none.
    """
    kind = answer_kind(request.header(b"accept"), BASIC)
    body = await request.read_body(BATCH_SIZE_MAX_BYTES, batch_too_large)
    read_query(request.query_string, ())
    messages, producer_group, check_after_ms = read_begin_document(body, request.header(b"content-type"))
    key = read_key(request.fields, messages)
    halves = await _halves(proxy, request, messages)
    begin = Begin(
        producer_group=whole_group(request, producer_group), check_after_ms=check_after_ms, key=key, halves=halves
    )
    return await _begin(proxy, request, begin, kind)


async def _halves(
    proxy: Proxy,
    request: HotRequest,
    messages: Sequence[PackedTopicMessage | JsonTopicMessage],
) -> tuple[HalfMessage, ...]:
    names = {each.topic: whole_topic(request, each.topic) for each in messages}
    for name in names.values():
        admission_of(request).require(PUB, TOPIC, name)
    topics = {own: await topic_to_send(proxy, name, request) for own, name in names.items()}
    return tuple(
        HalfMessage(topic=topics[message.topic], message=message, at=f"/messages/{number}")
        for number, message in enumerate(messages)
    )


async def _begin(proxy: Proxy, request: HotRequest, begin: Begin, kind: str) -> Reply:
    admission_of(request).require(TXN, PRODUCER_GROUP, begin.producer_group)
    for topic in {half.topic.name: half.topic for half in begin.halves}.values():
        topic.require_writable()
    request.charge_messages(len(begin.halves))
    try:
        document, is_replay = await _prepare(proxy, request, begin)
    except ProducerGroupNotFound as unknown:
        # Nothing was stored, so a second attempt does not store twice.
        await create_producer_group(proxy, begin.producer_group, unknown, request)
        document, is_replay = await _prepare(proxy, request, begin)
    status, headers, body = reply(200 if is_replay else 201, document, kind)
    headers.append(REPLAYED if is_replay else (b"location", transaction_path(document.transaction_id).encode()))
    return status, headers, body


async def _prepare(
    proxy: Proxy, request: HotRequest, begin: Begin
) -> tuple[BegunTransaction | BegunTransactions, bool]:
    born_ms = proxy.clock.now_ms()
    encoded, outcome = await _send_where_it_belongs(proxy, request, begin, born_ms)
    principal = admission_of(request).number
    document, is_replay = begun_document(
        begin, encoded, outcome, born_ms, proxy.transaction_ids(namespace_in(request)), principal
    )
    remember_owner(proxy, encoded.parcel.broker_group, outcome.producer_group[0], begin.producer_group)
    proxy.counters.messages["replayed" if is_replay else "prepared"] += len(begin.halves)
    return document, is_replay


async def _send_where_it_belongs(
    proxy: Proxy, request: HotRequest, begin: Begin, born_ms: int
) -> tuple[Encoded, Outcome]:
    """Send the begin, and forward it where its topic is moving (as sending.py does).

    Return the final outcome. The outcome is MOVED only after the waiting time.
    """
    moved_from, seen = "", set[str]()
    until = asyncio.get_running_loop().time() + PLACEMENT_NEWS_MS / 1_000
    while True:
        try:
            if moved_from in seen:
                # The begin went in a circle: one of the broker groups, or this proxy, is not yet up
                # to date.
                raise PlacementChanged(topic=begin.halves[0].topic.name)
            encoded, outcome = await _send(proxy, request, begin, born_ms, moved_from)
        except (OwnerUnknown, PlacementChanged):
            if asyncio.get_running_loop().time() > until:
                raise
            await proxy.cache.refresh()
            await asyncio.sleep(NEWS_INTERVAL_S)
            seen.clear()
            asked, begin = begin, _with_newest_topics(proxy, begin)
            if [half.topic.placement for half in begin.halves] != [half.topic.placement for half in asked.halves]:
                # The MOVED answer refers to another placement.
                moved_from = ""
            continue
        if not moved_of([encoded.parcel], [outcome]) or asyncio.get_running_loop().time() > until:
            return encoded, outcome
        seen |= {moved_from} - {""}
        moved_from = encoded.parcel.broker_group


async def _send(
    proxy: Proxy, request: HotRequest, begin: Begin, born_ms: int, moved_from: str
) -> tuple[Encoded, Outcome]:
    names, is_pinned = common_broker_groups(begin.halves), False
    wiped = proxy.cache.wiped
    if begin.key:
        broker_group, is_pinned = broker_group_of_key(begin, names, moved_from)
        if not is_pinned and begin.halves[0].topic.asks_first(broker_group):
            wiped = wiped - {broker_group}
    else:
        broker_group = broker_group_of_turn(begin.halves[0].topic.turn, usable_groups(proxy, names))
    client = request.scope.get("client")
    encoded = encode_begin(
        begin,
        broker_group,
        ids=proxy.ids,
        born_ms=born_ms,
        born_host=host_bytes(client[0], client[1]) if client else host_bytes("", 0),
        wiped=wiped,
        is_pinned=is_pinned,
    )
    outcome: Outcome = await proxy.group(broker_group).sends.submit(encoded.parcel)
    if find_missing_topic([encoded.parcel], [outcome]):
        proxy.cache.refresh_soon()
    return encoded, outcome


def _with_newest_topics(proxy: Proxy, begin: Begin) -> Begin:
    topics = proxy.cache.topics
    return replace(
        begin,
        halves=tuple(replace(half, topic=topics.get(half.topic.name, half.topic)) for half in begin.halves),
    )
