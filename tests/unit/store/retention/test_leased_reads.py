"""Segments that hold leased messages: kept while the lease lives, dropped when it ends, and when the disk is full."""

from typing import Any

import pytest

from tern_broker.core.feature_level import READ_LEASES_LEVEL
from tern_store.retention import DiskUse
from tern_wire.errors import ReadLeaseBroken, ReadLeaseNotFound
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tests.support.broker.single_broker import HOUR_MS, SingleBroker
from tests.support.files.faulty_files import FaultyFiles

SEGMENTS = 6


class Reading:
    """A log of several segments, all older than the retention, whose topic somebody reads under a lease."""

    def __init__(self, files: FaultyFiles, *, level: int = READ_LEASES_LEVEL) -> None:
        self.broker = SingleBroker(files)
        if level > 1:
            self.broker.ask(CommandKind.RAISE, encode_msgpack({"level": level}))
        self.topic_id, _ = self.broker.create("t", 1, "g")
        # The first offset of each segment but the first.
        self.firsts: list[int] = []
        for _ in range(SEGMENTS):
            self.broker.fill_segments("t", 1)
            self.firsts.append(self.end - 1)
        self.broker.pass_time(73 * HOUR_MS)
        self.broker.save()

    @property
    def end(self) -> int:
        """The next offset."""
        return self.broker.state.names.topics["t"].ends[0]

    @property
    def least(self) -> int:
        """The oldest offset."""
        return self.broker.state.names.topics["t"].mins[0]

    def lease(self, op: str, **fields: Any) -> Any:
        """The verdict of a command on the lease."""
        return self.broker.ask(CommandKind.READ_LEASE, encode_msgpack({"op": op, "lease": "l", **fields}))

    def take(self, begin: int, end: int) -> None:
        """Take a lease of an hour."""
        assert isinstance(self.lease("take", owner="", for_ms=HOUR_MS, topics=[["t", [[0, begin, end]]]]), dict)

    def retain(self) -> None:
        """Retention does all that it may, as if an operator asks again and again."""
        for _ in range(20):
            self.broker.trimmer.trim_now()
            self.broker.retain(2)


def test_leased_segments_stay_and_those_before_them_go() -> None:
    """Every leased message can be read; nothing is copied for it."""
    reading = Reading(FaultyFiles())
    begin = reading.firsts[2]
    reading.take(begin, reading.end)
    before = reading.broker.pull(reading.topic_id, 0, begin)
    appended = reading.broker.store.log.end_index
    reading.retain()
    assert reading.firsts[1] <= reading.least <= begin
    assert reading.broker.pull(reading.topic_id, 0, begin) == before
    assert reading.broker.store.log.end_index - appended <= SEGMENTS, "trims, and no copies"
    assert isinstance(reading.lease("renew", for_ms=HOUR_MS), dict)


def test_without_a_lease_they_go() -> None:
    """The same log."""
    reading = Reading(FaultyFiles())
    reading.retain()
    assert reading.least >= reading.firsts[-2]


@pytest.mark.parametrize("is_ended", [True, False])
def test_they_go_when_the_lease_is_over(is_ended: bool) -> None:
    """By request, or by the log's clock."""
    reading = Reading(FaultyFiles())
    reading.take(0, 5)
    reading.retain()
    assert reading.least == 0
    if is_ended:
        reading.lease("end")
    else:
        reading.broker.pass_time(HOUR_MS + 1)
        assert isinstance(reading.lease("renew", for_ms=HOUR_MS), ReadLeaseNotFound)
    reading.broker.save()
    reading.retain()
    assert reading.least >= reading.firsts[-2]


def test_a_full_disk_drops_the_oldest_segment_all_the_same_and_the_lease_is_told() -> None:
    """One segment; the rest of the lease holds nothing any more."""
    reading = Reading(FaultyFiles())
    reading.take(0, 5)
    reading.broker.trimmer.disk_used(DiskUse(80, 100))
    reading.retain()
    assert reading.least == 0, "at 80 % a lease is spared"
    reading.broker.trimmer.disk_used(DiskUse(86, 100))
    reading.broker.retain(1)
    assert 0 < reading.least <= reading.firsts[1]
    assert isinstance(reading.lease("renew", for_ms=HOUR_MS), ReadLeaseBroken)


def test_a_lease_holds_after_a_restart_too() -> None:
    """From the saved state, and from the log behind it."""
    files = FaultyFiles()
    reading = Reading(files)
    begin = reading.firsts[2]
    reading.take(begin, reading.end)
    for is_saved in (False, True):
        if is_saved:
            reading.broker.save()
        reading.broker.close()
        reading.broker = SingleBroker(files)
        assert list(reading.broker.state.read_leases.leases) == ["l"]
    reading.retain()
    assert reading.firsts[1] <= reading.least <= begin


def test_a_lease_that_is_taken_between_plan_and_entry_is_spared() -> None:
    """The trim waits for its entry, and finds the lease in front of it."""
    reading = Reading(FaultyFiles())
    broker = reading.broker
    broker.trimmer.trim_now()
    broker.now_s += 1e6
    command = {"op": "take", "lease": "l", "owner": "", "for_ms": HOUR_MS, "topics": [["t", [[0, 0, 5]]]]}
    submitted = broker.proposer.submit

    def after_the_lease(proposal: Any) -> None:
        broker.proposer.submit = submitted  # type: ignore[method-assign]
        broker.ask(CommandKind.READ_LEASE, encode_msgpack(command))
        submitted(proposal)

    broker.proposer.submit = after_the_lease  # type: ignore[method-assign]
    broker.trimmer.step(broker.now_s, held_back=lambda: broker.store.log.end_index)
    broker.run()
    assert reading.least == 0
    assert isinstance(reading.lease("renew", for_ms=HOUR_MS), dict)


def test_below_the_level_of_leases_a_trim_is_as_it_was() -> None:
    """The release before has to apply it."""
    reading = Reading(FaultyFiles(), level=1)
    reading.retain()
    assert reading.least >= reading.firsts[-2]
