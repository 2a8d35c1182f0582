"""GET a tail: check what is asked, find where it begins, and hand over to the stream.

Everything that can be refused is refused here, with a status. Behind the head of the answer there
are only events.
"""

import asyncio

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.access.namespaces import namespace_in
from tern_proxy.core.sending.parameters import answer_kind, read_query_once
from tern_proxy.core.sending.topic import Topic
from tern_proxy.core.tailing.asked import EARLIEST, PARAMETERS, TailAsked, read_asked
from tern_proxy.core.tailing.event_ids import GroupPlace
from tern_proxy.core.tailing.events import format_of
from tern_proxy.core.tailing.places import Places
from tern_proxy.exchange import HotRequest, Reply, owner_of
from tern_proxy.proxy import Proxy
from tern_proxy.routes.messages.bodies import put_body_of
from tern_proxy.routes.tails.stream import TailStream
from tern_wire.errors import NoLeader, TernError, TopicNotReadable, WarmingUp
from tern_wire.link.pulls import ListOffsets
from tern_wire.paths import EVENT_STREAM, HEADER_LAST_EVENT_ID, NDJSON
from tern_wire.routing.route import PERM_READ

FORMS = (EVENT_STREAM, NDJSON)
_LAST_EVENT_ID = HEADER_LAST_EVENT_ID.lower().encode()


async def get_tail(proxy: Proxy, request: HotRequest, topic_name: str) -> Reply:
    """200 with the messages of the topic, from its end or a place on, until the client leaves."""
    kind = answer_kind(request.header(b"accept"), FORMS)
    query = read_query_once(request.query_string, PARAMETERS)
    topic = await proxy.topic(topic_name)
    if not topic.perm & PERM_READ:
        raise TopicNotReadable(topic=topic.name)
    put_body = put_body_of(query, kind)
    asked = read_asked(topic.name, query, request.header(_LAST_EVENT_ID), proxy.clock.now_ms())
    owner = owner_of(request.scope)
    proxy.tails.claim(owner)
    try:
        places = await _begin(proxy, topic, asked)
    except BaseException:
        proxy.tails.give_back(owner)
        raise
    request.stream = TailStream(
        proxy,
        request.scope,
        owner,
        topic.name,
        asked,
        places,
        form=format_of(kind),
        put_body=put_body,
        namespace=namespace_in(request),
        interrupt=request.interrupt,
        reader=admission_of(request).principal,
    )
    return 200, [(b"content-type", kind.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")], b""


async def _begin(proxy: Proxy, topic: Topic, asked: TailAsked) -> Places:
    """Return the places in all broker groups.

    With an event id a broker group that is away is left out; its places are known. Raise WarmingUp
    while some broker groups may be unknown, and errors of the broker groups.
    """
    if asked.places is None and not topic.is_whole:
        raise WarmingUp
    places, is_resumed = Places(topic.name), asked.places is not None
    for name, place in (asked.places or {}).items():
        places.begin(name, place)
    groups = {name: proxy.groups[name].link for name in topic.broker_groups if name in proxy.groups}
    if not is_resumed and len(groups) < len(topic.broker_groups):
        raise NoLeader(broker_group=next(name for name in topic.broker_groups if name not in groups))
    wanted = ListOffsets(topic=topic.name, time_ms=-1 if is_resumed else asked.time_ms)
    answers = await asyncio.gather(
        *(link.ask(wanted, is_repeatable=True) for link in groups.values()), return_exceptions=True
    )
    # Oldest, next, and the first one of the time.
    column = 3 if asked.time_ms >= 0 else 1 if asked.start == EARLIEST else 2
    for name, answer in zip(groups, answers, strict=True):
        topic_id = topic.route[name].topic_id
        if isinstance(answer, BaseException):
            if not (is_resumed and isinstance(answer, TernError) and answer.retryable):
                raise answer
            places.keep_to(name, topic_id)
            continue
        rows = sorted(answer[0].queues)
        if is_resumed:
            places.keep_to(name, topic_id)
            places.forget_beyond(name, [row[2] for row in rows])
        else:
            places.begin(name, GroupPlace(topic_id, tuple(row[column] for row in rows)))
        places.learn(name, [(row[0], row[2]) for row in rows])
    return places
