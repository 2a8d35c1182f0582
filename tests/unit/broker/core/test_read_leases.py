"""Read leases as the state machine has them: taken, renewed, over, broken, saved, and never below their feature level."""

from typing import Any

import pytest

from tern_broker.core import read_leases as module
from tern_broker.core import saving
from tern_broker.core.feature_level import READ_LEASES_LEVEL
from tern_broker.core.machine import StateMachine
from tern_wire.errors import (
    LimitReached,
    LinkBodyMalformed,
    OffsetExpired,
    QueueNotFound,
    ReadLeaseBroken,
    ReadLeaseNotFound,
    TopicNotFound,
)
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind, entry_parts

HOUR_MS = 3_600_000
BEGAN_MS = 1_000_000


class Log:
    """A state machine and the entries that it gets, one command each."""

    def __init__(self, level: int = READ_LEASES_LEVEL) -> None:
        self.state, self.now_ms, self._index = StateMachine(), BEGAN_MS, 0
        if level > 1:
            self.apply(CommandKind.RAISE, level=level)
        for topic in ("orders", "clicks"):
            self.apply(CommandKind.CREATE_TOPIC, topic=topic, queues=2)
        self.stored("orders", 0, least=10, end=100)

    def apply(self, kind: CommandKind, **command: Any) -> Any:
        """The verdict of one command."""
        parts = entry_parts(self.now_ms, [(kind, [encode_msgpack(command)])])
        self._index += 1
        level = self.state.feature_level.level
        return self.state.apply(memoryview(b"".join(parts)), 0, self._index, version=level).verdicts[0]

    def lease(self, op: str, lease: str = "l", **fields: Any) -> Any:
        """The verdict of one command on a lease."""
        return self.apply(CommandKind.READ_LEASE, op=op, lease=lease, **fields)

    def take(self, *ranges: tuple[int, int, int], lease: str = "l", topic: str = "orders", owner: str = "me") -> Any:
        """Take a lease of an hour."""
        return self.lease("take", lease, owner=owner, for_ms=HOUR_MS, topics=[[topic, ranges]])

    def stored(self, topic: str, queue: int, *, least: int, end: int) -> None:
        """The queue has these messages."""
        found = self.state.names.topics[topic]
        found.mins[queue], found.ends[queue] = least, end

    def trim(self, least: int, **more: Any) -> Any:
        """Retention drops what is before *least* of queue 0 of orders, and nothing else."""
        topic_id = self.state.names.topics["orders"].topic_id
        mins = [[topic_id, [least, 0]]]
        return self.apply(CommandKind.TRIM, index=1, position=1, term=1, crc=1, mins=mins, **more)

    @property
    def least(self) -> int:
        """Where queue 0 of orders begins."""
        return self.state.names.topics["orders"].mins[0]


def test_a_lease_is_of_what_is_there_or_of_what_is_named() -> None:
    """The answer has the ranges, and its end by the log's clock."""
    log = Log()
    told = log.take()
    topics = [{"topic": "orders", "ranges": [[0, 10, 100], [1, 0, 0]]}]
    assert told == {"lease": "l", "taken_ms": BEGAN_MS, "until_ms": BEGAN_MS + HOUR_MS, "topics": topics}
    (named,) = log.take((0, 20, -1), lease="m")["topics"]
    assert named["ranges"] == [[0, 20, 100]]


def test_a_repeat_of_a_take_changes_nothing() -> None:
    """Its answer was lost."""
    log = Log()
    first = log.take()
    log.now_ms += 5_000
    assert log.take((0, 50, 60)) == first


@pytest.mark.parametrize(
    ("topic", "ranges", "error"),
    [
        ("nowhere", [], TopicNotFound),
        ("orders", [(2, 0, 5)], QueueNotFound),
        ("orders", [(-1, 0, 5)], QueueNotFound),
        ("orders", [(0, 9, 50)], OffsetExpired),
    ],
)
def test_a_lease_of_what_is_not_there_is_refused(topic: str, ranges: list[Any], error: type[Exception]) -> None:
    """And leaves nothing."""
    log = Log()
    assert isinstance(log.take(*ranges, topic=topic), error)
    assert log.state.read_leases.leases == {}


def test_an_empty_range_below_the_oldest_offset_loses_nothing() -> None:
    """Readers plan it for queues without messages."""
    log = Log()
    assert log.take((0, 5, 5))["topics"][0]["ranges"] == [[0, 5, 5]]
    log.trim(60)
    assert isinstance(log.lease("renew", for_ms=HOUR_MS), dict)


