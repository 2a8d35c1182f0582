r"""Begins of transactions: half messages of one producer group become one parcel for one broker
group.

    messages, each with its topic -> one broker group that has all topics
      -> records with TRAN_MSG and PGROUP, rows with FLAG_HALF
      -> one parcel, repeated as a whole or not at all -> verdict -> receipt

A transaction is stored by one entry of one log, so no part of it can exist without the rest. Its
idempotency key is the first message's, and stands for all of them. Reference: Apache RocketMQ 5,
MessageConst (TRAN_MSG, PGROUP, CHECK_IMMUNITY_TIME_IN_SECONDS).
"""

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from msgspec import structs

from tern_proxy.core.documents.sends import JsonMessage, PackedMessage
from tern_proxy.core.sending.delivery_time import has_delay
from tern_proxy.core.sending.encoding import MessageIds, Parcel, encode_messages, placed
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

# Positions of topic, flags, key and time in a row; see SEND_ROWS.
_TOPIC, _FLAGS = struct.Struct("<I"), struct.Struct("<I")
_KEY_AND_TIME = struct.Struct("<16sq")
_AT_TOPIC, _AT_FLAGS, _AT_KEY = 4, 12, 32
assert SEND_ROW.size == 64
# Knuth's multiplier for 32 bits: it spreads consecutive numbers.
_SCATTER = 2_654_435_769


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    """One message of a transaction, and the pointer of its errors ("" for a single send, which has
    none).
    """

    topic: Topic
    message: PackedMessage | JsonMessage
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Request to begin a transaction.

    *check_after_ms*: 0 for the producer group's setting. *key*: idempotency key, "" for none.
    """

    producer_group: str
    check_after_ms: int
    key: str
    halves: Sequence[HalfMessage]

    @property
    def properties(self) -> str:
        r"""Properties of every record, `k\x01v\x02...`."""
        text = f"{TRANSACTIONAL}\x01true\x02{PRODUCER_GROUP}\x01{self.producer_group}\x02"
        return text + f"{CHECK_AFTER_S}\x01{seconds_of(self.check_after_ms)}\x02" if self.check_after_ms else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Encoded transaction: its parcel, and its messages' ids in order."""

    parcel: Parcel
    message_ids: list[str]


def seconds_of(check_after_ms: int) -> int:
    """Return whole seconds, as RocketMQ counts them, rounded up."""
    return -(-check_after_ms // 1_000)


def producer_group_of(name: str, pointer: str) -> str:
    """Return *name* if it is legal for a producer group.

    Raise InvalidField at *pointer* when missing, IllegalGroup.
    """
    if not name:
        raise InvalidField(
            reason="A transaction needs its producer group, which is asked what became of it", pointer=pointer
        )
    return check_group(name)


def check_after_of(value: str | int | None, pointer: str) -> int:
    """Return the milliseconds from the begin to the first check; 0 for None. Raise InvalidField."""
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
    """Return the key of a transaction of several messages: the header's, or the first message's.

    Raise InvalidField for a key of another message, and for different keys.
    """
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
    """Return the names of the broker groups that have all topics of *halves*, in order; with pinned
    queues, only theirs.

    Raise TopicsApart when there is none, OwnerUnknown when there may be one outside the routes,
    QueueNotFound for an illegal name of a queue.
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
    """Return the broker group whose key table detects a repeat of *begin*, and whether the key is
    pinned there.

    A pinned key is stored outside the first topic's placement (core/sending/owners.py). *names*:
    the broker groups that have all topics; only one if a message names its queue, which decides.
    *moved_from*: the broker group that has answered MOVED. Raise OwnerUnknown, PlacementChanged,
    TopicsApart as in owner_of_several.
    """
    if any(half.message.queue for half in begin.halves):
        return names[0], True
    key = begin.halves[0].topic.key_hash(begin.key)
    topics = {half.topic.name: half.topic for half in begin.halves}.values()
    placed = [(topic.name, topic.known_placement, topic.route) for topic in topics]
    return owner_of_several(placed, slot_of_key(key), moved_from)


def broker_group_of_turn(turn: int, names: Sequence[str]) -> str:
    """Return one of *names*, varying with the turn.

    The turn is scattered, because each topic's queues follow its turns, too, and all queues should
    be used.
    """
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
    """Encode all messages as one parcel for *broker_group*, in order.

    Raise the first error of a message with its pointer, or BatchTooLarge. *is_pinned*: they belong
    there whatever the placement of their key.
    """
    topics: dict[str, int] = {}
    message_ids: list[str] = []
    rows: list[bytes] = []
    parts: list[bytes] = []
    size_bytes = 0
    properties = begin.properties
    key = begin.halves[0].topic.key_hash(begin.key) if begin.key else NO_KEY
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
    """Convert the row of an ordinary message to a half message's.

    Only the first one of a transaction has its key.
    """
    flags = FLAG_HALF if is_first else FLAG_HALF | FLAG_SAME_TRANSACTION
    own = key if is_first else NO_KEY
    half = bytearray(row)
    _TOPIC.pack_into(half, _AT_TOPIC, topic)
    _FLAGS.pack_into(half, _AT_FLAGS, flags | pin | (FLAG_KEYED if own != NO_KEY else 0))
    _KEY_AND_TIME.pack_into(half, _AT_KEY, own, check_after_ms)
    return bytes(half)


def _refuse_order_and_delay(half: HalfMessage) -> None:
    """Refuse order and delay: a message that is invisible until a commit has neither.

    RocketMQ's proxy also refuses them.
    """
    field = "message_group" if half.message.message_group else "delay" if has_delay(half.message) else ""
    if field:
        reason = "A message of a transaction is visible when it is committed: leave 'message_group', 'delay', 'deliver_at' and 'delay_level' out"
        raise PropertyConflictsWithType(reason=reason, pointer=f"{half.at}/{field}", topic=half.topic.name)


def _at(error: TernError, half: HalfMessage) -> TernError:
    return placed(error, half.at) if half.at else error
