"""Handlers for read leases. A lease is replicated state of each broker group that has a part of it,
so nothing ends with a proxy.
"""

import asyncio
import secrets
from typing import Any

from tern_proxy.core.documents.reads import (
    ListedReadLease,
    ReadLeaseRenewal,
    ReadLeaseRequest,
    ReadLeases,
    ReadLeaseTimes,
)
from tern_proxy.core.reading.leases import (
    broker_groups_of,
    check_lease,
    duration_of,
    lease_document,
    lease_id,
    leases_document,
    listed,
    parts_of,
    times_document,
)
from tern_proxy.routes.call import Answer, Call
from tern_proxy.routes.fan_out import ask_all, ask_named
from tern_wire.errors import Forbidden, NoLeader, ReadLeaseNotFound, TernError, TopicNotFound
from tern_wire.limits import JSON_BATCH_NODES_MAX
from tern_wire.limits_reads import READ_BODY_SIZE_MAX_BYTES
from tern_wire.link.planned_reads.leases import EndReadLease, ListReadLeases, RenewReadLease, TakeReadLease
from tern_wire.names import is_of
from tern_wire.paths import read_lease_path
from tern_wire.principals.principals import DESCRIBE, DESCRIBING, SUB, TOPIC


async def post_read_lease(call: Call) -> Answer:
    """Keep ranges of queues from retention for a time, `for` (1 h by default): the queues in
    `begin` and `end` of a topic, or if these are empty all that the topic has now.

    201 with the kept ranges. Renew the lease before `leased_until`, and end it when everything is
    read. A lease holds segments of the log on the disk; when the disk is so full that unread
    messages are dropped, a lease is broken, and its next renewal says so.
    """
    asked = await call.read(ReadLeaseRequest, size_max_bytes=READ_BODY_SIZE_MAX_BYTES, nodes_max=JSON_BATCH_NODES_MAX)
    check_lease(asked)
    for_ms = duration_of(asked.duration)
    topics = []
    for each in asked.topics:
        name = call.topic(each.topic)
        call.admission.require(SUB, TOPIC, name)
        topics.append(await call.proxy.topic(name))
    parts = parts_of(asked, topics)
    lease = lease_id(secrets.token_hex(12), list(parts))
    requests = {
        name: TakeReadLease(lease=lease, owner=call.admission.principal, for_ms=for_ms, topics=part)
        for name, part in parts.items()
    }
    try:
        taken = await ask_named(call.proxy, requests)
    except TernError:
        # What some broker groups keep already would be kept until its time is over.
        await _end(call, lease, list(parts))
        raise
    return Answer(lease_document(taken), 201, {"Location": read_lease_path(lease)})


async def put_read_lease(call: Call, lease: str) -> ReadLeaseTimes:
    """Renew a lease: it lasts at least for `for` from now. 404 when its time is over, 410 when
    retention had to drop some of its messages.
    """
    renewal = await call.read(ReadLeaseRenewal)
    for_ms = duration_of(renewal.duration)
    names = await _require(call, lease)
    request = RenewReadLease(lease=lease, for_ms=for_ms)
    told = await ask_named(call.proxy, dict.fromkeys(names, request))
    return times_document([times for _, times in told])


async def delete_read_lease(call: Call, lease: str) -> None:
    """End a lease: retention may drop its messages. 404 when it has ended, in all broker groups."""
    names = await _require(call, lease)
    answers = await _end(call, lease, names)
    missing = [answer for answer in answers if isinstance(answer, ReadLeaseNotFound)]
    for answer in answers:
        if isinstance(answer, BaseException) and (answer not in missing or len(missing) == len(answers)):
            raise answer


async def list_read_leases(call: Call) -> ReadLeases:
    """List the leases whose topics the caller may see, the first one to end first."""
    answers = await ask_all(call.proxy, ListReadLeases())
    found = leases_document(dict(answers))
    return listed([lease for lease in found if _is_seen(call, lease)])


def _is_seen(call: Call, lease: ListedReadLease) -> bool:
    names = [topic.topic for topic in lease.topics]
    return all(is_of(call.namespace, name) and call.admission.sees(TOPIC, name) for name in names)


async def _end(call: Call, lease: str, names: list[str]) -> list[Any]:
    """End *lease* in these broker groups; return what each answers, or its error."""
    links = [call.proxy.group(name).link for name in names]
    asked = EndReadLease(lease=lease)
    return await asyncio.gather(*(link.ask(asked, is_repeatable=True) for link in links), return_exceptions=True)


async def _require(call: Call, lease: str) -> list[str]:
    """Return the broker groups of *lease*, if the caller may read its topics. ReadLeaseNotFound for
    a lease of topics that it may not see.
    """
    names = broker_groups_of(lease)
    if not call.admission.may_some(SUB, TOPIC):
        # Whatever its topics are: no broker is asked for a caller without any right.
        if any(call.admission.may_some(action, TOPIC) for action in {DESCRIBE, *DESCRIBING}):
            raise Forbidden(required_permission=f"{SUB} of a {TOPIC}")
        raise ReadLeaseNotFound(lease=lease[:160])
    try:
        told = await ask_named(call.proxy, dict.fromkeys(names, ListReadLeases(lease=lease)))
    except NoLeader:
        if any(name not in call.proxy.groups for name in names):
            raise ReadLeaseNotFound(lease=lease[:160]) from None
        raise
    found = leases_document(dict(told))
    topics = [topic.topic for each in found for topic in each.topics]
    if not found or not all(is_of(call.namespace, name) for name in topics):
        raise ReadLeaseNotFound(lease=lease[:160])
    try:
        for name in topics:
            call.admission.require(SUB, TOPIC, name)
    except TopicNotFound as error:
        raise ReadLeaseNotFound(lease=lease[:160]) from error
    return names
