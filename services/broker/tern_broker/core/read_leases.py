"""Read leases: ranges of queues that retention keeps while somebody reads them.

A lease has ranges of queues and an end. It ends at its time by the log's clock, or by request; a
renewal moves the time. A TRIM that spares leases drops nothing that a lease holds. Others, made for
a full disk, drop it all the same, and the lease is *broken* then: it holds nothing more, and its
next renewal is refused. So is that of a lease of a deleted topic.

A READ_LEASE's map is one of

    {op: take, lease, owner, for_ms, topics [[topic, [[queue, begin, end], ...]], ...]}
    {op: renew, lease, for_ms}
    {op: end, lease}

*begin* and *end* -1: the oldest and the next offset of the queue as of this entry. No ranges: all
queues of the topic.

Law: a lease that is not broken has all of its messages, as far as they were there when it was
taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.applied import Applied, Handler, read_map
from tern_broker.core.feature_level import READ_LEASES_LEVEL
from tern_broker.core.topics import Names, Topic
from tern_broker.core.windows import rows_of, windows_of
from tern_wire.errors import (
    LimitReached,
    LinkBodyMalformed,
    OffsetExpired,
    QueueNotFound,
    ReadLeaseBroken,
    ReadLeaseNotFound,
    TopicNotFound,
)
from tern_wire.limits_reads import (
    READ_LEASE_MAX_MS,
    READ_LEASE_MIN_MS,
    READ_LEASE_QUEUES_MAX,
    READ_LEASED_QUEUES_MAX,
    READ_LEASES_INSPECTED_MAX,
    READ_LEASES_MAX,
    READ_LEASES_PER_PRINCIPAL_MAX,
)
from tern_wire.link.commands import CommandKind

# Ranges of one topic, shape (n, 3): queue, begin, end; in this byte order in a saved state.
Ranges = npt.NDArray[np.int64]
_QUEUE, _BEGIN, _END = 0, 1, 2
# Above every offset.
_NOTHING = np.iinfo(np.int64).max
# For every topic: its id, and the future first offset of each queue.
Mins = Sequence[tuple[int, Sequence[int]]]


@dataclass(slots=True, kw_only=True)
class ReadLease:
    """One lease. *ranges* by topic id; *broken_by*: why it holds nothing any more, "" while it
    holds.
    """

    lease: str
    owner: str
    taken_ms: int
    until_ms: int
    ranges: dict[int, Ranges] = field(default_factory=dict)
    broken_by: str = ""

    @property
    def queues(self) -> int:
        """Number of its ranges."""
        return sum(map(len, self.ranges.values()))

    def lost_in(self, topic_id: int, mins: Sequence[int]) -> int | None:
        """Return a queue of the topic of which it has lost messages, whose queues begin at *mins*;
        None if there is none.
        """
        ranges = self.ranges[topic_id]
        least = np.array(mins, np.int64)[ranges[:, _QUEUE]]
        lost = np.flatnonzero((ranges[:, _BEGIN] < ranges[:, _END]) & (least > ranges[:, _BEGIN]))
        return int(ranges[lost[0], _QUEUE]) if len(lost) else None

    def pack(self) -> list[Any]:
        """Return a frozen copy of MessagePack's types."""
        ranges = [[topic_id, rows.astype("<i8").tobytes()] for topic_id, rows in self.ranges.items()]
        return [self.lease, self.owner, self.taken_ms, self.until_ms, ranges, self.broken_by]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "ReadLease":
        """Restore an instance from *packed*."""
        lease, owner, taken_ms, until_ms, ranges, broken_by = packed
        rows = {topic_id: np.frombuffer(data, "<i8").reshape(-1, 3).astype(np.int64) for topic_id, data in ranges}
        return cls(lease=lease, owner=owner, taken_ms=taken_ms, until_ms=until_ms, ranges=rows, broken_by=broken_by)


