"""Topic of the send path: its queues in every broker group, the constant part of its records, and
its turns.
"""

from tern_proxy.core.sending.owners import is_sent_on, owner_or_refuse
from tern_proxy.core.sending.topic_kinds import kind_of
from tern_wire.errors import IllegalIdempotencyKey, IllegalTag, OwnerUnknown, QueueNotFound, TopicNotWritable
from tern_wire.limits import IDEMPOTENCY_KEY_SIZE_MAX_BYTES, TAG_SIZE_MAX_BYTES
from tern_wire.link.rows import FLAG_SENT_ON, key_hash
from tern_wire.names import parse_queue
from tern_wire.records.java_hashes import tag_hash
from tern_wire.routing.placement import Placement, placement_of, read_placement, slot_of_key, slot_of_message_group
from tern_wire.routing.route import PERM_READ, PERM_WRITE, TopicRoute

# Topics have few tags (RocketMQ's advice); a producer that generates tags costs a hash each, not
# memory.
TAGS_KEPT_MAX = 1_024


class Queue:
    """One queue of a topic with its name `broker-a:3`. Immutable."""

    __slots__ = ("broker_group", "name", "number")

    def __init__(self, broker_group: str, number: int) -> None:
        self.broker_group = broker_group
        self.number = number
        self.name = f"{broker_group}:{number}"


