"""Clients for what only some topics have: message groups, delivery times, redriven dead letters; and all clients of a plan together.

ordered    sends bursts of messages of one or two message groups, names no queue
alarm      sends messages for a while from now, and recalls some of them, some of these too late
sexton     has the dead letters of a group delivered again, and looks how far that is
"""

from functools import partial

from tern_wire.dead_letters import RUNNING
from tern_wire.rows import SCHEDULED
from tests.sim.history import Create, Operation, Recall, Redrive, Send, Sending
from tests.sim.plan import (
    DELAY_TOPIC,
    FIFO_GROUP,
    FIFO_TOPIC,
    GROWN_QUEUES,
    KINDS,
    MESSAGE_GROUPS,
    QUEUES,
    RETRY_GROUP,
    RETRY_TOPIC,
    SOUGHT_GROUP,
    GroupPlan,
    Plan,
)
from tests.sim.workload import READERS, REPEATABLE_MAX, Consumer, Desk, Producer, Reader

# What the kinds of clients issue of all operations, about.
_PRODUCERS, _CONSUMERS, _READERS = 0.36, 0.20, 0.12
_ORDERED, _ALARMS, _JOBS = 0.07, 0.04, 0.03
_DISPATCHERS, _WORKERS, _CLOCKS = 0.06, 0.07, 0.03
REDRIVE_PERIOD_S = 3.0
# Delivery times that have passed already are as good as none.
PAST_MAX_MS = 100


class _Sender:
    """Sends to one topic, pipelined, and repeats some of what has keys. Subclasses say what a burst is."""

    def __init__(self, desk: Desk, name: str, mean_s: float) -> None:
        self._desk, self._name, self._mean_s = desk, name, mean_s
        self._number = 0
        self._repeatable: list[Send] = []

    def step(self) -> None:
        """One burst."""
        desk, rng = self._desk, self._desk.rng
        burst = rng.randint(1, 3)
        for asked in [self._next_send() for _ in range(burst)]:
            if not desk.is_open():
                return
            is_repeat = self._repeatable and rng.random() < desk.plan.repeat_share
            desk.issue(self._name, rng.choice(self._repeatable) if is_repeat else asked, self._answered)
        desk.later(self._mean_s * burst * rng.uniform(0.4, 1.6), self.step)

    def _next_send(self) -> Send:
        raise NotImplementedError

    def _next_message(self, queue: int, message_group: str = "", deliver_ms: int = 0) -> Sending:
        rng = self._desk.rng
        self._number += 1
        name = f"{self._name}.{self._number}"
        key = f"key-{name}" if rng.random() < self._desk.plan.keyed_share else ""
        return Sending(queue, name, key, rng.randint(16, 200), message_group, deliver_ms)

    def _answered(self, operation: Operation) -> None:
        asked = operation.asked
        assert isinstance(asked, Send)
        if all(message.key for message in asked.messages) and len(self._repeatable) < REPEATABLE_MAX:
            self._repeatable.append(asked)


class OrderedProducer(_Sender):
    """Sends messages of message groups."""

    def _next_send(self) -> Send:
        rng = self._desk.rng
        message_groups = rng.sample(MESSAGE_GROUPS, 2)
        count = rng.randint(1, self._desk.plan.messages_max)
        return Send(FIFO_TOPIC, tuple(self._next_message(0, rng.choice(message_groups)) for _ in range(count)))


class AlarmProducer(_Sender):
    """Sends messages that wait, and recalls some."""

    def _next_send(self) -> Send:
        desk, rng = self._desk, self._desk.rng
        messages = []
        for _ in range(rng.randint(1, 2)):
            now_ms, dice = desk.group_ms(), rng.random()
            delay_ms = rng.randint(100, desk.plan.delay_max_ms) if dice < 0.85 else -rng.randint(1, PAST_MAX_MS)
            deliver_ms = now_ms + delay_ms if now_ms and dice < 0.95 else 0
            messages.append(self._next_message(rng.randrange(QUEUES[DELAY_TOPIC]), "", deliver_ms))
        return Send(DELAY_TOPIC, tuple(messages))

    def _answered(self, operation: Operation) -> None:
        super()._answered(operation)
        desk, rng, asked = self._desk, self._desk.rng, operation.asked
        if not operation.is_ok or not isinstance(asked, Send):
            return
        for message, verdict in zip(asked.messages, operation.sent, strict=True):
            if verdict.status == SCHEDULED and rng.random() < desk.plan.recall_share:
                recall = Recall(asked.topic, message.name, message.deliver_ms, verdict.offset)
                # As often as not when the time has nearly come, or has passed.
                desk.later(rng.uniform(0.0, 1.5 * desk.plan.delay_max_ms / 1000), partial(self._recall, recall))

    def _recall(self, recall: Recall) -> None:
        if self._desk.is_open():
            self._desk.issue(self._name, recall, lambda _operation: None)


