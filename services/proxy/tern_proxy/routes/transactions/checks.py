"""Receives of checks, on a hot route: a producer without a reachable address pulls the checks of
its transactions.

It answers by committing or rolling back; no answer means "unknown". A poll whose client is gone
receives nothing, and frees its place.
"""

import asyncio

from tern_proxy.core.access.namespaces import namespace_in
from tern_proxy.core.documents.transactions import Checks, ChecksRequest
from tern_proxy.core.sending.parameters import BASIC, answer_kind, is_packed, number_of, read_query_once, wait_of
from tern_proxy.core.transactions.checks import Check, check_document
from tern_proxy.exchange import HotRequest, Reply, reply
from tern_proxy.proxy import Proxy
from tern_proxy.routes.fan_out import broker_group_names
from tern_proxy.routes.messages.bodies import put_body_of
from tern_proxy.routes.messages.first_use import create_producer_group
from tern_proxy.routes.messages.settles import body_too_large
from tern_proxy.waiting.interrupts import Interrupt
from tern_wire.errors import ProducerGroupNotFound
from tern_wire.limits import CHECKS_CLAIMED_MAX, KIB
from tern_wire.link.codec import read_json, read_msgpack
from tern_wire.names import check_group
from tern_wire.paths import HEADER_WAIT_APPLIED

# Two fields.
BODY_SIZE_MAX_BYTES = 4 * KIB
_PARAMETERS = ("max_messages", "wait", "encoding")
_WAIT_APPLIED = HEADER_WAIT_APPLIED.lower().encode()


async def post_receive_checks(proxy: Proxy, request: HotRequest, producer_group: str) -> Reply:
    """200 with checks, possibly none. The granted wait is in MQ-Wait-Applied."""
    kind = answer_kind(request.header(b"accept"), BASIC)
    check_group(producer_group)
    body = await request.read_body(BODY_SIZE_MAX_BYTES, body_too_large)
    query = read_query_once(request.query_string, _PARAMETERS)
    asked = ChecksRequest()
    if body:
        packed = is_packed(request.header(b"content-type"))
        asked = read_msgpack(body, ChecksRequest) if packed else read_json(body, ChecksRequest)
    at = "query/" if "max_messages" in query else "/"
    wanted = number_of(query.get("max_messages", asked.max_messages), "max_messages", 1, CHECKS_CLAIMED_MAX, at)
    wait_ms = wait_of(query.get("wait", asked.wait))
    put_body = put_body_of(query, kind)
    request.release_body()
    granted_ms = wait_ms if wait_ms and request.may_wait(proxy.parking) else 0
    until = asyncio.get_running_loop().time() + granted_ms / 1_000
    with request.interrupt() as gone:
        try:
            checks = await _receive(proxy, producer_group, wanted, until, gone)
        except ProducerGroupNotFound as unknown:
            await create_producer_group(proxy, producer_group, unknown, request)
            checks = await _receive(proxy, producer_group, wanted, until, gone)
        gone.check()
    proxy.counters.messages["checks"] += len(checks)
    ids = proxy.transaction_ids(namespace_in(request))
    documents = Checks(checks=[check_document(check, ids, put_body) for check in checks])
    status, headers, answer = reply(200, documents, kind)
    if wait_ms:
        headers.append((_WAIT_APPLIED, b"%dms" % granted_ms))
    return status, headers, answer


async def _receive(proxy: Proxy, producer_group: str, wanted: int, until: float, gone: Interrupt) -> list[Check]:
    links = [group.link for group in proxy.in_turn(await broker_group_names(proxy))]
    return await proxy.checks.receive(links, producer_group, wanted, until, gone)
