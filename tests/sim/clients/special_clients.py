"""Clients for what only some topics have: message groups, delivery times, redriven dead letters. Those for transactions: transaction_clients.py.

ordered    sends bursts of messages of one or two message groups, names no queue
alarm      sends messages for a while from now, and recalls some of them, some of these too late
sexton     has the dead letters of a group delivered again, and looks how far that is
"""

from functools import partial

from tern_wire.dead_letters import RUNNING
from tern_wire.link.rows import SCHEDULED
from tests.sim.clients.plan import DELAY_TOPIC, FIFO_TOPIC, GROWN_QUEUES, KINDS, MESSAGE_GROUPS, QUEUES
from tests.sim.clients.repeats import Repeats
from tests.sim.clients.workload import REPEATABLE_MAX, ClientContext
from tests.sim.history.history import Create, Operation, Recall, Redrive, Send, Sending

REDRIVE_PERIOD_S = 3.0
# Delivery times that have passed already are as good as none.
PAST_MAX_MS = 100


class Sender:
    """Sends to one topic, pipelined, and repeats some of what has keys. Subclasses say what a burst is."""

    def __init__(self, context: ClientContext, name: str, mean_s: float) -> None:
        self._context, self._name, self._mean_s = context, name, mean_s
        self._number = 0
        self._repeats = Repeats[Send](context)

    def step(self) -> None:
        """One burst."""
        context, rng = self._context, self._context.rng
        burst = rng.randint(1, 3)
        for asked in [self._next_send() for _ in range(burst)]:
            if not context.is_open():
                return
            is_repeat = self._repeats.asked and rng.random() < context.plan.repeat_share
            context.issue(self._name, rng.choice(self._repeats.asked) if is_repeat else asked, self._answered)
        context.later(self._mean_s * burst * rng.uniform(0.4, 1.6), self.step)

    def _next_send(self) -> Send:
        raise NotImplementedError

    def _next_message(self, queue: int, message_group: str = "", deliver_ms: int = 0) -> Sending:
        rng = self._context.rng
        self._number += 1
        name = f"{self._name}.{self._number}"
        key = f"key-{name}" if rng.random() < self._context.plan.keyed_share else ""
        return Sending(queue, name, key, rng.randint(16, 200), message_group, deliver_ms)

    def _answered(self, operation: Operation) -> None:
        asked = operation.asked
        assert isinstance(asked, Send)
        if all(message.key for message in asked.messages) and len(self._repeats.asked) < REPEATABLE_MAX:
            self._repeats.add(asked, operation.ended_s - operation.began_s)


class OrderedProducer(Sender):
    """Sends messages of message groups."""

    def _next_send(self) -> Send:
        rng = self._context.rng
        message_groups = rng.sample(MESSAGE_GROUPS, 2)
        count = rng.randint(1, self._context.plan.messages_max)
        return Send(FIFO_TOPIC, tuple(self._next_message(0, rng.choice(message_groups)) for _ in range(count)))


class AlarmProducer(Sender):
    """Sends messages that wait, and recalls some."""

    def _next_send(self) -> Send:
        context, rng = self._context, self._context.rng
        messages = []
        for _ in range(rng.randint(1, 2)):
            now_ms, dice = context.group_ms(), rng.random()
            delay_ms = rng.randint(100, context.plan.delay_max_ms) if dice < 0.85 else -rng.randint(1, PAST_MAX_MS)
            deliver_ms = now_ms + delay_ms if now_ms and dice < 0.95 else 0
            messages.append(self._next_message(rng.randrange(QUEUES[DELAY_TOPIC]), "", deliver_ms))
        return Send(DELAY_TOPIC, tuple(messages))

    def _answered(self, operation: Operation) -> None:
        super()._answered(operation)
        context, rng, asked = self._context, self._context.rng, operation.asked
        if not operation.is_ok or not isinstance(asked, Send):
            return
        for message, verdict in zip(asked.messages, operation.sent, strict=True):
            if verdict.status == SCHEDULED and rng.random() < context.plan.recall_share:
                recall = Recall(asked.topic, message.name, message.deliver_ms, verdict.offset)
                # As often as not when the time has nearly come, or has passed.
                context.later(rng.uniform(0.0, 1.5 * context.plan.delay_max_ms / 1000), partial(self._recall, recall))

    def _recall(self, recall: Recall) -> None:
        if self._context.is_open():
            self._context.issue(self._name, recall, lambda _operation: None)


class Sexton:
    """Redrives the dead letters of one group again and again, each task to its end."""

    def __init__(self, context: ClientContext, name: str, group: str) -> None:
        self._context, self._name, self._group = context, name, group
        self._number = 0

    def step(self) -> None:
        """A new task."""
        self._number += 1
        self._ask(Redrive(self._group, f"{self._name}-{self._number}", False))

    def _ask(self, asked: Redrive) -> None:
        if self._context.is_open():
            self._context.issue(self._name, asked, self._answered)

    def _answered(self, operation: Operation) -> None:
        context, rng, asked = self._context, self._context.rng, operation.asked
        assert isinstance(asked, Redrive)
        if operation.is_ok and operation.task.state == RUNNING:
            context.later(rng.uniform(0.1, 0.5), lambda: self._ask(asked._replace(is_asking=True)))
        else:
            context.later(REDRIVE_PERIOD_S * rng.uniform(0.5, 1.5), self.step)


class Grower:
    """Gives the ordered topic more queues, once."""

    def __init__(self, context: ClientContext, name: str) -> None:
        self._context, self._name = context, name

    def step(self) -> None:
        """Wait for the time."""
        self._context.later(self._context.plan.grows_at_s, self._grow)

    def _grow(self) -> None:
        if self._context.is_open():
            asked = Create("topic", FIFO_TOPIC, GROWN_QUEUES, (("type", KINDS[FIFO_TOPIC]),))
            self._context.issue(self._name, asked, lambda _operation: None)
