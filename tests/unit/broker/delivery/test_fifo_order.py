"""Random schedules over one state machine against a naive model: order within each message group, one holder, attempts, nothing lost."""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from tern_broker.core import saving
from tern_broker.core.delivery import parked
from tern_broker.core.delivery.fifo import FifoDelivery
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import ACK, EXTEND, LEASE_OVER, NACK, RELEASE, SETTLE_ROW, SETTLED, message_group_hash
from tests.support.broker.fifo_log import FifoLog, Held

ATTEMPTS_MAX = 4
STEPS = 500
# The group's own delays, for a nack that names none.
DELAYS_MS = (300, 2_000)


@dataclass(slots=True)
class Message:
    """One message as the model sees it: *state* is free, leased, resting, dying or settled."""

    message_group: str
    queue: int
    offset: int
    state: str = "free"
    attempts: int = 0
    until_ms: int = 0
    lease: int = 0
    # The lease whose holder nacked it last, until somebody receives it again.
    nacked_by: int = 0


@dataclass(slots=True)
class Model:
    """What must be so, told one event at a time."""

    by_group: dict[str, list[Message]] = field(default_factory=dict)
    by_place: dict[tuple[int, int], Message] = field(default_factory=dict)
    now_ms: int = 0

    def sent(self, message_group: str, queue: int, offset: int) -> None:
        """Remember a message; one without a message group is a message group of its own."""
        message = self.by_place[queue, offset] = Message(message_group, queue, offset)
        self.by_group.setdefault(message_group or f"{queue}:{offset}", []).append(message)

    def passed(self, now_ms: int) -> None:
        """Time goes on."""
        self.now_ms = now_ms
        for message in self.by_place.values():
            if message.state in {"leased", "resting"} and message.until_ms <= now_ms:
                is_last = message.state == "leased" and message.attempts >= ATTEMPTS_MAX
                message.state = "dying" if is_last else "free"

    def head(self, name: str) -> Message | None:
        """The first of a message group that is not settled."""
        return next((each for each in self.by_group[name] if each.state != "settled"), None)

    def heads(self) -> list[Message]:
        """The first of each message group."""
        return [message for message in map(self.head, self.by_group) if message is not None]

    def received(self, held: Held) -> None:
        """The broker has handed it out."""
        message = self.by_place[held.queue, held.offset]
        assert message.state == "free", f"{message} at {self.now_ms}"
        name = message.message_group or f"{message.queue}:{message.offset}"
        head = self.head(name)
        # A seek in one queue brings back what was sent before a message that another queue has handed out already.
        assert message is head or message.attempts, f"{message} before {head}"
        in_hand = [each for each in self.by_group[name] if each.state in {"leased", "resting", "dying"}]
        assert not in_hand, f"{message} beside {in_hand}"
        message.attempts += 1
        assert held.attempt == message.attempts, message
        message.state, message.until_ms, message.lease = "leased", held.deadline_ms, held.lease
        message.nacked_by = 0

    def seek(self, queue: int, offset: int) -> None:
        """The group is told to go on there: everything below is settled, everything from it on was never received."""
        for message in self.by_place.values():
            if message.queue == queue:
                message.state, message.attempts = ("free", 0) if message.offset >= offset else ("settled", 0)
                message.nacked_by = 0


