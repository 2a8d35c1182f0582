"""The leader's part of a receive: find free messages in the applied state and propose to lease
them. Apply decides.

Only one entry is in flight, so the applied state is current except for picks of the same entry. A
`Picker` lives as long as one entry is being built, and remembers those picks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.leasing import OPEN_QUEUE
from tern_broker.core.machine import StateMachine
from tern_broker.core.topics import Group, Topic
from tern_wire.errors import LimitReached
from tern_wire.limits import LEASED_PER_QUEUE_MAX
from tern_wire.link.rows import LEASE_ROWS

# (topic id, queue, offset, count) -> ConsumeQueue entries, dtype QUEUE_ENTRIES; fewer at the end of
# the queue.
ReadQueue = Callable[[int, int, int, int], npt.NDArray[Any]]
# Entries of one queue -> which of them pass a filter: bool, shape (n,), for as many of the first
# entries as were read (0: the budget is used up).
Look = Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveRequest:
    """One receive: at most *messages_max* messages and *size_max_bytes* bytes (one message always
    fits).
    """

    group: Group
    topic: Topic
    messages_max: int
    size_max_bytes: int
    invisible_ms: int
    # The queue to visit first: receivers rotate, so that no queue starves.
    first_queue: int
    # Start offset in a queue of a group that starts from a time: read from disk, so only the leader
    # can compute it.
    look_up: Callable[[int], int] = lambda _queue: 0
    # Stands for the receive's attempt id (repeated_receives.py); empty without one.
    token: bytes = b""
    # Starts a look with the receive's filter; each look has its own budget. None: no filter.
    look: Callable[[], Look] | None = None


@dataclass(frozen=True, slots=True)
class Pick:
    """One lease row and the places of its messages: *offsets* and *entries* of the unsettled ones,
    shape (n,).
    """

    row: tuple[int, int, int, int, int, int, int, int]
    offsets: npt.NDArray[np.int64]
    entries: npt.NDArray[Any]
    token: bytes = b""


class Picker:
    """Picks for the receives of one entry. Owner: the proposer."""

    def __init__(self, state: StateMachine, read_queue: ReadQueue) -> None:
        self._state, self._read = state, read_queue
        # (group, topic, queue) -> next fresh offset; run ids taken.
        self._cursors: dict[tuple[int, int, int], int] = {}
        self._runs: set[int] = set()

    def pick(self, request: ReceiveRequest) -> list[Pick]:
        """Return what to lease for *request*; empty when no message is visible.

        Raise LimitReached if there are messages, but the group holds too many unsettled ones in
        every such queue.
        """
        full: Delivery | None = None
        picks: list[Pick] = []
        messages, size = request.messages_max, request.size_max_bytes
        group_id, topic = request.group.group_id, request.topic
        row = self._state.leasing.deliveries.get((group_id, topic.topic_id), [])
        if not request.group.starts_at_min:
            # Fix the group's start now in every queue, including queues that this receive does not
            # reach.
            begun = {queue for queue, delivery in enumerate(row) if delivery is not None}
            picks = [self._open(request, queue) for queue in range(topic.queues) if queue not in begun]
        for turn in range(topic.queues):
            queue = (request.first_queue + turn) % topic.queues
            delivery = row[queue] if queue < len(row) else None
            if (
                delivery is not None
                and not delivery.runs
                and delivery.unsettled >= LEASED_PER_QUEUE_MAX
                and delivery.available(topic.ends[queue])
            ):
                full = delivery
                continue
            is_first = messages == request.messages_max
            for pick in self._pick_queue(request, queue, delivery, messages, size, first=is_first):
                picks.append(pick)
                messages -= len(pick.offsets)
                size -= int(pick.entries["size"].astype(np.int64).sum())
            if messages <= 0 or size <= 0:
                break
        if full is not None and not picks:
            what = f"unsettled messages of group '{request.group.name}' in one queue"
            raise LimitReached(what=what, actual=full.unsettled, limit=LEASED_PER_QUEUE_MAX)
        return picks

    def _open(self, request: ReceiveRequest, queue: int) -> Pick:
        group, topic = request.group, request.topic
        start = group.start_in(topic, queue, request.look_up(queue))
        self._cursors.setdefault((group.group_id, topic.topic_id, queue), start)
        row = (group.group_id, topic.topic_id, queue, 0, start, OPEN_QUEUE, 0, 0)
        return Pick(row, np.empty(0, np.int64), np.empty(0, self._read(request.topic.topic_id, queue, 0, 0).dtype))

    def _pick_queue(
        self, request: ReceiveRequest, queue: int, delivery: Delivery | None, messages: int, size: int, *, first: bool
    ) -> Iterator[Pick]:
        topic = request.topic
        if delivery is not None:
            for run in delivery.runs.values():
                if messages <= 0 or size <= 0:
                    return
                if run.run_id in self._runs:
                    continue
                count = _count_for(run.settled, run.count, messages)
                pick = self._make(
                    request, queue, delivery, run.start, count, run.run_id, run.settled, size, first=first
                )
                if pick is None:
                    if not len(self._read(topic.topic_id, queue, run.start, 1)):
                        continue  # gone for any reason: messages behind it need not wait
                    return
                self._runs.add(run.run_id)
                yield pick
                first = False
                messages -= len(pick.offsets)
                size -= int(pick.entries["size"].astype(np.int64).sum())
        key = (request.group.group_id, topic.topic_id, queue)
        cursor = self._cursors.get(key)
        if cursor is None:
            cursor = delivery.cursor if delivery is not None else topic.mins[queue]
        # Returned messages may always be leased again. New messages need room, since they stay in
        # the state until settled.
        room = LEASED_PER_QUEUE_MAX - (delivery.unsettled if delivery is not None else 0)
        count = min(messages, topic.ends[queue] - cursor, room)
        if count > 0 and size > 0:
            pick = self._make(request, queue, delivery, cursor, count, 0, 0, size, first=first)
            if pick is not None:
                self._cursors[key] = cursor + pick.row[3]
                yield pick

    def _make(
        self,
        request: ReceiveRequest,
        queue: int,
        delivery: Delivery | None,
        start: int,
        count: int,
        run_id: int,
        settled: int,
        size: int,
        *,
        first: bool,
    ) -> Pick | None:
        entries = self._read(request.topic.topic_id, queue, start, count)
        offsets = np.arange(start, start + len(entries), dtype=np.int64)
        version = 0 if delivery is None else delivery.version
        where = (request.group.group_id, request.topic.topic_id, queue)
        if len(entries) and not settled and int(entries["size"].sum(dtype=np.int64)) <= size:
            # Most receives: nothing of the run is settled, and all of it fits.
            row = (*where, len(entries), start, run_id, version, request.invisible_ms)
            return Pick(row, offsets, entries, request.token)
        free = np.ones(len(entries), bool)
        if settled:
            free = np.fromiter((not settled >> bit & 1 for bit in range(len(entries))), bool, len(entries))
        total = np.cumsum(np.where(free, entries["size"], 0))
        fitting = int(np.searchsorted(total, size, side="right"))
        if fitting < len(entries):
            # The first message may exceed the budget; otherwise a message larger than the budget
            # would block its queue for ever.
            fitting = max(fitting, int(np.argmax(free)) + 1 if first else 0)
            if not free[:fitting].any():
                return None
            entries, offsets, free = entries[:fitting], offsets[:fitting], free[:fitting]
        if not len(entries):
            return None
        row = (*where, len(entries), start, run_id, version, request.invisible_ms)
        return Pick(row, offsets[free], entries[free], request.token)


def lease_rows(picks: list[Pick]) -> bytes:
    """Return the payload of a LEASE command for the picks of one receive."""
    token = next((pick.token for pick in picks if pick.token), b"")
    return np.array([pick.row for pick in picks], LEASE_ROWS).tobytes() + token


def _count_for(settled: int, count: int, messages: int) -> int:
    """Return how many offsets of a run contain *messages* unsettled ones."""
    for length in range(1, count + 1):
        if not settled >> length - 1 & 1:
            messages -= 1
            if messages == 0:
                return length
    return count
