"""The leader's part of a receive where message groups have an order: propose messages to lease and
to park.

     returned, and its rest is over      -> lease it again
     the first of a ready message group  -> lease it
     from the cursor on, one by one:     message group free -> lease it; blocked -> park it for good

Law: as with `Picker`, a proposal is a guess that apply checks, and picks of one entry are
remembered until the entry is built. One entry visits a bounded number of messages, over all
receives: a visit reads a record. A receive that finds only blocked messages has still moved the
cursor; it is proposed again in the next entry.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.delivery.fifo import FifoDelivery
from tern_broker.core.delivery.picking import Look, Pick, ReadQueue, ReceiveRequest
from tern_broker.core.delivery.repeated_receives import TOKEN_SIZE_BYTES
from tern_broker.core.machine import StateMachine
from tern_wire.errors import LimitReached
from tern_wire.limits import (
    FIFO_PARKED_PER_QUEUE_MAX,
    FIFO_ROWS_PER_ENTRY_MAX,
    FIFO_SCAN_MESSAGES_MAX,
    FIFO_SCAN_SIZE_MAX_BYTES,
    LEASED_PER_QUEUE_MAX,
    RECEIVE_MESSAGES_MAX,
)
from tern_wire.link.rows import FIFO_HEAD, FIFO_OPEN, FIFO_PARK, FIFO_ROWS, FIFO_SKIP, LEASE_SKIP, QUEUE_ENTRIES

# ConsumeQueue entries (QUEUE_ENTRIES) -> hash of the message group of each, 0 for none, shape (n,).
ReadMessageGroups = Callable[[npt.NDArray[Any]], npt.NDArray[np.uint64]]


def no_message_groups(entries: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return zeros: the messages have no message groups."""
    return np.zeros(len(entries), np.uint64)


# Number of entries in the first look; it doubles while most entries are blocked.
_FIRST_LOOK = 64
# Offsets at most this far apart are read together.
_GAP = 256
Row = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FifoPick(Pick):
    """The part of one receive in one queue.

    *rows*: of its block in LEASE_FIFO; *offsets*, *entries*: of the messages to lease.
    """

    rows: list[Row]

    def payload(self) -> bytes:
        """Return the block of this pick."""
        group_id, topic_id, queue, _, _, _, version, invisible_ms = self.row
        token = self.token or bytes(TOKEN_SIZE_BYTES)
        head = FIFO_HEAD.pack(group_id, topic_id, queue, len(self.rows), version, invisible_ms, token)
        return head + np.array(self.rows, FIFO_ROWS).tobytes()


@dataclass(slots=True)
class _View:
    """The effect on one delivery of the entry that is being built."""

    cursor: int
    parked: int = 0
    # Leased offsets, and their message groups.
    taken: set[int] = field(default_factory=set)
    message_groups: set[int] = field(default_factory=set)
    # Entries that were read from the log and not yet visited, from number *at* on: the entry's next
    # receive continues there.
    entries: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, QUEUE_ENTRIES))
    message_group_of: list[int] = field(default_factory=list)
    at: int = 0


