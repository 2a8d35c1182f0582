"""Redrives: dead letters delivered to their group again, each once, by tasks that outlive whoever carries them out; and purges."""

from typing import Any

import pytest

from tern_wire.dead_letters import LETTER_GONE, ORIGIN_GONE
from tern_wire.errors import LimitReached, TaskNotFound
from tern_wire.limits import LEASED_PER_QUEUE_MAX, REDRIVE_TASKS_MAX
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tests.support.broker.dead_letter_broker import DeadLetterBroker


def test_a_redriven_message_is_delivered_once_more_to_this_group_from_its_place_as_a_first_attempt() -> None:
    """And it is no dead letter any more; when it dies again, it is one again."""
    dead_letters = DeadLetterBroker()
    _, group_id = dead_letters.create()
    dead_letters.broker.send("t", *((0, b"%d" % number) for number in range(5)))
    dead_letters.nack(5)
    dead_letters.work()
    assert dead_letters.start("a", offsets=(3, 1))["state"] == "running"
    dead_letters.work()
    assert dead_letters.task_counts("a") == ("done", 2, 0, 0)
    found = dead_letters.broker.receive()
    assert [body for _, body in found] == [b"1", b"3"]
    assert [note.offset for note in dead_letters.notes(group_id)] == [0, 2, 4]
    assert dead_letters.broker.state.dead_letters.count(group_id) == 3
    assert dead_letters.broker.receive() == []
    dead_letters.broker.ack(found[0][0])
    dead_letters.broker.pass_time(60_000)
    dead_letters.work()
    assert [note.offset for note in dead_letters.notes(group_id)] == [0, 2, 4, 3]
    assert [note.cause for note in dead_letters.notes(group_id)][-1] == "expired"


def test_a_dead_letter_is_redriven_once_whoever_asks_how_often() -> None:
    """By offset, twice in one task, in two tasks, and all together: the second finds it gone."""
    dead_letters = DeadLetterBroker()
    dead_letters.create()
    dead_letters.broker.send("t", *((0, b"%d" % number) for number in range(4)))
    dead_letters.nack(4)
    dead_letters.work()
    dead_letters.start("a", offsets=(0, 0, 9))
    dead_letters.start("b", offsets=(0, 2))
    dead_letters.start("c")
    dead_letters.work()
    assert dead_letters.task("a")["failures"] == [[0, LETTER_GONE], [9, LETTER_GONE]]
    redriven = [dead_letters.task(name)["redriven"] for name in "abc"]
    assert sum(redriven) == 4
    assert sorted(body for _, body in dead_letters.broker.receive()) == [b"0", b"1", b"2", b"3"]
    dead = dead_letters.broker.state.dead_letters
    assert dead.count(2) == 0
    topic = dead.topics.of(2)
    assert topic is not None
    assert topic.mins == topic.ends == [4, 4], "what all were redriven is not kept one by one"


def test_a_redrive_takes_only_what_its_selection_says() -> None:
    """By topic, tag, a part of the reason, and time; what it leaves is still there."""
    dead_letters = DeadLetterBroker()
    _, group_id = dead_letters.create()
    dead_letters.broker.send("t", (0, b"a"), tag="red")
    dead_letters.reject("no such shop")
    dead_letters.work()
    middle_ms = dead_letters.broker.state.now_ms + 1
    dead_letters.broker.pass_time(1000)
    dead_letters.broker.send("t", (0, b"b"), (0, b"c"), tag="blue")
    dead_letters.reject("no such street", 1)
    dead_letters.reject("empty", 1)
    dead_letters.work()
    selections: list[tuple[dict[str, Any], int]] = [
        ({"topic": "other"}, 0),
        ({"tag": "green"}, 0),
        ({"reason": "shops"}, 0),
        ({"to_ms": 5}, 0),
        ({"reason": "no such", "tag": "blue"}, 1),
        ({"to_ms": middle_ms}, 1),
        ({"topic": "t", "from_ms": middle_ms}, 1),
    ]
    for number, (selection, count) in enumerate(selections):
        dead_letters.start(str(number), **selection)
        dead_letters.work()
        state, redriven, failed, _ = dead_letters.task_counts(str(number))
        assert (state, redriven, failed) == ("done", count, 0), selection
    assert dead_letters.notes(group_id) == []


def test_a_dry_run_counts_and_changes_nothing() -> None:
    """As many as a real one would."""
    dead_letters = DeadLetterBroker()
    _, group_id = dead_letters.create()
    dead_letters.broker.send("t", *((0, b"%d" % number) for number in range(150)))
    while dead_letters.nack(50):
        pass
    dead_letters.work()
    dead_letters.start("a", dry_run=True)
    dead_letters.work()
    assert dead_letters.task_counts("a") == ("done", 150, 0, 0)
    assert len(dead_letters.notes(group_id)) == 150
    assert dead_letters.broker.receive() == []


