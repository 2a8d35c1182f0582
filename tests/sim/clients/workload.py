"""What simulated clients do: producers send in bursts, consumers receive and settle, readers look, commit offsets and seek.

Each seed draws its own plan (plan.py). Those who send messages with an order or a delivery time are in special_clients.py, those with transactions
in transaction_clients.py. Owner of every client: `Clients`, which also counts what may still be issued. A client never waits:
it asks, and goes on in the callback of the answer or of a timer.

     producer   burst of sends (pipelined) ... think ... burst ...        one in twenty repeats an earlier keyed send
     consumer   receive -> hold a while -> acks, extensions, releases, nacks, rejections, or nothing (then the lease ends) -> think -> receive
     reader     pull, offsets, group offsets, commits with and without the expected offset, seeks: one at a time
"""

from collections.abc import Callable
from random import Random
from typing import Protocol

from tern_wire.link.rows import ACK, EXTEND, NACK, RELEASE, SETTLED
from tests.sim.clients.bodies import SIZE_MAX_BYTES
from tests.sim.clients.plan import (
    DELAY_TOPIC,
    FIFO_TOPIC,
    LEDGER_TOPIC,
    QUEUES,
    SOUGHT_GROUP,
    SOUGHT_TOPIC,
    TOPICS,
    GroupPlan,
    Plan,
)
from tests.sim.clients.repeats import Repeats
from tests.sim.history.history import (
    REJECT,
    Asked,
    CommitOffsets,
    GroupOffsets,
    Held,
    Offsets,
    Operation,
    Pull,
    Receive,
    Seek,
    Send,
    Sending,
    Settle,
    Settling,
)

BILLING, AUDIT = "billing", "audit"
# What readers read; the topics whose groups' offsets are set are the larger part.
READ_TOPICS = (*TOPICS, *TOPICS, FIFO_TOPIC, DELAY_TOPIC, LEDGER_TOPIC, LEDGER_TOPIC)
NACK_DELAY_MAX_MS = 1_500
# How names of readers begin.
READERS = "r"
# A producer stops to think when so many of its sends have no answer.
PIPELINE_MAX = 12
# Of messages that a producer may repeat later.
REPEATABLE_MAX = 64


class ClientContext(Protocol):
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

    def group_ms(self) -> int:
        """About what the brokers' time is; 0 while nobody has heard of it."""
        ...


class Producer:
    """Sends messages named after itself, in bursts, without waiting for answers."""

    def __init__(self, context: ClientContext, name: str, mean_s: float, topic: str = "") -> None:
        """*topic*: the only one that it sends to."""
        self._context, self._name, self._mean_s, self._topic = context, name, mean_s, topic
        self._number = 0
        self._waiting = 0
        self._repeats = Repeats[Send](context)

    def step(self) -> None:
        """One burst."""
        context, rng = self._context, self._context.rng
        burst = rng.randint(1, context.plan.burst_max)
        # A burst mostly goes to one topic, so that order within a queue is put to the test.
        topic = self._topic or rng.choice(TOPICS)
        queue = rng.randrange(QUEUES[topic])
        for _ in range(burst):
            if not context.is_open():
                return
            if self._waiting >= PIPELINE_MAX:
                break
            if self._repeats.asked and rng.random() < context.plan.repeat_share:
                asked = rng.choice(self._repeats.asked)
            else:
                asked = self._next_send(topic, queue)
            self._waiting += 1
            context.issue(self._name, asked, self._answered)
        context.later(self._mean_s * burst * rng.uniform(0.4, 1.6), self.step)

    def _next_send(self, topic: str, queue: int) -> Send:
        rng, plan = self._context.rng, self._context.plan
        is_keyed, is_mixed = rng.random() < plan.keyed_share, rng.random() < 0.1
        messages = []
        for _ in range(rng.randint(1, plan.messages_max)):
            self._number += 1
            name = f"{self._name}.{self._number}"
            size = rng.randint(1_500, SIZE_MAX_BYTES) if rng.random() < plan.large_share else rng.randint(16, 200)
            has_key = rng.random() < 0.5 if is_mixed else is_keyed
            wanted = queue if rng.random() < 0.7 else rng.randrange(QUEUES[topic])
            messages.append(Sending(wanted, name, f"key-{name}" if has_key else "", size))
        return Send(topic, tuple(messages))

    def _answered(self, operation: Operation) -> None:
        self._waiting -= 1
        asked = operation.asked
        assert isinstance(asked, Send)
        if all(message.key for message in asked.messages) and len(self._repeats.asked) < REPEATABLE_MAX:
            self._repeats.add(asked, operation.ended_s - operation.began_s)


