"""Lanes: while LANES_IN_FLIGHT requests to a broker group are in flight, new cargo gathers and
becomes the next request.

An idle lane sends at once (at the end of the event loop's turn, so that simultaneous arrivals
travel together); a busy lane turns single sends into batches. A flight is one such batch. One that
is full leaves in the middle of a turn, so that the brokers store it while the proxy reads the
requests behind it. After a
flight of several pieces the next one gathers as many: the clients that were just answered send
again one after the other, and the first of them would otherwise leave alone. It waits for them for
a part of the last flight's time at most, so a lane with one client never waits. Owner of all state:
one event loop.

     submit ... submit -> [waiting] -> a flight of at most LANE_SIZE_MAX_BYTES -> leader
                                                                   futures <- verdicts <-
"""

import asyncio
import math
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Generic, Protocol, TypeVar

import msgspec
import numpy as np

from tern_proxy.core.reading.settling import SettleParcel
from tern_proxy.core.sending.encoding import Parcel
from tern_proxy.core.sending.results import Outcome, failed
from tern_proxy.core.transactions.ends import Ended, EndParcel, read_ended
from tern_remoting import problem_of
from tern_routing import GroupLink
from tern_tasks import begin
from tern_wire.errors import LinkReplyMalformed, OutcomeUnknown, TernError
from tern_wire.limits import APPEND_DEADLINE_MS, LANE_SIZE_MAX_BYTES
from tern_wire.link.checks import EndTransactions
from tern_wire.link.receives import Settle
from tern_wire.link.rows import SEND_ROWS
from tern_wire.link.sends import Send, Sent

# The broker syncs one while the next one travels; a third would only wait in the broker's queue.
LANES_IN_FLIGHT = 2
# How long a flight gathers: this part of the last flight's duration, and at most so long. Twice of
# both changes nothing; the figures are in DESIGN.md.
GATHER_SHARE = 0.5
GATHER_MAX_S = 0.005
# A half of all that is under way is worth an entry of its own from this work of the proxy on, in
# plain sends; and how many messages, or settles, are as much work as one. Measured, see DESIGN.md.
HALF_FLIGHT_WORK = 24
SENDS_MESSAGES, SENDS_SETTLES = 16, 6
_VERDICT = struct.Struct("<IIq")


class Sized(Protocol):
    """Cargo of a lane."""

    size_bytes: int


C = TypeVar("C", bound=Sized)
R = TypeVar("R")