class FifoPicker:
    """Picks for the ordered receives of one entry. Owner: the proposer."""

    def __init__(self, state: StateMachine, read_queue: ReadQueue, read_message_groups: ReadMessageGroups) -> None:
        self._state, self._read, self._read_message_groups = state, read_queue, read_message_groups
        self._views: dict[tuple[int, int, int], _View] = {}
        # The entry's remaining budget of messages and bytes to read, and of rows.
        self._messages_left, self._size_left = FIFO_SCAN_MESSAGES_MAX, FIFO_SCAN_SIZE_MAX_BYTES
        self._rows_left = FIFO_ROWS_PER_ENTRY_MAX
        self._is_cut = False

    def pick(self, request: ReceiveRequest) -> list[FifoPick] | None:
        """Return what to lease and to park for *request*; empty when there is nothing; None when
        the next entry must look.

        Raise LimitReached if there are messages, but the group holds too many unsettled ones in
        every such queue.
        """
        if self._rows_left < RECEIVE_MESSAGES_MAX:
            return None
        topic = request.topic
        row = self._state.leasing.deliveries.get((request.group.group_id, topic.topic_id), [])
        full: FifoDelivery | None = None
        self._is_cut = False
        wants = request.look() if request.look is not None else None
        picks: list[FifoPick] = []
        messages, size = request.messages_max, request.size_max_bytes
        for turn in range(topic.queues):
            queue = (request.first_queue + turn) % topic.queues
            delivery = row[queue] if queue < len(row) else None
            if delivery is not None and not isinstance(delivery, FifoDelivery):
                continue
            if delivery is not None and not delivery.runs and len(delivery.in_hand) >= LEASED_PER_QUEUE_MAX:
                full = delivery if delivery.available(topic.ends[queue]) else full
                continue
            if messages <= 0 or size <= 0:
                if request.group.starts_at_min:
                    break
                # Fix the group's start now in every queue, including queues that this receive does
                # not reach.
                if delivery is not None:
                    continue
            is_first = messages == request.messages_max
            looked = _Look(request, queue, delivery, messages, size, is_first=is_first, wants=wants)
            found = self._look(looked)
            if found is not None:
                picks.append(found)
                messages, size = messages - len(found.offsets), looked.size_bytes
        if full is not None and not picks and not self._is_cut:
            what = f"unsettled messages of group '{request.group.name}' in one queue"
            raise LimitReached(what=what, actual=len(full.in_hand), limit=LEASED_PER_QUEUE_MAX)
        return picks if picks or not self._is_cut else None

    def _look(self, look: "_Look") -> FifoPick | None:
        request, queue, delivery = look.request, look.queue, look.delivery
        topic_id = request.topic.topic_id
        key = (request.group.group_id, topic_id, queue)
        view = self._views.get(key)
        if view is None:
            start = request.topic.mins[queue]
            if delivery is not None:
                start = delivery.cursor
            elif not request.group.starts_at_min:
                start = request.group.start_in(request.topic, queue, request.look_up(queue))
            view = self._views[key] = _View(start)
        if delivery is None and not request.group.starts_at_min:
            look.rows.append((view.cursor, 0, FIFO_OPEN))
        if delivery is not None:
            self._take_at_hand(look, delivery, view)
        self._scan(look, view)
        self._rows_left -= len(look.rows)
        return look.found(0 if delivery is None else delivery.version)

    # Messages that need no scan -------------------------------------------------------------------
    def _take_at_hand(self, look: "_Look", delivery: FifoDelivery, view: _View) -> None:
        rows = list(islice(_at_hand(delivery, view), look.messages))
        if not rows:
            return
        entries, is_there = self._read_scattered(look.request.topic.topic_id, look.queue, [row[0] for row in rows])
        chosen: list[int] = []
        for number, (row, size_bytes, there) in enumerate(zip(rows, entries["size"].tolist(), is_there, strict=True)):
            if not there:
                continue  # gone for any reason: other messages need not wait
            if not look.take(row, size_bytes):
                break
            chosen.append(number)
            view.taken.add(row[0])
            view.message_groups.add(row[1])
        look.entries.append(entries[chosen])

    def _read_scattered(self, topic_id: int, queue: int, offsets: list[int]) -> tuple[npt.NDArray[Any], list[bool]]:
        """Return the entries of *offsets*, and which of them exist."""
        wanted = np.array(offsets, np.int64)
        entries = np.zeros(len(wanted), QUEUE_ENTRIES)
        is_there = np.zeros(len(wanted), bool)
        order = np.argsort(wanted, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(wanted[order]) > _GAP) + 1):
            first = int(wanted[part[0]])
            found = self._read(topic_id, queue, first, int(wanted[part[-1]]) - first + 1)
            near = part[wanted[part] - first < len(found)]
            entries[near], is_there[near] = found[wanted[near] - first], True
        for number in np.flatnonzero(~is_there).tolist():
            # A read that begins below the queue's min, at a copied message, ends before the min.
            if len(found := self._read(topic_id, queue, offsets[number], 1)):
                entries[number], is_there[number] = found[0], True
        return entries, is_there.tolist()

    # Scanning -------------------------------------------------------------------------------------
    def _scan(self, look: "_Look", view: _View) -> None:
        end = look.request.topic.ends[look.queue]
        step = max(_FIRST_LOOK, look.messages)
        while look.is_open and view.parked < _room(look.delivery) and view.cursor < end:
            if view.at == len(view.message_group_of):
                if not self._read_ahead(look, view, min(step, end - view.cursor)):
                    return
                step *= 2
            if not _look_at(look, view):
                return

    def _read_ahead(self, look: "_Look", view: _View, count: int) -> bool:
        """Read the message groups of up to *count* messages from the cursor on; return whether
        there are any.
        """
        count = min(count, self._messages_left, self._rows_left - len(look.rows))
        if count <= 0 or self._size_left <= 0:
            self._is_cut = True
            return False
        entries = self._read(look.request.topic.topic_id, look.queue, view.cursor, count)
        sizes = np.cumsum(entries["size"].astype(np.int64))
        entries = entries[: max(1, int(np.searchsorted(sizes, self._size_left, side="right")))]
        if not len(entries):
            return False
        self._messages_left -= len(entries)
        self._size_left -= int(sizes[len(entries) - 1])
        view.at, view.entries, view.message_group_of = 0, entries, self._read_message_groups(entries).tolist()
        return True


