"""The queue of each message group's messages: 1,024 fixed slots of a topic, each owned by one
queue.

     message group -> hash -> slot (its lowest 10 bits) -> owner, a queue

Law: a slot has one owner, which changes only while none of the slot's messages is unsettled. The
number of a topic's queues only grows. A slot then belongs to queue slot % queues, but moves there
with the first message that finds it empty: all messages of the slot are settled for every group
that has begun to consume the topic in order. While there is no such group, a new one may still read
the topic from its beginning: then retention must have dropped the slot's messages. Groups without
order do not hold back a move.

A group that comes later, or seeks back to before a move, meets the slot in more than one queue. The
earlier queues are remembered (*homes*), and a message waits until all earlier messages elsewhere
are settled (`must_wait`).

The leader fills in the queue when the entry is built; apply accepts the owner and the queue to
which the slot moves. The table takes 10 KiB for a topic with message groups and some bytes for each
move, nothing for other topics.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.applied import Applied, Handler
from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.fifo import FifoDelivery, is_ordered
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.topics import Names, Topic
from tern_broker.core.windows import rows_of, windows_of

SLOTS = 1_024
# A slot with this many former queues that may still have unread messages does not move.
HOMES_MAX = 4
_NOTHING_SENT = -1
# Number of tables that one comparison inspects, 10 KiB each.
_INSPECTED_TABLES = 32
Hashes = npt.NDArray[np.uint64]
Queues = npt.NDArray[np.int64]


class SlotTable:
    """The slots of one topic: *owners*, and *lasts*, the last offset sent of each in its owner's
    queue. Owner: Slots.

    *homes*, by slot: former queues, oldest first, each with the slot's last offset there.
    """

    __slots__ = ("homes", "lasts", "owners")

    def __init__(self, owners: npt.NDArray[np.uint16], lasts: npt.NDArray[np.int64]) -> None:
        self.owners, self.lasts = owners, lasts
        self.homes: dict[int, list[tuple[int, int]]] = {}

    def leave(self, slot: int, mins: Sequence[int]) -> None:
        """Record the move of *slot*: its queue becomes a home, unless the slot is empty. Drop homes
        that retention has emptied.
        """
        kept = self.live_homes(slot, mins)
        if self.lasts[slot] != _NOTHING_SENT:
            kept.append((int(self.owners[slot]), int(self.lasts[slot])))
        self.homes[slot] = kept[-HOMES_MAX:]

    def live_homes(self, slot: int, mins: Sequence[int]) -> list[tuple[int, int]]:
        """Return homes that may still have unread messages."""
        return [(queue, last) for queue, last in self.homes.get(slot, ()) if last >= mins[queue]]


def _pack_table(topic_id: int, table: SlotTable) -> list[Any]:
    return [
        *(topic_id, table.owners.astype("<u2").tobytes(), table.lasts.astype("<i8").tobytes()),
        [[slot, *homes] for slot, homes in table.homes.items()],
    ]


class Slots:
    """The slots of every topic with message groups. Owner: the state machine."""

    def __init__(self, names: Names, leasing: Leasing) -> None:
        self._names, self._leasing = names, leasing
        self._tables: dict[int, SlotTable] = {}
        # For topics that move to other broker groups: slots that have left, so that none of their
        # moving message groups returns.
        self._left: dict[int, npt.NDArray[np.bool_]] = {}

    def commands(self) -> Mapping[int, Handler]:
        """Return no handlers: slots change with sends."""
        return {}

    def is_due(self, _now_ms: int) -> bool:
        """Return False: nothing here ends by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """Do nothing: nothing here ends by itself."""

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        tables = [_pack_table(topic_id, table) for topic_id, table in self._tables.items()]
        return {"tables": tables, "left": [[topic_id, left.tobytes()] for topic_id, left in self._left.items()]}

    def windows(self) -> int:
        """Return the number of windows, at least one."""
        return windows_of(self._tables, self._left, size=_INSPECTED_TABLES)

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types."""
        tables = rows_of(self._tables.items(), number, _INSPECTED_TABLES)
        left = rows_of(self._left.items(), number, _INSPECTED_TABLES)
        packed = [_pack_table(topic_id, table) for topic_id, table in tables]
        return [packed, [[topic_id, slots.tobytes()] for topic_id, slots in left]]

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        # A list was saved by a release in which no topic moved.
        tables, left = (packed, []) if isinstance(packed, list) else (packed["tables"], packed["left"])
        self._left = {topic_id: np.frombuffer(slots, bool).copy() for topic_id, slots in left}
        for topic_id, owners, lasts, moved in tables:
            table = self._tables[topic_id] = SlotTable(
                np.frombuffer(owners, "<u2").astype(np.uint16), np.frombuffer(lasts, "<i8").astype(np.int64)
            )
            table.homes = {slot: [(queue, last) for queue, last in homes] for slot, *homes in moved}

    def route(self, topic: Topic, hashes: Hashes) -> Queues:
        """Return the queue of each of *hashes*, shape (n,), for an entry that is built now. Changes
        nothing.
        """
        slots = _slots_of(hashes)
        wanted = slots % topic.queues
        table = self._tables.get(topic.topic_id)
        if table is None:
            return wanted
        owners = table.owners[slots].astype(np.int64)
        away = owners != wanted
        if away.any():
            empty = self._empty(topic, table, np.unique(slots[away]).tolist())
            owners = np.where(away & np.isin(slots, empty), wanted, owners)
        return owners

    def accepts(self, topic: Topic, hashes: Hashes, queues: Queues) -> npt.NDArray[np.bool_]:
        """Return which of the rows name a queue that their slot allows: its owner, or the queue to
        which it moves.
        """
        slots = _slots_of(hashes)
        fits: npt.NDArray[np.bool_] = queues == slots % topic.queues
        table = self._tables.get(topic.topic_id)
        if table is not None:
            fits |= queues == table.owners[slots]
        return fits

    def keeps(self, topic: Topic, hashes: Hashes, queues: Queues) -> npt.NDArray[np.bool_]:
        """Return which rows, whose queues were chosen earlier, may be appended now: the queue owns
        their slot, or the slot would move there now.
        """
        table = self._tables.get(topic.topic_id)
        fits: npt.NDArray[np.bool_] = queues == self.route(topic, hashes)
        if table is not None:
            fits |= queues == table.owners[_slots_of(hashes)]
        left = self._left.get(topic.topic_id)
        return fits if left is None else fits & ~left[_slots_of(hashes)]

    def sent(self, topic: Topic, hashes: Hashes, queues: Queues, offsets: npt.NDArray[np.int64]) -> None:
        """Record that these rows were stored at *offsets*: their queues own their slots."""
        table, slots = self._table_of(topic), _slots_of(hashes)
        # A moved slot begins anew: offsets of another queue mean nothing.
        moved = np.unique(slots[table.owners[slots] != queues])
        for slot in moved.tolist():
            table.leave(slot, topic.mins)
        table.owners[slots] = queues
        table.lasts[moved] = _NOTHING_SENT
        np.maximum.at(table.lasts, slots, offsets)

    def accepts_one(self, topic: Topic, message_group: int, queue: int) -> bool:
        """Return whether one row names a queue that its slot allows."""
        slot = message_group % SLOTS
        if queue == slot % topic.queues:
            return True
        table = self._tables.get(topic.topic_id)
        return table is not None and queue == int(table.owners[slot])

    def sent_one(self, topic: Topic, message_group: int, queue: int, offset: int) -> None:
        """Record that one row was stored at *offset*: its queue owns its slot."""
        table, slot = self._table_of(topic), message_group % SLOTS
        if int(table.owners[slot]) != queue:
            table.leave(slot, topic.mins)
            table.owners[slot], table.lasts[slot] = queue, offset
        elif offset > int(table.lasts[slot]):
            table.lasts[slot] = offset

    def _table_of(self, topic: Topic) -> SlotTable:
        table = self._tables.get(topic.topic_id)
        if table is None:
            owners = np.arange(SLOTS) % topic.queues
            table = SlotTable(owners.astype(np.uint16), np.full(SLOTS, _NOTHING_SENT, np.int64))
            self._tables[topic.topic_id] = table
        return table

    def has_moved(self, topic_id: int) -> bool:
        """Return whether a slot of the topic has ever left a queue."""
        table = self._tables.get(topic_id)
        return table is not None and bool(table.homes)

    def must_wait(
        self, topic: Topic, row: Sequence[Delivery | None], queue: int, offset: int, message_group: int
    ) -> bool:
        """Return whether a group, with the deliveries *row* of *topic*, must not receive *offset*
        of *queue* yet.

        It must wait if an earlier message is in a former queue of the slot, or if another message
        of its message group is in hand there.
        """
        table, slot = self._tables.get(topic.topic_id), message_group & (SLOTS - 1)
        if table is None or not message_group or slot not in table.homes:
            return False
        is_later = False
        for home, last in (*table.homes[slot], (int(table.owners[slot]), int(table.lasts[slot]))):
            delivery = row[home] if home < len(row) else None
            if home == queue:
                is_later = is_later or offset <= last
            elif delivery is None:
                if not is_later and last >= topic.mins[home]:
                    return True
            elif isinstance(delivery, FifoDelivery):
                head = delivery.parked.head(message_group)
                is_before = delivery.cursor <= last or (head is not None and head <= last)
                if message_group in delivery.busy or (is_before and not is_later):
                    return True
        return False

    def drop(self, _applied: Applied, topic_id: int, _group_id: int) -> None:
        """Drop the slots of a deleted topic (with *topic_id* 0 a group was deleted)."""
        self._tables.pop(topic_id, None)
        self._left.pop(topic_id, None)

    # Moves to other broker groups -----------------------------------------------------------------
    def stay(self, topic: Topic) -> None:
        """Forget the slots that left under the placement before a new one of *topic*."""
        self._left.pop(topic.topic_id, None)

    def leave(self, topic: Topic, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return which of *hashes*, message groups that belong to another broker group, are no
        longer here.

        Their slots are settled and leave now, or have left before.
        """
        slots, left = _slots_of(hashes), self._left_of(topic)
        held = np.unique(slots[~left[slots]]).tolist()
        left[self._settled(topic, held)] = True
        gone: npt.NDArray[np.bool_] = left[slots]
        return gone

    def leave_settled(self, topic: Topic) -> int:
        """Make every settled slot leave; return how many do not."""
        left = self._left_of(topic)
        left[self._settled(topic, np.flatnonzero(~left).tolist())] = True
        return int(SLOTS - left.sum())

    def _left_of(self, topic: Topic) -> npt.NDArray[np.bool_]:
        return self._left.setdefault(topic.topic_id, np.zeros(SLOTS, bool))

    def _settled(self, topic: Topic, slots: list[int]) -> list[int]:
        """Return the *slots* without deliverable messages in any queue, by the applied state."""
        table = self._tables.get(topic.topic_id)
        if table is None:
            return slots
        rows = self._ordered_rows(topic)
        at_home = self._empty(topic, table, slots, homes_more=1)
        return [
            slot
            for slot in at_home
            if all(
                last < min((_cursor(row, home, topic.mins[home]) for row in rows), default=topic.mins[home])
                and all(slot not in _busy_slots(row, home) for row in rows)
                for home, last in table.live_homes(slot, topic.mins)
            )
        ]

    def _ordered_rows(self, topic: Topic) -> list[list[Delivery | None]]:
        """Return the deliveries of *topic* of every group that reads it in order."""
        return [
            row
            for (group_id, topic_id), row in self._leasing.deliveries.items()
            if topic_id == topic.topic_id and is_ordered(self._names.groups_by_id[group_id], topic)
        ]

    def _empty(self, topic: Topic, table: SlotTable, slots: list[int], homes_more: int = 0) -> list[int]:
        """Return the *slots* without deliverable messages in their owners' queues, by the applied
        state.

        Only slots with few enough homes (*homes_more*: allow that many more) count, since they may
        leave another queue.
        """
        rows = self._ordered_rows(topic)
        empty: list[int] = []
        busy: dict[int, set[int]] = {}
        for slot in slots:
            queue, last = int(table.owners[slot]), int(table.lasts[slot])
            if queue not in busy:
                busy[queue] = {slot for row in rows for slot in _busy_slots(row, queue)}
            # Where a group has not begun, or not read yet, everything that retention has left is
            # unread.
            unread = last >= min((_cursor(row, queue, topic.mins[queue]) for row in rows), default=topic.mins[queue])
            has_room = len(table.live_homes(slot, topic.mins)) < HOMES_MAX + homes_more
            if has_room and not unread and slot not in busy[queue]:
                empty.append(slot)
        return empty


def _cursor(row: Sequence[Delivery | None], queue: int, least: int) -> int:
    delivery = row[queue] if queue < len(row) else None
    return least if delivery is None else max(least, delivery.cursor)


def _busy_slots(row: Sequence[Delivery | None], queue: int) -> set[int]:
    delivery = row[queue] if queue < len(row) else None
    return delivery.busy_slots(SLOTS - 1) if isinstance(delivery, FifoDelivery) else set()


def _slots_of(hashes: Hashes) -> Queues:
    return (hashes & np.uint64(SLOTS - 1)).astype(np.int64)
