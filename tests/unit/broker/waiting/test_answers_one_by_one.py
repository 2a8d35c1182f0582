"""Loops over those who wait: one whose answer fails is refused with the bug's place, and the others are answered as if it were not there."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from tern_broker.core.applied import Applied
from tern_broker.proposal import Proposal
from tern_broker.waiting.check_waiters import CheckWaiter, CheckWaiters
from tern_broker.waiting.queue_waiters import QueueWaiters
from tern_broker.waiting.reply_waiters import ReplyWaiters
from tern_broker.waiting.waiters import Waiters
from tern_store import LogRot, SyncLost
from tern_wire.errors import NotLeader, TernError
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import QUEUE_ENTRIES, QueueAppend, QueueAppends
from tests.support.broker.entries import Log
from tests.support.broker.manual_proposer import ManualProposer

TOKEN = b"0123456789abcdef"
REFUSED = NotLeader(node="a", leader="b", broker_group="g")
Told = list[tuple[str, Any]]


class Buggy:
    """Somebody who waits and whose callback has a bug until it is told an error; notes what it was told."""

    def __init__(self, told: Told, name: str, *, is_buggy: bool) -> None:
        self.told, self.name, self.is_buggy = told, name, is_buggy
        self.topic_id, self.tag, self.deadline_s = 1, 5, 5.0

    def wake(self, answer: Any) -> None:
        """As every Wake."""
        if self.is_buggy and not (isinstance(answer, TernError) and answer.code == "internal"):
            raise IndexError("no such row")
        self.told.append((self.name, answer))

    def look(self) -> None:
        """As ReplyWait."""
        self.wake("look")

    def late(self) -> None:
        """As ReplyWait."""
        self.wake("late")

    def refuse(self, error: TernError) -> None:
        """As ReplyWait."""
        self.wake(error)

    def fail(self, error: TernError) -> None:
        """As ReplyWait."""
        self.wake(error)


def three(told: Told) -> list[Buggy]:
    """The one in the middle has the bug."""
    return [Buggy(told, name, is_buggy=name == "b") for name in "abc"]


def check(told: Told, answer: Any) -> None:
    """All three were answered, the one with the bug by its place."""
    assert [name for name, _ in told] == ["a", "b", "c"]
    assert [getattr(said, "code", said) for name, said in told if name != "b"] == [getattr(answer, "code", answer)] * 2
    problem = told[1][1]
    assert isinstance(problem, TernError)
    assert (problem.code, problem.fields["bug"].split(":")[0]) == (
        "internal",
        "IndexError at test_answers_one_by_one.py",
    )


# Parked ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["applied", "sweep", "refuse_all", "dropped"])
def test_parked_notifications(how: str) -> None:
    """Woken by an entry, at their deadline, by a deposed leader, by a deleted topic."""
    log, told = Log(), Told()
    topic, group = log.create()
    waiters = Waiters(lambda: log.state)
    for waiter in three(told):
        waiters.park(group, topic, 5.0, waiter.wake)
    if how == "applied":
        log.send(2, (topic, 0, b"m", b""))
        waiters.applied(Applied(woken_topics={topic}))
        check(told, 1)
    elif how == "sweep":
        waiters.sweep(5.0)
        check(told, 0)
    elif how == "refuse_all":
        waiters.refuse_all(REFUSED)
        check(told, REFUSED)
    else:
        waiters.applied(Applied(dropped_topics={topic: 2}))
        check(told, told[0][1])
    assert len(waiters) == 0


def test_a_notification_of_which_nobody_can_say_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of that group hear of the bug, those of the next one of their messages."""
    log, told = Log(), Told()
    topic, group = log.create()
    log.create("t2", group="h")
    other = log.state.names.groups["h"].group_id
    waiters = Waiters(lambda: log.state)
    waiters.park(group, topic, 5.0, Buggy(told, "first", is_buggy=False).wake)
    waiters.park(other, topic, 5.0, Buggy(told, "second", is_buggy=False).wake)
    log.send(2, (topic, 0, b"m", b""))
    original = waiters.available

    def available(group_id: int, topic_id: int) -> int:
        if group_id == group:
            raise KeyError(topic_id)
        return original(group_id, topic_id)

    monkeypatch.setattr(waiters, "available", available)
    waiters.applied(Applied(woken_topics={topic}))
    assert [(name, getattr(answer, "code", answer)) for name, answer in told] == [("first", "internal"), ("second", 1)]
    assert len(waiters) == 0


def appended(topic_id: int, queue: int) -> Applied:
    """An entry with one message of tag hash 5."""
    entries = np.zeros(1, QUEUE_ENTRIES)
    entries["tag"] = 5
    return Applied(appends=[QueueAppends.of([QueueAppend(topic_id, queue, 0, entries)])])


@pytest.mark.parametrize(
    ("act", "answer"),
    [
        (lambda waiters: waiters.applied(appended(1, 0)), True),
        (lambda waiters: waiters.sweep(5.0), False),
        (lambda waiters: waiters.refuse_all(REFUSED), REFUSED),
        (lambda waiters: waiters.refuse_gone(lambda _: False), True),
    ],
    ids=["message", "deadline", "deposed", "gone"],
)
def test_parked_pulls(act: Callable[[QueueWaiters], None], answer: Any) -> None:
    """By a message, at their deadline, by a deposed leader, by a topic that is gone."""
    waiters, told = QueueWaiters(), Told()
    for waiter in three(told):
        waiters.park(1, 0, 5.0, waiter.wake)
    act(waiters)
    check(told, answer)
    assert len(waiters) == 0


