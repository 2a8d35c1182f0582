r"""Begins of transactions: half messages of one producer group become one parcel for one broker group, its verdict a receipt.

    messages, each with its topic -> one broker group that has all topics -> records with TRAN_MSG and PGROUP, rows with FLAG_HALF
                                                                          -> one parcel, repeated as a whole or not at all

A transaction is stored by one entry of one log, so nothing of it can be there without the rest. Its idempotency key is the first message's,
and stands for all of them. Reference: Apache RocketMQ 5, MessageConst (TRAN_MSG, PGROUP, CHECK_IMMUNITY_TIME_IN_SECONDS).
"""

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from msgspec import structs

from tern_proxy.core.documents.sends import JsonMessage, PackedMessage
from tern_proxy.core.sending.delivery_time import has_delay
from tern_proxy.core.sending.encoding import Parcel, encode_messages, idempotency_key_of, placed
from tern_proxy.core.sending.message_ids import MessageIds
from tern_proxy.core.sending.owners import owner_of_several
from tern_proxy.core.sending.topic import Topic
from tern_wire.errors import (
    BatchTooLarge,
    InvalidField,
    OwnerUnknown,
    PropertyConflictsWithType,
    QueueNotFound,
    TernError,
    TopicsApart,
)
from tern_wire.limits import CHECK_AFTER_MAX_MS, CHECK_AFTER_MIN_MS, TRANSACTION_SIZE_MAX_BYTES
from tern_wire.link.rows import FLAG_HALF, FLAG_KEYED, FLAG_PINNED, FLAG_SAME_TRANSACTION, NO_KEY, SEND_ROW
from tern_wire.names import check_group
from tern_wire.records.properties import CHECK_AFTER_S, PRODUCER_GROUP, TRANSACTIONAL
from tern_wire.routing.placement import slot_of_key
from tern_wire.times import duration_text, given_duration, parse_duration_ms

# Where a row has its topic and flags, its key, and its time; see SEND_ROWS.
_TOPIC, _FLAGS = struct.Struct("<I"), struct.Struct("<I")
_KEY_AND_TIME = struct.Struct("<16sq")
_AT_TOPIC, _AT_FLAGS, _AT_KEY = 4, 12, 32
assert SEND_ROW.size == 64
# Knuth's multiplier for 32 bits: neighbouring numbers come far apart.
_SCATTER = 2_654_435_769


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    """One message of a transaction, and where an error in it is (pointer; "" for a single send, which has no place)."""

    topic: Topic
    message: PackedMessage | JsonMessage
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """What is asked for. *check_after_ms*: 0 for as long as the producer group says. *key*: idempotency key, "" for none."""

    producer_group: str
    check_after_ms: int
    key: str
    halves: Sequence[HalfMessage]

    @property
    def properties(self) -> str:
        r"""`k\x01v\x02...` that every record gets."""
        text = f"{TRANSACTIONAL}\x01true\x02{PRODUCER_GROUP}\x01{self.producer_group}\x02"
        return text + f"{CHECK_AFTER_S}\x01{seconds_of(self.check_after_ms)}\x02" if self.check_after_ms else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A transaction on its way: its parcel, and its messages' ids in order."""

    parcel: Parcel
    message_ids: list[str]


