"""What simulated clients do: producers send in bursts, consumers receive and settle, readers look and commit offsets.

Each seed draws its own plan. Owner of every client: `Clients`, which also counts what may still be issued. A client never waits:
it asks, and goes on in the callback of the answer or of a timer.

     producer   burst of sends (pipelined) ... think ... burst ...        one in twenty repeats an earlier keyed send
     consumer   receive -> hold a while -> acks, extensions, releases, or nothing (then the lease ends) -> think -> receive
     reader     pull, offsets, group offsets, commits with and without the expected offset: one at a time
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from tern_wire.rows import ACK, EXTEND, RELEASE, SETTLED
from tests.sim.bodies import SIZE_MAX_BYTES
from tests.sim.history import (
    Asked,
    CommitOffsets,
    GroupOffsets,
    Held,
    Offsets,
    Operation,
    Pull,
    Receive,
    Send,
    Sending,
    Settle,
    Settling,
)

TOPICS = ("orders", "trips")
QUEUES = 4
# Offsets of a group are only set in this topic: in the other one, nothing may excuse a redelivery.
SOUGHT_TOPIC = "trips"
# How names of readers begin.
READERS = "r"
# A producer stops to think when so many of its sends have no answer.
PIPELINE_MAX = 12
# Of messages that a producer may repeat later.
REPEATABLE_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One seed's mix. Shares are of 1; times of consumers are virtual seconds, invisible times the group's milliseconds."""

    producers: int
    consumers: int  # a group
    readers: int
    burst_max: int
    messages_max: int
    keyed_share: float
    repeat_share: float
    large_share: float
    invisible_ms: dict[str, int]
    extend_share: float
    release_share: float
    abandon_share: float
    hold_max_s: float
    operations: int
    pace_s: float

    @property
    def groups(self) -> list[str]:
        """The consumer groups."""
        return list(self.invisible_ms)


def draw_plan(rng: Random, operations: int, pace_s: float) -> Plan:
    """A plan for about *operations* operations in *pace_s* undisturbed seconds."""
    return Plan(
        producers=rng.randint(3, 6),
        consumers=rng.randint(1, 3),
        readers=rng.randint(1, 2),
        burst_max=rng.choice((2, 6, 12)),
        messages_max=rng.choice((1, 3, 5)),
        keyed_share=rng.choice((0.2, 0.5, 0.8)),
        repeat_share=0.06,
        large_share=rng.choice((0.0, 0.01, 0.03)),
        invisible_ms={"billing": 2_500, "audit": rng.choice((250, 500, 1_000))},
        extend_share=rng.choice((0.05, 0.2)),
        release_share=0.05,
        abandon_share=rng.choice((0.05, 0.2)),
        hold_max_s=rng.choice((0.05, 0.4, 1.2)),
        operations=operations,
        pace_s=pace_s,
    )


class Desk(Protocol):
    """What a client may use: the clients' shared part."""

    rng: Random
    plan: Plan

    def is_open(self) -> bool:
        """Whether more operations may be issued."""
        ...

    def issue(self, client: str, asked: Asked, done: Callable[[Operation], None]) -> Operation:
        """Ask; *done* is told when the operation has ended. The caller has looked at `is_open`."""
        ...

    def later(self, delay_s: float, step: Callable[[], None]) -> None:
        """Go on with *step* later."""
        ...


class Producer:
    """Sends messages named after itself, in bursts, without waiting for answers."""

    def __init__(self, desk: Desk, name: str, mean_s: float) -> None:
        self._desk, self._name, self._mean_s = desk, name, mean_s
        self._number = 0
        self._waiting = 0
        self._repeatable: list[Send] = []

    def step(self) -> None:
        """One burst."""
        desk, rng = self._desk, self._desk.rng
        burst = rng.randint(1, desk.plan.burst_max)
        # A burst mostly goes to one topic, so that order within a queue is put to the test.
        topic = rng.choice(TOPICS)
        queue = rng.randrange(QUEUES)
        for _ in range(burst):
            if not desk.is_open():
                return
            if self._waiting >= PIPELINE_MAX:
                break
            if self._repeatable and rng.random() < desk.plan.repeat_share:
                asked = rng.choice(self._repeatable)
            else:
                asked = self._next_send(topic, queue)
            self._waiting += 1
            desk.issue(self._name, asked, self._answered)
        desk.later(self._mean_s * burst * rng.uniform(0.4, 1.6), self.step)

    def _next_send(self, topic: str, queue: int) -> Send:
        rng, plan = self._desk.rng, self._desk.plan
        is_keyed, is_mixed = rng.random() < plan.keyed_share, rng.random() < 0.1
        messages = []
        for _ in range(rng.randint(1, plan.messages_max)):
            self._number += 1
            name = f"{self._name}.{self._number}"
            size = rng.randint(1_500, SIZE_MAX_BYTES) if rng.random() < plan.large_share else rng.randint(16, 200)
            has_key = rng.random() < 0.5 if is_mixed else is_keyed
            wanted = queue if rng.random() < 0.7 else rng.randrange(QUEUES)
            messages.append(Sending(wanted, name, f"key-{name}" if has_key else "", size))
        return Send(topic, tuple(messages))

    def _answered(self, operation: Operation) -> None:
        self._waiting -= 1
        asked = operation.asked
        assert isinstance(asked, Send)
        if all(message.key for message in asked.messages) and len(self._repeatable) < REPEATABLE_MAX:
            self._repeatable.append(asked)


