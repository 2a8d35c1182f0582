"""POST receive: apply the settles in the request, lease present messages, and park the poll until
some arrive.

A poll whose client is gone, or has lost its rights, receives nothing. Messages leased for it
meanwhile are released at once, so that the next consumer gets them without waiting for the end of
the lease, and the attempt does not count.
"""

import asyncio
from dataclasses import dataclass
from hashlib import blake2b

from msgspec.structs import replace

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.documents.messages import LeasedMessage, Received, SettledLine
from tern_proxy.core.documents.receives import ReceiveRequest
from tern_proxy.core.reading.delivery import PutBody, raw_body, raw_headers, read_leased
from tern_proxy.core.reading.filtering import read_filter
from tern_proxy.core.reading.settling import SettleParcel, Settles, read_settles
from tern_proxy.core.sending.parameters import (
    RECEIVED,
    answer_kind,
    invisible_of,
    is_packed,
    number_of,
    read_query_once,
    wait_of,
)
from tern_proxy.core.sending.topic import Topic
from tern_proxy.exchange import CONTENT_TYPES, HotRequest, RawHeaders, Reply, encode, encode_lines
from tern_proxy.proxy import BrokerGroup, Proxy
from tern_proxy.routes.messages.bodies import put_body_of
from tern_proxy.routes.messages.first_use import create_group
from tern_proxy.routes.messages.settles import SETTLE_BODY_SIZE_MAX_BYTES, apply_settles, body_too_large
from tern_proxy.waiting.interrupts import Interrupt
from tern_proxy.waiting.reading_turns import Reader
from tern_tasks import begin
from tern_wire.errors import GroupNotFound, InvalidField, NoLeader, OutcomeUnknown, Overloaded, TernError
from tern_wire.handles import HandleMaker
from tern_wire.limits import ATTEMPT_ID_LENGTH_MAX, JSON_BATCH_NODES_MAX, RECEIVE_MESSAGES_MAX, RECEIVE_SIZE_MAX_BYTES
from tern_wire.link.codec import read_json, read_msgpack
from tern_wire.link.receives import ATTEMPT_ID_SIZE_BYTES, Leased, Receive
from tern_wire.link.rows import RELEASE, SETTLE_ROW
from tern_wire.paths import HEADER_WAIT_APPLIED, NDJSON, OCTETS
from tern_wire.principals.principals import ACK, GROUP

_PARAMETERS = ("max_messages", "max_bytes", "wait", "invisible", "encoding", "format", "attempt_id", "tags", "sql")
_WAIT_APPLIED = HEADER_WAIT_APPLIED.lower().encode()


@dataclass(slots=True, kw_only=True)
class _Poll:
    """One receive request, parsed and validated."""

    topic: Topic
    group: str
    maker: HandleMaker
    kind: str
    put_body: PutBody
    wait_ms: int
    asked: Receive
    settles: Settles | None = None
    headers: RawHeaders

    @property
    def reader(self) -> Reader:
        """Reader for turns."""
        return self.topic.name, self.group


async def post_receive(proxy: Proxy, request: HotRequest, topic_name: str, group_name: str) -> Reply:
    """200 with messages (possibly none) and the results of `settle`; in raw form 200 with one body,
    or 204.
    """
    poll = await _read(proxy, request, topic_name, group_name)
    with request.interrupt() as gone:
        try:
            early = [] if poll.settles is None else await _settle_first(proxy, poll, poll.settles)
            messages = early or await _wait_for_messages(proxy, poll, gone)
        except GroupNotFound as unknown:
            await create_group(proxy, poll.group, unknown, request)
            messages = await _wait_for_messages(proxy, poll, gone)
        if gone.done():
            # With an attempt id, the client is expected to request just these again, if it has the
            # right.
            if gone.refusal is not None or not poll.asked.attempt_id:
                await _release(proxy, poll.maker, messages)
            gone.check()
    proxy.counters.messages["delivered"] += len(messages)
    return _answer(poll, messages)


