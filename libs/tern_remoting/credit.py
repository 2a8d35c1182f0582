"""Credit for large answers on one link: who asks grants room, who answers reads nothing for which there is none.

    asker                                              answerer
    CREDIT | total 8 | page 4 |  one-way, LE --------> granted = total
    request -----------------------------------------> begun while sent + reserved < granted; else it waits unread, fair between flows
    <------------------- reply with the flag BULK      sent += its frame's size
    CREDIT once a quarter of the window is taken up -> granted = total, what waits goes on

Totals count from the link's first byte on and only grow: a grant that comes twice is one grant. An answer whose size is not known before
it is made reserves what it may need; the last one begun may go over, by itself alone. Answers below BULK_SIZE_MIN_BYTES that
reserved nothing are not counted: sends, settles and questions need no credit, so reads never keep them waiting here.
Besides, nothing is begun while more than UNSENT_SIZE_MAX_BYTES wait for the kernel: the only bound for a peer of an older release, which
grants nothing.
Reference: RFC 9000, section 4 (cumulative limits); Goyal, Vin, Cheng: Start-time Fair Queueing, 1996.
"""

import heapq
import math
import struct
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

CREDIT = 0x7F10
CREDIT_BODY = struct.Struct("<QI")
# A flag of replies, beside RESPONSE and ONE_WAY: it has used credit.
BULK = 4
# Where a lane of sends is hardly delayed: 0.3 ms of a network of 1 Gbit/s.
BULK_SIZE_MIN_BYTES = 32 * 1024
# As much as a reader may ask for at once: enough to keep the kernel busy.
UNSENT_SIZE_MAX_BYTES = 4 * 1024 * 1024
# Of flows whose last turn is remembered, so that who asks one thing after the other pays for each.
FLOWS_KEPT_MAX = 4_096

# Called with the size that the answer should keep to (0: any).
Begin = Callable[[int], None]
# Called instead, when it has waited for too long or its link is gone. Neither may raise.
GiveUp = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Room:
    """What an asker has room for: bytes on their way to it, and bytes of one answer (0: any)."""

    window_bytes: int
    page_bytes: int