@pytest.mark.parametrize(
    ("act", "answer"),
    [
        (lambda waiters: waiters.due(lambda _: 9), True),
        (lambda waiters: waiters.sweep(5.0), False),
        (lambda waiters: waiters.refuse_all(REFUSED), REFUSED),
    ],
    ids=["due", "deadline", "deposed"],
)
def test_parked_claims(act: Callable[[CheckWaiters], None], answer: Any) -> None:
    """By checks that are due, at their deadline, by a deposed leader."""
    waiters, told = CheckWaiters(), Told()
    for waiter in three(told):
        waiters.park(CheckWaiter("shop", 5.0, waiter.wake, lambda: False))
    act(waiters)
    check(told, answer)
    assert len(waiters) == 0


@pytest.mark.parametrize(
    ("act", "answer"),
    [
        (lambda waiters: waiters.applied(appended(1, 0)), "look"),
        (lambda waiters: waiters.look_of(1), "look"),
        (lambda waiters: waiters.sweep(5.0), "late"),
        (lambda waiters: waiters.refuse_all(REFUSED), REFUSED),
    ],
    ids=["message", "gone", "deadline", "deposed"],
)
def test_waits_for_replies(act: Callable[[ReplyWaiters], None], answer: Any) -> None:
    """By a reply, by a topic that is gone, at their deadline, by a deposed leader."""
    waiters, told = ReplyWaiters(), Told()
    for wait in three(told):
        waiters.add(wait)
    act(waiters)
    check(told, answer)


def test_damage_that_an_answer_meets_ends_the_node() -> None:
    """It is no bug of that answer."""
    waiters = QueueWaiters()

    def wake(_answer: Any) -> None:
        raise LogRot(cast(Any, "file"), 0, "bad bytes")

    waiters.park(1, 0, 5.0, wake)
    with pytest.raises(LogRot):
        waiters.sweep(5.0)


# Proposals ---------------------------------------------------------------------------------------------------------
def submitted(manual: ManualProposer, told: Told, **more: Any) -> None:
    """Three commands, of which the second one's answer has a bug."""
    for waiter in three(told):
        manual.proposer.submit(
            Proposal(
                *(CommandKind.SETTLE, 10, lambda verdict, _, wake=waiter.wake: wake(verdict)),
                build=lambda _now: [b""],
                **more,
            )
        )


@pytest.mark.parametrize("how", ["applied", "another's entry", "in doubt", "not the leader", "disk full"])
def test_proposals(how: str) -> None:
    """Applied, lost to another leader's entry, in doubt, still waiting when leadership goes, refused by a full disk."""
    manual, told = ManualProposer(), Told()
    if how == "disk full":
        manual.failure = OSError(28, "No space left on device")
    submitted(manual, told)
    if how != "not the leader":
        manual.turn()
    if how == "applied":
        manual.commit()
    elif how == "another's entry":
        manual.proposer.applied(manual.index, 2, Applied())
    elif how != "disk full":
        manual.serving = False
        manual.proposer.role_changed()
    check(told, told[0][1])
    manual.serving, manual.failure = True, None
    manual.send()
    manual.turn()
    manual.commit()
    assert len(manual.answers) == 1, "it goes on"


def test_a_proposal_that_cannot_be_built_is_refused_and_those_beside_it_are_stored() -> None:
    """A bug in one request's payload must not end the leader, and the next one, and the next."""
    manual, told = ManualProposer(), Told()

    def build(_now_ms: int) -> Any:
        raise IndexError("no such row")

    manual.send()
    manual.proposer.submit(Proposal(CommandKind.SEND, 10, lambda verdict, _: told.append(("b", verdict)), build=build))
    manual.send()
    manual.turn()
    manual.commit()
    assert told[0][1].code == "internal"
    assert [int(answer["offset"][0]) for answer in manual.answers] == [0, 1]


@pytest.mark.parametrize("error", [LogRot(cast(Any, "file"), 0, "bad bytes"), SyncLost(5, "Input/output error")])
def test_what_a_payload_cannot_read_is_the_nodes_trouble(error: Exception) -> None:
    """Not that of who asks."""
    manual = ManualProposer()

    def build(_now_ms: int) -> Any:
        raise error

    manual.proposer.submit(Proposal(CommandKind.SEND, 10, lambda *_: None, build=build))
    with pytest.raises(type(error)):
        manual.turn()


def test_a_step_of_the_nodes_own_work_that_fails_ends_it_when_everybody_is_answered() -> None:
    """Half of it done, it would silently stay the last one."""
    manual, told = ManualProposer(), Told()
    submitted(manual, told, is_upkeep=True)
    manual.turn()
    with pytest.raises(IndexError):
        manual.commit()
    assert [name for name, _ in told] == ["a", "c"]
    own = Proposal(CommandKind.SETTLE, 10, lambda *_: None, build=lambda _: cast(Any, {})[0], is_upkeep=True)
    manual.proposer.submit(own)
    with pytest.raises(KeyError):
        manual.turn()