class Topic:
    """Queues of a topic, grouped by broker group (in order of their names).

    Owner: the route cache, which replaces it. Only the turn and the tags change: the turn advances
    with every request that may choose its queue. *is_whole*: the underlying routes name every
    broker group that may have the topic. *perm*: RocketMQ's bits; a right missing in one broker
    group is missing.
    """

    __slots__ = (
        "_broker_groups",
        "_late",
        "_placement",
        "_tags",
        "_turn",
        "is_whole",
        "kind",
        "name",
        "name_bytes",
        "perm",
        "record_tail",
        "route",
    )

    def __init__(self, name: str, route: dict[str, TopicRoute], turn: int = 0, *, is_whole: bool = True) -> None:
        self.name, self.is_whole = name, is_whole
        self.name_bytes = name.encode()
        # Bytes between a record's body and the size of its properties.
        self.record_tail = bytes((len(self.name_bytes),)) + self.name_bytes
        self.route = route
        self.kind, self.perm = kind_of(route), PERM_READ | PERM_WRITE
        for part in route.values():
            self.perm &= part.perm
        self._broker_groups: dict[str, tuple[Queue, ...]] | None = None
        self._placement: Placement | None = None
        self._late: tuple[str, ...] | None = None
        self._tags: dict[str, int] = {"": 0}
        self._turn = turn

    def require_writable(self) -> None:
        """Raise TopicNotWritable unless *perm* has the bit for writing."""
        if not self.perm & PERM_WRITE:
            raise TopicNotWritable(topic=self.name)

    @property
    def broker_groups(self) -> dict[str, tuple[Queue, ...]]:
        """Queues, made at the first use: of tens of thousands of topics a proxy serves few."""
        if self._broker_groups is None:
            self._broker_groups = {
                broker_group: tuple(Queue(broker_group, number) for number in range(self.route[broker_group].queues))
                for broker_group in sorted(self.route)
            }
        return self._broker_groups

    @property
    def turn(self) -> int:
        """Number of turns taken."""
        return self._turn

    def take_turn(self) -> int:
        """Return a number that grows with every request: request n starts at queue n modulo the
        number of queues.
        """
        self._turn += 1
        return self._turn

    def queue_at(self, turn: int, usable: tuple[str, ...]) -> Queue:
        """Return the queue of *turn*, round robin over the broker groups in *usable* (not empty)
        and then over their queues.
        """
        queues = self.broker_groups[usable[turn % len(usable)]]
        return queues[turn // len(usable) % len(queues)]

    @property
    def placement(self) -> Placement:
        """Broker groups of its keyed and ordered messages."""
        if self._placement is None:
            self._placement = placement_of({name: part.placement for name, part in self.route.items()})
        return self._placement

    @property
    def late(self) -> tuple[str, ...]:
        """Broker groups of its placement that lack it in the routes, and those that have it with an
        older placement.
        """
        if self._late is None:
            placed, route = self.placement, self.route
            lacking = [name for name in placed.groups if name not in route]
            behind = [name for name, part in route.items() if read_placement(part.placement).epoch < placed.epoch]
            self._late = (*lacking, *behind)
        return self._late

    @property
    def known_placement(self) -> Placement:
        """Placement of the topic.

        Raise OwnerUnknown when there is none and *route* may lack broker groups of the topic.
        """
        placement = self.placement
        if not placement.epoch and not self.is_whole:
            raise OwnerUnknown(topic=self.name, missing="its placement is not known while name servers warm up")
        return placement

    def queue_of_key(self, key: bytes, turn: int, moved_from: str = "") -> Queue:
        """Return a queue in the owner of *key* (a key hash), whose key table detects a repeat.

        *moved_from*: the broker group that has answered MOVED. Raise OwnerUnknown, PlacementChanged
        as in owner_or_refuse.
        """
        queues = self._queues_at(slot_of_key(key), moved_from)
        return queues[turn // len(self.route) % len(queues)]

    def queue_of_message_group(self, message_group: int, moved_from: str = "") -> Queue:
        """Return queue 0 in the owner of a message group's hash; the broker group's slots decide
        the real queue.

        Errors and *moved_from*: as in queue_of_key.
        """
        return self._queues_at(slot_of_message_group(message_group), moved_from)[0]

    def asks_first(self, broker_group: str) -> bool:
        """Return whether *broker_group* is the owner before a move, which is asked first but may
        store nothing new.
        """
        return broker_group in self.placement.before

    def sent_on(self, slot: int, broker_group: str) -> int:
        """Return the flag of a row for *broker_group* that the previous owner has sent on; 0 if it
        has not.
        """
        return FLAG_SENT_ON if is_sent_on(self.placement, slot, broker_group) else 0

    def _queues_at(self, slot: int, moved_from: str) -> tuple[Queue, ...]:
        return self.broker_groups[owner_or_refuse(self.name, self.known_placement, self.route, slot, moved_from)]

    def pinned(self, text: str) -> Queue:
        """Return the queue that a client names `broker-a:3`.

        Raise QueueNotFound when the topic has no such queue.
        """
        name = parse_queue(text, self.name)
        queues = self.broker_groups.get(name.broker_group, ())
        if name.queue >= len(queues):
            raise QueueNotFound(queue=text, topic=self.name)
        return queues[name.queue]

    def key_hash(self, idempotency_key: str) -> bytes:
        """Return the hash of *idempotency_key* for a row. Raise IllegalIdempotencyKey."""
        data = idempotency_key.encode()
        if len(data) > IDEMPOTENCY_KEY_SIZE_MAX_BYTES or not is_printable(idempotency_key):
            raise IllegalIdempotencyKey(pointer="/idempotency_key")
        return key_hash(self.name_bytes, data)

    def tag_hash(self, tag: str) -> int:
        """Return the hash of *tag* for a queue entry. Raise IllegalTag for an illegal tag."""
        known = self._tags.get(tag)
        if known is not None:
            return known
        if "|" in tag or not is_printable(tag) or len(tag.encode()) > TAG_SIZE_MAX_BYTES:
            raise IllegalTag(pointer="/tag")
        if len(self._tags) >= TAGS_KEPT_MAX:
            self._tags = {"": 0}
        value = self._tags[tag] = tag_hash(tag)
        return value


def is_printable(text: str) -> bool:
    """Return whether *text* has no control characters (C0, DEL), which separate properties inside a
    record.
    """
    # str.isprintable is one C loop, but it also refuses spaces and characters of other scripts that
    # are legal here.
    return text.isprintable() or not any(sign < " " or sign == "\x7f" for sign in text)