class Grants:
    """The asker's side of one link."""

    __slots__ = ("_granted", "_page_bytes", "_room", "_taken")

    def __init__(self, room: Callable[[], Room]) -> None:
        self._room = room
        self._taken = self._granted = 0
        self._page_bytes = -1

    def took(self, size_bytes: int) -> None:
        """An answer that has used credit is here."""
        self._taken += size_bytes

    def due(self, room: Room | None = None) -> bytes | None:
        """The body of the CREDIT that should be sent now; None when the last one is good enough. *room* None: as of now."""
        room = room or self._room()
        wanted = self._taken + room.window_bytes
        is_worth_it = wanted - self._granted >= max(1, room.window_bytes // 4)
        if not is_worth_it and room.page_bytes == self._page_bytes:
            return None
        self._granted, self._page_bytes = max(self._granted, wanted), room.page_bytes
        return CREDIT_BODY.pack(self._granted, self._page_bytes)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A read that has no room yet. *since_s*: the caller's clock."""

    opaque: int
    flow: Hashable
    size_bytes: int
    since_s: float
    begin: Begin
    give_up: GiveUp


class FairQueue:
    """Reads by flow: each flow gets the same share of bytes, in its own order. A flow that was idle has saved nothing."""

    def __init__(self) -> None:
        self._flows: dict[Hashable, deque[_Waiting]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        # Up to which byte each flow was served, in the queue's own time.
        self._served: OrderedDict[Hashable, int] = OrderedDict()
        self._now = self._turn = 0

    def push(self, waiting: _Waiting) -> None:
        """Behind all of its flow."""
        flow = self._flows.get(waiting.flow)
        if flow is None:
            self._flows[waiting.flow] = deque([waiting])
            self._enter(waiting.flow, max(self._now, self._served.get(waiting.flow, 0)))
        else:
            flow.append(waiting)

    def pop(self) -> _Waiting | None:
        """The first of the flow that has had least; None when nothing waits."""
        while self._heap:
            start, _, name = heapq.heappop(self._heap)
            flow = self._flows[name]
            if not flow:  # its reads were taken out
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
        """*flow* has had so many bytes (negative: of those that it was charged for before)."""
        self._served[flow] = max(self._now, self._served.get(flow, 0) if start is None else start) + size_bytes
        self._served.move_to_end(flow)
        if len(self._served) > FLOWS_KEPT_MAX:
            self._served.popitem(last=False)

    def remove(self, waiting: _Waiting) -> None:
        """It does not wait any more."""
        self._flows[waiting.flow].remove(waiting)

    def _enter(self, flow: Hashable, start: int) -> None:
        self._turn += 1
        heapq.heappush(self._heap, (start, self._turn, flow))


class Window:
    """The answerer's side of one link: which reads are under way, which wait. *unsent*: bytes that the kernel has not taken; *now*: seconds,
    monotonic."""

    def __init__(self, *, unsent: Callable[[], int], now: Callable[[], float]) -> None:
        self._unsent, self._now = unsent, now
        self._queue = FairQueue()
        self._waiting: OrderedDict[int, _Waiting] = OrderedDict()
        # By the request's number: its flow, and what it has reserved.
        self._begun: dict[int, tuple[Hashable, int]] = {}
        self._reserved_bytes = self._sent_bytes = 0
        self._granted_bytes: int | None = None
        self._page_bytes = 0
        # For metrics: reads that had to wait so far.
        self.held = 0

    @property
    def waiting(self) -> int:
        """Reads that wait for room."""
        return len(self._waiting)

    @property
    def is_granted(self) -> bool:
        """Whether the peer grants credit at all."""
        return self._granted_bytes is not None

    def ask(self, opaque: int, flow: Hashable, size_bytes: int, begin: Begin, give_up: GiveUp) -> bool:
        """Call *begin* as soon as there is room for the answer to request *opaque*, of up to about *size_bytes*: now, or when credit comes.

        Whether it has to wait. A request may ask again after `leave`. The reservation ends with the reply. Either *begin* or *give_up* is
        called, once, unless the request is answered before.
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
        """Request *opaque* needs no room for now: it waits for something else. Safe to repeat."""
        begun = self._begun.pop(opaque, None)
        if begun is not None:
            self._reserved_bytes -= begun[1]
            self._queue.charge(begun[0], -begun[1])

    def replied(self, opaque: int, size_bytes: int) -> bool:
        """An answer of *size_bytes* leaves; whether it uses credit, and must say so."""
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
        """A CREDIT has come. struct.error when it is none."""
        total, page_bytes = CREDIT_BODY.unpack(body)
        self._granted_bytes = max(total, self._granted_bytes or 0)
        self._page_bytes = page_bytes

    def go_on(self) -> None:
        """Begin what there is room for: to be called after a grant, a reply, a `leave`, and when the kernel has taken something."""
        while self._waiting and self._has_room():
            waiting = self._queue.pop()
            if waiting is None:
                return
            del self._waiting[waiting.opaque]
            self._begin(waiting)

    def give_up_after(self, seconds: float) -> None:
        """Give up reads that have waited for room for so long."""
        until_s = self._now() - seconds
        while self._waiting:
            oldest = next(iter(self._waiting.values()))
            if oldest.since_s > until_s:
                return
            del self._waiting[oldest.opaque]
            self._queue.remove(oldest)
            oldest.give_up()

    def close(self) -> None:
        """The link is gone: nothing waits any more."""
        self.give_up_after(-math.inf)
        self._begun.clear()
        self._reserved_bytes = 0

    # Below -----------------------------------------------------------------------------------------------------
    def _has_room(self) -> bool:
        if self._unsent() > UNSENT_SIZE_MAX_BYTES:
            return False
        return self._granted_bytes is None or self._sent_bytes + self._reserved_bytes < self._granted_bytes

    def _begin(self, waiting: _Waiting) -> None:
        self._begun[waiting.opaque] = (waiting.flow, waiting.size_bytes)
        self._reserved_bytes += waiting.size_bytes
        waiting.begin(self._page_bytes)
