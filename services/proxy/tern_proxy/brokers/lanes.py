"""Lanes: while LANES_IN_FLIGHT requests to a broker group are under way, what arrives gathers and goes as the next one.

There is no timer: an idle lane sends at once (at the end of the event loop's turn, so that what came in together goes together),
a busy one turns single sends into batches. Owner of all state: one event loop.

     submit ... submit -> [waiting] -> a flight of at most LANE_SIZE_MAX_BYTES -> leader -> verdicts -> futures
"""

import asyncio
import math
import struct
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec
import numpy as np

from tern_proxy.core.reading.settling import SettleParcel
from tern_proxy.core.sending.encoding import Parcel
from tern_proxy.core.sending.results import Outcome, failed
from tern_proxy.core.transactions.ends import Ended, EndParcel, read_ended
from tern_remoting import problem_of
from tern_routing import GroupLink
from tern_wire.errors import LinkReplyMalformed, OutcomeUnknown, TernError
from tern_wire.limits import APPEND_DEADLINE_MS, LANE_SIZE_MAX_BYTES
from tern_wire.link.checks import EndTransactions
from tern_wire.link.receives import Settle
from tern_wire.link.rows import SEND_ROWS
from tern_wire.link.sends import Send, Sent

# One is being synced by the broker while the next one travels; a third would only wait in the broker's queue.
LANES_IN_FLIGHT = 2
_VERDICT = struct.Struct("<IIq")


class Sized(Protocol):
    """What a lane carries."""

    size_bytes: int


C = TypeVar("C", bound=Sized)
R = TypeVar("R")


class Lane(Generic[C, R]):
    """Gathers cargo and flies it. Subclasses say how a flight is asked and what each piece of cargo gets."""

    def __init__(self, link: GroupLink) -> None:
        self.link = link
        self._waiting: deque[tuple[C, asyncio.Future[R]]] = deque()
        self._in_flight = 0
        self._is_scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()
        # For metrics: flights so far and the cargo pieces that they carried.
        self.flights = 0
        self.carried = 0
        self.landed = 0
        self.on_landed: Callable[[], None] = lambda: None
        # When a piece last had to wait for a flight to land (the loop's time, s).
        self.crowded_at_s = -math.inf
        # When the last piece came.
        self.submitted_at_s = -math.inf

    def submit(self, cargo: C) -> asyncio.Future[R]:
        """What became of *cargo*. Pieces submitted in one order are sent in that order."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((cargo, future))
        self.submitted_at_s = loop.time()
        if self._in_flight >= LANES_IN_FLIGHT:
            self.crowded_at_s = self.submitted_at_s
        elif not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._start)
        return future

    @property
    def waiting(self) -> int:
        """Pieces of cargo that wait for a flight."""
        return len(self._waiting)

    def _start(self) -> None:
        self._is_scheduled = False
        while self._waiting and self._in_flight < LANES_IN_FLIGHT:
            flight: list[tuple[C, asyncio.Future[R]]] = []
            size = 0
            while self._waiting and (not flight or size + self._waiting[0][0].size_bytes <= LANE_SIZE_MAX_BYTES):
                size += self._waiting[0][0].size_bytes
                flight.append(self._waiting.popleft())
            self._in_flight += 1
            self.flights += 1
            self.carried += len(flight)
            task = asyncio.create_task(self._fly(flight))
            self._tasks.add(task)
            task.add_done_callback(self._landed)

    async def _fly(self, flight: list[tuple[C, asyncio.Future[R]]]) -> None:
        def early(number: int, result: R) -> None:
            if not flight[number][1].done():
                flight[number][1].set_result(result)

        try:
            results = await self._carry([cargo for cargo, _ in flight], early)
        except Exception as error:
            # A bug: each request of the flight fails, none waits for ever.
            problem = problem_of(error)
            for _, future in flight:
                if not future.done():
                    future.set_exception(problem)
            return
        for (_, future), result in zip(flight, results, strict=True):
            if not future.done():
                future.set_result(result)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._in_flight -= 1
        self.landed += 1
        self._start()
        self.on_landed()
        if not task.cancelled():
            task.result()

    async def _carry(self, cargo: list[C], early: Callable[[int, R], None]) -> list[R]:
        """One result for each piece, in order. Never raises TernError. *early* takes those that are known before the others are."""
        raise NotImplementedError


class SendLane(Lane[Parcel, Outcome]):
    """Sends to one broker group."""

    async def _carry(self, cargo: list[Parcel], early: Callable[[int, Outcome], None]) -> list[Outcome]:
        until = asyncio.get_running_loop().time() + APPEND_DEADLINE_MS / 1_000
        is_keyed = all(parcel.is_keyed for parcel in cargo)
        outcomes = await self._send(cargo, until, is_repeatable=is_keyed)
        if is_keyed or not isinstance(outcomes[0].error, OutcomeUnknown):
            return outcomes
        # A flight with a row without key cannot be repeated as a whole; its keyed parcels can.
        keyed = [number for number, parcel in enumerate(cargo) if parcel.is_keyed]
        if keyed and asyncio.get_running_loop().time() < until:
            for number, parcel in enumerate(cargo):
                if not parcel.is_keyed:
                    early(number, outcomes[number])
            again = await self._send([cargo[number] for number in keyed], until, is_repeatable=True)
            for number, outcome in zip(keyed, again, strict=True):
                # Even "nothing was stored" says that of the repeat only.
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
    """One SEND, and what is behind it: rows of all parcels, then their records; topics and producer groups by their places in the head."""
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
    """The place of the parcel's producer group among those that are *known*; it is now."""
    return known.setdefault(parcel.producer_group, len(known)) if parcel.producer_group else 0