def test_a_rate_is_kept_and_a_task_can_be_cancelled() -> None:
    """10 a second: not many more in a second; cancelled, nothing more happens. Cancelling twice, or what is done, changes nothing."""
    dead_letters = DeadLetterBroker()
    _, group_id = dead_letters.create()
    dead_letters.broker.send("t", *((0, b"%d" % number) for number in range(100)))
    while dead_letters.nack(50):
        pass
    dead_letters.work()
    dead_letters.start("a", rate=10)
    dead_letters.work(steps=10, seconds=0.1)
    redriven = dead_letters.task("a")["redriven"]
    assert 8 <= redriven <= 13
    for _ in range(2):
        cancelled = dead_letters.broker.ask(CommandKind.REDRIVE, encode_msgpack({"op": "cancel", "task": "a"}))
        assert cancelled["state"] == "cancelled"
    dead_letters.work(steps=20)
    assert dead_letters.task("a")["redriven"] == redriven
    assert len(dead_letters.notes(group_id)) == 100 - redriven
    unknown = dead_letters.broker.ask(CommandKind.REDRIVE, encode_msgpack({"op": "cancel", "task": "z"}))
    assert isinstance(unknown, TaskNotFound)


def test_a_task_goes_on_where_it_was_after_a_restart() -> None:
    """The next leader needs nothing but the state."""
    dead_letters = DeadLetterBroker()
    dead_letters.create()
    dead_letters.broker.send("t", *((0, b"%d" % number) for number in range(50)))
    dead_letters.nack(50)
    dead_letters.work()
    dead_letters.start("a", rate=20)
    dead_letters.work(steps=5)
    before = dead_letters.task("a")["redriven"]
    assert 0 < before < 50
    assert dead_letters.broker.save()
    dead_letters.broker.close()
    dead_letters.open()
    assert dead_letters.task("a")["redriven"] == before
    dead_letters.work(steps=60)
    assert dead_letters.task_counts("a") == ("done", 50, 0, 0)
    assert len(dead_letters.broker.receive(messages_max=200)) == 50


def test_tasks_are_bounded_and_a_repeated_start_is_the_same_task() -> None:
    """The oldest that has ended gives way; with only running ones, a new one is refused."""
    dead_letters = DeadLetterBroker()
    dead_letters.create()
    dead_letters.broker.send("t", (0, b"m"))
    dead_letters.nack(1)
    dead_letters.work()
    for number in range(REDRIVE_TASKS_MAX):
        dead_letters.start(str(number), topic="other")
    refused = dead_letters.start("one more", topic="other")
    assert isinstance(refused, LimitReached)
    again = dead_letters.start("3", topic="t")
    assert again["selection"]["topic"] == "other"
    dead_letters.work()
    assert dead_letters.start("one more", topic="other")["state"] == "running"
    assert len(dead_letters.broker.state.redriving.tasks) == REDRIVE_TASKS_MAX


def test_a_redrive_waits_while_the_group_has_too_much_unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it makes visible is state until it is settled: it goes on when consumers have made room."""
    assert LEASED_PER_QUEUE_MAX > 10
    monkeypatch.setattr("tern_broker.upkeep.redriver.LEASED_PER_QUEUE_MAX", 10)
    dead_letters = DeadLetterBroker()
    dead_letters.create()
    dead_letters.broker.send("t", *((0, b"%d" % number) for number in range(25)))
    dead_letters.nack(25)
    dead_letters.work()
    dead_letters.start("a")
    seen = 0
    for _ in range(10):
        dead_letters.work(steps=30)
        found = dead_letters.broker.receive()
        assert len(found) <= 10
        seen += len(found)
        if found:
            dead_letters.broker.ack(*(row for row, _ in found))
    assert (seen, dead_letters.task_counts("a")) == (25, ("done", 25, 0, 0))


def test_a_purge_drops_everything_and_what_dies_afterwards_is_there() -> None:
    """Offsets go on; a redrive that was under way ends."""
    dead_letters = DeadLetterBroker()
    _, group_id = dead_letters.create()
    dead_letters.broker.send("t", *((0, b"%d" % number) for number in range(30)))
    dead_letters.nack(20)
    dead_letters.work()
    dead_letters.start("a", rate=1)
    dead_letters.start("b", offsets=(7,))
    purged = dead_letters.broker.ask(CommandKind.PURGE, encode_msgpack({"group": "g"}))
    assert purged["purged"] == 20
    assert dead_letters.notes(group_id) == []
    dead_letters.nack(10)
    dead_letters.work(steps=30)
    assert [note.offset for note in dead_letters.notes(group_id)] == list(range(20, 30))
    assert dead_letters.task_counts("a")[0] == "done"
    assert dead_letters.task_counts("b") == ("done", 0, 1, 0)
    assert dead_letters.broker.ask(CommandKind.PURGE, encode_msgpack({"group": "nobody"})).code == "group-not-found"


def test_a_deleted_group_takes_its_dead_letters_with_it() -> None:
    """One of the same name begins without any; a deleted topic leaves dead letters that cannot be redriven."""
    dead_letters = DeadLetterBroker()
    _, group_id = dead_letters.create()
    dead_letters.broker.send("t", (0, b"m"), (0, b"n"))
    dead_letters.nack(1)
    dead_letters.work()
    dead_letters.broker.ask(CommandKind.DELETE_TOPIC, encode_msgpack({"topic": "t"}))
    dead_letters.start("a")
    dead_letters.work()
    assert dead_letters.task("a")["failures"] == [[0, ORIGIN_GONE]]
    assert dead_letters.bodies(group_id) == [b"m"]
    dead_letters.start("b", rate=1)
    dead_letters.broker.ask(CommandKind.DELETE_GROUP, encode_msgpack({"group": "g"}))
    assert dead_letters.task("b")["state"] == "cancelled"
    dead_letters.create()
    assert dead_letters.broker.state.dead_letters.count(group_id) == 0
    dead_letters.work()
