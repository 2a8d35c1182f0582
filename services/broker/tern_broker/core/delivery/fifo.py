"""Delivery of one queue to one consumer group in the order of message groups.

     offsets   0 ........ committed ................................ cursor ........ end
               | settled  | in hand: leased, resting, back, dying    | never visited   |
               |          | parked: behind one in hand, or ready     |

Law: at most one message of a message group is in hand. All other visited messages of the group are
parked, in order. When the one in hand is settled for good, acked or buried, the message group is
*ready*: its first parked message may be leased without a scan. So a message that rests or is dying
holds up its own message group only. Messages without a message group (hash 0) never wait. Where the
topic has grown, earlier messages may be in another queue: until those are settled the message group
is *elsewhere*.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.lease import Lease, Run, clear_bits
from tern_broker.core.delivery.parked import Parked
from tern_broker.core.topics import Group, Names, Topic
from tern_wire.errors import GroupConflict
from tern_wire.link.rows import FIFO_PARK, FIFO_SKIP
from tern_wire.settings.topic_settings import FIFO

# (offset, message group) of one queue -> whether messages in other queues come first.
MustWait = Callable[[int, int], bool]


def _wait_for_nothing(_offset: int, _message_group: int) -> bool:
    return False


def is_ordered(group: Group, topic: Topic) -> bool:
    """Return whether *group* receives *topic*'s messages in the order of message groups."""
    return group.is_fifo or topic.kind == FIFO