class Sexton:
    """Redrives the dead letters of one group again and again, each task to its end."""

    def __init__(self, desk: Desk, name: str, group: str) -> None:
        self._desk, self._name, self._group = desk, name, group
        self._number = 0

    def step(self) -> None:
        """A new task."""
        self._number += 1
        self._ask(Redrive(self._group, f"{self._name}-{self._number}", False))

    def _ask(self, asked: Redrive) -> None:
        if self._desk.is_open():
            self._desk.issue(self._name, asked, self._answered)

    def _answered(self, operation: Operation) -> None:
        desk, rng, asked = self._desk, self._desk.rng, operation.asked
        assert isinstance(asked, Redrive)
        if operation.is_ok and operation.task.state == RUNNING:
            desk.later(rng.uniform(0.1, 0.5), lambda: self._ask(asked._replace(is_asking=True)))
        else:
            desk.later(REDRIVE_PERIOD_S * rng.uniform(0.5, 1.5), self.step)


class Grower:
    """Gives the ordered topic more queues, once."""

    def __init__(self, desk: Desk, name: str) -> None:
        self._desk, self._name = desk, name

    def step(self) -> None:
        """Wait for the time."""
        self._desk.later(self._desk.plan.grows_at_s, self._grow)

    def _grow(self) -> None:
        if self._desk.is_open():
            asked = Create("topic", FIFO_TOPIC, GROWN_QUEUES, (("type", KINDS[FIFO_TOPIC]),))
            self._desk.issue(self._name, asked, lambda _operation: None)


Client = Producer | Consumer | Reader | _Sender | Sexton | Grower


def make_clients(desk: Desk) -> list[Client]:
    """The clients of the desk's plan, in a fixed order, paced so that all operations take about `pace_s`."""
    plan = desk.plan
    rate = plan.operations / plan.pace_s
    names = {group.name: group for group in plan.groups}
    producer_s = plan.producers / (_PRODUCERS * rate)
    clients: list[Client] = [Producer(desk, f"p{number}", producer_s) for number in range(plan.producers)]
    clients += _consumers(desk, plan, [names["billing"], names["audit"]], _CONSUMERS * rate)
    clients += _consumers(desk, plan, [names[FIFO_GROUP]], _DISPATCHERS * rate)
    clients += _consumers(desk, plan, [names[SOUGHT_GROUP]], _DISPATCHERS * rate)
    clients += _consumers(desk, plan, [names[RETRY_GROUP]], _WORKERS * rate)
    clients += _consumers(desk, plan, [names["clock"]], _CLOCKS * rate)
    reader_s = plan.readers / (_READERS * rate)
    clients += [Reader(desk, f"{READERS}{number}", reader_s) for number in range(plan.readers)]
    clients += [OrderedProducer(desk, f"o{number}", 2 / (_ORDERED * rate)) for number in range(2)]
    clients.append(AlarmProducer(desk, "a0", 1 / (_ALARMS * rate)))
    clients.append(Producer(desk, "j0", 1 / (_JOBS * rate), RETRY_TOPIC))
    if plan.redriven:
        clients.append(Sexton(desk, "sexton", plan.redriven))
    if plan.grows_at_s:
        clients.append(Grower(desk, "grower"))
    return clients


def _consumers(desk: Desk, plan: Plan, groups: list[GroupPlan], rate: float) -> list[Consumer]:
    # A receive is settled every other time.
    mean_s = 1.5 * plan.consumers * len(groups) / rate
    return [
        Consumer(desk, f"c{number}-{group.name}", group, mean_s) for group in groups for number in range(plan.consumers)
    ]
