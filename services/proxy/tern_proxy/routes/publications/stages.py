"""Handler of staged chunks, a hot route.

    chunk -> records, all in the home of the query -> parts of at most LANE_SIZE_MAX_BYTES -> staged

Law: the answer is 200 only when every part is durable. A repeat of a chunk stages what is missing.
"""

import asyncio

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.access.namespaces import namespace_in
from tern_proxy.core.documents.publications import StagedChunk
from tern_proxy.core.publications import (
    accepts_lost_history,
    life_of,
    parts_of,
    place_of,
    query_in,
    refuse_keys,
    stage_requests,
)
from tern_proxy.core.sending.batches import read_batch
from tern_proxy.core.sending.encoding import encode_messages
from tern_proxy.core.sending.parameters import BASIC, answer_kind, read_query_once
from tern_proxy.exchange import HotRequest, Reply, reply
from tern_proxy.proxy import Proxy
from tern_proxy.routes.messages.sends import batch_too_large, topic_to_send
from tern_proxy.routes.publications.homes import ask_home, home_of
from tern_wire.limits import BATCH_SIZE_MAX_BYTES
from tern_wire.records.hosts import host_bytes

PARAMETERS = ("accept_lost_history", "life")


async def put_chunk(
    proxy: Proxy,
    request: HotRequest,
    topic_name: str,
    query_name: str,
    *numbers: str,
) -> Reply:
    """200 when the chunk is staged, by this request or an earlier one. *numbers*: batch, partition,
    attempt and chunk.
    """
    kind = answer_kind(request.header(b"accept"), BASIC)
    place = place_of(*numbers)
    query = query_in(namespace_in(request), query_name)
    topic = await topic_to_send(proxy, topic_name, request)
    body = await request.read_body(BATCH_SIZE_MAX_BYTES, batch_too_large)
    fields = read_query_once(request.query_string, PARAMETERS)
    life_ms, accepts_lost = life_of(fields), accepts_lost_history(fields)
    messages = read_batch(body, request.header(b"content-type"))
    refuse_keys(messages)
    topic.require_writable()
    request.charge_messages(len(messages))
    home = await home_of(proxy, query, [topic])
    client = request.scope.get("client")
    encoded = encode_messages(
        topic,
        messages,
        ids=proxy.ids,
        born_ms=proxy.clock.now_ms(),
        born_host=host_bytes(client[0], client[1]) if client else host_bytes("", 0),
        usable=(home,) if home in topic.broker_groups else tuple(topic.broker_groups),
        wiped=proxy.cache.wiped,
    )
    parcels = parts_of(encoded, topic.name, query, home)
    requests = stage_requests(
        parcels, query, place, owner=admission_of(request).principal, life_ms=life_ms, accepts_lost=accepts_lost
    )
    answers = await asyncio.gather(
        *(ask_home(proxy, query, home, asked, raw) for asked, raw in requests), return_exceptions=True
    )
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    staged = [answer for answer in answers if not isinstance(answer, BaseException)]
    batch, partition, attempt, chunk = place
    document = StagedChunk(
        query=query,
        batch=batch,
        partition=partition,
        attempt=attempt,
        chunk=chunk,
        rows=sum(each.rows for each in staged),
        replayed=all(each.is_replay for each in staged),
        broker_group=home,
    )
    proxy.counters.messages["staged"] += sum(each.rows for each in staged if not each.is_replay)
    return reply(200, document, kind)