async def _read(proxy: Proxy, request: HotRequest, topic_name: str, group_name: str) -> _Poll:
    maker = proxy.maker(topic_name, group_name)
    topic = await proxy.topic(topic_name)
    body = await request.read_body(SETTLE_BODY_SIZE_MAX_BYTES, body_too_large)
    query = read_query_once(request.query_string, _PARAMETERS)
    asked = _read_body(request, body)
    if asked.settle:
        admission_of(request).require(ACK, GROUP, group_name)
    for name in ("max_messages", "max_bytes"):
        if name in query:
            setattr(asked, name, number_of(query[name], name, 0, 1 << 31))
    asked.wait = query.get("wait", asked.wait)
    asked.invisible = query.get("invisible", asked.invisible)
    asked.attempt_id = query.get("attempt_id", asked.attempt_id)
    tags, sql = read_filter(asked.filter, query)
    kind = _kind_of(query, request)
    if kind == OCTETS:
        asked.max_messages = 1
        if asked.settle:
            raise InvalidField(reason="The raw form has no place for the results of 'settle'", pointer="/settle")
    attempt_id = asked.attempt_id.encode()
    if len(asked.attempt_id) > ATTEMPT_ID_LENGTH_MAX:
        reason = f"An attempt id has at most {ATTEMPT_ID_LENGTH_MAX} characters"
        raise InvalidField(reason=reason, pointer="/attempt_id")
    number_of(asked.max_messages, "max_messages", 1, RECEIVE_MESSAGES_MAX, "/")
    number_of(asked.max_bytes, "max_bytes", 1, RECEIVE_SIZE_MAX_BYTES, "/")
    wait_ms = wait_of(asked.wait)
    headers: RawHeaders = []
    if not asked.settle:
        request.release_body()
    if wait_ms:
        # Without room the poll does not wait; the header has the granted wait.
        wait_ms = wait_ms if request.may_wait(proxy.parking) else 0
        headers.append((_WAIT_APPLIED, b"%dms" % wait_ms))
    return _Poll(
        topic=topic,
        group=group_name,
        maker=maker,
        kind=kind,
        put_body=put_body_of(query, kind),
        wait_ms=wait_ms,
        asked=Receive(
            topic=topic_name,
            group=group_name,
            reader=admission_of(request).principal,
            max_messages=asked.max_messages,
            max_bytes=asked.max_bytes,
            invisible_ms=0 if asked.invisible is None else invisible_of(asked.invisible),
            attempt_id=blake2b(attempt_id, digest_size=ATTEMPT_ID_SIZE_BYTES).digest() if attempt_id else b"",
            tags=tags,
            sql=sql,
        ),
        settles=read_settles(asked.settle, maker, "/settle") if asked.settle else None,
        headers=headers,
    )


def _read_body(request: HotRequest, body: bytes) -> ReceiveRequest:
    if not body:
        return ReceiveRequest()
    if is_packed(request.header(b"content-type")):
        return read_msgpack(body, ReceiveRequest)
    return read_json(body, ReceiveRequest, nodes_max=JSON_BATCH_NODES_MAX)


def _kind_of(query: dict[str, str], request: HotRequest) -> str:
    form = query.get("format")
    if form is None:
        return answer_kind(request.header(b"accept"), RECEIVED)
    if form != "raw":
        raise InvalidField(reason=f"'format' is '{form[:20]}'; the only one is raw", pointer="query/format")
    return OCTETS


# Waiting ------------------------------------------------------------------------------------------
async def _settle_first(proxy: Proxy, poll: _Poll, settles: Settles) -> list[LeasedMessage]:
    """Apply the settles of the request; return the messages of a concurrent first lease, possibly
    none.

    Acks take nothing away from a receive, so both are sent together, and the log replicates them as
    one entry: half the time of two successive requests. An empty result is not final: messages that
    an ack makes room for, or unblocks, are visible once it has been applied.
    """
    if not settles.are_acks or poll.asked.attempt_id:
        await apply_settles(proxy, settles)
        return []
    groups = proxy.rotated(poll.topic)
    turns, found = groups[0].turns, None
    messages = await turns.take(poll.reader)
    try:
        # Its request leaves with the acks.
        looking = begin(_look_early(groups, poll), asyncio.get_running_loop())
        try:
            await apply_settles(proxy, settles)
        finally:
            found = await looking
    finally:
        turns.give_back(poll.reader, messages, None if found is None else len(found))
    return found


