"""Apply receivers' requests for held messages: ack, extend, nack, release, dead letter.

One status byte for each row: SETTLED, or LEASE_OVER if the lease has ended or does not hold that
message. A repeated ack of a settled message is SETTLED again, and so are a repeated dead letter,
and a nack whose message was not received since.

A DEAD_LETTER's map: {rows: [[group id, topic id, queue, offset, lease, reason], ...]}; the others
arrive in SETTLE_ROWS.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tern_broker.core.applied import Applied, Counters, Handler, read_map
from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.fifo import FifoDelivery
from tern_broker.core.delivery.lease import Cause, Death, Lease
from tern_broker.core.topics import Names
from tern_wire.array_thresholds import ACKS_TOGETHER_MIN
from tern_wire.limits import DEAD_LETTER_REASON_SIZE_MAX_BYTES
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import ACK, EXTEND, LEASE_OVER, LEASE_UNKNOWN, NACK, RELEASE, SETTLE_ROWS, SETTLED

_Place = tuple[int, int, int]


class Leases(Protocol):
    """The interface that settles need of `leasing.Leasing`, which documents it."""

    deliveries: dict[tuple[int, int], list[Delivery | None]]
    is_behind: bool

    def next_id(self) -> int:
        """Return a new number for a lease or run."""
        ...

    def find(self, group_id: int, topic_id: int, queue: int) -> Delivery | None:
        """Return the group's delivery of a queue; None if it has not begun."""
        ...

    def rest(self, place: _Place, lease: Lease, mask: int, delay_ms: int, applied: Applied) -> None:
        """End an attempt at the messages of *mask*; they are visible after *delay_ms*."""
        ...

    def watch(self, lease: Lease, group_id: int, topic_id: int, queue: int) -> None:
        """Expire *lease* at its first deadline."""
        ...

    def condemn(self, place: _Place, lease: Lease, mask: int, death: Death) -> None:
        """End the delivery of the messages of *mask*; the leader buries them."""
        ...


