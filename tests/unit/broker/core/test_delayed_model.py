"""Delayed messages of a whole broker against a dictionary: sent, delivered, recalled, saved, copied by retention, made again."""

import random
from pathlib import Path
from typing import Any

import pytest

from tern_store import small_files
from tern_store.errors import DerivedDamage
from tern_wire.errors import AlreadyDelivered, NotScheduled, TernError
from tern_wire.link.commands import CommandKind
from tests.support.broker.single_broker import DIRECTORY, HOUR_MS, SingleBroker
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.timer_calls import listed

QUEUES = 3
DAY_MS = 24 * HOUR_MS


class Model:
    """One broker and what must be so. Owner: one test."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.files = rng, FaultyFiles()
        self.broker = SingleBroker(self.files)
        self.topic_id, _ = self.broker.create("t", QUEUES)
        # Timer id -> (deliver_ms, queue, body); and how every timer ended.
        self.waiting: dict[int, tuple[int, int, bytes]] = {}
        self.delivered: dict[int, int] = {}
        self.recalled: dict[int, int] = {}
        # The bodies of every queue, by offset.
        self.queues: list[list[bytes]] = [[] for _ in range(QUEUES)]
        # Sent to be visible at once, and not yet looked at.
        self.at_once: set[bytes] = set()
        self._sent = 0

    # Steps -----------------------------------------------------------------------------------------------------
    def send(self) -> None:
        """Some messages, all with one delay of any size."""
        now_ms = self.broker.proposer.now_ms()
        delay_ms = self.rng.choice([0, 1, 700, 5_000, 90_000, HOUR_MS, 5 * HOUR_MS, 9 * DAY_MS])
        count, queue = self.rng.choice([1, 2, 40]), self.rng.randrange(QUEUES)
        bodies = [b"%d " % (self._sent + number) + bytes(self.rng.choice([0, 400])) for number in range(count)]
        self._sent += count
        deliver_ms = now_ms + delay_ms if delay_ms else 0
        verdicts = self.broker.send("t", *((queue, body) for body in bodies), deliver_ms=deliver_ms)
        if deliver_ms > self.broker.state.now_ms:
            assert set(verdicts["status"].tolist()) == {7}
            for timer_id, body in zip(verdicts["offset"].tolist(), bodies, strict=True):
                self.waiting[timer_id] = (deliver_ms, queue, body)
        else:
            assert set(verdicts["status"].tolist()) == {0}
            self.at_once |= set(bodies)

    def pass_time(self) -> None:
        """A moment, or days."""
        self.broker.pass_time(self.rng.choice([1, 699, 60_000, 50 * 60_000, 7 * HOUR_MS, 2 * DAY_MS]))

    def fire(self) -> None:
        """All that is due is delivered."""
        self.broker.fire()
        self.look()
        assert all(deliver_ms > self.broker.state.now_ms for deliver_ms, _, _ in self.waiting.values())

    def look(self) -> None:
        """What is new in the queues was sent to be there at once, or its time has come: in any order, but each in its queue."""
        waiting = {body: timer_id for timer_id, (_, _, body) in self.waiting.items()}
        for queue in range(QUEUES):
            for body in self.broker.pull(self.topic_id, queue, len(self.queues[queue])):
                self.queues[queue].append(body)
                if body in self.at_once:
                    self.at_once.remove(body)
                    continue
                deliver_ms, wanted, _ = self.waiting.pop(waiting[body])
                assert deliver_ms <= self.broker.state.now_ms, "never early"
                assert queue == wanted
                self.delivered[waiting[body]] = deliver_ms

    def recall(self) -> None:
        """One that waits, or one that did."""
        self.look()
        known = [*self.waiting, *self.delivered, *self.recalled]
        if not known:
            return
        timer_id = self.rng.choice(known)
        if timer_id in self.waiting:
            deliver_ms = self.waiting[timer_id][0]
            if deliver_ms <= self.broker.proposer.now_ms():
                return  # an alarm may come first
            del self.waiting[timer_id]
            assert self.broker.recall("t", deliver_ms, timer_id) == {"recalled": 1}
            self.recalled[timer_id] = deliver_ms
            return
        deliver_ms = self.delivered.get(timer_id) or self.recalled[timer_id]
        refused = self.broker.recall("t", deliver_ms, timer_id)
        assert isinstance(refused, AlreadyDelivered if deliver_ms <= self.broker.state.now_ms else NotScheduled)

    def save(self) -> None:
        """A saved state."""
        self.broker.save()

    def retain(self) -> None:
        """Retention copies what waits in old segments, and drops them."""
        self.broker.save()
        self.broker.trimmer.trim_now()
        self.broker.retain(steps=4)

    def restart(self) -> None:
        """The process ends, or the machine; perhaps everything is made again from the log."""
        mono_ms = self.broker.mono_ms
        self.broker.close()
        if self.rng.random() < 0.5:
            self.files.crash(self.rng)
        if self.rng.random() < 0.4:
            damage = DerivedDamage(Path("/data/timers/0/00000000000000000000"), 0, "a test says so")
            small_files.request_rebuild(DIRECTORY, damage, self.files)
        self.broker = SingleBroker(self.files)
        self.broker.mono_ms = mono_ms

    # What must be so -------------------------------------------------------------------------------------------
    def check(self) -> None:
        """The store, the state and the list agree with the model; what queues hold is what was delivered."""
        timers, state = self.broker.store.timers, self.broker.state
        self.look()
        assert not self.at_once
        assert timers.pending == len(self.waiting) == sum(state.timing.pending.values())
        rows = listed(timers, 0, 1 << 60, 100_000)
        wanted = sorted((deliver_ms, timer_id) for timer_id, (deliver_ms, _, _) in self.waiting.items())
        assert [(int(row["deliver_ms"]), int(row["timer_id"])) for row in rows] == wanted
        assert self.broker.bodies(rows) == [self.waiting[timer_id][2] for _, timer_id in wanted]
        topic = state.names.topics_by_id[self.topic_id]
        for queue, bodies in enumerate(self.queues):
            assert topic.ends[queue] == len(bodies)
            assert self.broker.pull(self.topic_id, queue, topic.mins[queue]) == bodies[topic.mins[queue] :]
        assert not self.broker.failures


@pytest.mark.parametrize("seed", range(12))
def test_delayed_messages_are_delivered_once_and_never_early(seed: int) -> None:
    """Any steps in any order, over months of the group's time."""
    rng = random.Random(seed)
    model = Model(rng)
    steps = (model.send, model.pass_time, model.fire, model.recall, model.save, model.retain, model.restart)
    # Of the second kind, more is copied forward and made again while it waits.
    weights = ([30, 20, 25, 12, 4, 3, 6], [30, 26, 15, 12, 4, 8, 8])[seed % 2]
    for _ in range(120):
        rng.choices(steps, weights)[0]()
        model.check()
    model.broker.pass_time(10 * DAY_MS)
    model.fire()
    model.check()
    assert not model.waiting
    assert len(model.delivered) > 100
    model.broker.close()


