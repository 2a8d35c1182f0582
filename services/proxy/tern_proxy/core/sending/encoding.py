r"""Encode messages as records and send rows.

Every message passes this loop, so the loop makes no unnecessary object. A record is three parts,
joined once when its frame is written: head (88 bytes, of which all but size, checksum and body size
are the same for a whole request), body, tail (topic, properties). A message that is not allowed
becomes an error at its index; the others continue.

A message id is 32 upper-case hexadecimal digits, unique over all proxies without coordination:

    0                    20            32
    | prefix 20          | counter 12  |

The prefix is random per process; 2**48 messages fit before the counter overflows.
"""

from collections.abc import Sequence
from zlib import crc32

from tern_proxy.core.documents.sends import CONTENT_TYPE_SIZE_MAX_BYTES, JsonMessage, PackedMessage
from tern_proxy.core.sending.batches import body_of
from tern_proxy.core.sending.delivery_time import deliver_ms_of, message_group_hash_of, timing_properties
from tern_proxy.core.sending.topic import Queue, Topic, is_printable
from tern_proxy.core.sending.topic_kinds import refuse_message
from tern_proxy.core.sending.user_properties import joined_keys, user_properties
from tern_wire.errors import (
    BrokerGroupNotWritable,
    InvalidField,
    MessageTooLarge,
    PropertiesTooLarge,
    TernError,
)
from tern_wire.limits import LANE_SIZE_MAX_BYTES, MESSAGE_BODY_SIZE_MAX_BYTES, PROPERTIES_SIZE_MAX_BYTES
from tern_wire.link.rows import FLAG_KEYED, FLAG_PINNED, NO_KEY, SEND_ROW
from tern_wire.records.compression import ENCODINGS, begins_as, sysflag_of
from tern_wire.records.layout import MAGIC, OVERHEAD_SIZE_BYTES, PIECED_HEAD
from tern_wire.records.properties import CONTENT_TYPE, KEYS, MESSAGE_ID, TAGS
from tern_wire.records.write import head_middle
from tern_wire.routing.placement import slot_of_key, slot_of_message_group
from tern_wire.settings.topic_settings import MIXED

PREFIX_LENGTH = 20
_ID, _KEYS, _TAGS, _CONTENT_TYPE = (f"{name}\x01" for name in (MESSAGE_ID, KEYS, TAGS, CONTENT_TYPE))


class MessageIds:
    """Generator of ids.

    *prefix*: 20 upper-case hexadecimal digits that no other process has. Owner: one event loop.
    """

    __slots__ = ("_next", "_prefix")

    def __init__(self, prefix: str) -> None:
        if len(prefix) != PREFIX_LENGTH or any(digit not in "0123456789ABCDEF" for digit in prefix):
            raise ValueError(f"'{prefix}' is not {PREFIX_LENGTH} upper-case hexadecimal digits")
        self._prefix = prefix
        self._next = 0

    def take(self) -> str:
        """Return the next id."""
        number = self._next
        self._next = number + 1
        return f"{self._prefix}{number:012X}"


class Parcel:
    """Messages of one request for one broker group, at most LANE_SIZE_MAX_BYTES.

    More if a single message is larger, or if all messages are one transaction.

    `indexes[i]` is the index of row i in the request. `is_keyed`: every row has an idempotency key,
    or the transaction has one. A row's topic is the index of its name in `topics`.
    `producer_group`: of half messages, "" for others.
    """

    __slots__ = (*("broker_group", "indexes", "is_keyed", "parts", "producer_group", "rows", "size_bytes", "topics"),)

    def __init__(self, topics: Sequence[str], broker_group: str, producer_group: str = "") -> None:
        self.topics = topics
        self.broker_group = broker_group
        self.producer_group = producer_group
        self.rows: list[bytes] = []
        self.parts: list[bytes] = []
        self.indexes: list[int] = []
        self.size_bytes = 0
        self.is_keyed = True


class Encoded:
    """The encoded messages of a request.

    Parcels are in order of sending; ids, errors and delivery times (ms, of delayed messages) by
    index.
    """

    __slots__ = ("deliver_ms", "errors", "message_ids", "parcels")

    def __init__(self) -> None:
        self.parcels: list[Parcel] = []
        self.message_ids: list[str] = []
        self.errors: dict[int, TernError] = {}
        self.deliver_ms: dict[int, int] = {}