class Consumer:
    """Receives for one group and settles what it holds, sometimes late, sometimes never."""

    def __init__(self, desk: Desk, name: str, group: str, mean_s: float) -> None:
        self._desk, self._name, self._group, self._mean_s = desk, name, group, mean_s
        self._holding: list[tuple[str, Held]] = []

    def step(self) -> None:
        """One receive."""
        desk, rng = self._desk, self._desk.rng
        if not desk.is_open():
            return
        plan = desk.plan
        invisible_ms = plan.invisible_ms[self._group]
        if rng.random() < 0.2:
            invisible_ms = rng.randint(invisible_ms // 2, invisible_ms)
        asked = Receive(self._group, rng.choice(TOPICS), rng.choice((1, 4, 16, 32)), invisible_ms)
        desk.issue(self._name, asked, self._received)

    def _received(self, operation: Operation) -> None:
        rng, plan = self._desk.rng, self._desk.plan
        asked = operation.asked
        assert isinstance(asked, Receive)
        if not operation.is_ok or not operation.held:
            self._desk.later(self._mean_s * rng.uniform(0.5, 2.0), self.step)
            return
        self._holding.extend([(asked.topic, held) for held in operation.held])
        self._desk.later(rng.uniform(0.0, plan.hold_max_s), self._settle)

    def _settle(self) -> None:
        desk, rng = self._desk, self._desk.rng
        plan = desk.plan
        rows, kept = [], []
        for topic, held in self._holding:
            dice = rng.random()
            if dice < plan.abandon_share / 2:
                continue
            action, invisible_ms = ACK, 0
            if dice > 1 - plan.extend_share:
                action, invisible_ms = EXTEND, rng.randint(100, plan.invisible_ms[self._group])
                kept.append((topic, held))
            elif dice > 1 - plan.extend_share - plan.release_share:
                action = RELEASE
            rows.append(Settling(topic, held.queue, held.offset, held.lease, action, invisible_ms))
        self._holding = kept
        if rows and desk.is_open() and rng.random() > plan.abandon_share / 2:
            desk.issue(self._name, Settle(self._group, tuple(rows)), self._settled)
        else:
            self._think()

    def _settled(self, operation: Operation) -> None:
        asked = operation.asked
        assert isinstance(asked, Settle)
        if operation.is_ok:
            over = {
                (row.topic, row.lease, row.offset)
                for row, status in zip(asked.rows, operation.statuses, strict=True)
                if status != SETTLED
            }
            self._holding = [item for item in self._holding if (item[0], item[1].lease, item[1].offset) not in over]
        self._think()

    def _think(self) -> None:
        rng = self._desk.rng
        if self._holding and rng.random() < 0.7:
            self._desk.later(rng.uniform(0.0, self._desk.plan.hold_max_s), self._settle)
        else:
            self._desk.later(self._mean_s * rng.uniform(0.4, 1.6), self.step)


class Reader:
    """Reads queues and offsets, and sets offsets of groups; a tool or a person, so one thing at a time."""

    def __init__(self, desk: Desk, name: str, mean_s: float) -> None:
        self._desk, self._name, self._mean_s = desk, name, mean_s
        self._next: dict[tuple[str, int], int] = {}
        self._committed: dict[tuple[str, int], int] = {}
        self._ends: dict[int, int] = {}

    def step(self) -> None:
        """One look, or one commit."""
        if self._desk.is_open():
            self._desk.issue(self._name, self._choose(), self._answered)

    def _choose(self) -> Asked:
        rng, groups = self._desk.rng, self._desk.plan.groups
        dice = rng.random()
        if dice < 0.4:
            topic, queue = rng.choice(TOPICS), rng.randrange(QUEUES)
            following = self._next.get((topic, queue), 0)
            return Pull(topic, queue, following if rng.random() < 0.7 else rng.randint(0, following))
        if dice < 0.65:
            return Offsets(rng.choice(TOPICS))
        group = rng.choice(groups)
        if dice < 0.85 or not self._committed:
            return GroupOffsets(group, rng.choice(TOPICS))
        (group, queue), known = rng.choice(sorted(self._committed.items()))
        wanted = min(max(0, known + rng.choice((-3, -1, 0, 1, 2, 4))), max(known, self._ends.get(queue, 0)))
        expected = ((queue, known),) if rng.random() < 0.6 else ()
        return CommitOffsets(group, SOUGHT_TOPIC, ((queue, wanted),), expected)

    def _answered(self, operation: Operation) -> None:
        if operation.is_ok:
            self._learn(operation)
        self._desk.later(self._mean_s * self._desk.rng.uniform(0.4, 1.6), self.step)

    def _learn(self, operation: Operation) -> None:
        match operation.asked:
            case Pull(topic, queue, _):
                self._next[topic, queue] = operation.pulled.next_offset
            case Offsets(topic) if topic == SOUGHT_TOPIC:
                self._ends = {queue: end for queue, _, end in operation.ends}
            case GroupOffsets(group, topic) if topic == SOUGHT_TOPIC:
                for queue, offset in operation.committed:
                    self._committed[group, queue] = offset


def make_clients(desk: Desk) -> list[Producer | Consumer | Reader]:
    """The clients of the desk's plan, in a fixed order, paced so that all operations take about `pace_s`."""
    plan = desk.plan
    # Of all operations, producers issue about 55 %, consumers 30 %, readers 15 %.
    rate = plan.operations / plan.pace_s
    producer_s = plan.producers / (0.55 * rate)
    consumers = plan.consumers * len(plan.groups)
    consumer_s = 1.5 * consumers / (0.30 * rate)
    reader_s = plan.readers / (0.15 * rate)
    return [
        *[Producer(desk, f"p{number}", producer_s) for number in range(plan.producers)],
        *[
            Consumer(desk, f"c{number}-{group}", group, consumer_s)
            for group in plan.groups
            for number in range(plan.consumers)
        ],
        *[Reader(desk, f"{READERS}{number}", reader_s) for number in range(plan.readers)],
    ]
