"""Parked notifications: woken by what becomes visible, answered at their deadline, bounded."""

import pytest

from tern_broker import waiters as module
from tern_broker.core.machine import Applied
from tern_broker.waiters import Waiters
from tern_wire.errors import NoLeader, ProxyOverloaded
from tests.support.entries import Log


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
    assert [ProxyOverloaded, NoLeader] == [type(answer) for answer in woken]
    assert len(waiters) == 0