def encode_messages(
    topic: Topic,
    messages: Sequence[PackedMessage | JsonMessage],
    *,
    ids: MessageIds,
    born_ms: int,
    born_host: bytes,
    usable: tuple[str, ...],
    wiped: frozenset[str] = frozenset(),
    at: str = "/messages",
    system: str = "",
    is_transactional: bool = False,
    moved_from: str = "",
) -> Encoded:
    """Encode *messages* as records and rows.

    - *usable*: broker groups for messages without key or pinned queue.
    - *wiped*: broker groups without write permission; their messages are refused
      (BrokerGroupNotWritable).
    - *at*: where error pointers begin, before the message's index ("": a single message, no index).
    - *system*: properties that every message gets and no producer may set, in a record's form.
    - *is_transactional*: the topic's type is checked for half messages.
    - *moved_from*: the broker group that refused these keys and message groups as moved.
    """
    encoded = Encoded()
    turn = topic.take_turn()
    sticky = topic.queue_at(turn, usable)
    open_parcels: dict[str, Parcel] = {}
    middles: dict[str, bytes] = {}
    take_id, pack_head, pack_row, record_tail = ids.take, PIECED_HEAD.pack, SEND_ROW.pack, topic.record_tail
    fixed_size = OVERHEAD_SIZE_BYTES + len(topic.name_bytes)
    for index, message in enumerate(messages):
        message_id = take_id()
        encoded.message_ids.append(message_id)
        deliver_ms = message_group = 0
        timing = system
        try:
            if isinstance(message, PackedMessage):
                body, content_type = message.body, message.content_type
            else:
                body, content_type = body_of(message)
            if len(body) > MESSAGE_BODY_SIZE_MAX_BYTES:
                raise MessageTooLarge(actual=len(body), limit=MESSAGE_BODY_SIZE_MAX_BYTES)
            encoding = message.content_encoding
            sysflag = sysflag_for(body, encoding) if encoding else 0
            if (
                message.message_group
                or message.delay is not None
                or message.deliver_at is not None
                or message.delay_level is not None
            ):
                message_group, deliver_ms = message_group_hash_of(message), deliver_ms_of(message, born_ms)
                timing += timing_properties(message, deliver_ms)
            if topic.kind != MIXED:
                refuse_message(topic.name, topic.kind, message, is_transactional=is_transactional)
            properties = encode_properties(message, message_id, content_type, timing)
            tag = topic.tag_hash(message.tag) if message.tag else 0
            if message.idempotency_key:
                key, flags = topic.key_hash(message.idempotency_key), FLAG_KEYED
            else:
                key, flags = NO_KEY, 0
            queue: Queue = sticky
            is_placed = False
            if message.queue:
                queue = topic.pinned(message.queue)
                if flags:
                    flags |= FLAG_PINNED
            elif message_group:
                queue, is_placed = topic.queue_of_message_group(message_group, moved_from), True
                if moved_from:
                    flags |= topic.sent_on(slot_of_message_group(message_group), queue.broker_group)
            elif flags:
                queue, is_placed = topic.queue_of_key(key, turn, moved_from), True
                if moved_from:
                    flags |= topic.sent_on(slot_of_key(key), queue.broker_group)
            if wiped and queue.broker_group in wiped and not (is_placed and topic.asks_first(queue.broker_group)):
                raise BrokerGroupNotWritable(broker_group=queue.broker_group)
        except TernError as error:
            encoded.errors[index] = placed(error, f"{at}/{index}") if at else error
            continue
        size = fixed_size + len(body) + len(properties)
        parcel = open_parcels.get(queue.broker_group)
        if parcel is None or parcel.size_bytes + size > LANE_SIZE_MAX_BYTES:
            parcel = open_parcels[queue.broker_group] = Parcel((topic.name,), queue.broker_group)
            encoded.parcels.append(parcel)
        middle = middles.get(queue.name)
        if middle is None:
            middle = middles[queue.name] = head_middle(queue.number, born_ms, born_host)
        if sysflag:
            middle = head_middle(queue.number, born_ms, born_host, sysflag)
        crc = crc32(body) & 0x7FFFFFFF
        parcel.rows.append(pack_row(size, 0, queue.number, flags, tag, crc, 0, key, deliver_ms, message_group))
        parcel.parts += (
            pack_head(size, MAGIC, crc, middle, len(body)),
            body,
            record_tail + len(properties).to_bytes(2, "big") + properties,
        )
        parcel.size_bytes += size
        parcel.indexes.append(index)
        if not flags & FLAG_KEYED:
            parcel.is_keyed = False
        if deliver_ms:
            encoded.deliver_ms[index] = deliver_ms
    return encoded


def sysflag_for(body: bytes, encoding: str) -> int:
    """Return the sysflag of a *body* that its producer has compressed as *encoding*. InvalidField
    when that is no name of a compression, or the body does not begin like one.

    The body is not decompressed here: readers do that, each with its own limit.
    """
    compression = ENCODINGS.get(encoding)
    if compression is None:
        raise InvalidField(reason=f"'{encoding[:20]}' is none of {', '.join(ENCODINGS)}", pointer="/content_encoding")
    if not begins_as(body, compression):
        raise InvalidField(reason=f"The body is not compressed with {encoding}", pointer="/content_encoding")
    return sysflag_of(compression)


def placed(error: TernError, at: str) -> TernError:
    """Return *error* with its pointer below *at*; valid messages do not pay for pointers."""
    if "pointer" not in error.fields:
        return error
    return type(error)(**{**error.fields, "pointer": f"{at}{error.fields['pointer']}"})


def encode_properties(
    message: PackedMessage | JsonMessage, message_id: str, content_type: str, timing: str = ""
) -> bytes:
    r"""Return a message's properties as `k\x01v\x02...`, all checked.

    In order: id, *timing*, keys, tag, content type and the producer's own.
    """
    text = f"{_ID}{message_id}\x02{timing}"
    user = ""
    if message.keys:
        user = f"{_KEYS}{joined_keys(message.keys)}\x02"
    if message.tag:
        user += f"{_TAGS}{message.tag}\x02"
    if message.properties:
        user += user_properties(message.properties)
    if content_type:
        if not is_printable(content_type) or len(content_type.encode()) > CONTENT_TYPE_SIZE_MAX_BYTES:
            reason = f"A content type is at most {CONTENT_TYPE_SIZE_MAX_BYTES} bytes without control characters"
            raise InvalidField(reason=reason, pointer="/content_type")
        text += f"{_CONTENT_TYPE}{content_type}\x02"
    if not user:
        return text.encode()
    user_bytes = user.encode()
    if len(user_bytes) > PROPERTIES_SIZE_MAX_BYTES:
        raise PropertiesTooLarge(actual=len(user_bytes), limit=PROPERTIES_SIZE_MAX_BYTES)
    return text.encode() + user_bytes