class Lane(Generic[C, R]):
    """Batching of cargo to one broker group.

    Subclasses define the request of a flight and the results of its cargo.
    """

    # Whether a flight leaves at once, not at the end of the loop's turn.
    is_urgent: ClassVar = False

    def __init__(self, link: GroupLink) -> None:
        self.link = link
        self._waiting: deque[tuple[C, asyncio.Future[R]]] = deque()
        self._in_flight = 0
        self._is_scheduled = False
        # Pieces that the next flight gathers, until when (the loop's time, s), and its timer.
        self._gather_pieces = 0.0
        self._gather_until_s = -math.inf
        self._gathering: asyncio.TimerHandle | None = None
        self._flying: set[asyncio.Future[None]] = set()
        # Pieces in these flights, and how many make a flight that waits for nothing more.
        self._pieces_in_flight = 0
        self._full_pieces = math.inf
        # For metrics: flights so far and the pieces of cargo in them.
        self.flights = 0
        self.carried = 0
        self.landed = 0
        self.on_landed: Callable[[], None] = lambda: None
        # When a piece last had to wait for the end of a flight, or for others (the loop's time, s).
        self.crowded_at_s = -math.inf
        # Arrival of the last piece.
        self.submitted_at_s = -math.inf

    def submit(self, cargo: C) -> asyncio.Future[R]:
        """Return a future of the result of *cargo*.

        Pieces are sent in the order of their submission.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((cargo, future))
        self.submitted_at_s = loop.time()
        has_room = self._in_flight < LANES_IN_FLIGHT
        if not has_room or self.submitted_at_s < self._gather_until_s:
            self.crowded_at_s = self.submitted_at_s
        if has_room and len(self._waiting) >= self._full_pieces:
            self._start()
            self.link.flush()
        elif has_room and not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._end_of_turn)
        return future

    @property
    def waiting(self) -> int:
        """Number of pieces that wait for a flight."""
        return len(self._waiting)

    def _end_of_turn(self) -> None:
        self._is_scheduled = False
        self._start()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._in_flight < LANES_IN_FLIGHT:
            if len(self._waiting) < self._gather_pieces and loop.time() < self._gather_until_s:
                if self._gathering is None:
                    self._gathering = loop.call_at(self._gather_until_s, self._gathered)
                return
            flight: list[tuple[C, asyncio.Future[R]]] = []
            size = 0
            while self._waiting and (not flight or size + self._waiting[0][0].size_bytes <= LANE_SIZE_MAX_BYTES):
                size += self._waiting[0][0].size_bytes
                flight.append(self._waiting.popleft())
            self._in_flight += 1
            self._pieces_in_flight += len(flight)
            self.flights += 1
            self.carried += len(flight)
            began_s = loop.time()
            landing = begin(self._fly(flight), loop)
            self._flying.add(landing)
            work = sum(self.work_of(cargo) for cargo, _ in flight)
            landing.add_done_callback(partial(self._landed, len(flight), work, began_s))
            if self.is_urgent:
                self.link.flush()

    def _gathered(self) -> None:
        self._gathering = None
        self._start()

    async def _fly(self, flight: list[tuple[C, asyncio.Future[R]]]) -> None:
        def early(number: int, result: R) -> None:
            if not flight[number][1].done():
                flight[number][1].set_result(result)

        try:
            results = await self._carry([cargo for cargo, _ in flight], early)
        except Exception as error:
            # A bug: each request of the flight fails, so that none waits for ever.
            problem = problem_of(error)
            for _, future in flight:
                if not future.done():
                    future.set_exception(problem)
            return
        for (_, future), result in zip(flight, results, strict=True):
            if not future.done():
                future.set_result(result)

    def _landed(self, pieces: int, work: int, began_s: float, landing: asyncio.Future[None]) -> None:
        self._flying.discard(landing)
        now_s = asyncio.get_running_loop().time()
        half = (self._pieces_in_flight + len(self._waiting) + 1) // 2
        self._pieces_in_flight -= pieces
        self._full_pieces = half if half * work >= HALF_FLIGHT_WORK * pieces else math.inf
        self._gather_pieces = min(pieces, self._full_pieces)
        # A flight of one has no company to wait for.
        wait_s = min(GATHER_MAX_S, GATHER_SHARE * (now_s - began_s)) if pieces > 1 else -math.inf
        self._gather_until_s = now_s + wait_s
        self._in_flight -= 1
        self.landed += 1
        self._start()
        self.on_landed()
        if not landing.cancelled():
            landing.result()

    def work_of(self, _cargo: C) -> int:
        """Return the proxy's work on a request with this piece, in plain sends."""
        return 1

    async def _carry(self, cargo: list[C], early: Callable[[int, R], None]) -> list[R]:
        """Return one result for each piece, in order. Never raise TernError.

        *early* delivers results that are known before the others.
        """
        raise NotImplementedError


class SendLane(Lane[Parcel, Outcome]):
    """Lane of sends to one broker group."""

    is_urgent = True

    def work_of(self, cargo: Parcel) -> int:
        """Each message is encoded, and has its receipt."""
        return 1 + len(cargo.indexes) // SENDS_MESSAGES

    async def _carry(self, cargo: list[Parcel], early: Callable[[int, Outcome], None]) -> list[Outcome]:
        until = asyncio.get_running_loop().time() + APPEND_DEADLINE_MS / 1_000
        is_keyed = all(parcel.is_keyed for parcel in cargo)
        outcomes = await self._send(cargo, until, is_repeatable=is_keyed)
        if is_keyed or not isinstance(outcomes[0].error, OutcomeUnknown):
            return outcomes
        # A flight with an unkeyed row cannot be repeated as a whole; its keyed parcels can.
        keyed = [number for number, parcel in enumerate(cargo) if parcel.is_keyed]
        if keyed and asyncio.get_running_loop().time() < until:
            for number, parcel in enumerate(cargo):
                if not parcel.is_keyed:
                    early(number, outcomes[number])
            again = await self._send([cargo[number] for number in keyed], until, is_repeatable=True)
            for number, outcome in zip(keyed, again, strict=True):
                # Even "nothing was stored" refers to the repeat only.
                is_open = isinstance(outcome.error, TernError) and outcome.error.status == 503
                outcomes[number] = failed(OutcomeUnknown()) if is_open else outcome
        return outcomes

    async def _send(self, cargo: list[Parcel], until: float, *, is_repeatable: bool) -> list[Outcome]:
        left_ms = max(1, int((until - asyncio.get_running_loop().time()) * 1_000))
        try:
            sent, raw = await self.link.ask(*send_of(cargo), is_repeatable=is_repeatable, deadline_ms=left_ms)
            return read_outcomes(cargo, sent, raw)
        except TernError as error:
            return [failed(error)] * len(cargo)


