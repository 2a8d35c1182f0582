"""Where a tail is in each queue, and how far each queue reaches. Pure.

    begin:  from an event id, or from offsets of the brokers
    learn:  a broker tells the next offsets of its queues; a queue that is new begins at 0
    moved:  messages up to an offset were handed out, or passed over by the filter

Owner of the object: one stream. Law: `event_id` names exactly what was handed out.
"""

from collections.abc import Iterable, Sequence

from tern_proxy.core.tailing.event_ids import GroupPlace, group_head, id_text, topic_mark, varint
from tern_wire.errors import LimitReached
from tern_wire.limits_tails import TAIL_QUEUES_MAX

# A broker group and a queue's number.
QueueKey = tuple[str, int]
_REMEDY = "Read its queues by offset: GET /v1/topics/TOPIC/queues/QUEUE/messages."


class _Group:
    """Places in one broker group; *packed*: the offsets as an event id has them."""

    __slots__ = ("ends", "head", "offsets", "packed", "topic_id")

    def __init__(self, name: str, topic_id: int, offsets: Sequence[int]) -> None:
        self.topic_id, self.offsets = topic_id, list(offsets)
        # The next offset of each queue, as far as known.
        self.ends = [0] * len(self.offsets)
        self.packed = list(map(varint, self.offsets))
        self.head = group_head(name, topic_id, len(self.offsets))


class Places:
    """Places of one tail of *topic* (its full name)."""

    __slots__ = ("_groups", "_mark", "_turn")

    def __init__(self, topic: str) -> None:
        self._mark = topic_mark(topic)
        self._groups: dict[str, _Group] = {}
        self._turn = 0

    def begin(self, broker_group: str, place: GroupPlace) -> None:
        """Begin at *place*. Raise LimitReached for a topic with too many queues."""
        self._groups[broker_group] = _Group(broker_group, place.topic_id, place.offsets)
        self._require_few()

    def keep_to(self, broker_group: str, topic_id: int) -> bool:
        """Read the topic with *topic_id* there; return whether it was made anew, so that all of its
        messages are new.

        Ids grow, so a smaller one is that of a topic that is gone, from old routes.
        """
        known = self._groups.get(broker_group)
        if known is not None and known.topic_id >= topic_id:
            return False
        self._groups[broker_group] = _Group(broker_group, topic_id, ())
        return known is not None

    def forget_beyond(self, broker_group: str, ends: Sequence[int]) -> None:
        """Begin anew in queues that end before their place, by *ends* that are newer than it: the
        broker group was made anew, or restored.
        """
        group = self._groups[broker_group]
        for queue, (offset, end) in enumerate(zip(group.offsets, ends, strict=False)):
            if offset > end:
                self.moved((broker_group, queue), 0)

    def learn(self, broker_group: str, ends: Iterable[tuple[int, int]]) -> None:
        """Learn queues and their next offsets. Raise LimitReached."""
        group = self._groups[broker_group]
        before = len(group.offsets)
        for queue, end in sorted(ends):
            while queue >= len(group.offsets):
                group.offsets.append(0)
                group.ends.append(0)
                group.packed.append(varint(0))
            # An answer may be older than the one before it.
            group.ends[queue] = max(group.ends[queue], end)
        if len(group.offsets) != before:
            group.head = group_head(broker_group, group.topic_id, len(group.offsets))
            self._require_few()

    def offset(self, key: QueueKey) -> int:
        """Return the next offset to read."""
        return self._groups[key[0]].offsets[key[1]]

    def moved(self, key: QueueKey, offset: int) -> None:
        """Continue at *offset*."""
        group = self._groups[key[0]]
        group.offsets[key[1]], group.packed[key[1]] = offset, varint(offset)

    def behind(self, is_there: Iterable[str]) -> list[QueueKey]:
        """Return the queues with messages to read in the broker groups *is_there*, another one
        first at every call.
        """
        found = [
            (name, queue)
            for name in is_there
            if (group := self._groups.get(name)) is not None
            for queue, (offset, end) in enumerate(zip(group.offsets, group.ends, strict=True))
            if offset < end
        ]
        self._turn += 1
        first = self._turn % len(found) if found else 0
        return found[first:] + found[:first]

    @property
    def event_id(self) -> str:
        """The id of all these places."""
        parts: list[bytes] = []
        for group in self._groups.values():
            parts.append(group.head)
            parts += group.packed
        return id_text(self._mark, parts)

    def _require_few(self) -> None:
        queues = sum(len(group.offsets) for group in self._groups.values())
        if queues > TAIL_QUEUES_MAX:
            what = "queues of a topic that a tail reads"
            raise LimitReached(what=what, actual=queues, limit=TAIL_QUEUES_MAX, remedy=_REMEDY)