async def _look_early(groups: list[BrokerGroup], poll: _Poll) -> list[LeasedMessage]:
    try:
        return await _receive_from(groups, poll, poll.asked, is_last_word=False, has_turn=True)
    except TernError:
        return []  # the receive after the acks has the same error


async def _wait_for_messages(proxy: Proxy, poll: _Poll, gone: Interrupt) -> list[LeasedMessage]:
    groups = proxy.rotated(poll.topic)
    if poll.asked.attempt_id and len(groups) > 1:
        # The messages of its first attempt may be in any broker group; only if none has them, new
        # messages are leased.
        found = await _receive_from(groups, poll, replace(poll.asked, again_only=True), is_last_word=True)
        if found:
            return found
    if not poll.wait_ms:
        return await _receive_from(groups, poll, poll.asked, is_last_word=True)
    until = asyncio.get_running_loop().time() + poll.wait_ms / 1_000
    found = await _receive_from(groups, poll, poll.asked, is_last_word=False)
    links = [group.link for group in groups]
    again = False
    while not found and not gone.done() and asyncio.get_running_loop().time() < until:
        poll_queue = await proxy.parking.wait(links, poll.topic.name, poll.group, until, gone=gone, again=again)
        if poll_queue is None:
            break
        again = True
        try:
            if not gone.done():
                first = [group for group in groups if group.link is poll_queue.link]
                found = await _receive_from(first, poll, poll.asked, is_last_word=False)
        finally:
            poll_queue.received()
    return found


async def _receive_from(
    groups: list[BrokerGroup], poll: _Poll, asked: Receive, *, is_last_word: bool, has_turn: bool = False
) -> list[LeasedMessage]:
    """Lease from the first broker group that has messages.

    A broker group with an error is skipped. If all have errors, and the poll will not wait
    (*is_last_word*), raise the error.
    """
    trouble: TernError | None = None
    is_served = False
    for group in groups:
        messages, found = None, None
        turn = 0 if has_turn else await group.turns.take(poll.reader)
        try:
            # Repeated after a fail-over, as the client would: messages leased by the first attempt
            # return when their lease ends.
            leased, raw = await group.link.ask(asked, is_repeatable=True)
            messages = _messages_of(leased, raw, poll, group)
            found = len(messages)
        except (NoLeader, OutcomeUnknown, Overloaded) as error:
            trouble = error
            continue
        finally:
            if turn:
                group.turns.give_back(poll.reader, turn, found)
        is_served = True
        if messages:
            return messages
    if trouble is not None and not is_served and is_last_word:
        raise trouble
    return []


def _messages_of(leased: Leased, raw: memoryview, poll: _Poll, group: BrokerGroup) -> list[LeasedMessage]:
    if not leased.runs:
        return []
    return read_leased(leased, bytes(raw), poll.topic.name, group.link.broker_group, poll.put_body, poll.maker)


async def _release(proxy: Proxy, maker: HandleMaker, messages: list[LeasedMessage]) -> None:
    """Release messages whose poll has ended."""
    parcels: dict[str, SettleParcel] = {}
    for index, message in enumerate(messages):
        receipt = maker.read(message.receipt_handle)
        row = SETTLE_ROW.pack(
            receipt.group_id, receipt.topic_id, receipt.queue, RELEASE, receipt.offset, receipt.lease, 0
        )
        parcels.setdefault(receipt.broker_group, SettleParcel(receipt.broker_group)).add(index, row)
    for parcel in parcels.values():
        await proxy.group(parcel.broker_group).settles.submit(parcel)
    proxy.counters.messages["released"] += len(messages)


# Answers ------------------------------------------------------------------------------------------
def _answer(poll: _Poll, messages: list[LeasedMessage]) -> Reply:
    settled = poll.settles.results() if poll.settles is not None else []
    if poll.kind == OCTETS:
        if not messages:
            return 204, poll.headers, b""
        return 200, [*raw_headers(messages[0]), *poll.headers], raw_body(messages[0])
    headers = [CONTENT_TYPES[poll.kind], *poll.headers]
    if poll.kind == NDJSON:
        ends = [] if poll.settles is None else [SettledLine(settled=settled)]
        return 200, headers, encode_lines([*messages, *ends])
    return 200, headers, encode(Received(messages=messages, settled=settled), poll.kind)