def test_a_follower_that_was_made_again_agrees_with_the_leader_on_every_timer() -> None:
    """One node keeps its files, another makes them again at every moment: the same entries leave both alike."""
    model = Model(random.Random(99))
    for number in range(60):
        model.send()
        model.pass_time()
        if number % 3 == 0:
            model.fire()
        if number % 10 == 9:
            model.retain()
        before = model.broker.state.digest
        small_files.request_rebuild(DIRECTORY, DerivedDamage(DIRECTORY, 0, "a test says so"), model.files)
        kept = facts(model.broker)
        mono_ms = model.broker.mono_ms
        model.broker.close()
        model.broker = SingleBroker(model.files)
        model.broker.mono_ms = mono_ms
        assert facts(model.broker) == kept
        assert model.broker.state.digest == before
        model.check()
    model.broker.close()


def facts(broker: SingleBroker) -> list[Any]:
    """Everything that waits."""
    rows: list[Any] = listed(broker.store.timers, 0, 1 << 60, 100_000).tolist()
    return rows


def test_a_fire_that_the_log_refuses_is_tried_again() -> None:
    """The leader's own FIRE meets a full queue of proposals; with the next look it goes through."""
    model = Model(random.Random(5))
    model.broker.send("t", (0, b"later"), deliver_ms=model.broker.proposer.now_ms() + 1_000)
    model.broker.pass_time(2_000)
    refused: list[TernError] = []
    submit = model.broker.proposer.submit

    def refuse(proposal: Any) -> None:
        assert proposal.kind == CommandKind.FIRE
        refused.append(NotScheduled())
        proposal.done(refused[-1], [])

    model.broker.proposer.submit = refuse  # type: ignore[method-assign]
    model.broker.fire()
    assert len(refused) == 1
    assert model.broker.pull(model.topic_id, 0, 0) == []
    model.broker.proposer.submit = submit  # type: ignore[method-assign]
    model.broker.fire()
    assert model.broker.pull(model.topic_id, 0, 0) == [b"later"]