class ReadLeases:
    """The leases of one broker group. Owner: the state machine."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.leases: dict[str, ReadLease] = {}
        self._queues = 0
        self._first_end_ms = 0  # of all leases; 0: there are none
        # By topic id and queue; derived when it is needed.
        self._floors: dict[int, Ranges] | None = None
        # Leases that stopped to hold their ranges, since the process started. Apply never reads it.
        self.released = 0

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.READ_LEASE: self._read_lease}

    # For retention --------------------------------------------------------------------------------
    def holds(self, mins: Mins) -> bool:
        """Return whether a lease would lose messages if queues began at *mins*."""
        floors = self._lowest() if self.leases else {}
        return any(_is_above(offsets, floors[topic_id]) for topic_id, offsets in mins if topic_id in floors)

    def trimmed(self) -> None:
        """Break the leases that have lost messages: the topics' mins have moved."""
        if not self.leases:
            return
        topics = (self._names.topics_by_id.get(topic_id) for topic_id in self._lowest())
        moved = [
            topic for topic in topics if topic is not None and _is_above(topic.mins, self._lowest()[topic.topic_id])
        ]
        for topic in moved:
            for lease in self.leases.values():
                if topic.topic_id in lease.ranges and (queue := lease.lost_in(topic.topic_id, topic.mins)) is not None:
                    self._break(lease, f"retention has dropped messages of queue {queue} of topic '{topic.name}'")

    def _lowest(self) -> dict[int, Ranges]:
        """Return the lowest offset that a lease holds, by topic id and queue."""
        if self._floors is None:
            self._floors = {}
            for lease in self.leases.values():
                if not lease.broken_by:
                    _lower(self._floors, lease)
        return self._floors

    def drop(self, _applied: Applied, topic_id: int, _group_id: int) -> None:
        """Break the leases of a topic that is about to be deleted."""
        for lease in self.leases.values():
            if topic_id in lease.ranges:
                self._break(lease, f"topic '{self._names.topics_by_id[topic_id].name}' was deleted")

    def _break(self, lease: ReadLease, reason: str) -> None:
        if not lease.broken_by:
            lease.broken_by, self._floors = reason, None
            self.released += 1

    # For readers ----------------------------------------------------------------------------------
    def topics_of(self, lease: ReadLease) -> list[Topic]:
        """Return its topics that are still there."""
        found = (self._names.topics_by_id.get(topic_id) for topic_id in lease.ranges)
        return [topic for topic in found if topic is not None]

    # Part -----------------------------------------------------------------------------------------
    def is_due(self, now_ms: int) -> bool:
        """Return whether a lease is over by *now_ms*."""
        return 0 < self._first_end_ms <= now_ms

    def expire(self, applied: Applied) -> None:
        """Forget the leases whose time is over."""
        if self.is_due(applied.now_ms):
            for lease in [lease for lease in self.leases.values() if lease.until_ms <= applied.now_ms]:
                self._forget(lease)

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return [lease.pack() for lease in self.leases.values()]

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self.leases = {lease[0]: ReadLease.unpack(lease) for lease in packed}
        self._queues = sum(lease.queues for lease in self.leases.values())
        self._floors = None
        self._set_first_end()

    def windows(self) -> int:
        """Return the number of windows, at least one."""
        return windows_of(self.leases, size=READ_LEASES_INSPECTED_MAX)

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types; an empty one behind the last."""
        return [lease.pack() for lease in rows_of(self.leases.values(), number, READ_LEASES_INSPECTED_MAX)]

    # Commands -------------------------------------------------------------------------------------
    def _read_lease(self, payload: memoryview, _position: int, applied: Applied) -> dict[str, Any]:
        if applied.version < READ_LEASES_LEVEL:
            # What a release without leases says to it.
            raise LinkBodyMalformed(reason=f"command {int(CommandKind.READ_LEASE)} is not known to this release")
        request = read_map(payload)
        name = str(request["lease"])
        if request["op"] == "take":
            taken = self._take(name, request, applied)
            topics = [
                {"topic": topic.name, "ranges": taken.ranges[topic.topic_id].tolist()}
                for topic in self.topics_of(taken)
            ]
            return {**_times(taken), "topics": topics}
        lease = self.leases.get(name)
        if lease is None:
            raise ReadLeaseNotFound(lease=name[:160])
        if request["op"] == "end":
            self._forget(lease)
        elif lease.broken_by:
            raise ReadLeaseBroken(lease=name, reason=lease.broken_by)
        else:
            lease.until_ms = max(lease.until_ms, applied.now_ms + _duration(request))
            self._set_first_end()
        return _times(lease)

    def _take(self, name: str, request: dict[str, Any], applied: Applied) -> ReadLease:
        owner = str(request["owner"])
        known = self.leases.get(name)
        if known is not None:
            return known  # a repeat, since the answer was lost
        if len(self.leases) >= READ_LEASES_MAX:
            raise LimitReached(what="read leases", actual=len(self.leases), limit=READ_LEASES_MAX, remedy=_REMEDY)
        own = sum(1 for lease in self.leases.values() if lease.owner == owner)
        if own >= READ_LEASES_PER_PRINCIPAL_MAX:
            raise LimitReached(
                what="read leases of one principal", actual=own, limit=READ_LEASES_PER_PRINCIPAL_MAX, remedy=_REMEDY
            )
        lease = ReadLease(
            lease=name, owner=owner, taken_ms=applied.now_ms, until_ms=applied.now_ms + _duration(request)
        )
        for topic_name, ranges in request["topics"]:
            topic = self._names.topics.get(str(topic_name))
            if topic is None:
                raise TopicNotFound(topic=str(topic_name)[:160])
            lease.ranges[topic.topic_id] = _ranges(topic, ranges)
        for what, actual, limit in (
            ("queues of a read lease", lease.queues, READ_LEASE_QUEUES_MAX),
            ("queues of all read leases", self._queues + lease.queues, READ_LEASED_QUEUES_MAX),
        ):
            if actual > limit:
                raise LimitReached(what=what, actual=actual, limit=limit, remedy=_REMEDY)
        # From here on nothing is refused.
        self.leases[name] = lease
        self._queues += lease.queues
        if self._floors is not None:
            _lower(self._floors, lease)
        self._set_first_end()
        return lease

    def _forget(self, lease: ReadLease) -> None:
        del self.leases[lease.lease]
        self._queues -= lease.queues
        if not lease.broken_by:
            self._floors = None
            self.released += 1
        self._set_first_end()

    def _set_first_end(self) -> None:
        self._first_end_ms = min((lease.until_ms for lease in self.leases.values()), default=0)


_REMEDY = "End leases that nobody needs (`ternmq lease ls`, `ternmq lease rm`), or lease fewer queues."


def _times(lease: ReadLease) -> dict[str, Any]:
    return {"lease": lease.lease, "taken_ms": lease.taken_ms, "until_ms": lease.until_ms}


def _is_above(offsets: Sequence[int], floor: Ranges) -> bool:
    """Return whether one of *offsets*, which may be of fewer queues, is above its *floor*."""
    count = min(len(offsets), len(floor))
    return bool((np.array(offsets[:count], np.int64) > floor[:count]).any())


def _lower(floors: dict[int, Ranges], lease: ReadLease) -> None:
    for topic_id, ranges in lease.ranges.items():
        used = ranges[ranges[:, _BEGIN] < ranges[:, _END]]
        if not len(used):
            continue
        floor = floors.get(topic_id, np.empty(0, np.int64))
        missing = int(used[:, _QUEUE].max()) + 1 - len(floor)
        if missing > 0:
            floor = np.concatenate([floor, np.full(missing, _NOTHING, np.int64)])
        floor[used[:, _QUEUE]] = np.minimum(floor[used[:, _QUEUE]], used[:, _BEGIN])
        floors[topic_id] = floor


def _duration(request: dict[str, Any]) -> int:
    return min(max(int(request["for_ms"]), READ_LEASE_MIN_MS), READ_LEASE_MAX_MS)


def _ranges(topic: Topic, asked: Sequence[Sequence[Any]]) -> Ranges:
    """Return the ranges of *topic* that *asked* names. QueueNotFound, OffsetExpired."""
    rows: dict[int, tuple[int, int, int]] = {}
    for queue, begin, end in asked or [(queue, -1, -1) for queue in range(topic.queues)]:
        if not 0 <= int(queue) < topic.queues:
            raise QueueNotFound(queue=str(queue), topic=topic.name)
        least, behind = topic.mins[int(queue)], topic.ends[int(queue)]
        first = least if int(begin) < 0 else int(begin)
        last = behind if int(end) < 0 else int(end)
        if first < least and first < last:
            raise OffsetExpired(offset=first, min_offset=least, topic=topic.name, queue=int(queue))
        rows[int(queue)] = (int(queue), first, last)
    return np.array(list(rows.values()), np.int64).reshape(-1, 3)