class Settles:
    """Changes the deliveries of *leasing*. Owner: Leasing."""

    def __init__(self, leasing: Leases, names: Names, counters: Counters) -> None:
        self._leasing, self._names, self._counters = leasing, names, counters

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.SETTLE: self._settle, CommandKind.DEAD_LETTER: self._dead_letter}

    def _settle(self, payload: memoryview, _position: int, applied: Applied) -> bytes:
        rows = np.frombuffer(payload, SETTLE_ROWS, len(payload) // SETTLE_ROWS.itemsize)
        results = bytearray(len(rows))
        deliveries = self._leasing.deliveries
        # Acks of one lease are collected: one change of its bitmap for any number of messages.
        # Nacks of one delay become one run.
        acks: dict[int, list[Any]] = {}
        nacks: dict[tuple[int, int], tuple[_Place, Lease, list[int]]] = {}
        nacked: dict[int, int] = {}
        extended: dict[int, tuple[Lease, int, int, int]] = {}
        is_behind, now_ms = self._leasing.is_behind, applied.now_ms
        numbers: Sequence[int] = range(len(rows))
        if len(rows) >= ACKS_TOGETHER_MIN and not is_behind and (rows["action"] == ACK).all():
            numbers = self._take_runs(rows, acks)
            rows = rows[numbers]
        for number, row in zip(numbers, rows.tolist(), strict=True):
            group_id, topic_id, queue, action, offset, lease_id, time_ms = row
            queues = deliveries.get((group_id, topic_id))
            delivery = queues[queue] if queues is not None and queue < len(queues) else None
            if delivery is None:
                results[number] = LEASE_UNKNOWN
                continue
            lease = delivery.leases.get(lease_id)
            bit = 1 << offset - lease.start if lease is not None and 0 <= offset - lease.start < lease.count else 0
            if is_behind and lease is not None and bit and lease.deadline_of(offset) <= now_ms:
                bit = 0  # expired, though the entry that records it is still to come
            if lease is None or not bit or lease.settled & bit or (nacked and nacked.get(lease_id, 0) & bit):
                is_repeat = (action == ACK and delivery.is_settled(offset)) or (
                    action == NACK and (nacked.get(lease_id, 0) & bit or delivery.was_nacked_by(lease_id, offset))
                )
                results[number] = SETTLED if is_repeat else LEASE_OVER
            elif action == ACK:
                acks.setdefault(lease_id, [delivery, lease, 0, topic_id])[2] |= bit
            elif lease_id in acks and acks[lease_id][2] & bit:
                results[number] = LEASE_OVER  # acked in this very command: that is final
            elif action == EXTEND:
                lease.extended[offset] = now_ms + time_ms
                extended[lease_id] = lease, group_id, topic_id, queue
            elif action == RELEASE:
                # Visible at once; the attempt does not count, since no consumer processed the
                # message.
                delivery.give_back(lease, bit, self._leasing.next_id(), lease.attempt - 1)
                applied.woken_topics.add(topic_id)
            elif action == NACK:
                nacked[lease_id] = nacked.get(lease_id, 0) | bit
                nacks.setdefault((lease_id, time_ms), ((group_id, topic_id, queue), lease, [0]))[2][0] |= bit
            else:
                results[number] = LEASE_UNKNOWN
        for delivery, lease, mask, topic_id in acks.values():
            self._counters.settled += int((mask & ~lease.settled).bit_count())
            delivery.settle(lease, mask)
            if isinstance(delivery, FifoDelivery) and delivery.ready:
                applied.woken_topics.add(topic_id)  # the next of a message group
        for (_, delay_ms), (place, lease, (mask,)) in nacks.items():
            self._counters.nacked += mask.bit_count()
            self._leasing.rest(place, lease, mask, delay_ms, applied)
        for lease, group_id, topic_id, queue in extended.values():
            if not lease.is_done:
                self._leasing.watch(lease, group_id, topic_id, queue)
        return bytes(results)

    def _take_runs(self, rows: npt.NDArray[Any], acks: dict[int, list[Any]]) -> list[int]:
        """Add to *acks* those of adjacent messages of one lease, as they follow a receive.

        Return the numbers of the rows that are left to be decided one by one: a law of `_settle` is
        that both ways decide alike.
        """
        is_next = rows["offset"][1:] == rows["offset"][:-1] + 1
        for name in ("lease", "queue", "topic", "group"):
            is_next &= rows[name][1:] == rows[name][:-1]
        begins = [0, *((~is_next).nonzero()[0] + 1).tolist()]
        left: list[int] = []
        for (group_id, topic_id, queue, _, offset, lease_id, _), begin, end in zip(
            rows[begins].tolist(), begins, [*begins[1:], len(rows)], strict=True
        ):
            delivery = self._leasing.find(group_id, topic_id, queue)
            lease = delivery.leases.get(lease_id) if delivery is not None else None
            first, count = offset - lease.start if lease is not None else -1, end - begin
            mask = ((1 << count) - 1) << max(0, first)
            if lease is None or first < 0 or first + count > lease.count or lease.settled & mask:
                left += range(begin, end)
            else:
                acks.setdefault(lease_id, [delivery, lease, 0, topic_id])[2] |= mask
        return left

    def _dead_letter(self, payload: memoryview, _position: int, applied: Applied) -> bytes:
        rows = [
            (int(group), int(topic), int(queue), int(offset), int(lease), str(reason))
            for group, topic, queue, offset, lease, reason in read_map(payload)["rows"]
        ]
        # From here on nothing is refused.
        return bytes([self._reject(*row, applied.now_ms) for row in rows])

    def _reject(
        self, group_id: int, topic_id: int, queue: int, offset: int, lease_id: int, reason: str, now_ms: int
    ) -> int:
        delivery = self._leasing.find(group_id, topic_id, queue)
        if delivery is None or group_id not in self._names.groups_by_id:
            return LEASE_UNKNOWN
        lease = delivery.leases.get(lease_id)
        if lease is None or not _holds(lease, offset):
            return SETTLED if offset in delivery.dying or delivery.is_settled(offset) else LEASE_OVER
        if self._leasing.is_behind and lease.deadline_of(offset) <= now_ms:
            return LEASE_OVER
        kept = reason.encode()[:DEAD_LETTER_REASON_SIZE_MAX_BYTES].decode(errors="ignore")
        death = Death(lease.attempt, Cause.REJECTED, kept)
        self._leasing.condemn((group_id, topic_id, queue), lease, 1 << offset - lease.start, death)
        return SETTLED


def _holds(lease: Lease, offset: int) -> bool:
    return 0 <= offset - lease.start < lease.count and not lease.settled >> offset - lease.start & 1
