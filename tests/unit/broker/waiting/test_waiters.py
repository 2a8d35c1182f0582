"""Parked notifications: woken by what becomes visible, answered at their deadline, bounded."""

import random

import pytest

from tern_broker.core.applied import Applied
from tern_broker.waiting import waiters as module
from tern_broker.waiting.waiters import Waiters
from tern_wire.errors import NoLeader, Overloaded, TopicNotFound
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tests.support.broker.entries import Log


def test_a_parked_notification_is_woken_by_a_message_and_only_of_its_topic() -> None:
    """Also by a lease that ends."""
    log = Log()
    topic, group = log.create()
    waiters = Waiters(lambda: log.state)
    woken: list[object] = []
    waiters.park(group, topic, 99.0, woken.append)
    waiters.applied(Applied(woken_topics={topic + 1}))
    waiters.applied(Applied(woken_topics={topic}))
    assert woken == []
    log.send(2, (topic, 0, b"a", b""), (topic, 1, b"b", b""))
    waiters.applied(Applied(woken_topics={topic}))
    assert woken == [2]
    log.receive(10)
    waiters.park(group, topic, 99.0, woken.append)
    assert len(waiters) == 1
    waiters.applied(log.apply(2000))
    assert woken == [2, 2]


def test_what_is_there_already_answers_at_once_and_a_deadline_answers_zero() -> None:
    """No wait for what is visible; no wait beyond the deadline."""
    log = Log()
    topic, group = log.create()
    waiters = Waiters(lambda: log.state)
    woken: list[object] = []
    waiters.park(group, topic, 5.0, woken.append)
    waiters.park(group, topic, 7.0, woken.append)
    waiters.sweep(5.0)
    assert (woken, len(waiters)) == ([0], 1)
    log.send(2, (topic, 0, b"a", b""))
    waiters.park(group, topic, 9.0, woken.append)
    assert woken == [0, 1]


def test_parking_is_bounded_and_a_deposed_leader_refuses_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors, not silence."""
    monkeypatch.setattr(module, "PARKED_POLLS_MAX", 1)
    log = Log()
    topic, group = log.create()
    waiters = Waiters(lambda: log.state)
    woken: list[object] = []
    for _ in range(2):
        waiters.park(group, topic, 5.0, woken.append)
    waiters.refuse_all(NoLeader(broker_group="broker-a"))
    assert [Overloaded, NoLeader] == [type(answer) for answer in woken]
    assert len(waiters) == 0


@pytest.mark.parametrize("kind", [CommandKind.DELETE_TOPIC, CommandKind.DELETE_GROUP])
def test_who_waits_for_what_is_deleted_is_woken_by_an_error(kind: CommandKind) -> None:
    """Not at the deadline; who waits for something else goes on waiting."""
    log = Log()
    topic, group = log.create()
    other_topic, other_group = log.create("other", group="others")
    waiters = Waiters(lambda: log.state)
    woken: list[object] = []
    waiters.park(group, topic, 99.0, woken.append)
    waiters.park(other_group, other_topic, 99.0, woken.append)
    waiters.applied(log.apply(5, (kind, encode_msgpack({"topic": "t", "group": "g"}))))
    assert [type(answer) for answer in woken] == [TopicNotFound]
    assert len(waiters) == 1


def test_what_was_woken_long_before_its_deadline_does_not_pile_up() -> None:
    """A busy group's notifications come and go thousands of times within one deadline."""
    log = Log()
    topic, group = log.create()
    waiters = Waiters(lambda: log.state)
    answers: list[object] = []
    for _ in range(4 * module._STALE_MAX):
        waiters.park(group, topic, 30.0, answers.append)
        waiters.refuse_all(NoLeader(broker_group="broker-a"))
    assert len(waiters) == 0
    assert len(answers) == 4 * module._STALE_MAX
    assert len(waiters._deadlines) <= module._STALE_MAX + 1
    waiters.sweep(31.0)
    assert len(answers) == 4 * module._STALE_MAX


@pytest.mark.parametrize("seed", range(10))
def test_every_waiter_is_answered_once_and_in_the_order_of_its_deadline(seed: int) -> None:
    """Against a list that is looked through, with parking, waking and sweeping in any order."""
    rng = random.Random(seed)
    log = Log()
    ids = [log.create(f"t{number % 3}", group=f"g{number}") for number in range(6)]
    waiters = Waiters(lambda: log.state)
    parked: dict[int, tuple[float, int]] = {}
    answered: list[int] = []
    now_s = 0.0
    for number in range(200):
        topic, group = rng.choice(ids)
        deadline_s = now_s + rng.choice([1.0, 2.0, 5.0])
        parked[number] = (deadline_s, topic)
        waiters.park(group, topic, deadline_s, lambda _answer, number=number: answered.append(number))  # type: ignore[misc]
        if rng.random() < 0.1:
            gone = [each for each, (_, of) in parked.items() if of == topic]
            dropped = Applied(dropped_topics={topic: 2})
            before = len(answered)
            waiters.applied(dropped)
            assert sorted(answered[before:]) == gone
            parked = {each: facts for each, facts in parked.items() if each not in gone}
        if rng.random() < 0.5:
            now_s += rng.random()
            due = sorted((deadline_s, each) for each, (deadline_s, _) in parked.items() if deadline_s <= now_s)
            before = len(answered)
            waiters.sweep(now_s)
            assert answered[before:] == [each for _, each in due]
            parked = {each: facts for each, facts in parked.items() if facts[0] > now_s}
        assert len(waiters) == len(parked)
    assert len(answered) == len(set(answered))
