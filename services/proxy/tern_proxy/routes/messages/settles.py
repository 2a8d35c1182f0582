"""POST ack and POST settle: any proxy validates the receipt handles, which travel as rows in the
settle lanes.
"""

from tern_proxy.core.documents.messages import SettleResults
from tern_proxy.core.documents.receives import AckRequest, SettleRequest
from tern_proxy.core.reading.settling import Rejects, Settles, read_acks, read_settles
from tern_proxy.core.sending.parameters import BASIC, answer_kind, is_packed, read_query
from tern_proxy.exchange import HotRequest, Reply, reply
from tern_proxy.proxy import Proxy
from tern_wire.errors import BatchTooLarge, InvalidField, LinkReplyMalformed, TernError
from tern_wire.limits import JSON_BATCH_NODES_MAX, MIB
from tern_wire.link.codec import read_json, read_msgpack
from tern_wire.link.dead_letters.letters import RejectMessages

# Too many entries are refused by their own limit, so a body of this size must be readable. 1,024
# entries with a handle, an action and an invisible time are a quarter of it.
SETTLE_BODY_SIZE_MAX_BYTES = 1 * MIB


def body_too_large(size_bytes: int) -> TernError:
    """Return the refusal of a body that exceeds every settle and receive."""
    return BatchTooLarge(actual=size_bytes, limit=SETTLE_BODY_SIZE_MAX_BYTES, unit="bytes")


async def post_ack(proxy: Proxy, request: HotRequest, topic: str, group: str) -> Reply:
    """200 with a result for each handle, 207 when some failed; when all failed for one cause, that
    problem.
    """
    kind = answer_kind(request.header(b"accept"), BASIC)
    maker = proxy.maker(topic, group)
    body = await request.read_body(SETTLE_BODY_SIZE_MAX_BYTES, body_too_large)
    handles = [value for _, value in read_query(request.query_string, ("receipt_handle",))]
    if handles and body:
        raise InvalidField(reason="Receipt handles are in the body or in the query, not in both", pointer="/")
    if not handles:
        handles = _read_handles(request, body)
    return await _settle(proxy, read_acks(handles, maker), kind)


def _read_handles(request: HotRequest, body: bytes) -> list[str]:
    if is_packed(request.header(b"content-type")):
        return read_msgpack(body, AckRequest).receipt_handles
    return read_json(body, AckRequest, nodes_max=JSON_BATCH_NODES_MAX).receipt_handles


async def post_settle(proxy: Proxy, request: HotRequest, topic: str, group: str) -> Reply:
    """Settle with any actions; the answers of an ack."""
    kind = answer_kind(request.header(b"accept"), BASIC)
    maker = proxy.maker(topic, group)
    body = await request.read_body(SETTLE_BODY_SIZE_MAX_BYTES, body_too_large)
    read_query(request.query_string, ())
    packed = is_packed(request.header(b"content-type"))
    asked = (
        read_msgpack(body, SettleRequest) if packed else read_json(body, SettleRequest, nodes_max=JSON_BATCH_NODES_MAX)
    )
    entries = asked.entries
    return await _settle(proxy, read_settles(entries, maker), kind)


async def _settle(proxy: Proxy, settles: Settles, kind: str) -> Reply:
    await apply_settles(proxy, settles)
    error = settles.common_error
    if error is not None:
        raise error
    failed = len(settles.errors)
    return reply(207 if failed else 200, SettleResults(results=settles.results(), failed=failed), kind)


async def apply_settles(proxy: Proxy, settles: Settles) -> None:
    """Apply *settles*; failures are in its errors afterwards."""
    waiting = []
    for parcel in settles.parcels.values():
        try:
            waiting.append((parcel, proxy.group(parcel.broker_group).settles.submit(parcel)))
        except TernError as error:
            settles.take_statuses(parcel, error)
    for rejects in settles.rejects.values():
        settles.take_statuses(rejects, await _reject(proxy, rejects))
    for parcel, future in waiting:
        settles.take_statuses(parcel, await future)
    proxy.counters.messages["settled"] += len(settles.handles) - len(settles.errors)
    if settles.releases:
        proxy.counters.messages["released"] += settles.released


async def _reject(proxy: Proxy, rejects: Rejects) -> bytes | TernError:
    """Reject messages with a request of their own, because dead letters are few and carry text.

    Rejects are idempotent.
    """
    try:
        link = proxy.group(rejects.broker_group).link
        _, raw = await link.ask(RejectMessages(rows=rejects.rows), is_repeatable=True)
        if len(raw) != len(rejects.rows):
            raise LinkReplyMalformed(reason=f"{len(raw)} statuses for {len(rejects.rows)} dead letters")
    except TernError as error:
        return error
    return bytes(raw)