def test_a_lease_is_over_at_its_time_unless_it_is_renewed() -> None:
    """A renewal never shortens it; what is over is unknown."""
    log = Log()
    log.take()
    log.now_ms += HOUR_MS - 1
    assert not log.state.is_due(log.now_ms)
    assert log.lease("renew", for_ms=60_000)["until_ms"] == log.now_ms + 60_000
    assert log.lease("renew", for_ms=1_000)["until_ms"] == log.now_ms + 60_000
    log.now_ms += 60_000
    assert log.state.is_due(log.now_ms)
    assert isinstance(log.lease("renew", for_ms=HOUR_MS), ReadLeaseNotFound)
    assert not log.state.is_due(log.now_ms + HOUR_MS)
    assert log.state.read_leases.leases == {}


def test_an_ended_lease_is_unknown() -> None:
    """And holds nothing."""
    log = Log()
    log.take()
    assert log.lease("end")["lease"] == "l"
    assert isinstance(log.lease("end"), ReadLeaseNotFound)
    assert isinstance(log.lease("renew", for_ms=HOUR_MS), ReadLeaseNotFound)
    log.trim(60, spares_leases=True)
    assert log.least == 60


def test_a_trim_that_spares_leases_drops_nothing_that_one_holds() -> None:
    """Whatever the leader knew when it planned the trim: the state that the entry meets decides."""
    log = Log()
    log.take((0, 50, 80))
    log.trim(51, spares_leases=True)
    assert log.least == 10
    log.trim(50, spares_leases=True)
    assert log.least == 50
    log.lease("end")
    log.trim(90, spares_leases=True)
    assert log.least == 90


def test_a_trim_for_a_full_disk_breaks_the_lease_and_says_which_queue() -> None:
    """It holds nothing from then on, and the renewal is refused until the time of the lease is over."""
    log = Log()
    log.take((0, 50, 80))
    log.trim(60)
    assert log.least == 60
    error = log.lease("renew", for_ms=HOUR_MS)
    assert isinstance(error, ReadLeaseBroken)
    assert "retention has dropped messages of queue 0 of topic 'orders'" in str(error)
    log.trim(70, spares_leases=True)
    assert log.least == 70
    log.now_ms += HOUR_MS
    assert isinstance(log.lease("renew", for_ms=HOUR_MS), ReadLeaseNotFound)


def test_a_trim_before_the_range_breaks_nothing() -> None:
    """The first message of the range is the new oldest one."""
    log = Log()
    log.take((0, 50, 80))
    log.trim(50)
    assert isinstance(log.lease("renew", for_ms=HOUR_MS), dict)


def test_a_trim_that_knows_fewer_queues_than_the_topic_has_now_is_no_error() -> None:
    """The place of the trim lies before the topic grew."""
    log = Log()
    log.apply(CommandKind.ALTER_TOPIC, topic="orders", queues=5)
    log.stored("orders", 4, least=0, end=9)
    log.take((4, 0, 9))
    assert log.trim(60, spares_leases=True) == {"lost": 0}
    assert log.least == 60
    assert isinstance(log.lease("renew", for_ms=HOUR_MS), dict)


def test_the_lowest_of_several_leases_counts() -> None:
    """And of what is left, when one of them is over."""
    log = Log()
    log.take((0, 50, 80), lease="high")
    log.trim(20, spares_leases=True)
    log.take((0, 30, 40), lease="low")
    log.trim(40, spares_leases=True)
    assert log.least == 20
    log.lease("end", "low")
    log.trim(50, spares_leases=True)
    assert log.least == 50


def test_a_deleted_topic_breaks_its_leases() -> None:
    """A topic of the same name has other messages."""
    log = Log()
    log.take()
    log.take(lease="other", topic="clicks")
    log.apply(CommandKind.DELETE_TOPIC, topic="orders", topic_id=0)
    log.apply(CommandKind.CREATE_TOPIC, topic="orders", queues=2)
    assert "topic 'orders' was deleted" in str(log.lease("renew", for_ms=HOUR_MS))
    assert isinstance(log.lease("renew", "other", for_ms=HOUR_MS), dict)