class FifoDelivery(Delivery):
    """One group in one queue, in order. Owner: the state machine; the picker only reads."""

    KIND: ClassVar[str] = "fifo"
    __slots__ = ("busy", "elsewhere", "in_hand", "parked", "ready")

    def __init__(self, cursor: int, version: int = 0) -> None:
        super().__init__(cursor, version)
        # Offset -> hash of its message group (0: none), for everything that is leased, returned,
        # resting or dying.
        self.in_hand: dict[int, int] = {}
        # Message group -> the offset that is in hand.
        self.busy: dict[int, int] = {}
        self.parked = Parked()
        # Message groups with parked messages and none in hand, in the order in which they became
        # ready.
        self.ready: dict[int, None] = {}
        # The same, for message groups with earlier unsettled messages in another queue (slots.py).
        self.elsewhere: dict[int, None] = {}

    # Leasing --------------------------------------------------------------------------------------
    def is_blocked(self, message_group: int) -> bool:
        """Return whether a message of the group that is visited now has to wait."""
        return message_group in self.busy or self.parked.head(message_group) is not None

    def look(
        self,
        lease_id: int,
        offset: int,
        message_group: int,
        run: int,
        end: int,
        deadline_ms: int,
        must_wait: MustWait = _wait_for_nothing,
    ) -> Lease | None:
        """Apply one row of LEASE_FIFO: lease the message at *offset*, or park it.

        Return None if it is parked, or if the state differs from what the leader saw. Fresh
        messages are visited in order, from the cursor on; those that cannot be leased are parked.
        Below the cursor, only the first message of a ready message group and returned messages (in
        run *run*) can be leased. *must_wait*: whether other queues come first.
        """
        if run > 0:
            return self.lease_run(lease_id, run, offset, 1, deadline_ms)
        if offset >= self.cursor:
            if offset != self.cursor or offset >= end or not self.parked.room:
                return None
            self.cursor += 1
            if run == FIFO_SKIP:
                return None  # no consumer gets it, so it never waits
            is_blocked = self.is_blocked(message_group)
            is_elsewhere = not is_blocked and must_wait(offset, message_group)
            if is_blocked or is_elsewhere or run == FIFO_PARK:
                self.parked.append(message_group, offset)
                if not is_blocked:
                    (self.elsewhere if is_elsewhere else self.ready)[message_group] = None
                return None
        elif run != 0 or message_group not in self.ready or self.parked.head(message_group) != offset:
            return None
        elif must_wait(offset, message_group):
            self.hold_back(message_group)
            return None
        else:
            self.parked.take(message_group)
            if message_group or self.parked.head(message_group) is None:
                del self.ready[message_group]
        self._take_in_hand(offset, message_group)
        return self._hold(Lease(lease_id, offset, 1, 0, deadline_ms, attempt=1))

    def hold_back(self, message_group: int) -> None:
        """Make a ready message group wait for messages in another queue."""
        del self.ready[message_group]
        self.elsewhere[message_group] = None

    def release(self, message_group: int) -> None:
        """End the wait of a message group for another queue: it is ready."""
        del self.elsewhere[message_group]
        self.ready[message_group] = None

    def lease_fresh(self, lease_id: int, start: int, count: int, end: int, deadline_ms: int) -> Lease | None:
        """Return None: a fresh message must be visited first."""
        return None

    # Settling -------------------------------------------------------------------------------------
    def settle(self, lease: Lease, mask: int) -> None:
        """Settle the offsets of *mask*; the next messages of their message groups are ready."""
        fresh = mask & ~lease.settled
        super().settle(lease, mask)
        if lease.count == 1:
            if fresh:
                self._leave_hand(lease.start)
        else:
            for offset in (clear_bits(~fresh, lease.count) + lease.start).tolist():
                self._leave_hand(offset)

    def bury(self, offset: int) -> bool:
        """Mark *offset* settled; the next message of its message group is ready. Return False if it
        was not dying.
        """
        if not super().bury(offset):
            return False
        self._leave_hand(offset)
        return True

    def revive(
        self, offsets: npt.NDArray[np.int64], next_id: Callable[[], int], message_groups: Mapping[int, int]
    ) -> int:
        """Make the settled ones of *offsets* visible again; return how many.

        Messages with a message group (its hash by offset; 0 or missing: none) come before the
        parked ones of that group.
        """
        settled = [offset for offset in offsets.tolist() if self.is_settled(offset)]
        for offset in settled:
            if message_group := message_groups.get(offset, 0):
                self.parked.insert(message_group, offset)
                if message_group not in self.busy and message_group not in self.elsewhere:
                    self.ready[message_group] = None
        alone = [offset for offset in settled if not message_groups.get(offset, 0)]
        super().revive(np.array(alone, np.int64), next_id, message_groups)
        for offset in alone:
            self._take_in_hand(offset, 0)
        return len(settled)

    def seek(self, offset: int) -> list[Lease]:
        """Begin again at *offset*: drop everything held and parked. Return the dropped leases."""
        self.in_hand.clear()
        self.busy.clear()
        self.parked.clear()
        self.ready.clear()
        self.elsewhere.clear()
        return super().seek(offset)

    def drop_parked(self, min_offset: int) -> int:
        """Drop unreceived messages below *min_offset*, for retention; return how many parked
        messages are lost.

        Messages in hand were copied. If everything parked behind them were copied too, retention
        could never make room.
        """
        lost, ended = self.parked.drop_below(min_offset)
        for message_group in ended:
            self.ready.pop(message_group, None)
            self.elsewhere.pop(message_group, None)
        return lost

    # Queries --------------------------------------------------------------------------------------
    @property
    def unsettled(self) -> int:
        """Number of unsettled messages below the cursor, parked ones included."""
        return super().unsettled + self.parked.count

    def is_settled(self, offset: int) -> bool:
        """Return whether the group will not receive *offset* again."""
        return offset < self.cursor and offset not in self.in_hand and offset not in self.parked

    def unread_from(self) -> int:
        """Return the lowest offset that waits to be received for the first time; parked messages
        wait.
        """
        lowest = self.parked.lowest()
        return self.cursor if lowest is None else lowest

    def committed(self) -> int:
        """Return the offset below which everything is settled."""
        lowest = self.parked.lowest()
        return min(super().committed(), self.cursor if lowest is None else lowest)

    def available(self, end: int) -> int:
        """Return how many messages could be leased now; unvisited messages count as if none were
        blocked.

        A receive visits them, so a wrong count is corrected at the first visit. With too many
        messages parked no receive visits more, and unvisited messages do not count.
        """
        return super().available(end if self.parked.room else self.cursor) + len(self.ready)

    def busy_slots(self, mask: int) -> set[int]:
        """Return hash & *mask* of every message group with visited, unsettled messages."""
        return {message_group & mask for message_group in (*self.busy, *self.parked.message_groups())}

    # Saving ---------------------------------------------------------------------------------------
    def pack(self) -> list[Any]:
        """Return a frozen copy of MessagePack's types: a Delivery's fields, and the order."""
        return [
            *super().pack(),
            [list(self.in_hand.items()), self.parked.pack(), list(self.ready), list(self.elsewhere)],
        ]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "FifoDelivery":
        """Restore an instance from *packed*."""
        *plain, (in_hand, parked, ready, elsewhere) = packed
        delivery = cls(0)
        delivery.become(Delivery.unpack(plain))
        for offset, message_group in in_hand:
            delivery._take_in_hand(offset, message_group)
        delivery.parked.unpack(parked)
        delivery.ready, delivery.elsewhere = dict.fromkeys(ready), dict.fromkeys(elsewhere)
        return delivery

    def become(self, other: Delivery) -> None:
        """Copy all fields of a Delivery from *other*."""
        for name in Delivery.__slots__:
            setattr(self, name, getattr(other, name))

    # Helpers --------------------------------------------------------------------------------------
    def _take_in_hand(self, offset: int, message_group: int) -> None:
        self.in_hand[offset] = message_group
        if message_group:
            self.busy[message_group] = offset

    def _leave_hand(self, offset: int) -> None:
        message_group = self.in_hand.pop(offset, 0)
        if message_group:
            self.busy.pop(message_group, None)
            if self.parked.head(message_group) is not None:
                self.ready[message_group] = None


