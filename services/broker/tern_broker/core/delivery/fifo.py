"""Delivery of one queue to one consumer group in the order of message groups.

     offsets   0 ........ committed ................................ cursor ........ end
               | settled  | in hand: leased, resting, back, dying    | never looked at |
               |          | parked: behind one in hand, or ready     |

Law: of one message group at most one message is in hand. All others that were looked at are parked, in order. When the one in hand is
settled for good, acked or buried, the message group is *ready*: its first parked message may be leased, without a scan. So a message that
rests, or is dying, holds up its own message group and nothing else. Messages without a message group (hash 0) wait for nobody.
Where the topic has grown, earlier messages may lie in another queue: until those are settled the message group is *elsewhere*.
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

# (offset, message group) of one queue -> whether what lies in other queues comes first.
MustWait = Callable[[int, int], bool]


def _wait_for_nothing(_offset: int, _message_group: int) -> bool:
    return False


def is_ordered(group: Group, topic: Topic) -> bool:
    """Whether *group* gets *topic*'s messages in the order of message groups."""
    return group.is_fifo or topic.kind == FIFO


class FifoDelivery(Delivery):
    """One group in one queue, in order. Owner: the state machine; the picker only reads."""

    KIND: ClassVar[str] = "fifo"
    __slots__ = ("busy", "elsewhere", "in_hand", "parked", "ready")

    def __init__(self, cursor: int, version: int = 0) -> None:
        super().__init__(cursor, version)
        # Offset -> hash of its message group (0: none), for everything that is leased, back, resting or dying.
        self.in_hand: dict[int, int] = {}
        # Message group -> the offset that is in hand.
        self.busy: dict[int, int] = {}
        self.parked = Parked()
        # Message groups of which something is parked and nothing is in hand, in the order in which they became so.
        self.ready: dict[int, None] = {}
        # The same, but of which earlier messages are unsettled in another queue (slots.py).
        self.elsewhere: dict[int, None] = {}

    # Leasing ---------------------------------------------------------------------------------------------------
    def is_blocked(self, message_group: int) -> bool:
        """Whether a message of it that is looked at now has to wait."""
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
        """One row of LEASE_FIFO: lease the message at *offset*, or park it; None also if it is not what the leader believed.

        Fresh messages are looked at in order, from the cursor on: what cannot be leased is parked. Below the cursor, only the first of a
        ready message group and what came back (in run *run*) can be leased. *must_wait*: whether other queues come first.
        """
        if run > 0:
            return self.lease_run(lease_id, run, offset, 1, deadline_ms)
        if offset >= self.cursor:
            if offset != self.cursor or offset >= end or not self.parked.room:
                return None
            self.cursor += 1
            if run == FIFO_SKIP:
                return None  # nobody gets it, so it waits for nobody
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
        """A ready message group has to wait for what is in another queue."""
        del self.ready[message_group]
        self.elsewhere[message_group] = None

    def release(self, message_group: int) -> None:
        """It has waited for another queue, and does no longer."""
        del self.elsewhere[message_group]
        self.ready[message_group] = None

    def lease_fresh(self, lease_id: int, start: int, count: int, end: int, deadline_ms: int) -> Lease | None:
        """Never: what is fresh must be looked at first."""
        return None

    # Settling --------------------------------------------------------------------------------------------------
    def settle(self, lease: Lease, mask: int) -> None:
        """As Delivery; the next of the message group is ready."""
        fresh = mask & ~lease.settled
        super().settle(lease, mask)
        if lease.count == 1:
            if fresh:
                self._leave_hand(lease.start)
        else:
            for offset in (clear_bits(~fresh, lease.count) + lease.start).tolist():
                self._leave_hand(offset)

    def bury(self, offset: int) -> bool:
        """As Delivery; the next of the message group is ready."""
        if not super().bury(offset):
            return False
        self._leave_hand(offset)
        return True

    def revive(
        self, offsets: npt.NDArray[np.int64], next_id: Callable[[], int], message_groups: Mapping[int, int]
    ) -> int:
        """As Delivery; those with a message group (its hash by offset, 0 or left out: none) come before what waits in it."""
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
        """As Delivery; everything parked is forgotten, too."""
        self.in_hand.clear()
        self.busy.clear()
        self.parked.clear()
        self.ready.clear()
        self.elsewhere.clear()
        return super().seek(offset)

    def drop_parked(self, min_offset: int) -> int:
        """Retention drops what nobody has received below *min_offset*: how many messages of those that are parked.

        What is in hand was copied; to copy everything that waits behind it would keep retention from ever making room.
        """
        lost, ended = self.parked.drop_below(min_offset)
        for message_group in ended:
            self.ready.pop(message_group, None)
            self.elsewhere.pop(message_group, None)
        return lost

    # Looking ---------------------------------------------------------------------------------------------------
    @property
    def unsettled(self) -> int:
        """As Delivery, and what is parked."""
        return super().unsettled + self.parked.count

    def is_settled(self, offset: int) -> bool:
        """Whether the group will not see *offset* again."""
        return offset < self.cursor and offset not in self.in_hand and offset not in self.parked

    def unread_from(self) -> int:
        """As Delivery: what is parked waits."""
        lowest = self.parked.lowest()
        return self.cursor if lowest is None else lowest

    def committed(self) -> int:
        """Everything below this offset is settled."""
        lowest = self.parked.lowest()
        return min(super().committed(), self.cursor if lowest is None else lowest)

    def available(self, end: int) -> int:
        """How many messages could be leased now: those that were not looked at count as if nothing blocked them.

        A receive looks at them, so they are counted in vain only once. With too much parked, nobody looks, and they do not count.
        """
        return super().available(end if self.parked.room else self.cursor) + len(self.ready)

    def busy_slots(self, mask: int) -> set[int]:
        """hash & *mask* of every message group of which something was looked at and is not settled."""
        return {message_group & mask for message_group in (*self.busy, *self.parked.message_groups())}

    # Saving ----------------------------------------------------------------------------------------------------
    def pack(self) -> list[Any]:
        """A frozen copy of MessagePack's types: a Delivery's, and the order."""
        return [
            *super().pack(),
            [list(self.in_hand.items()), self.parked.pack(), list(self.ready), list(self.elsewhere)],
        ]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "FifoDelivery":
        """What was packed."""
        *plain, (in_hand, parked, ready, elsewhere) = packed
        delivery = cls(0)
        delivery.become(Delivery.unpack(plain))
        for offset, message_group in in_hand:
            delivery._take_in_hand(offset, message_group)
        delivery.parked.unpack(parked)
        delivery.ready, delivery.elsewhere = dict.fromkeys(ready), dict.fromkeys(elsewhere)
        return delivery

    def become(self, other: Delivery) -> None:
        """Take over everything of *other* that a Delivery has."""
        for name in Delivery.__slots__:
            setattr(self, name, getattr(other, name))

    # Below -----------------------------------------------------------------------------------------------------
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
    """Make every delivery ordered or not, as *wanted* says of its group and topic; ids of the topics whose deliveries have changed.

    To get an order, nothing of a delivery may be leased, resting or dying, since nobody knows the message groups of that: GroupConflict,
    and nothing is changed. When an order ends, everything stays as it is, and what is parked is visible at once.
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