def _renumbered(rows: list[bytes], topics: list[int], producer_group: int) -> bytearray:
    """*rows* with the numbers that a request gives to the parcel's topics and producer group."""
    renumbered = bytearray(b"".join(rows))
    columns = np.frombuffer(renumbered, SEND_ROWS)
    columns["topic"] = np.array(topics, np.uint32)[columns["topic"]]
    columns["producer_group"] = producer_group
    return renumbered


def read_outcomes(cargo: list[Parcel], sent: Sent, raw: memoryview) -> list[Outcome]:
    """The reply to one SEND request, cut up by parcel; LinkReplyMalformed when it has another number of rows."""
    rows = sum(len(parcel.rows) for parcel in cargo)
    if len(raw) != rows * _VERDICT.size:
        raise LinkReplyMalformed(reason=f"{len(raw)} bytes of verdicts for {rows} rows")
    verdicts = list(_VERDICT.iter_unpack(raw))
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
            # Of this parcel alone nobody can say what became of it.
            outcomes.append(failed(LinkReplyMalformed(reason=f"a reply that does not know producer group {number}")))
        else:
            of_group = msgspec.structs.astuple(facts[number]) if parcel.producer_group else ()
            outcomes.append(Outcome(verdicts=verdicts[at:end], replays=own, producer_group=of_group))
        at = end
    return outcomes


class SettleLane(Lane[SettleParcel, bytes | TernError]):
    """Settles for one broker group. Settling twice is settling once, so a flight is repeated until its deadline."""

    async def _carry(
        self, cargo: list[SettleParcel], _early: Callable[[int, bytes | TernError], None]
    ) -> list[bytes | TernError]:
        rows = sum(len(parcel.rows) for parcel in cargo)
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
            results.append(statuses[at : at + len(parcel.rows)])
            at += len(parcel.rows)
        return results


class EndLane(Lane[EndParcel, Ended | TernError]):
    """Commits and rollbacks in one broker group. The same end twice is one end, so a flight is repeated until its deadline."""

    async def _carry(
        self, cargo: list[EndParcel], _early: Callable[[int, Ended | TernError], None]
    ) -> list[Ended | TernError]:
        rows = b"".join(parcel.row for parcel in cargo)
        try:
            _, raw = await self.link.ask(EndTransactions(rows=len(cargo)), [rows], is_repeatable=True)
            return [*read_ended(raw, len(cargo))]
        except TernError as error:
            return [error] * len(cargo)