class Run:
    """One schedule."""

    def __init__(self, seed: int) -> None:
        self.rng, self.model = random.Random(seed), Model()
        # One queue brings message groups together, several keep them apart.
        self.log = FifoLog(queues=(1, 2, 4, 2, 1)[seed % 5])
        self.log.group.max_attempts = ATTEMPTS_MAX
        # One node is loaded from what it saved again and again, the other never: they must stay the same.
        self.log.twin = saving.load(b"".join(saving.encode(saving.take(self.log.state))))
        self.set_delays()
        self.now_ms, self.held = 10, list[Held]()
        self.may_grow, self.may_seek = seed % 3 != 1, seed % 3 != 0

    def set_delays(self) -> None:
        """The group's own; a saved state holds the policy that they come from."""
        for state in self.log.nodes():
            state.names.groups["g"].retry_delays_ms = DELAYS_MS

    def step(self) -> None:
        """One event."""
        rng = self.rng
        self.now_ms += rng.choice((1, 5, 50, 400))
        self.log.apply(self.now_ms)
        self.model.passed(self.now_ms)
        if rng.random() < 0.2:
            self.check()
        action = rng.random()
        if action < 0.25:
            self.send(rng.randrange(1, 12))
        elif action < 0.5:
            self.receive(rng.randrange(1, 9))
        elif action < 0.6:
            self.receive_together()
        elif action < 0.9:
            self.settle()
        elif action < 0.94:
            self.bury()
        elif action < 0.95:
            self.revive()
        elif action < 0.96 and self.may_grow:
            self.log.grow(min(16, self.log.topic.queues + rng.randrange(1, 4)))
        elif action < 0.97 and self.may_seek:
            queue = rng.randrange(self.log.topic.queues)
            offset = rng.randrange(self.log.topic.ends[queue] + 1)
            self.log.seek(self.now_ms, queue, offset)
            self.model.seek(queue, offset)
        elif action < 0.99:
            self.log.reload()
            self.set_delays()

    def check(self) -> None:
        """What is true of every delivery at any time."""
        for row in self.log.state.leasing.deliveries.values():
            for queue, delivery in enumerate(row):
                if not isinstance(delivery, FifoDelivery):
                    continue
                held = set(delivery.held_offsets().tolist())
                assert held == set(delivery.in_hand)
                busy = [message_group for message_group in delivery.in_hand.values() if message_group]
                assert len(busy) == len(set(busy)), "two hands"
                assert {*delivery.ready, *delivery.elsewhere} == set(delivery.parked.message_groups()) - set(busy)
                waiting = [
                    start + bit
                    for start, count, bits in delivery.parked.stretches()
                    for bit in range(count)
                    if bits >> bit & 1
                ]
                assert len(waiting) == delivery.parked.count
                assert not held & set(waiting)
                unsettled = [
                    offset for offset in range(delivery.cursor) if self.model.by_place[queue, offset].state != "settled"
                ]
                assert unsettled == sorted({*held, *waiting})
                assert delivery.committed() == min(unsettled, default=delivery.cursor)

    def send(self, count: int) -> None:
        """Some message groups have much more than others."""
        names = [self.rng.choice(("", "hot", "hot", f"g{self.rng.randrange(12)}")) for _ in range(count)]
        places = self.log.send_grouped(self.now_ms, *((name, bytes(self.rng.choice((1, 900)))) for name in names))
        for name, place in zip(names, places, strict=True):
            self.model.sent(name, *place)

    def receive(self, messages_max: int) -> list[Held]:
        """Receive, and ask the model."""
        rng = self.rng
        found = self.log.receive_in_order(
            self.now_ms,
            messages_max,
            size_max_bytes=rng.choice((1_500, 1 << 20)),
            first_queue=rng.randrange(self.log.topic.queues),
        )
        for held in found:
            self.model.received(held)
        self.held += found
        return found

    def receive_together(self) -> None:
        """Several receives in one entry, and before them an ack that their picker did not know of, or what an older picker found."""
        rng, log = self.rng, self.log
        picker = log.picker()
        asked = [
            log.request(messages_max=rng.randrange(1, 6), first_queue=rng.randrange(log.topic.queues)) for _ in "123"
        ]
        found = [picks for picks in map(picker.pick, asked) if picks]
        if rng.random() < 0.3:
            self.receive(3)
        acked = [held for held in self.held[-1:] if self.model.by_place[held.queue, held.offset].lease == held.lease]
        acked = [held for held in acked if self.model.by_place[held.queue, held.offset].state == "leased"]
        rows = [
            SETTLE_ROW.pack(log.group_id, log.topic_id, held.queue, ACK, held.offset, held.lease, 0) for held in acked
        ]
        before = [(CommandKind.SETTLE, b"".join(rows))] if rows else []
        granted = log.lease_together(self.now_ms, found, *before)
        for held in acked:
            self.model.by_place[held.queue, held.offset].state = "settled"
        for held in (held for each in granted for held in each):
            self.model.received(held)
            self.held.append(held)

    def settle(self) -> None:
        """Something is done with some of what was received, a long time ago perhaps."""
        rng = self.rng
        for held in rng.sample(self.held, min(len(self.held), rng.randrange(1, 6))):
            message = self.model.by_place[held.queue, held.offset]
            has_lease = message.state == "leased" and message.lease == held.lease
            action = rng.choice((ACK, ACK, ACK, EXTEND, RELEASE, NACK, NACK, 0))
            time_ms = rng.choice((-1, 0, 100, 3_000)) if action == NACK else 700
            if action:
                (status,) = self.log.settle_held(self.now_ms, action, [held], time_ms)
            else:
                (status,) = self.log.reject(self.now_ms, held)
            is_repeated = (
                (message.state == "settled" and action in {0, ACK, NACK})
                or (message.state == "dying" and action in {0, NACK})
                or (action == NACK and message.state != "leased" and message.nacked_by == held.lease)
            )
            assert status == (SETTLED if has_lease or is_repeated else LEASE_OVER), (message, action)
            if has_lease:
                self.settled(message, action, time_ms)

    def settled(self, message: Message, action: int, time_ms: int) -> None:
        """Tell the model."""
        if action == ACK:
            message.state = "settled"
        elif action == EXTEND:
            message.until_ms = self.now_ms + time_ms
        elif action == RELEASE:
            message.state, message.attempts = "free", message.attempts - 1
        elif action == NACK and message.attempts < ATTEMPTS_MAX:
            message.nacked_by = message.lease
            delay_ms = DELAYS_MS[min(message.attempts, len(DELAYS_MS)) - 1] if time_ms < 0 else time_ms
            message.state, message.until_ms = ("resting", self.now_ms + delay_ms) if delay_ms else ("free", 0)
        else:
            message.state = "dying"

    def bury(self) -> None:
        """The leader buries one that is dying, and one that is not."""
        messages = list(self.model.by_place.values())
        for message in [each for each in messages if each.state == "dying"][:1] + messages[-1:]:
            is_dying = message.state == "dying"
            assert self.log.bury(self.now_ms, message.queue, message.offset) == is_dying, message
            if is_dying:
                message.state = "settled"

    def revive(self) -> None:
        """Some that are settled are delivered again, as a redrive does with dead letters: they are the next of their message groups."""
        queue = self.rng.randrange(self.log.topic.queues)
        settled = [each for each in self.model.by_place.values() if each.queue == queue and each.state == "settled"]
        chosen = self.rng.sample(settled, min(len(settled), 3))
        if not chosen or not self.log.has_begun(queue):
            return
        message_groups = {
            each.offset: message_group_hash(each.message_group.encode()) if each.message_group else 0 for each in chosen
        }
        offsets = np.array(sorted(message_groups), np.int64)
        offsets = offsets[offsets < self.log.delivery(queue).cursor]
        for state in self.log.nodes():
            delivery = state.leasing.find(self.log.group_id, self.log.topic_id, queue)
            assert delivery is not None
            assert delivery.revive(offsets, state.leasing.next_id, message_groups) == len(offsets)
        self.log.apply(self.now_ms)
        for offset in offsets.tolist():
            message = self.model.by_place[queue, offset]
            message.state, message.attempts = "free", 0

    def drain(self) -> None:
        """Everything comes in the end: whatever is free at the head of its message group is handed out, and no poll waits for it."""
        for _ in range(10_000):
            self.now_ms += 5_000
            self.log.apply(self.now_ms)
            self.model.passed(self.now_ms)
            for message in self.model.by_place.values():
                if message.state == "dying":
                    assert self.log.bury(self.now_ms, message.queue, message.offset)
                    message.state = "settled"
            free = [head for head in self.model.heads() if head.state == "free"]
            if not self.model.heads():
                return
            found = self.receive(32)
            assert found or not free, f"{free[:3]} were withheld"
            assert self.log.settle_held(self.now_ms, ACK, found) == bytes([SETTLED] * len(found))
            for held in found:
                self.model.by_place[held.queue, held.offset].state = "settled"
        raise AssertionError("it does not end")


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_each_message_group_comes_in_its_order_and_nothing_is_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends, receives, acks, nacks, extensions, releases, rejections, burials, expiries, growth or seeks, saves; then everything is drained.

    In some runs there is room for few parked messages only.
    """
    if seed % 4 == 3:
        monkeypatch.setattr(parked, "FIFO_PARKED_PER_QUEUE_MAX", 20)
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
    run.drain()
    run.log.reload()
    topic = run.log.topic
    assert topic.ends == [run.log.delivery(queue).committed() if end else 0 for queue, end in enumerate(topic.ends)]
    assert len(run.model.by_place) == sum(topic.ends)
