"""The read lease of a plan: what is asked for, what a read does without one, and when tasks renew."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tern_spark.leases import ReadLease, Renewal, kept, take
from tern_spark.ranges import QueueRange
from tern_wire.errors import NoLeader, OffsetExpired, ReadLeaseBroken, TernError, UpgradeUnfinished
from tests.support.mesh.mesh import eventually

FOR_MS = 600_000


class Leases:
    """An Admin that answers as the test says."""

    def __init__(self, error: TernError | None = None) -> None:
        self.error = error
        self.taken: list[dict[str, Any]] = []
        self.renewed: list[str] = []
        self.ended: list[str] = []

    def take_read_lease(self, topics: Sequence[dict[str, Any]], duration: int) -> dict[str, Any]:
        """A lease that ends at *duration*."""
        if self.error is not None:
            raise self.error
        self.taken += topics
        return {"lease": "l", "leased_until": duration}

    def renew_read_lease(self, lease: str, duration: int) -> dict[str, Any]:
        """The same, a *duration* later."""
        self.renewed.append(lease)
        if self.error is not None:
            raise self.error
        return {"lease": lease, "leased_until": 2 * duration}

    def end_read_lease(self, lease: str) -> None:
        """It is over."""
        self.ended.append(lease)

    @contextlib.contextmanager
    def connect(self) -> Iterator["Leases"]:
        """As the context manager that tasks open."""
        yield self


def ranges(*found: tuple[str, str, int, int]) -> list[QueueRange]:
    """Ranges of (topic, queue, start, end)."""
    return [QueueRange(topic=topic, queue=queue, start=start, end=end) for topic, queue, start, end in found]


def test_a_lease_has_the_planned_ranges_by_topic_and_no_empty_one() -> None:
    """One request for all topics."""
    admin = Leases()
    wanted = ranges(("a", "g:0", 3, 9), ("a", "g:1", 5, 5), ("b", "g:0", 0, 1))
    assert take(wanted, FOR_MS, admin) == ReadLease(lease="l", until_ms=FOR_MS, for_ms=FOR_MS)
    assert admin.taken == [
        {"topic": "a", "begin": {"g:0": 3}, "end": {"g:0": 9}},
        {"topic": "b", "begin": {"g:0": 0}, "end": {"g:0": 1}},
    ]


@pytest.mark.parametrize(
    ("found", "for_ms"), [([], FOR_MS), (ranges(("a", "g:0", 5, 5)), FOR_MS), (ranges(("a", "g:0", 0, 5)), 0)]
)
def test_nothing_to_read_and_lease_0_take_none(found: list[QueueRange], for_ms: int) -> None:
    """Without a request."""
    admin = Leases()
    assert take(found, for_ms, admin) is None
    assert admin.taken == []


def test_a_mesh_without_leases_is_read_without_one(caplog: pytest.LogCaptureFixture) -> None:
    """With one warning; so is a read of more topics than a lease may have."""
    admin = Leases(UpgradeUnfinished(broker_group="g", what="read leases"))
    with caplog.at_level(logging.WARNING):
        assert take(ranges(("a", "g:0", 0, 5)), FOR_MS, admin) is None
        assert take(ranges(*((f"t{number}", "g:0", 0, 5) for number in range(257))), FOR_MS, Leases()) is None
    assert ["without a lease" in record.getMessage() for record in caplog.records] == [True, True]


def test_a_range_that_retention_has_overtaken_is_planned_again() -> None:
    """So the planner has to hear of it."""
    with pytest.raises(OffsetExpired):
        take(ranges(("a", "g:0", 0, 5)), FOR_MS, Leases(OffsetExpired(topic="a", queue="g:0", offset=0, min_offset=2)))


def test_a_task_renews_when_half_of_the_time_is_over() -> None:
    """And not before, and then at the half of the new time."""
    admin, now_ms = Leases(), 0
    renewal = Renewal(ReadLease(lease="l", until_ms=FOR_MS, for_ms=FOR_MS), admin.connect, lambda: now_ms)
    renewal.keep()
    now_ms = FOR_MS // 2 - 1
    renewal.keep()
    assert admin.renewed == []
    now_ms = FOR_MS // 2
    renewal.keep()
    renewal.keep()
    assert admin.renewed == ["l"]
    now_ms = 2 * FOR_MS - FOR_MS // 2
    renewal.keep()
    assert admin.renewed == ["l", "l"]
    Renewal(None, admin.connect, lambda: now_ms).keep()
    assert len(admin.renewed) == 2


def test_a_failed_renewal_is_tried_again_later_and_a_refused_one_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Neither fails the task: the pages say whether a message is gone."""
    admin, now_ms = Leases(NoLeader(broker_group="g")), FOR_MS
    renewal = Renewal(ReadLease(lease="l", until_ms=FOR_MS, for_ms=FOR_MS), admin.connect, lambda: now_ms)
    renewal.keep()
    renewal.keep()
    assert len(admin.renewed) == 1
    now_ms += FOR_MS // 10
    admin.error = ReadLeaseBroken(lease="l", reason="the disk was full")
    with caplog.at_level(logging.WARNING):
        renewal.keep()
    now_ms += FOR_MS
    renewal.keep()
    assert len(admin.renewed) == 2
    assert "the disk was full" in caplog.text


def test_a_lease_of_a_job_is_renewed_until_its_block_is_over() -> None:
    """At each third of its time, through refusals that may pass; then it is ended."""
    admin = Leases()
    with kept(ranges(("a", "g:0", 0, 5)), 30, admin.connect) as lease:
        assert lease is not None
        eventually(lambda: admin.renewed, within_s=30, what="the first renewal")
        admin.error = NoLeader(broker_group="g")
        count = len(admin.renewed)
        eventually(lambda: len(admin.renewed) > count + 2, within_s=30, what="it is tried again")
        assert admin.ended == []
    assert admin.ended == ["l"]
    with pytest.raises(ZeroDivisionError), kept(ranges(("a", "g:0", 0, 5)), 60_000, Leases().connect):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "error",
    [OffsetExpired(topic="a", queue="g:0", offset=0, min_offset=2), UpgradeUnfinished(broker_group="g", what="leases")],
    ids=lambda error: error.code,
)
def test_a_job_without_a_lease_goes_on(error: TernError, caplog: pytest.LogCaptureFixture) -> None:
    """And says why."""
    admin = Leases(error)
    with caplog.at_level(logging.WARNING), kept(ranges(("a", "g:0", 0, 5)), FOR_MS, admin.connect) as lease:
        assert lease is None
    assert "without a lease" in caplog.text
    assert admin.ended == []