class Consumer:
    """Receives for one group and settles what it holds, sometimes late, sometimes never."""

    def __init__(self, context: ClientContext, name: str, group: GroupPlan, mean_s: float) -> None:
        self._context, self._name, self._group, self._mean_s = context, name, group, mean_s
        self._holding: list[tuple[str, Held]] = []

    def step(self) -> None:
        """One receive."""
        context, rng = self._context, self._context.rng
        if not context.is_open():
            return
        invisible_ms = self._group.invisible_ms
        if rng.random() < 0.2:
            invisible_ms = rng.randint(invisible_ms // 2, invisible_ms)
        asked = Receive(self._group.name, rng.choice(self._group.topics), rng.choice((1, 4, 16, 32)), invisible_ms)
        context.issue(self._name, asked, self._received)

    def _received(self, operation: Operation) -> None:
        rng, plan = self._context.rng, self._context.plan
        asked = operation.asked
        assert isinstance(asked, Receive)
        if not operation.is_ok or not operation.held:
            self._context.later(self._mean_s * rng.uniform(0.5, 2.0), self.step)
            return
        self._holding.extend([(asked.topic, held) for held in operation.held])
        self._context.later(rng.uniform(0.0, plan.hold_max_s), self._settle)

    def _settle(self) -> None:
        context, rng = self._context, self._context.rng
        rows: list[Settling] = []
        rejected: list[Settling] = []
        kept = []
        for topic, held in self._holding:
            action, time_ms = self._choose()
            if not action:
                continue
            if action == EXTEND:
                kept.append((topic, held))
            row = Settling(topic, held.queue, held.offset, held.lease, action, time_ms)
            (rejected if action == REJECT else rows).append(row)
        self._holding = kept
        if rejected and context.is_open():
            context.issue(self._name, Settle(self._group.name, tuple(rejected)), lambda _operation: None)
        if rows and context.is_open() and rng.random() > context.plan.abandon_share / 2:
            context.issue(self._name, Settle(self._group.name, tuple(rows)), self._settled)
        else:
            self._think()

    def _choose(self) -> tuple[int, int]:
        """What becomes of one message (0: nothing), and the time that goes with it."""
        rng, plan, group = self._context.rng, self._context.plan, self._group
        dice = rng.random()
        if dice < plan.abandon_share / 2:
            return 0, 0
        if dice > 1 - plan.extend_share:
            return EXTEND, rng.randint(100, group.invisible_ms)
        if dice > 1 - plan.extend_share - plan.release_share:
            return RELEASE, 0
        if not group.nack_share:
            return ACK, 0
        dice = rng.random()
        if dice < group.nack_share:
            return NACK, rng.choice((-1, -1, 0, rng.randint(100, NACK_DELAY_MAX_MS)))
        return (REJECT if dice > 1 - group.reject_share else ACK), 0

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
        rng = self._context.rng
        if self._holding and rng.random() < 0.7:
            self._context.later(rng.uniform(0.0, self._context.plan.hold_max_s), self._settle)
        else:
            self._context.later(self._mean_s * rng.uniform(0.4, 1.6), self.step)


class Reader:
    """Reads queues and offsets, and sets offsets of groups; a tool or a person, so one thing at a time."""

    def __init__(self, context: ClientContext, name: str, mean_s: float) -> None:
        self._context, self._name, self._mean_s = context, name, mean_s
        self._next: dict[tuple[str, int], int] = {}
        self._committed: dict[tuple[str, int], int] = {}
        self._ends: dict[int, int] = {}
        # When messages that it has read in the sought topic were stored (ms of the group).
        self._times_ms: list[int] = []

    def step(self) -> None:
        """One look, commit, or seek."""
        if self._context.is_open():
            self._context.issue(self._name, self._choose(), self._answered)

    def _choose(self) -> Asked:
        rng, groups = self._context.rng, (BILLING, AUDIT)
        dice = rng.random()
        if dice < 0.4:
            topic = rng.choice(READ_TOPICS)
            queue = rng.randrange(QUEUES[topic])
            following = self._next.get((topic, queue), 0)
            return Pull(topic, queue, following if rng.random() < 0.7 else rng.randint(0, following))
        if dice < 0.65:
            return Offsets(rng.choice(READ_TOPICS))
        if dice < 0.80 or not self._committed:
            topic = rng.choice(TOPICS)
            return GroupOffsets(rng.choice(groups), topic)
        if dice > 0.97:
            return GroupOffsets(SOUGHT_GROUP, FIFO_TOPIC)
        if dice > 0.90:
            return self._seek()
        (group, queue), known = rng.choice(sorted(self._committed.items()))
        wanted = min(max(0, known + rng.choice((-3, -1, 0, 1, 2, 4))), max(known, self._ends.get(queue, 0)))
        expected = ((queue, known),) if rng.random() < 0.6 else ()
        return CommitOffsets(group, SOUGHT_TOPIC, ((queue, wanted),), expected)

    def _seek(self) -> Seek:
        rng = self._context.rng
        group, topic = (
            (SOUGHT_GROUP, FIFO_TOPIC) if rng.random() < 0.4 else (rng.choice((BILLING, AUDIT)), SOUGHT_TOPIC)
        )
        to = rng.choice(("earliest", "latest", "shift", "shift", "shift", "time"))
        if to == "time" and topic == SOUGHT_TOPIC and self._times_ms:
            return Seek(group, topic, to, rng.choice(self._times_ms) - rng.choice((0, 0, 1, 50)))
        shift = rng.choice((-12, -5, -1, 0, 2))
        return Seek(group, topic, *(("shift", shift) if to in {"time", "shift"} else (to, 0)))

    def _answered(self, operation: Operation) -> None:
        if operation.is_ok:
            self._learn(operation)
        self._context.later(self._mean_s * self._context.rng.uniform(0.4, 1.6), self.step)

    def _learn(self, operation: Operation) -> None:
        match operation.asked:
            case Pull(topic, queue, _):
                self._next[topic, queue] = operation.pulled.next_offset
                if topic == SOUGHT_TOPIC:
                    self._times_ms += [read.stored_ms for read in operation.pulled.messages[:2]]
            case Offsets(topic) if topic == SOUGHT_TOPIC:
                self._ends = {queue: end for queue, _, end in operation.ends}
            case GroupOffsets(group, topic) if topic == SOUGHT_TOPIC:
                for queue, offset in operation.committed:
                    self._committed[group, queue] = offset