def seconds_of(check_after_ms: int) -> int:
    """As RocketMQ counts them, whole and not sooner than was asked for."""
    return -(-check_after_ms // 1_000)


def producer_group_of(name: str, pointer: str) -> str:
    """*name*, a producer group's; InvalidField at *pointer* when it is missing, IllegalGroup."""
    if not name:
        raise InvalidField(
            reason="A transaction needs its producer group, which is asked what became of it", pointer=pointer
        )
    return check_group(name)


def check_after_of(value: str | int | None, pointer: str) -> int:
    """Milliseconds from the begin to the first check; 0 for None. InvalidField."""
    if value is None:
        return 0
    try:
        check_after_ms = parse_duration_ms(value)
    except ValueError as error:
        raise InvalidField(reason=str(error)[:120], pointer=pointer) from error
    if not CHECK_AFTER_MIN_MS <= check_after_ms <= CHECK_AFTER_MAX_MS:
        least, most = duration_text(CHECK_AFTER_MIN_MS), duration_text(CHECK_AFTER_MAX_MS)
        reason = f"The first check is {least} to {most} after the begin, not {given_duration(value)}"
        raise InvalidField(reason=reason, pointer=pointer)
    return check_after_ms


def key_of(messages: Sequence[PackedMessage | JsonMessage], header: str) -> str:
    """The key of a transaction of several messages: the header's, or the first message's. InvalidField elsewhere, and when both differ."""
    for number, message in enumerate(messages[1:], start=1):
        if message.idempotency_key:
            reason = "The first message's key stands for the whole transaction: leave the others out"
            raise InvalidField(reason=reason, pointer=f"/messages/{number}/idempotency_key")
    own = messages[0].idempotency_key
    if own and header and own != header:
        reason = "The header Idempotency-Key says another one; give one of both"
        raise InvalidField(reason=reason, pointer="/messages/0/idempotency_key")
    return own or header


def common_broker_groups(halves: Sequence[HalfMessage]) -> tuple[str, ...]:
    """Names of the broker groups that have all topics of *halves*, in order; if queues are pinned, only theirs.

    TopicsApart when there is none, OwnerUnknown when there may be one that is not in sight, QueueNotFound for a queue that is not written as one.
    """
    common: set[str] | None = None
    for half in halves:
        names: Collection[str] = half.topic.broker_groups
        if half.message.queue:
            try:
                pinned = half.topic.pinned(half.message.queue).broker_group
            except QueueNotFound as error:
                raise _at(error, half) from error
            names = [pinned]
        common = set(names) if common is None else common.intersection(names)
    if not common:
        _refuse_if_unseen(halves)
        raise TopicsApart(topics=", ".join(sorted({half.topic.name for half in halves}))[:400])
    return tuple(sorted(common))


def _refuse_if_unseen(halves: Sequence[HalfMessage]) -> None:
    placed = [set(half.topic.known_placement.groups) for half in halves]
    pinned = [{half.message.queue.partition(":")[0]} for half in halves if half.message.queue]
    if unseen := set.intersection(*placed, *pinned):
        missing = f"broker group '{min(unseen)}' has all topics of this transaction, and this proxy does not see all of them there"
        raise OwnerUnknown(topic=halves[0].topic.name, missing=missing)


def broker_group_of_key(begin: Begin, names: Sequence[str], moved_from: str = "") -> tuple[str, bool]:
    """The broker group whose key table knows whether *begin* was sent before, and whether it is one that the first topic's placement does
    not name for it (core/sending/owners.py). *names*: those that have all topics; one, where a message names its queue, which has chosen then.

    *moved_from*: the broker group that has said that the key belongs to another one. As owner_of_several: OwnerUnknown, PlacementChanged, TopicsApart.
    """
    if any(half.message.queue for half in begin.halves):
        return names[0], True
    key = idempotency_key_of(begin.halves[0].topic, begin.key)
    topics = {half.topic.name: half.topic for half in begin.halves}.values()
    placed = [(topic.name, topic.known_placement, topic.route) for topic in topics]
    return owner_of_several(placed, slot_of_key(key), moved_from)


def broker_group_of_turn(turn: int, names: Sequence[str]) -> str:
    """One of *names*, another one from turn to turn: scattered, since each topic's queues follow its turns, too, and all should be used."""
    return names[((turn * _SCATTER & 0xFFFFFFFF) >> 16) % len(names)]


def encode_begin(
    begin: Begin,
    broker_group: str,
    *,
    ids: MessageIds,
    born_ms: int,
    born_host: bytes,
    wiped: frozenset[str],
    is_pinned: bool = False,
) -> Encoded:
    """All messages as one parcel for *broker_group*, in order. The first error that a message has, with its place; BatchTooLarge.

    *is_pinned*: they belong there, whatever the placement says of their key.
    """
    topics: dict[str, int] = {}
    message_ids: list[str] = []
    rows: list[bytes] = []
    parts: list[bytes] = []
    size_bytes = 0
    properties = begin.properties
    key = idempotency_key_of(begin.halves[0].topic, begin.key) if begin.key else NO_KEY
    for half in begin.halves:
        _refuse_order_and_delay(half)
        message = structs.replace(half.message, idempotency_key="") if half.message.idempotency_key else half.message
        encoded = encode_messages(
            half.topic,
            [message],
            ids=ids,
            born_ms=born_ms,
            born_host=born_host,
            usable=(broker_group,),
            wiped=wiped,
            at="",
            system=properties,
            is_transactional=True,
        )
        if encoded.errors:
            raise _at(encoded.errors[0], half)
        (parcel,) = encoded.parcels
        number = topics.setdefault(half.topic.name, len(topics))
        pin = 0
        if key != NO_KEY and not rows:
            pin = FLAG_PINNED if is_pinned else half.topic.sent_on(slot_of_key(key), broker_group)
        rows.append(_half_row(parcel.rows[0], number, key, begin.check_after_ms, pin, is_first=not rows))
        parts += parcel.parts
        message_ids += encoded.message_ids
        size_bytes += parcel.size_bytes
    if len(rows) > 1 and size_bytes > TRANSACTION_SIZE_MAX_BYTES:
        raise BatchTooLarge(actual=size_bytes, limit=TRANSACTION_SIZE_MAX_BYTES, unit="bytes of one transaction")
    made = Parcel(tuple(topics), broker_group, begin.producer_group)
    made.rows, made.parts, made.size_bytes = rows, parts, size_bytes
    made.indexes, made.is_keyed = list(range(len(rows))), bool(begin.key)
    return Encoded(parcel=made, message_ids=message_ids)


def _half_row(row: bytes, topic: int, key: bytes, check_after_ms: int, pin: int, *, is_first: bool) -> bytes:
    """The row of an ordinary message as a half message's. Only the first one of a transaction has its key."""
    flags = FLAG_HALF if is_first else FLAG_HALF | FLAG_SAME_TRANSACTION
    own = key if is_first else NO_KEY
    half = bytearray(row)
    _TOPIC.pack_into(half, _AT_TOPIC, topic)
    _FLAGS.pack_into(half, _AT_FLAGS, flags | pin | (FLAG_KEYED if own != NO_KEY else 0))
    _KEY_AND_TIME.pack_into(half, _AT_KEY, own, check_after_ms)
    return bytes(half)


def _refuse_order_and_delay(half: HalfMessage) -> None:
    """What is invisible until somebody says so comes neither at a time nor behind another message. RocketMQ's proxy decides so, too."""
    field = "message_group" if half.message.message_group else "delay" if has_delay(half.message) else ""
    if field:
        reason = "A message of a transaction is visible when it is committed: leave 'message_group', 'delay', 'deliver_at' and 'delay_level' out"
        raise PropertyConflictsWithType(reason=reason, pointer=f"{half.at}/{field}", topic=half.topic.name)


def _at(error: TernError, half: HalfMessage) -> TernError:
    return placed(error, half.at) if half.at else error
