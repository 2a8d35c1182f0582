"""Handlers of publications: publish a batch, give one up, describe a query, list all."""

from collections.abc import Sequence

from tern_proxy.access.authorization import Admission, admission_of
from tern_proxy.core.access.namespaces import namespace_in, whole_topic
from tern_proxy.core.documents.publications import (
    AbandonedBatch,
    PublicationDescription,
    Publications,
    PublishedBatch,
    PublishRequest,
)
from tern_proxy.core.publications import batch_of, check_publication, described, listed, query_in
from tern_proxy.core.sending.parameters import BASIC, answer_kind, is_packed, read_query_once
from tern_proxy.exchange import HotRequest, Reply, reply
from tern_proxy.proxy import Proxy
from tern_proxy.routes.call import Call
from tern_proxy.routes.fan_out import ask_all
from tern_proxy.routes.publications.homes import ask_home, find_home, home_of
from tern_wire.errors import Forbidden, MessageTooLarge, PublicationNotFound, TernError, TopicNotFound
from tern_wire.limits import JSON_BATCH_NODES_MAX
from tern_wire.limits_publications import PUBLICATION_BODY_SIZE_MAX_BYTES
from tern_wire.link import publications as link
from tern_wire.link.codec import read_json, read_msgpack
from tern_wire.names import is_of
from tern_wire.principals.principals import ADMIN, CLUSTER, DESCRIBE, DESCRIBING, PUB, TOPIC


async def post_publication(proxy: Proxy, request: HotRequest, query: str, batch: str) -> Reply:
    """Publish a batch: all messages of the announced stages become visible at once, and every other
    stage of the query up to this batch is dropped.

    A repeat, or a batch before the last one, answers the last publication and does nothing. A batch
    without stages is published, too. 409 `stage-unknown`: a stage has other rows than announced,
    and nothing is done.
    """
    kind = answer_kind(request.header(b"accept"), BASIC)
    read_query_once(request.query_string, ())
    body = await request.read_body(PUBLICATION_BODY_SIZE_MAX_BYTES, _too_large)
    is_msgpack = is_packed(request.header(b"content-type"))
    asked = (
        read_msgpack(body, PublishRequest)
        if is_msgpack and body
        else read_json(body or b"{}", PublishRequest, nodes_max=JSON_BATCH_NODES_MAX)
    )
    check_publication(asked)
    admission = admission_of(request)
    number, name = batch_of(batch), query_in(namespace_in(request), query)
    _require_some(admission, name)
    names = [whole_topic(request, each) for each in asked.topics]
    _require_topics(admission, name, names)
    home = await home_of(proxy, name, [await proxy.topic(each) for each in names])
    for row in (await ask_home(proxy, name, home, link.ListPublications(query=name))).publications:
        _require_own(admission, row)
    told = await ask_home(
        proxy,
        name,
        home,
        link.Publish(
            query=name,
            owner=admission.principal,
            batch=number,
            stages=[link.StageRows(stage.partition, stage.attempt, stage.rows) for stage in asked.stages],
            is_final=asked.final,
            accepts_lost_history=asked.accept_lost_history,
        ),
    )
    document = PublishedBatch(
        query=name,
        batch=told.batch,
        rows=told.rows,
        published_at=told.published_ms,
        replayed=told.is_replay,
        broker_group=home,
    )
    if not told.is_replay:
        proxy.counters.messages["published"] += told.rows
    return reply(200, document, kind)


async def delete_batch(call: Call, query: str, batch: str) -> AbandonedBatch:
    """Give a batch up: its stages are dropped, if it is not published. Repeatable.

    Of another principal's query: with ADMIN of the cluster.
    """
    number, name = batch_of(batch), query_in(call.namespace, query)
    is_operator = call.admission.may(ADMIN, CLUSTER, "")
    if not is_operator:
        _require_some(call.admission, name)
    home = await find_home(call.proxy, name)
    told = await ask_home(call.proxy, name, home, link.ListPublications(query=name)) if home else None
    if told is None or not told.publications:
        raise PublicationNotFound(query=name)
    if not is_operator:
        _require_own(call.admission, told.publications[0])
    owner = None if is_operator else call.admission.principal
    dropped = await ask_home(call.proxy, name, home, link.AbandonBatch(query=name, owner=owner, batch=number))
    return AbandonedBatch(query=name, batch=number, stages=dropped.stages, rows=dropped.rows)


async def get_publication(call: Call, query: str) -> PublicationDescription:
    """Describe a query that publishes batches: the last one, and the stages that are kept."""
    name = query_in(call.namespace, query)
    for home, told in await ask_all(call.proxy, link.ListPublications(query=name)):
        for row in told.publications:
            if _is_seen(call, row):
                return described(row, home)
    raise PublicationNotFound(query=name)


async def list_publications(call: Call) -> Publications:
    """List the queries that publish batches and whose topics the caller may see, by name."""
    answers = await ask_all(call.proxy, link.ListPublications())
    found = [listed(row, home) for home, told in answers for row in told.publications if _is_seen(call, row)]
    return Publications(publications=sorted(found, key=lambda each: (each.query, each.broker_group)))


# Rights -------------------------------------------------------------------------------------------
def _is_seen(call: Call, row: link.ListedPublication) -> bool:
    if not is_of(call.namespace, row.query):
        return False
    is_own = row.owner == call.admission.principal or call.admission.may(DESCRIBE, CLUSTER, "")
    return is_own or (bool(row.topics) and all(call.admission.sees(TOPIC, name) for name in row.topics))


def _require_some(admission: Admission, query: str) -> None:
    """Raise Forbidden for a caller that may send nowhere, PublicationNotFound if it may see nothing
    either: no broker group is asked for it.
    """
    if admission.may_some(PUB, TOPIC):
        return
    if any(admission.may_some(action, TOPIC) for action in {DESCRIBE, *DESCRIBING}):
        raise Forbidden(required_permission=f"{PUB} of a {TOPIC}")
    raise PublicationNotFound(query=query)


def _require_topics(admission: Admission, query: str, names: Sequence[str]) -> None:
    try:
        for name in names:
            admission.require(PUB, TOPIC, name)
    except TopicNotFound as error:
        raise PublicationNotFound(query=query) from error


def _require_own(admission: Admission, row: link.ListedPublication) -> None:
    """Raise unless the query is the caller's, which may still send to the topics of its stages."""
    if row.owner != admission.principal:
        raise PublicationNotFound(query=row.query)
    _require_topics(admission, row.query, row.topics)


def _too_large(size_bytes: int) -> TernError:
    return MessageTooLarge(actual=size_bytes, limit=PUBLICATION_BODY_SIZE_MAX_BYTES)