def test_leases_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number, for each principal, and in queues; what ends makes room."""
    monkeypatch.setattr(module, "READ_LEASES_PER_PRINCIPAL_MAX", 2)
    monkeypatch.setattr(module, "READ_LEASES_MAX", 3)
    log = Log()
    log.take(lease="1")
    log.take(lease="2")
    refused = log.take(lease="3")
    assert isinstance(refused, LimitReached)
    assert "ternmq lease rm" in str(refused)
    log.take(lease="3", owner="other")
    assert isinstance(log.take(lease="4", owner="third"), LimitReached)
    log.lease("end", "1")
    assert isinstance(log.take(lease="4", owner="third"), dict)
    monkeypatch.setattr(module, "READ_LEASED_QUEUES_MAX", 5)
    log.lease("end", "4")
    assert isinstance(log.take(lease="5", owner="third"), LimitReached)
    assert isinstance(log.take((0, -1, -1), lease="5", owner="third"), dict)
    monkeypatch.setattr(module, "READ_LEASE_QUEUES_MAX", 1)
    log.lease("end", "3")
    assert isinstance(log.take(lease="6", owner="third"), LimitReached)


@pytest.mark.parametrize(("for_ms", "wanted"), [(0, 1_000), (-5, 1_000), (10**12, 24 * HOUR_MS)])
def test_no_time_is_longer_than_the_longest(for_ms: int, wanted: int) -> None:
    """Whatever a proxy of another release lets through."""
    log = Log()
    told = log.lease("take", owner="me", for_ms=for_ms, topics=[["orders", []]])
    assert told["until_ms"] - told["taken_ms"] == wanted


def test_leases_are_saved_and_loaded() -> None:
    """Ranges, ends and reasons; the loaded state goes on as the other."""
    log = Log()
    log.take((0, 50, 80), (1, 0, 0))
    log.take(lease="broken")
    log.trim(20)
    payload = b"".join(saving.encode(saving.take(log.state)))
    loaded = saving.load(payload)
    assert loaded.read_leases.pack() == log.state.read_leases.pack()
    assert loaded.is_due(BEGAN_MS + HOUR_MS)
    log.state = loaded
    assert isinstance(log.lease("renew", for_ms=HOUR_MS), dict)
    assert isinstance(log.lease("renew", "broken", for_ms=HOUR_MS), ReadLeaseBroken)
    log.trim(60, spares_leases=True)
    assert log.least == 20


def test_below_their_level_nothing_shows_that_this_release_knows_leases() -> None:
    """A node of the release before reads the state, and finds the same digest after the same entries."""
    log = Log(level=1)
    verdict = log.take()
    assert isinstance(verdict, LinkBodyMalformed)
    assert str(verdict) == str(LinkBodyMalformed(reason="command 33 is not known to this release"))
    facts = saving.take(log.state).facts
    assert (facts["format"], "read_leases" in facts["parts"]) == (13, False)
    payload = b"".join(saving.encode(saving.take(log.state)))
    assert saving.load(payload).feature_level.level == 1
    digests = [log.state.inspection.witness(turn, 0) for turn in range(log.state.inspection.turns)]
    log.state.parts.pop("read_leases")
    bare = type(log.state.inspection)(log.state.parts, log.state.leasing, log.state.keys, level=lambda: 1)
    assert [bare.witness(turn, 0) for turn in range(bare.turns)] == digests


def test_a_comparison_of_the_nodes_covers_every_lease() -> None:
    """A bit that flips in any of them is found within one round."""
    log = Log()
    for number in range(20):
        log.take((0, 50, 80), lease=f"l{number}")
    inspection = log.state.inspection
    before = [inspection.witness(turn, 0) for turn in range(inspection.turns)]
    topic_id = log.state.names.topics["orders"].topic_id
    log.state.read_leases.leases["l19"].ranges[topic_id][0, 1] = 49
    assert [inspection.witness(turn, 0) for turn in range(inspection.turns)] != before


def test_what_is_no_lease_is_refused_by_every_node_alike() -> None:
    """Nothing of it is kept."""
    log = Log()
    for command in ({"op": "take"}, {"op": "take", "lease": "l", "owner": "", "for_ms": "x", "topics": []}, {"op": 5}):
        assert isinstance(log.apply(CommandKind.READ_LEASE, **command), LinkBodyMalformed)
    assert isinstance(log.lease("take", owner="", for_ms=1, topics=[["orders", [[0]]]]), LinkBodyMalformed)
    assert log.state.read_leases.leases == {}
