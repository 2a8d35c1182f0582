"""Long reads in slices, and parked pulls: others come in between, each is told once, errors stay with their read."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

from tern_broker.core.applied import Applied
from tern_broker.reading.turns import SLICE_S, Turns
from tern_broker.waiting.queue_waiters import QueueWaiters
from tern_wire.errors import NotLeader, Overloaded, TernError
from tern_wire.limits import PARKED_POLLS_MAX
from tern_wire.link.rows import QUEUE_ENTRIES, QueueAppend, QueueAppends


class Loop:
    """A loop whose clock moves with every look at it."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], None]] = deque()
        self.now_s = 0.0

    def monotonic(self) -> float:
        """Each look costs a tenth of a slice."""
        self.now_s += SLICE_S / 10
        return self.now_s

    def turn(self) -> None:
        """What is due in one turn."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()


def read(name: str, steps: int, said: list[str]) -> Iterator[None]:
    """A read of so many steps, which says when it is done."""
    for _ in range(steps):
        yield
    said.append(name)


def test_long_reads_take_turns_and_a_turn_lasts_one_slice() -> None:
    """A short read that comes later ends sooner, and never more than one slice runs in a turn."""
    loop = Loop()
    turns = Turns(loop.soon.append, loop.monotonic)
    said: list[str] = []
    turns.run(read("long", 1_000, said), lambda error: said.append(str(error)))
    turns.run(read("short", 3, said), lambda error: said.append(str(error)))
    rounds = 0
    while len(turns):
        before_s = loop.now_s
        loop.turn()
        assert loop.now_s - before_s < 2 * SLICE_S
        rounds += 1
    assert said == ["short", "long"]
    assert rounds > 50


def test_an_error_ends_its_read_alone() -> None:
    """It is told once; the others go on."""
    loop = Loop()
    turns = Turns(loop.soon.append, loop.monotonic)
    said: list[str] = []

    def broken() -> Iterator[None]:
        yield
        raise ValueError("broken")

    turns.run(broken(), lambda error: said.append(str(error)))
    turns.run(read("sound", 2, said), lambda error: said.append(str(error)))
    while len(turns):
        loop.turn()
    assert said == ["broken", "sound"]


def test_stopping_forgets_what_is_under_way() -> None:
    """The files are closed next."""
    loop = Loop()
    turns = Turns(loop.soon.append, loop.monotonic)
    said: list[str] = []
    turns.run(read("never", 1, said), lambda error: said.append(str(error)))
    turns.stop()
    loop.turn()
    assert said == []


def appended(topic_id: int, *queues: int) -> Applied:
    """An entry that added one message to each of *queues*."""
    appends = [QueueAppend(topic_id, queue, 0, np.zeros(1, QUEUE_ENTRIES)) for queue in queues]
    return Applied(appends=[QueueAppends.of(appends)])


def test_a_parked_pull_is_woken_by_its_own_queue_alone() -> None:
    """Not by another queue of the topic, nor by the same number of another topic; its deadline wakes it, too."""
    waiters = QueueWaiters()
    woken: list[tuple[str, bool | TernError]] = []
    waiters.park(7, 1, 5.0, lambda answer: woken.append(("one", answer)))
    waiters.park(7, 2, 9.0, lambda answer: woken.append(("two", answer)))
    waiters.applied(appended(7, 0))
    waiters.applied(appended(8, 1, 2))
    assert woken == []
    waiters.sweep(5.0)
    waiters.applied(appended(7, 0, 1, 2))
    assert woken == [("one", False), ("two", True)]
    assert len(waiters) == 0


@pytest.mark.parametrize("seed", range(10))
def test_parked_pulls_do_what_a_plain_list_would(seed: int) -> None:
    """Parking, waking by appends and by deadlines, by chance: each is answered once, with the right answer, and nothing is left."""
    rng, now_s = random.Random(seed), 0.0
    waiters, model, told = QueueWaiters(), dict[int, tuple[int, float]](), dict[int, bool | TernError]()
    for number in range(400):
        queue, deadline_s = rng.randrange(5), now_s + rng.choice([0.01, 0.1, 1.0, 20.0])
        model[number] = (queue, deadline_s)
        waiters.park(7, queue, deadline_s, partial(told.__setitem__, number))
        now_s += rng.random() / 10
        if rng.random() < 0.2:
            added = rng.randrange(5)
            waiters.applied(appended(7, added))
            woken = {number: True for number, (queue, _) in model.items() if queue == added}
        else:
            waiters.sweep(now_s)
            woken = {number: False for number, (_, deadline_s) in model.items() if deadline_s <= now_s}
        assert told == woken
        for number in woken:
            del model[number]
        told.clear()
        assert len(waiters) == len(model)
    waiters.sweep(now_s + 30)
    assert len(told) == len(model)
    assert (len(waiters), list(waiters._deadlines)) == (0, [])


def test_parked_pulls_are_bounded_and_refused_by_who_does_not_lead() -> None:
    """Errors, not silence; a topic that is gone is looked at again, and its readers hear so."""
    waiters = QueueWaiters()
    woken: list[bool | TernError] = []
    for _ in range(PARKED_POLLS_MAX + 1):
        waiters.park(7, 1, 5.0, woken.append)
    assert [type(answer) for answer in woken] == [Overloaded]
    waiters.refuse_gone(lambda topic_id: topic_id == 7)
    assert len(woken) == 1
    waiters.refuse_gone(lambda topic_id: False)
    assert woken[1:] == [True] * PARKED_POLLS_MAX
    waiters.park(7, 1, 5.0, woken.append)
    waiters.refuse_all(NotLeader(node="a", leader="b", broker_group="c"))
    assert isinstance(woken[-1], NotLeader)
    assert len(waiters) == 0
