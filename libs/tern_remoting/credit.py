"""Credit for large replies on one link: a read begins only if the requester has granted room.

 requester                                          responder
 CREDIT | total 8 | page 4 |  one-way, LE --------> granted = total
 request -----------------------------------------> begun while sent + reserved < granted;
                                                    else it waits unread, fair between flows
 <------------------- reply with the flag BULK      sent += its frame's size
 CREDIT once a quarter of the window is taken up -> granted = total, waiting reads continue
Totals count from the link's first byte and only grow: a repeated grant is one grant. A reply of
unknown size reserves its estimate; the last one begun may exceed the credit by itself. Replies
below BULK_SIZE_MIN_BYTES without a reservation are not counted: sends, settles and questions need
no credit, so reads never delay them here.

In addition, no read begins while more than UNSENT_SIZE_MAX_BYTES wait for the kernel. That is the
only bound for a peer of an older release, which grants no credit. Reference: RFC 9000, section 4
(cumulative limits); Goyal, Vin, Cheng: Start-time Fair Queueing, 1996.
"""

import heapq
import math
import struct
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

CREDIT = 0x7F10
CREDIT_BODY = struct.Struct("<QI")
# A flag of replies, beside RESPONSE and ONE_WAY: the reply has used credit.
BULK = 4
# Sends are hardly delayed by a reply of this size: 0.3 ms on a network of 1 Gbit/s.
BULK_SIZE_MIN_BYTES = 32 * 1024
# The size of one reader's largest request: enough to keep the kernel busy.
UNSENT_SIZE_MAX_BYTES = 4 * 1024 * 1024
# Flows whose last turn is remembered, so that a client with one request after another pays for
# each.
FLOWS_KEPT_MAX = 4_096

# Called with the size limit for the reply (0: none).
Begin = Callable[[int], None]
# Called instead after too long a wait or the loss of the link. Neither may raise.
GiveUp = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Room:
    """A requester's room: bytes under way to it, and bytes of one reply (0: any)."""

    window_bytes: int
    page_bytes: int


