"""Producers of a run: batches from several producers, then single messages over 16 connections.

Every message carries an idempotency key, so a send repeated after a leader's death is stored once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field

from tern_cli.demo.flights import FlightMessages, cut
from tern_client import Producer, RetryPolicy, SendReceipt

BATCH_PRODUCERS = 4
BATCH_MESSAGES = 500
SINGLE_CONNECTIONS = 16
SINGLE_MESSAGES = 20_000
# A producer retries often during an election: the pause after the failed attempt is part of the
# interruption.
POLICY = RetryPolicy(deadline_ms=60_000, max_delay_ms=100)


@dataclass(slots=True, kw_only=True)
class SendLog:
    """Confirmed sends and their times. Owned by the run; producers of one event loop write to it.
    Times are ms of one monotonic clock. The longest gap is measured from one confirmation of any
    producer to the next.
    """

    now_ms: Callable[[], float]
    # `milestone_reached` is set at this many confirmations.
    milestone: int = 0
    milestone_reached: asyncio.Event = field(default_factory=asyncio.Event)
    ids: set[str] = field(default_factory=set)
    confirmed: int = 0
    replayed: int = 0
    longest_gap_ms: float = 0.0
    began_ms: float | None = None
    last_ms: float | None = None

    def begin(self) -> None:
        """Start the clock of gaps: sends are on their way from now on."""
        self.began_ms = self.last_ms = self.now_ms()

    def note(self, receipts: Iterable[SendReceipt]) -> None:
        """Count *receipts* as stored for good."""
        now_ms = self.now_ms()
        if self.last_ms is not None:
            self.longest_gap_ms = max(self.longest_gap_ms, now_ms - self.last_ms)
        self.last_ms = now_ms
        for receipt in receipts:
            self.ids.add(receipt.message_id)
            self.confirmed += 1
            self.replayed += receipt.replayed
        if self.confirmed >= self.milestone:
            self.milestone_reached.set()

    @property
    def seconds(self) -> float:
        """Return the seconds from the first send's start to the last confirmation so far."""
        return 0.0 if self.began_ms is None or self.last_ms is None else (self.last_ms - self.began_ms) / 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPlan:
    """Flights to send in batches, as (first, one past the last), and flights to send singly."""

    batches: Sequence[tuple[int, int]]
    singles: range


def plan_sends(count: int) -> SendPlan:
    """Plan 20,000 single sends, at most a quarter of the flights, and batches for the rest."""
    singles = min(SINGLE_MESSAGES, count // 4)
    return SendPlan(batches=cut(count - singles, BATCH_MESSAGES), singles=range(count - singles, count))


async def send_batches(
    endpoints: Sequence[str], topic: str, messages: FlightMessages, plan: SendPlan, log: SendLog
) -> None:
    """Send the plan's batches from several producers that share one queue of batches.
    The first final error ends all of them.
    """
    waiting = deque(plan.batches)

    async def produce() -> None:
        async with Producer(endpoints, policy=POLICY) as producer:
            while waiting:
                start, end = waiting.popleft()
                outcome = await producer.send_batch(topic, messages.batch(start, end), return_errors=True)
                log.note(outcome.confirmed())

    await _together(produce() for _ in range(BATCH_PRODUCERS))


async def send_singly(
    endpoints: Sequence[str], topic: str, messages: FlightMessages, plan: SendPlan, log: SendLog
) -> None:
    """Send the plan's single messages, each in its own request, over 16 connections.
    Each connection belongs to one producer with one request at a time.
    """
    waiting = deque(plan.singles)

    async def produce() -> None:
        async with Producer(endpoints, policy=POLICY) as producer:
            while waiting:
                log.note([await producer.send_message(topic, messages.message(waiting.popleft()))])

    await _together(produce() for _ in range(SINGLE_CONNECTIONS))


async def _together(work: Iterable[Coroutine[None, None, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)