def change_order(
    names: Names,
    deliveries: dict[tuple[int, int], list[Delivery | None]],
    wanted: Callable[[Group, Topic], bool],
    next_id: Callable[[], int],
) -> set[int]:
    """Make every delivery ordered or unordered, as *wanted* decides by group and topic; return ids
    of the changed topics.

    A delivery becomes ordered only if none of its messages is leased, resting or dying, since their
    message groups are unknown. Otherwise raise GroupConflict, with nothing changed. When an order
    ends, everything stays as it is, and parked messages are visible at once.
    """
    changes: list[tuple[int, list[Delivery | None], int, Delivery]] = []
    for (group_id, topic_id), row in deliveries.items():
        group, topic = names.groups_by_id[group_id], names.topics_by_id[topic_id]
        ordered = wanted(group, topic)
        for queue, delivery in enumerate(row):
            if delivery is None or isinstance(delivery, FifoDelivery) == ordered:
                continue
            if ordered and delivery.unsettled:
                raise GroupConflict(group=group.name, reason=_NOT_NOW.format(topic=topic.name))
            changes.append((topic_id, row, queue, delivery))
    for _, row, queue, delivery in changes:
        if isinstance(delivery, FifoDelivery):
            row[queue] = _without_order(delivery, next_id)
        else:
            row[queue] = ordered_now = FifoDelivery(delivery.cursor, delivery.version + 1)
            ordered_now.ended = delivery.ended
    return {topic_id for topic_id, *_ in changes}


_NOT_NOW = (
    "messages of topic '{topic}' are leased, rest or are being dead-lettered for it; its order of delivery can change when they are "
    "settled, or after a seek"
)


def _without_order(delivery: FifoDelivery, next_id: Callable[[], int]) -> Delivery:
    plain = Delivery(delivery.cursor)
    for name in Delivery.__slots__:
        setattr(plain, name, getattr(delivery, name))
    plain.version += 1
    for start, count, free in delivery.parked.stretches():
        run = Run(next_id(), start, count, ~free & ((1 << count) - 1), attempts=0)
        plain.runs[run.run_id] = run
        plain.waiting += run.waiting
    return plain