class Grants:
    """The requester's side of one link."""

    __slots__ = ("_granted", "_page_bytes", "_room", "_taken")

    def __init__(self, room: Callable[[], Room]) -> None:
        self._room = room
        self._taken = self._granted = 0
        self._page_bytes = -1

    def took(self, size_bytes: int) -> None:
        """Count a received reply that has used credit."""
        self._taken += size_bytes

    def due(self, room: Room | None = None) -> bytes | None:
        """The body of the CREDIT to send now; None if the last one suffices.
        *room* None: as of now.
        """
        room = room or self._room()
        wanted = self._taken + room.window_bytes
        is_worth_it = wanted - self._granted >= max(1, room.window_bytes // 4)
        if not is_worth_it and room.page_bytes == self._page_bytes:
            return None
        self._granted, self._page_bytes = max(self._granted, wanted), room.page_bytes
        return CREDIT_BODY.pack(self._granted, self._page_bytes)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A read without room. *since_s*: the caller's clock."""

    opaque: int
    flow: Hashable
    size_bytes: int
    since_s: float
    begin: Begin
    give_up: GiveUp


class FairQueue:
    """Waiting reads by flow.
    Flows get equal shares of bytes, each in its own order; idle ones save none.
    """

    def __init__(self) -> None:
        self._flows: dict[Hashable, deque[_Waiting]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        # The byte up to which each flow was served, in the queue's own time.
        self._served: OrderedDict[Hashable, int] = OrderedDict()
        self._now = self._turn = 0

    def push(self, waiting: _Waiting) -> None:
        """Add behind all reads of its flow."""
        flow = self._flows.get(waiting.flow)
        if flow is None:
            self._flows[waiting.flow] = deque([waiting])
            self._enter(waiting.flow, max(self._now, self._served.get(waiting.flow, 0)))
        else:
            flow.append(waiting)

    def pop(self) -> _Waiting | None:
        """Take the first read of the flow that has had least; None if there is none."""
        while self._heap:
            start, _, name = heapq.heappop(self._heap)
            flow = self._flows[name]
            if not flow:  # its reads were removed
                del self._flows[name]
                continue
            waiting = flow.popleft()
            self._now = start
            self.charge(name, waiting.size_bytes, start)
            if flow:
                self._enter(name, self._served[name])
            else:
                del self._flows[name]
            return waiting
        return None

    def charge(self, flow: Hashable, size_bytes: int, start: int | None = None) -> None:
        """Add *size_bytes* to the flow's account; negative to return part of an earlier charge."""
        self._served[flow] = max(self._now, self._served.get(flow, 0) if start is None else start) + size_bytes
        self._served.move_to_end(flow)
        if len(self._served) > FLOWS_KEPT_MAX:
            self._served.popitem(last=False)

    def remove(self, waiting: _Waiting) -> None:
        """Remove a waiting read."""
        self._flows[waiting.flow].remove(waiting)

    def _enter(self, flow: Hashable, start: int) -> None:
        self._turn += 1
        heapq.heappush(self._heap, (start, self._turn, flow))


class Window:
    """The responder's side of one link: reads under way and reads that wait.
    *unsent*: bytes that the kernel has not taken; *now*: monotonic seconds.
    """

    def __init__(self, *, unsent: Callable[[], int], now: Callable[[], float]) -> None:
        self._unsent, self._now = unsent, now
        self._queue = FairQueue()
        self._waiting: OrderedDict[int, _Waiting] = OrderedDict()
        # By the request's number: its flow, and its reservation.
        self._begun: dict[int, tuple[Hashable, int]] = {}
        self._reserved_bytes = self._sent_bytes = 0
        self._granted_bytes: int | None = None
        self._page_bytes = 0
        # For metrics: reads that had to wait so far.
        self.held = 0

    @property
    def waiting(self) -> int:
        """Number of reads that wait for room."""
        return len(self._waiting)

    @property
    def is_granted(self) -> bool:
        """Whether the peer grants credit at all."""
        return self._granted_bytes is not None

    def ask(self, opaque: int, flow: Hashable, size_bytes: int, begin: Begin, give_up: GiveUp) -> bool:
        """Call *begin* once there is room for the reply to request *opaque*, about *size_bytes*.
        Returns True if it has to wait for credit. A request may ask again after `leave`. The
        reservation ends with the reply. Either *begin* or *give_up* is called, once, unless the
        request is answered before.
        """
        waiting = _Waiting(opaque, flow, size_bytes, self._now(), begin, give_up)
        if not self._waiting and self._has_room():
            self._queue.charge(flow, size_bytes)
            self._begin(waiting)
            return False
        self.held += 1
        self._waiting[opaque] = waiting
        self._queue.push(waiting)
        return True

    def leave(self, opaque: int) -> None:
        """Return the room of request *opaque*, which waits for something else. Safe to repeat."""
        begun = self._begun.pop(opaque, None)
        if begun is not None:
            self._reserved_bytes -= begun[1]
            self._queue.charge(begun[0], -begun[1])

    def replied(self, opaque: int, size_bytes: int) -> bool:
        """Record a reply of *size_bytes*; True if it uses credit and must carry the flag BULK."""
        begun = self._begun.pop(opaque, None)
        waiting = self._waiting.pop(opaque, None)
        if waiting is not None:
            self._queue.remove(waiting)
        if begun is not None:
            self._reserved_bytes -= begun[1]
            self._queue.charge(begun[0], size_bytes - begun[1])
        is_bulk = self.is_granted and (begun is not None or size_bytes >= BULK_SIZE_MIN_BYTES)
        if is_bulk:
            self._sent_bytes += size_bytes
        return is_bulk

    def granted(self, body: bytes | memoryview) -> None:
        """Handle a CREDIT. struct.error if it is malformed."""
        total, page_bytes = CREDIT_BODY.unpack(body)
        self._granted_bytes = max(total, self._granted_bytes or 0)
        self._page_bytes = page_bytes

    def go_on(self) -> None:
        """Begin reads that have room, after a grant, a reply, a `leave`, and progress of the
        kernel.
        """
        while self._waiting and self._has_room():
            waiting = self._queue.pop()
            if waiting is None:
                return
            del self._waiting[waiting.opaque]
            self._begin(waiting)

    def give_up_after(self, seconds: float) -> None:
        """Give up reads that have waited for room for *seconds*."""
        until_s = self._now() - seconds
        while self._waiting:
            oldest = next(iter(self._waiting.values()))
            if oldest.since_s > until_s:
                return
            del self._waiting[oldest.opaque]
            self._queue.remove(oldest)
            oldest.give_up()

    def close(self) -> None:
        """Give up all waiting reads: the link is gone."""
        self.give_up_after(-math.inf)
        self._begun.clear()
        self._reserved_bytes = 0

    # Below ----------------------------------------------------------------------------------------
    def _has_room(self) -> bool:
        if self._unsent() > UNSENT_SIZE_MAX_BYTES:
            return False
        return self._granted_bytes is None or self._sent_bytes + self._reserved_bytes < self._granted_bytes

    def _begin(self, waiting: _Waiting) -> None:
        self._begun[waiting.opaque] = (waiting.flow, waiting.size_bytes)
        self._reserved_bytes += waiting.size_bytes
        waiting.begin(self._page_bytes)
