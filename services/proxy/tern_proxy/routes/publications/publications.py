"""Handlers of publications: publish a batch, give one up, describe a query, list all."""

from collections.abc import Sequence

from tern_proxy.core.documents.publications import (
    AbandonedBatch,
    PublicationDescription,
    Publications,
    PublishedBatch,
    PublishRequest,
)
from tern_proxy.core.publications import batch_of, check_publication, described, listed, query_in
from tern_proxy.routes.call import Call
from tern_proxy.routes.fan_out import ask_all
from tern_proxy.routes.publications.homes import ask_home, find_home, home_of
from tern_wire.errors import Forbidden, PublicationNotFound, TopicNotFound
from tern_wire.link import publications as link
from tern_wire.names import is_of
from tern_wire.principals.principals import ADMIN, CLUSTER, DESCRIBE, DESCRIBING, PUB, TOPIC


async def post_publication(call: Call, query: str, batch: str) -> PublishedBatch:
    """Publish a batch: all messages of the announced stages become visible at once, and every other
    stage of the query up to this batch is dropped.

    A repeat, or a batch before the last one, answers the last publication and does nothing. A batch
    without stages is published, too. 409 `stage-unknown`: a stage has other rows than announced,
    and nothing is done.
    """
    asked = await call.read(PublishRequest)
    check_publication(asked)
    number, name = batch_of(batch), query_in(call.namespace, query)
    _require_some(call, name)
    names = [call.topic(each) for each in asked.topics]
    _require_topics(call, name, names)
    topics = [await call.proxy.topic(each) for each in names]
    home = await home_of(call.proxy, name, topics)
    for row in (await ask_home(call.proxy, name, home, link.ListPublications(query=name))).publications:
        _require_own(call, row)
    told = await ask_home(
        call.proxy,
        name,
        home,
        link.Publish(
            query=name,
            owner=call.admission.principal,
            batch=number,
            stages=[link.StageRows(stage.partition, stage.attempt, stage.rows) for stage in asked.stages],
            is_final=asked.final,
            accepts_lost_history=asked.accept_lost_history,
        ),
    )
    return PublishedBatch(
        query=name,
        batch=told.batch,
        rows=told.rows,
        published_at=told.published_ms,
        replayed=told.is_replay,
        broker_group=home,
    )


async def delete_batch(call: Call, query: str, batch: str) -> AbandonedBatch:
    """Give a batch up: its stages are dropped, if it is not published. Repeatable.

    Of another principal's query: with ADMIN of the cluster.
    """
    number, name = batch_of(batch), query_in(call.namespace, query)
    is_operator = call.admission.may(ADMIN, CLUSTER, "")
    if not is_operator:
        _require_some(call, name)
    home = await find_home(call.proxy, name)
    told = await ask_home(call.proxy, name, home, link.ListPublications(query=name)) if home else None
    if told is None or not told.publications:
        raise PublicationNotFound(query=name)
    if not is_operator:
        _require_own(call, told.publications[0])
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


def _require_some(call: Call, query: str) -> None:
    """Raise Forbidden for a caller that may send nowhere, PublicationNotFound if it may see nothing
    either: no broker group is asked for it.
    """
    if call.admission.may_some(PUB, TOPIC):
        return
    if any(call.admission.may_some(action, TOPIC) for action in {DESCRIBE, *DESCRIBING}):
        raise Forbidden(required_permission=f"{PUB} of a {TOPIC}")
    raise PublicationNotFound(query=query)


def _require_topics(call: Call, query: str, names: Sequence[str]) -> None:
    try:
        for name in names:
            call.admission.require(PUB, TOPIC, name)
    except TopicNotFound as error:
        raise PublicationNotFound(query=query) from error


def _require_own(call: Call, row: link.ListedPublication) -> None:
    """Raise unless the query is the caller's, which may still send to the topics of its stages."""
    if row.owner != call.admission.principal:
        raise PublicationNotFound(query=row.query)
    _require_topics(call, row.query, row.topics)