def test_what_is_due_between_two_looks_has_an_alarm() -> None:
    """The leader looks every 100 ms; a message that is due sooner comes in its millisecond, though nobody looks."""
    model = Model(random.Random(6))
    broker = model.broker
    base_ms = broker.proposer.now_ms()
    broker.send("t", (0, b"second"), deliver_ms=base_ms + 90)
    broker.send("t", (0, b"first"), deliver_ms=base_ms + 40)
    broker.send("t", (0, b"far"), deliver_ms=base_ms + 5_000)
    assert len(broker.later) == 2
    for passed_ms, bodies in ((39, []), (40, [b"first"]), (89, [b"first"]), (90, [b"first", b"second"])):
        broker.mono_ms = passed_ms
        broker.run()
        assert broker.pull(model.topic_id, 0, 0) == bodies
    assert broker.later == [], "what is far has none: a look comes before it"


def test_many_that_are_due_at_once_fire_entry_by_entry_without_another_look() -> None:
    """More than fit one entry: each FIRE that was applied asks for the next."""
    model = Model(random.Random(7))
    broker = model.broker
    deliver_ms = broker.proposer.now_ms() + 1_000
    for part in range(10):
        broker.send("t", *((part % 3, b"%d-%d" % (part, n)) for n in range(50)), deliver_ms=deliver_ms)
    entries = broker.store.log.end_index
    broker.pass_time(1_000)
    broker.fire()
    assert sum(broker.state.names.topics["t"].ends) == 500
    assert broker.store.log.end_index - entries > 5
    assert broker.store.timers.pending == 0


def test_what_was_copied_forward_waits_also_on_a_node_that_is_made_again() -> None:
    """Its own entry is gone with the log's first segments; the copy's entry is what brings it back, once, and it comes in time."""
    files = FaultyFiles()
    broker = SingleBroker(files)
    topic_id, _ = broker.create("t", 1)
    deliver_ms = broker.proposer.now_ms() + 30 * DAY_MS
    broker.send("t", *((0, b"late-%d" % n) for n in range(3)), deliver_ms=deliver_ms)
    broker.fill_segments("t", 3)
    broker.pass_time(4 * DAY_MS)
    (_, gone), *_ = [
        (int(row["deliver_ms"]), int(row["timer_id"])) for row in listed(broker.store.timers, 0, 1 << 60, 9)
    ]
    assert broker.recall("t", deliver_ms, gone) == {"recalled": 1}
    broker.fill_segments("t", 1)
    broker.save()
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position > 0
    waiting = facts(broker)
    assert len(waiting) == 2
    assert min(row[2] for row in waiting) >= broker.store.log.start.position
    broker.close()
    small_files.request_rebuild(DIRECTORY, DerivedDamage(DIRECTORY, 0, "a test says so"), files)
    broker = SingleBroker(files)
    assert broker.store.rebuilding
    assert facts(broker) == waiting
    broker.mono_ms = 31 * DAY_MS
    broker.pass_time(DAY_MS)
    broker.fire()
    end = broker.state.names.topics_by_id[topic_id].ends[0]
    assert sorted(broker.pull(topic_id, 0, end - 2)) == [b"late-1", b"late-2"]
    assert broker.store.timers.pending == 0
    broker.close()
