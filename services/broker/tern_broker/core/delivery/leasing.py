"""Apply leases: the holder of each message of each queue, and the deadlines.

A LEASE's payload is lease rows, all of one receive, followed by 16 bytes that stand for its attempt
id, if it has one. Commands that settle a lease are in settles.py.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.applied import Applied, Counters, Handler
from tern_broker.core.dead_topics import DeadTopics
from tern_broker.core.deadline_heap import DeadlineHeap
from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.fifo import FifoDelivery, is_ordered
from tern_broker.core.delivery.lease import Cause, Death, Lease
from tern_broker.core.delivery.repeated_receives import TOKEN_SIZE_BYTES, Replays
from tern_broker.core.delivery.settles import Settles
from tern_broker.core.topics import Names, Topic
from tern_wire.errors import LinkBodyMalformed
from tern_wire.limits import EXPIRES_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import LEASE_ROWS, LEASE_SKIP, LEASE_VERDICTS

# A lease row with this run number only fixes the group's start in the queue.
OPEN_QUEUE = -1
# Names of the kinds of delivery in a saved state.
_KINDS: dict[str, Any] = {Delivery.KIND: Delivery, FifoDelivery.KIND: FifoDelivery}


class Leasing:
    """Every group's delivery of every queue. Owner: the state machine."""

    def __init__(self, names: Names, counters: Counters) -> None:
        self._names, self._counters = names, counters
        self.next_lease = 1
        # (group id, topic id) -> one delivery for each queue, None where the group has not begun.
        self.deliveries: dict[tuple[int, int], list[Delivery | None]] = {}
        # (id of a lease or rest, group id, topic id, queue), by a time at or before the one at
        # which its first message becomes visible. The time is too early if that message was settled
        # since: then the item is put again when it comes up.
        self.deadlines: DeadlineHeap[tuple[int, int, int, int]] = DeadlineHeap()
        # Whether the current entry has left expired items to the next one: see `expire`.
        self.is_behind = False
        self.dead_topics = DeadTopics(names)
        # (group id, topic id, queue) with dying messages, oldest first; some may have none any
        # more.
        self.condemned: dict[tuple[int, int, int], None] = {}
        self.replays = Replays(self.find)
        self._settles = Settles(self, names, counters)

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.LEASE: self._lease, **self._settles.commands()}

    def delivery(self, group_id: int, topic: Topic, queue: int, looked_up: int = 0) -> Delivery:
        """Return the group's delivery of a queue; begin it if needed. For a start by time the
        leader has *looked_up* the offset.
        """
        row = self.deliveries.setdefault((group_id, topic.topic_id), [])
        if len(row) < topic.queues:
            row.extend([None] * (topic.queues - len(row)))
        found = row[queue]
        if found is None:
            group = self._names.groups_by_id[group_id]
            kind = FifoDelivery if is_ordered(group, topic) else Delivery
            found = row[queue] = kind(group.start_in(topic, queue, looked_up))
            self._attend(found, group_id, topic.topic_id, queue)
        return found

    def _attend(self, delivery: Delivery, group_id: int, topic_id: int, queue: int) -> None:
        """Drop the data kept here about every item of *delivery* that ends."""

        def ended(item_id: int, token: bytes) -> None:
            self.deadlines.remove((item_id, group_id, topic_id, queue))
            if token:
                self.replays.remove(group_id, topic_id, queue, item_id, token)

        delivery.ended = ended

    def grown(self, topic: Topic, before: int) -> None:
        """Begin the new queues of *topic*, which had *before* queues, for groups that have begun
        all of those.

        New messages are not older than the start of such a group.
        """
        for group in self._names.groups_by_id.values():
            row = self.deliveries.get((group.group_id, topic.topic_id), [])
            if not group.starts_at_min and len(row) >= before and all(each is not None for each in row[:before]):
                for queue in range(before, topic.queues):
                    self.delivery(group.group_id, topic, queue)

    def find(self, group_id: int, topic_id: int, queue: int) -> Delivery | None:
        """Return the group's delivery of a queue; None if it has not begun."""
        row = self.deliveries.get((group_id, topic_id), [])
        return row[queue] if 0 <= queue < len(row) else None

    def topics_of(self, group_id: int) -> list[int]:
        """Return ids of the topics that the group has begun."""
        return [key[1] for key in self.deliveries if key[0] == group_id]

    def drop(self, applied: Applied, topic_id: int, group_id: int) -> None:
        """Drop the deliveries of a deleted topic or group (the other id is 0)."""
        for key in [key for key in self.deliveries if topic_id == key[1] or group_id == key[0]]:
            for delivery in self.deliveries.pop(key):
                if delivery is not None:
                    delivery.forget_held()
        for place in [place for place in self.condemned if topic_id == place[1] or group_id == place[0]]:
            del self.condemned[place]
        if (dead := self.dead_topics.of(group_id)) is not None:
            applied.dropped_topics[dead.topic_id] = dead.queues
        self.dead_topics.forget(group_id)

    # Holding --------------------------------------------------------------------------------------
    def _lease(self, payload: memoryview, _position: int, applied: Applied) -> npt.NDArray[Any]:
        rows = np.frombuffer(payload, LEASE_ROWS, len(payload) // LEASE_ROWS.itemsize)
        token = bytes(payload[rows.nbytes :])
        if len(token) not in {0, TOKEN_SIZE_BYTES}:
            raise LinkBodyMalformed(reason=f"a LEASE with {len(token)} bytes after its rows")
        verdicts = np.zeros(len(rows), LEASE_VERDICTS)
        for number, (group_id, topic_id, queue, count, start, run, version, invisible_ms) in enumerate(rows.tolist()):
            topic = self._names.topics_by_id.get(topic_id)
            if topic is None or queue >= topic.queues or group_id not in self._names.groups_by_id:
                continue
            delivery = self.delivery(group_id, topic, queue, start if run == OPEN_QUEUE else 0)
            if run == OPEN_QUEUE or delivery.version != version:
                continue
            deadline_ms = applied.now_ms + invisible_ms
            lease = (
                delivery.lease_run(self.next_lease, run, start, count, deadline_ms)
                if run
                else delivery.lease_fresh(self.next_lease, start, count, topic.ends[queue], deadline_ms)
            )
            if lease is None:
                continue
            self.next_lease += 1
            if invisible_ms == LEASE_SKIP:
                delivery.settle(lease, (1 << lease.count) - 1)
                continue
            self.took(group_id, topic_id, queue, lease, token)
            verdicts[number] = (lease.lease_id, deadline_ms, lease.attempt)
        return verdicts

    def took(self, group_id: int, topic_id: int, queue: int, lease: Lease, token: bytes) -> None:
        """Register *lease*, held from now on by the receive with *token*."""
        self.deadlines.put((lease.lease_id, group_id, topic_id, queue), lease.deadline_ms)
        self._counters.leased += lease.unsettled
        if token:
            lease.token = token
            self.replays.add(group_id, topic_id, queue, lease)

    def next_id(self) -> int:
        """Return a number for a lease or run, unique in the broker group for ever."""
        self.next_lease += 1
        return self.next_lease - 1

    # Failed attempts ------------------------------------------------------------------------------
    def fail(self, place: tuple[int, int, int], lease: Lease, mask: int, cause: Cause, applied: Applied) -> None:
        """End an attempt at the messages of *mask*: they are visible at once, or dying after the
        last attempt.
        """
        if not self._condemn_last(place, lease, mask, cause):
            delivery = self.find(*place)
            assert delivery is not None
            nacked_by = lease.lease_id if cause == Cause.NACKED else 0
            delivery.give_back(lease, mask, self.next_id(), lease.attempt, nacked_by)
        applied.woken_topics.add(place[1])

    def rest(self, place: tuple[int, int, int], lease: Lease, mask: int, delay_ms: int, applied: Applied) -> None:
        """End an attempt at the messages of *mask*: they are visible after *delay_ms*, or dying
        after the last attempt.

        A negative delay stands for the group's own delay for this attempt.
        """
        group_id, topic_id, queue = place
        if delay_ms < 0:
            delays_ms = self._names.groups_by_id[group_id].retry_delays_ms
            delay_ms = delays_ms[min(lease.attempt, len(delays_ms)) - 1] if delays_ms else 0
        if delay_ms <= 0:
            self.fail(place, lease, mask, Cause.NACKED, applied)
        elif not self._condemn_last(place, lease, mask, Cause.NACKED):
            delivery = self.find(*place)
            assert delivery is not None
            run_id, visible_ms = self.next_id(), applied.now_ms + delay_ms
            delivery.rest(lease, mask, run_id, lease.attempt, visible_ms)
            self.deadlines.put((run_id, group_id, topic_id, queue), visible_ms)

    def condemn(self, place: tuple[int, int, int], lease: Lease, mask: int, death: Death) -> None:
        """End the delivery of the messages of *mask*; the leader buries them."""
        delivery = self.find(*place)
        assert delivery is not None
        if delivery.condemn(lease, mask, death):
            self.dead_topics.ensure(self._names.groups_by_id[place[0]])
            self.condemned[place] = None

    def _condemn_last(self, place: tuple[int, int, int], lease: Lease, mask: int, cause: Cause) -> bool:
        """Condemn the messages if that was the group's last attempt; return whether it was."""
        if lease.attempt < self._names.groups_by_id[place[0]].max_attempts:
            return False
        self.condemn(place, lease, mask, Death(lease.attempt, cause))
        return True

    # Time -----------------------------------------------------------------------------------------
    def watch(self, lease: Lease, group_id: int, topic_id: int, queue: int) -> None:
        """Expire *lease* at its first deadline."""
        self.deadlines.put((lease.lease_id, group_id, topic_id, queue), lease.first_deadline_ms)

    def is_due(self, now_ms: int) -> bool:
        """Return whether a leased or resting message becomes visible by *now_ms*."""
        while (first := self.deadlines.first()) is not None and first[0] <= now_ms:
            at_ms, item = first
            delivery = self.find(*item[1:])
            true_ms = delivery.due_ms(item[0]) if delivery is not None else None
            if true_ms is None:
                # An item that ends removes its deadline. A leftover one is no reason to end every
                # node.
                self.deadlines.remove(item)
            elif true_ms <= at_ms:
                return True
            else:
                # Items come up in the order of their true deadlines, as in a state that was just
                # loaded.
                self.deadlines.put(item, true_ms)
        return False

    def expire(self, applied: Applied) -> None:
        """Expire leases and end rests, at most EXPIRES_MAX of them.

        The remaining ones are left to the next entry, which follows at once since `is_due` is true;
        until then they cannot be settled.
        """
        left = EXPIRES_MAX
        while self.is_due(applied.now_ms):
            if not left:
                self.is_behind = True
                return
            self._expire_first(applied)
            left -= 1
        self.is_behind = False

    def _expire_first(self, applied: Applied) -> None:
        first = self.deadlines.first()
        assert first is not None
        item_id, *place = first[1]
        group_id, topic_id, queue = place
        delivery = self.find(group_id, topic_id, queue)
        assert delivery is not None
        lease = delivery.leases.get(item_id)
        if lease is None:
            delivery.wake(item_id)
            applied.woken_topics.add(topic_id)
            return
        mask = delivery.expired_mask(lease, applied.now_ms)
        self._counters.expired += mask.bit_count()
        self.fail((group_id, topic_id, queue), lease, mask, Cause.EXPIRED, applied)
        if not lease.is_done:
            self.watch(lease, group_id, topic_id, queue)

    # Saving ---------------------------------------------------------------------------------------
    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return {
            "next_lease": self.next_lease,
            "dead_topics": self.dead_topics.pack(),
            "deliveries": [
                [group_id, topic_id, queue, delivery.KIND, *delivery.pack()]
                for (group_id, topic_id), row in self.deliveries.items()
                for queue, delivery in enumerate(row)
                if delivery is not None
            ],
        }

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self.next_lease = packed["next_lease"]
        self.dead_topics.unpack(packed["dead_topics"])
        for group_id, topic_id, queue, kind, *one in packed["deliveries"]:
            row = self.deliveries.setdefault((group_id, topic_id), [])
            row.extend([None] * (queue + 1 - len(row)))
            delivery: Delivery = _KINDS[kind].unpack(one)
            row[queue] = delivery
            self._attend(delivery, group_id, topic_id, queue)
            for lease in delivery.leases.values():
                self.watch(lease, group_id, topic_id, queue)
                if lease.token:
                    self.replays.add(group_id, topic_id, queue, lease)
            for run_id, visible_ms in delivery.resting_until():
                self.deadlines.put((run_id, group_id, topic_id, queue), visible_ms)
            if delivery.dying:
                self.condemned[group_id, topic_id, queue] = None