def _look_at(look: "_Look", view: _View) -> bool:
    """Visit the entries that were read, one by one; return whether the receive should read more."""
    delivery = look.delivery
    room = _room(delivery)
    sizes = view.entries["size"].tolist()
    chosen: list[int] = []
    begin = view.at
    wanted = look.wanted(view.entries[begin:])
    while view.at < begin + len(wanted):
        message_group = view.message_group_of[view.at]
        if not wanted[view.at - begin]:
            look.rows.append((view.cursor, message_group, FIFO_SKIP))
        elif message_group and (
            message_group in view.message_groups or (delivery is not None and delivery.is_blocked(message_group))
        ):
            if view.parked >= room:
                break
            view.parked += 1
            look.rows.append((view.cursor, message_group, FIFO_PARK))
        elif look.take((view.cursor, message_group, 0), sizes[view.at]):
            chosen.append(view.at)
            if message_group:
                view.message_groups.add(message_group)
        else:
            break
        view.at += 1
        view.cursor += 1
    look.entries.append(view.entries[chosen])
    return view.at == len(sizes)


def _room(delivery: FifoDelivery | None) -> int:
    """Return how many blocked messages the queue had room for before this entry."""
    return FIFO_PARKED_PER_QUEUE_MAX if delivery is None else delivery.parked.room


class _Look:
    """One receive in one queue: its picks, and its remaining budget. Owner: one call of `pick`."""

    def __init__(
        self,
        request: ReceiveRequest,
        queue: int,
        delivery: FifoDelivery | None,
        messages: int,
        size_bytes: int,
        *,
        is_first: bool,
        wants: Look | None,
    ) -> None:
        self.request, self.queue, self.delivery = request, queue, delivery
        self.messages, self.size_bytes = messages, size_bytes
        # The first message may exceed the budget; otherwise a message larger than the budget would
        # block its group for ever.
        self._must_take = is_first
        # How many more messages the group may hold in the queue; returned messages are counted
        # already.
        self._room = LEASED_PER_QUEUE_MAX - (len(delivery.in_hand) if delivery is not None else 0)
        self.rows: list[Row] = []
        # Entries of the rows to lease, in their order.
        self.entries: list[npt.NDArray[Any]] = []
        self._offsets: list[int] = []
        self._wants = wants

    def wanted(self, entries: npt.NDArray[Any]) -> list[bool]:
        """Return which of *entries* pass the receive's filter, for as many of the first entries as
        the filter has read.
        """
        return [True] * len(entries) if self._wants is None else self._wants(entries).tolist()

    @property
    def is_open(self) -> bool:
        """Whether it could take a message that was never received."""
        return self.messages > 0 and self.size_bytes > 0 and self._room > 0

    def take(self, row: Row, size_bytes: int) -> bool:
        """Lease the message of *row*, of *size_bytes*, if it still fits; return whether it does."""
        is_new = row[2] == 0
        if self.messages <= 0 or self._room < is_new or (size_bytes > self.size_bytes and not self._must_take):
            return False
        self._must_take = False
        self._room -= is_new
        self.messages -= 1
        self.size_bytes -= size_bytes
        self.rows.append(row)
        self._offsets.append(row[0])
        return True

    def found(self, version: int) -> FifoPick | None:
        """Return the proposal; None if it is empty."""
        if not self.rows:
            return None
        request = self.request
        row = (request.group.group_id, request.topic.topic_id, self.queue, len(self.rows))
        return FifoPick(
            row=(*row, 0, 0, version, request.invisible_ms),
            offsets=np.array(self._offsets, np.int64),
            entries=np.concatenate([np.empty(0, QUEUE_ENTRIES), *self.entries]).astype(QUEUE_ENTRIES),
            rows=self.rows,
            token=request.token,
        )


def lease_fifo_payload(picks: list[FifoPick]) -> bytes:
    """Return the payload of a LEASE_FIFO command."""
    return b"".join(pick.payload() for pick in picks)


def _at_hand(delivery: FifoDelivery, view: _View) -> Iterator[Row]:
    """Yield rows that may be leased without a scan: returned messages, and the first of every ready
    message group.
    """
    for run in delivery.runs.values():
        for offset in run.offsets().tolist():
            if offset not in view.taken:
                yield offset, delivery.in_hand.get(offset, 0), run.run_id
    for message_group in delivery.ready:
        offset = delivery.parked.head(message_group)
        if offset is not None and offset not in view.taken:
            yield offset, message_group, 0


def looked_in_vain(picks: Sequence[Pick], verdicts: Any) -> bool:
    """Return whether a receive has leased nothing although it has visited messages, so that it
    should be proposed again.

    *verdicts*: those of its LEASE_FIFO, None if it was not proposed.
    """
    if verdicts is None or len(np.flatnonzero(verdicts["lease"])):
        return False
    return any(
        any(row[2] != FIFO_OPEN for row in pick.rows) if isinstance(pick, FifoPick) else pick.row[7] == LEASE_SKIP
        for pick in picks
    )