def send_of(cargo: list[Parcel]) -> tuple[Send, list[bytes | bytearray | memoryview]]:
    """Return one SEND with its raw bytes: rows of all parcels, then their records.

    Rows refer to topics and producer groups by their indexes in the head.
    """
    topics: dict[str, int] = {}
    producer_groups: dict[str, int] = {}
    rows: list[bytes | bytearray | memoryview] = []
    records: list[bytes | bytearray | memoryview] = []
    for parcel in cargo:
        numbers = [topics.setdefault(topic, len(topics)) for topic in parcel.topics]
        producer_group = _number_of(parcel, producer_groups)
        if producer_group or numbers[0] or len(numbers) > 1:
            rows.append(_renumbered(parcel.rows, numbers, producer_group))
        else:
            rows += parcel.rows
        records += parcel.parts
    send = Send(
        topics=list(topics), rows=sum(len(parcel.rows) for parcel in cargo), producer_groups=list(producer_groups)
    )
    return send, [b"".join(rows), *records]


def _number_of(parcel: Parcel, known: dict[str, int]) -> int:
    """Return the index of the parcel's producer group in *known*, added if new."""
    return known.setdefault(parcel.producer_group, len(known)) if parcel.producer_group else 0


def _renumbered(rows: list[bytes], topics: list[int], producer_group: int) -> bytearray:
    """Return *rows* with the request's indexes of the parcel's topics and producer group."""
    renumbered = bytearray(b"".join(rows))
    columns = np.frombuffer(renumbered, SEND_ROWS)
    columns["topic"] = np.array(topics, np.uint32)[columns["topic"]]
    columns["producer_group"] = producer_group
    return renumbered


def read_outcomes(cargo: list[Parcel], sent: Sent, raw: memoryview) -> list[Outcome]:
    """Split the reply to one SEND by parcel.

    Raise LinkReplyMalformed when the number of rows differs.
    """
    rows = sum(len(parcel.rows) for parcel in cargo)
    if len(raw) != rows * _VERDICT.size:
        raise LinkReplyMalformed(reason=f"{len(raw)} bytes of verdicts for {rows} rows")
    verdicts = list(_VERDICT.iter_unpack(raw))
    # Statuses are small numbers, and SENT is 0: the first byte of each tells.
    is_sent = not any(raw[:: _VERDICT.size])
    firsts = {first.row: (first.message_id, first.born_ms, first.deliver_ms) for first in sent.replays}
    numbers: dict[str, int] = {}
    facts = sent.producer_groups
    outcomes: list[Outcome] = []
    at = 0
    for parcel in cargo:
        end = at + len(parcel.rows)
        own = {row - at: firsts[row] for row in range(at, end) if row in firsts} if firsts else {}
        number = _number_of(parcel, numbers)
        if parcel.producer_group and number >= len(facts):
            # The outcome of this parcel alone is unknown.
            outcomes.append(failed(LinkReplyMalformed(reason=f"a reply that does not know producer group {number}")))
        else:
            of_group = msgspec.structs.astuple(facts[number]) if parcel.producer_group else ()
            verdicts_of = verdicts[at:end]
            is_all = is_sent or not any(status for status, _, _ in verdicts_of)
            outcomes.append(Outcome(verdicts=verdicts_of, replays=own, producer_group=of_group, is_sent=is_all))
        at = end
    return outcomes


class SettleLane(Lane[SettleParcel, bytes | TernError]):
    """Lane of settles to one broker group.

    Settles are idempotent, so a flight is repeated until its deadline.
    """

    def work_of(self, cargo: SettleParcel) -> int:
        """Acks mostly come with a receive of as many messages."""
        return 1 + len(cargo.indexes) // SENDS_SETTLES

    async def _carry(
        self, cargo: list[SettleParcel], _early: Callable[[int, bytes | TernError], None]
    ) -> list[bytes | TernError]:
        rows = sum(len(parcel.indexes) for parcel in cargo)
        packed = b"".join(row for parcel in cargo for row in parcel.rows)
        try:
            _, raw = await self.link.ask(Settle(rows=rows), [packed], is_repeatable=True)
            if len(raw) != rows:
                raise LinkReplyMalformed(reason=f"{len(raw)} statuses for {rows} settles")
        except TernError as error:
            return [error] * len(cargo)
        statuses = bytes(raw)
        results: list[bytes | TernError] = []
        at = 0
        for parcel in cargo:
            results.append(statuses[at : at + len(parcel.indexes)])
            at += len(parcel.indexes)
        return results


class EndLane(Lane[EndParcel, Ended | TernError]):
    """Lane of commits and rollbacks in one broker group.

    Ends are idempotent, so a flight is repeated until its deadline.
    """

    async def _carry(
        self, cargo: list[EndParcel], _early: Callable[[int, Ended | TernError], None]
    ) -> list[Ended | TernError]:
        rows = b"".join(parcel.row for parcel in cargo)
        try:
            _, raw = await self.link.ask(EndTransactions(rows=len(cargo)), [rows], is_repeatable=True)
            return [*read_ended(raw, len(cargo))]
        except TernError as error:
            return [error] * len(cargo)
