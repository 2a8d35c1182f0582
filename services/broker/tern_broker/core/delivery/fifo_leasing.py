"""Apply LEASE_FIFO: the messages that a receive visits and leases where message groups have an
order.

The payload, one block for each queue that the receive visited:

     | group 4 | topic 4 | queue 4 | rows 4 | version 8 | invisible_ms 8 | token 16 |
     | rows (FIFO_ROWS, 24 each) | next block ...

The leader has read the message groups from the records. Apply trusts them and decides the leases: a
row that no longer matches the state is not leased, and a row whose message group is blocked by now
is parked. A lease holds one message. The verdict has one row for each row that was to be leased, in
order.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.applied import Applied, Handler
from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.fifo import FifoDelivery, MustWait
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.delivery.repeated_receives import TOKEN_SIZE_BYTES
from tern_broker.core.delivery.slots import Slots
from tern_broker.core.topics import Names, Topic
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import FIFO_HEAD, FIFO_OPEN, FIFO_ROWS, LEASE_VERDICTS

_NO_TOKEN = bytes(TOKEN_SIZE_BYTES)


class FifoLeasing:
    """Changes the ordered deliveries of *leasing*. Owner: the state machine."""

    def __init__(self, names: Names, leasing: Leasing, slots: Slots) -> None:
        self._names, self._leasing, self._slots = names, leasing, slots
        # (group id, topic id) whose messages may wait for another queue, since slots of the topic
        # have moved: see `finish`.
        self._watched: dict[tuple[int, int], None] = {}

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.LEASE_FIFO: self._lease}

    def is_due(self, _now_ms: int) -> bool:
        """Return False: leases expire in Leasing."""
        return False

    def expire(self, applied: Applied) -> None:
        """Do nothing: nothing here ends by itself."""

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return [list(key) for key in self._watched]

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self._watched = dict.fromkeys((group_id, topic_id) for group_id, topic_id in packed)

    def finish(self, applied: Applied) -> None:
        """Hold back or release parked messages at the end of each entry.

        Where slots have moved, a change in one queue may hold back or release messages that are
        parked in another.
        """
        for key in list(self._watched):
            row = self._leasing.deliveries.get(key, [])
            found = _parked_in(row)
            if not found:
                del self._watched[key]
            for queue, delivery in found:
                must_wait = self._must_wait(self._names.topics_by_id[key[1]], row, queue)
                for message_group in [each for each in delivery.ready if _waits(delivery, each, must_wait)]:
                    delivery.hold_back(message_group)
                for message_group in [each for each in delivery.elsewhere if not _waits(delivery, each, must_wait)]:
                    delivery.release(message_group)
                    applied.woken_topics.add(key[1])

    def _must_wait(self, topic: Topic, row: list[Delivery | None], queue: int) -> MustWait:
        return lambda offset, message_group: self._slots.must_wait(topic, row, queue, offset, message_group)

    def _lease(self, payload: memoryview, _position: int, applied: Applied) -> npt.NDArray[Any]:
        # Everything is read before anything changes: one malformed block refuses the whole command.
        blocks = _blocks(payload)
        verdicts: list[tuple[int, int, int]] = []
        for head, rows in blocks:
            self._lease_block(head, rows, applied, verdicts)
        return np.array(verdicts, LEASE_VERDICTS)

    def _lease_block(
        self,
        head: tuple[Any, ...],
        rows: list[tuple[int, int, int]],
        applied: Applied,
        verdicts: list[tuple[int, int, int]],
    ) -> None:
        group_id, topic_id, queue, _, version, invisible_ms, token = head
        topic = self._names.topics_by_id.get(topic_id)
        delivery = None
        if topic is not None and queue < topic.queues and group_id in self._names.groups_by_id:
            looked_up = rows[0][0] if rows and rows[0][2] == FIFO_OPEN else 0
            found = self._leasing.delivery(group_id, topic, queue, looked_up)
            if isinstance(found, FifoDelivery) and found.version == version:
                delivery = found
        end = topic.ends[queue] if delivery is not None and topic is not None else 0
        deadline_ms = applied.now_ms + invisible_ms
        look = delivery.look if delivery is not None else None
        if look is not None and topic is not None and self._slots.has_moved(topic_id):
            row = self._leasing.deliveries[group_id, topic_id]
            look = partial(look, must_wait=self._must_wait(topic, row, queue))
            self._watched[group_id, topic_id] = None
        was_full = delivery is not None and not delivery.parked.room
        token = b"" if token == _NO_TOKEN else token
        for offset, message_group, run in rows:
            lease = None
            if look is not None and run != FIFO_OPEN:
                lease = look(self._leasing.next_lease, offset, message_group, run, end, deadline_ms)
            if lease is not None:
                self._leasing.next_lease += 1
                self._leasing.took(group_id, topic_id, queue, lease, token)
                verdicts.append((lease.lease_id, deadline_ms, lease.attempt))
            elif run >= 0:
                verdicts.append((0, 0, 0))
        if was_full and delivery is not None and delivery.parked.room:
            applied.woken_topics.add(topic_id)  # the queue is visited again


def _parked_in(row: Sequence[Delivery | None]) -> list[tuple[int, FifoDelivery]]:
    """Return (queue, delivery) of deliveries with parked messages."""
    return [
        (queue, delivery)
        for queue, delivery in enumerate(row)
        if isinstance(delivery, FifoDelivery) and delivery.parked.count
    ]


def _waits(delivery: FifoDelivery, message_group: int, must_wait: MustWait) -> bool:
    head = delivery.parked.head(message_group)
    return head is not None and must_wait(head, message_group)


def _blocks(payload: memoryview) -> list[tuple[tuple[Any, ...], list[tuple[int, int, int]]]]:
    found = []
    at = 0
    while at < len(payload):
        if at + FIFO_HEAD.size > len(payload):
            raise LinkBodyMalformed(reason="a LEASE_FIFO that ends within a head")
        head = FIFO_HEAD.unpack_from(payload, at)
        at += FIFO_HEAD.size
        count = head[3]
        if at + count * FIFO_ROWS.itemsize > len(payload):
            raise LinkBodyMalformed(reason=f"a LEASE_FIFO of {count} rows in {len(payload) - at} bytes")
        found.append((head, np.frombuffer(payload, FIFO_ROWS, count, at).tolist()))
        at += count * FIFO_ROWS.itemsize
    return found
