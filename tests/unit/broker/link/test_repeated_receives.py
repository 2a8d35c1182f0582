"""Receives with an attempt id: one at a time for each id, the same messages and handles again, and never from a deposed leader."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tern_broker.core.delivery.picking import ReceiveRequest
from tern_broker.core.topics import Topic
from tern_broker.engine import Engine
from tern_broker.link.repeated_receives import Found, RepeatedReceives
from tern_broker.proposal import Proposal
from tern_broker.reading.reader import Reader
from tern_wire.errors import TernError
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import read_body
from tern_wire.link.rows import ACK, EXTEND
from tern_wire.records.read import decode_record
from tests.support.broker.entries import Log
from tests.support.files.faulty_files import FaultyFiles
from tests.unit.store.retention.test_retention_races import old_broker

TOKEN = b"0123456789abcdef"


class Door:
    """What asks: notes what it was told to do, and replies when the test says so."""

    def __init__(self) -> None:
        self.log = Log()
        self.topic, self.group = self.log.create()
        self.log.send(2, *((self.topic, 0, b"%d" % number, b"") for number in range(6)))
        self.now_ms, self.is_leader = 10, True
        engine = SimpleNamespace(
            state=self.log.state,
            raft=SimpleNamespace(when_current=lambda ready: ready(self.is_leader)),
            proposer=SimpleNamespace(now_ms=lambda: self.now_ms),
            store=SimpleNamespace(read_queue=self.log.read),
            reader=SimpleNamespace(read_messages=self._read),
        )
        self.repeats = RepeatedReceives(cast(Engine, engine))
        self.key = (self.group, self.topic, TOKEN)
        self.told: list[Any] = []

    def _read(self, _topic: Topic, _queue: int, offsets: Any, entries: Any) -> Any:
        assert len(offsets) == len(entries)
        return SimpleNamespace(data=memoryview(b" ".join(b"%d" % offset for offset in offsets.tolist())))

    def ask(self, name: str) -> None:
        """One receive; what becomes of it is in `told`."""

        def again(found: Found) -> None:
            self.told.append((name, [offset for _, lease in found for offset in lease.offsets().tolist()]))

        self.repeats.ask(
            self.key, again, lambda: self.told.append((name, "first")), lambda error: self.told.append((name, error))
        )

    def receive(self, count: int) -> Any:
        """What the first one gets."""
        return self.log.receive(self.now_ms, messages_max=count, token=TOKEN)

    def parts(self) -> tuple[dict[str, Any], bytes]:
        """The reply to a repeat."""
        topic, group = self.log.state.names.topics["t"], self.log.state.names.groups["g"]
        found = self.log.state.leasing.replays.find(*self.key)
        head, raw = read_body(b"".join(self.repeats.parts(topic, group, found)))
        return head, bytes(raw)


def test_the_same_receive_again_waits_for_the_one_under_way_and_gets_what_that_got() -> None:
    """Also when both came in the same moment; and the third when the second was answered."""
    door = Door()
    for name in "abc":
        door.ask(name)
    assert door.told == [("a", "first")]
    door.receive(2)
    door.repeats.over(door.key)
    assert door.told[1:] == [("b", [0, 1])]
    door.repeats.over(door.key)
    assert door.told[2:] == [("c", [0, 1])]
    door.repeats.over(door.key)
    door.ask("d")
    assert door.told[3:] == [("d", [0, 1])]


def test_a_receive_that_found_nothing_leaves_the_next_one_to_be_the_first() -> None:
    """There was nothing to get, so there is nothing to get again."""
    door = Door()
    door.ask("a")
    door.ask("b")
    door.repeats.over(door.key)
    assert door.told == [("a", "first"), ("b", "first")]


def test_what_is_over_by_now_is_not_given_again_and_deadlines_are_those_of_now() -> None:
    """Though no entry has said so yet; what was acked is left out; an extended message has its own deadline."""
    door = Door()
    ((_, lease, _),) = door.receive(4)
    door.log.settle(
        11, (door.group, door.topic, 0, ACK, 1, lease, 0), (door.group, door.topic, 0, EXTEND, 2, lease, 5_000)
    )
    head, raw = door.parts()
    assert head["runs"] == [[0, lease, 1, 1_010, 1], [0, lease, 1, 5_011, 1], [0, lease, 1, 1_010, 1]]
    assert raw == b"0 2 3"
    door.now_ms = 1_010
    door.ask("a")
    assert door.told == [("a", [0, 2, 3])], "one of them is still held"
    assert door.parts()[1] == b"2"
    door.repeats.over(door.key)
    door.now_ms = 5_011
    door.ask("b")
    assert door.told[1:] == [("b", "first")]


def test_a_leader_that_was_deposed_gives_nothing_again() -> None:
    """It proposes instead, and hears that it leads no more."""
    door = Door()
    door.receive(2)
    door.is_leader = False
    door.ask("a")
    assert door.told == [("a", "first")]
    assert np.array_equal(door.log.state.leasing.replays.find(*door.key)[0][1].offsets(), [0, 1])


@pytest.mark.parametrize("is_current", [True, False])
def test_a_repeat_that_cannot_be_answered_frees_its_attempt_id(is_current: bool) -> None:
    """Whoever repeats it meanwhile is answered, each by itself."""
    door = Door()
    door.receive(2)
    door.is_leader = is_current

    def failing(*_: object) -> None:
        raise IndexError("no such row")

    def failed(error: TernError) -> None:
        door.told.append(error.code)
        door.repeats.over(door.key)

    for _ in range(3):
        door.repeats.ask(door.key, failing, failing, failed)
    assert door.told == ["internal"] * 3
    assert door.repeats._waiting == {}


@pytest.mark.parametrize("settled", [1, 3])
def test_a_receive_is_repeated_after_a_trim_of_what_it_has_settled(settled: int) -> None:
    """Its lease begins with messages of which retention has dropped the rows: the others come again, with their bodies."""
    broker = old_broker(FaultyFiles())
    names = broker.state.names
    found: list[tuple[int, ...]] = []

    def done(verdicts: Any, picks: list[Any]) -> None:
        ((lease, _, _),) = verdicts.tolist()
        found.extend((*picks[0].row[:3], ACK, offset, lease, 0) for offset in picks[0].offsets.tolist())

    topic, group = names.topics["t"], names.groups["g"]
    request = ReceiveRequest(
        group=group,
        topic=topic,
        messages_max=4,
        size_max_bytes=1 << 20,
        invisible_ms=60_000,
        first_queue=0,
        token=TOKEN,
    )
    broker.proposer.submit(Proposal(CommandKind.LEASE, 64, done, receive=request))
    broker.run()
    broker.ack(*found[:settled])
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.queues.min(topic.topic_id, 0) == settled, "retention has dropped what was settled"
    engine = SimpleNamespace(
        state=broker.state,
        raft=SimpleNamespace(when_current=lambda ready: ready(True)),
        proposer=broker.proposer,
        store=broker.store,
        reader=Reader(broker.store),
    )
    repeats = RepeatedReceives(cast(Engine, engine))
    replies: list[Any] = []
    repeats.ask(
        (group.group_id, topic.topic_id, TOKEN),
        lambda again: replies.append(repeats.parts(topic, group, again)),
        lambda: replies.append("first"),
        replies.append,
    )
    (parts,) = replies
    head, raw = read_body(b"".join(parts))
    assert [run[4] for run in head["runs"]] == [4 - settled]
    bodies, at = [], 0
    while at < len(raw):
        record = decode_record(raw, at)
        bodies.append((record.offset, record.body))
        at += int.from_bytes(raw[at : at + 4], "big")
    assert bodies == [(offset, b"first %d" % offset) for offset in range(settled, 4)]


def test_what_is_over_between_two_looks_at_the_clock_is_left_out() -> None:
    """The clock goes on while the answer is made."""
    door = Door()
    door.receive(2)
    door.now_ms = 1_010
    assert door.parts() == ({"topic_id": door.topic, "group_id": door.group, "runs": []}, b"")
