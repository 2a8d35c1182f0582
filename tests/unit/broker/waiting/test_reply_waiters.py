"""Parked waits for replies against a plain list of them: who looks, who is late, who is refused, and that nothing is left behind."""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from tern_broker.core.applied import Applied
from tern_broker.waiting import reply_waiters as module
from tern_broker.waiting.reply_waiters import ReplyWaiters
from tern_wire.errors import NoLeader, Overloaded, TernError
from tern_wire.link.rows import QUEUE_ENTRIES, QueueAppend, QueueAppends


@dataclass(eq=False)
class Wait:
    """One wait that notes what it is told, and leaves when it is told that it is over."""

    waiters: ReplyWaiters
    topic_id: int
    tag: int
    deadline_s: float
    told: list[str] = field(default_factory=list)

    def look(self) -> None:
        """As ReplyWait."""
        self.told.append("look")

    def late(self) -> None:
        """As ReplyWait."""
        self.told.append("late")
        self.waiters.remove(self)

    def refuse(self, error: TernError) -> None:
        """As ReplyWait."""
        self.told.append(error.code)
        self.waiters.remove(self)

    def fail(self, error: TernError) -> None:
        """As ReplyWait."""
        raise AssertionError(error)


def applied_of(*appends: tuple[int, int, list[int]]) -> Applied:
    """An entry that has appended messages with these tag hashes: (topic id, queue, hashes)."""
    parts = []
    for topic_id, queue, tags in appends:
        entries = np.zeros(len(tags), QUEUE_ENTRIES)
        entries["tag"] = tags
        parts.append(QueueAppend(topic_id, queue, 0, entries))
    return Applied(appends=[QueueAppends.of(parts)] if parts else [])


@pytest.mark.parametrize("seed", range(20))
def test_they_do_what_a_plain_list_would(seed: int) -> None:
    """Random waits, entries, times and ends: each is told exactly what its own topic, hash and deadline say, and then it is gone."""
    rng = random.Random(seed)
    waiters = ReplyWaiters()
    model: list[tuple[Wait, list[str]]] = []
    now_s = 100.0
    for _ in range(400):
        step = rng.randrange(10)
        if step < 4:
            wait = Wait(waiters, rng.randrange(3), rng.randrange(-3, 3), now_s + rng.choice((0.0, 0.01, 0.1, 1.0, 5.0)))
            waiters.add(wait)
            model.append((wait, []))
        elif step < 7:
            appends = {
                (rng.randrange(4), rng.randrange(2)): [rng.randrange(-3, 3) for _ in range(rng.randrange(1, 5))]
                for _ in range(rng.randrange(4))
            }
            waiters.applied(applied_of(*((*place, tags) for place, tags in sorted(appends.items()))))
            for wait, told in model:
                if any(topic == wait.topic_id and wait.tag in tags for (topic, _), tags in appends.items()):
                    told.append("look")
        elif step < 8 and model:
            gone = model.pop(rng.randrange(len(model)))
            waiters.remove(gone[0])
            waiters.remove(gone[0])
            assert gone[0].told == gone[1]
        else:
            now_s += rng.choice((0.0, 0.004, 0.05, 0.3))
            waiters.sweep(now_s)
            over = [pair for pair in model if pair[0].deadline_s <= now_s]
            model = [pair for pair in model if pair[0].deadline_s > now_s]
            assert all(wait.told == [*told, "late"] for wait, told in over)
        assert len(waiters) == len(model)
        assert all(wait.told == told for wait, told in model)
    waiters.refuse_all(NoLeader(broker_group="broker-a"))
    assert all(wait.told == [*told, "no-leader"] for wait, told in model)
    assert len(waiters) == 0
    assert not waiters._by_topic
    assert not list(waiters._deadlines)


def test_an_entry_with_several_topics_wakes_each_by_its_own_hashes() -> None:
    """The same hash in another topic of the same entry is nobody's."""
    waiters = ReplyWaiters()
    first, second = Wait(waiters, 1, 7, 9.0), Wait(waiters, 2, 8, 9.0)
    for wait in (first, second):
        waiters.add(wait)
    waiters.applied(applied_of((1, 0, [8, 9]), (1, 1, [8]), (2, 0, [7])))
    assert (first.told, second.told) == ([], [])
    waiters.applied(applied_of((1, 0, [1]), (1, 1, [2, 7]), (2, 0, [9])))
    assert (first.told, second.told) == (["look"], [])


def test_parking_is_bounded_and_a_topic_that_goes_makes_its_own_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than fits is refused, and those that wait stay."""
    monkeypatch.setattr(module, "PARKED_POLLS_MAX", 2)
    waiters = ReplyWaiters()
    waits = [Wait(waiters, topic_id, 7, 9.0) for topic_id in (1, 2, 3)]
    for wait in waits[:2]:
        waiters.add(wait)
    with pytest.raises(Overloaded):
        waiters.add(waits[2])
    waiters.look_of(2)
    assert [wait.told for wait in waits] == [[], ["look"], []]
    waiters.remove(waits[0])
    waiters.add(waits[2])
    assert len(waiters) == 2
