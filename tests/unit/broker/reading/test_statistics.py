"""Counters and rates: of the last minute, of idle topics, of many topics at once; bounded by what there is."""

import numpy as np
import pytest

from tern_broker.core.applied import Applied
from tern_broker.reading.statistics import Statistics
from tern_wire.link.rows import QUEUE_ENTRIES, QueueAppend, QueueAppends


class Clock:
    """A monotonic clock."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def came(*appends: tuple[int, int, int]) -> Applied:
    """An entry that added (topic, queue, messages of 100 bytes)."""
    parts = []
    for topic_id, queue, count in appends:
        entries = np.zeros(count, QUEUE_ENTRIES)
        entries["size"] = 100
        parts.append(QueueAppend(topic_id, queue, 0, entries))
    return Applied(appends=[QueueAppends.of(parts)])


def run(statistics: Statistics, clock: Clock, seconds: int, per_second: Applied | None) -> None:
    """Time passes, with the same load in every second."""
    for _ in range(seconds):
        if per_second is not None:
            statistics.applied(per_second)
        clock.now_s += 1
        statistics.sample()


@pytest.mark.parametrize("load", [came((7, 0, 20)), came((7, 0, 10), (7, 1, 10)), came((7, 0, 20), (8, 0, 5))])
def test_a_steady_load_has_its_rate(load: Applied) -> None:
    """In one queue, in several, beside another topic; after half a minute as after ten."""
    clock = Clock()
    statistics = Statistics(clock)
    for seconds in (30, 300):
        run(statistics, clock, seconds, load)
        flow = statistics.of(statistics.came_in, 7)
        assert flow["messages_per_s"] == pytest.approx(20, rel=0.15)
        assert flow["bytes_per_s"] == pytest.approx(2_000, rel=0.15)
    assert statistics.of(statistics.came_in, 7)["messages"] == 330 * 20


def test_a_load_that_ends_is_forgotten_within_a_minute_and_a_new_one_counts_alone() -> None:
    """An idle topic keeps its total and has no rate."""
    clock = Clock()
    statistics = Statistics(clock)
    run(statistics, clock, 60, came((7, 0, 20)))
    run(statistics, clock, 70, None)
    assert statistics.of(statistics.came_in, 7) == {
        "messages": 1_200,
        "bytes": 120_000,
        "messages_per_s": 0.0,
        "bytes_per_s": 0.0,
    }
    run(statistics, clock, 600, None)
    statistics.applied(came((7, 0, 60)))
    assert statistics.of(statistics.came_in, 7)["messages_per_s"] == pytest.approx(1, rel=0.1)


def test_what_goes_out_is_counted_by_topic_and_by_group_and_repeats_apart() -> None:
    """Receives by attempt; pulls belong to the topic alone."""
    statistics = Statistics(Clock())
    statistics.delivered(7, 3, 1, 10, 1_000)
    statistics.delivered(7, 3, 2, 4, 400)
    statistics.delivered(7, 5, 1, 1, 100)
    statistics.pulled(7, 100, 10_000)
    assert statistics.of(statistics.went_out, 7)["messages"] == 115
    assert statistics.of(statistics.went_out, 7, 3)["messages"] == 14
    assert statistics.of(statistics.came_again, 7, 3)["bytes"] == 400
    assert statistics.of(statistics.came_again, 7, 5)["messages"] == 0
    assert statistics.totals()["out"]["messages"] == 115


def test_what_is_deleted_is_forgotten() -> None:
    """A topic takes its groups' numbers along, a group only its own."""
    statistics = Statistics(Clock())
    statistics.applied(came((7, 0, 1)))
    statistics.delivered(7, 3, 2, 1, 1)
    statistics.delivered(8, 3, 1, 1, 1)
    statistics.applied(Applied(dropped_topics={7: 1}))
    assert (set(statistics.came_in) | set(statistics.came_again)) - {(0, 0)} == set()
    assert set(statistics.went_out) - {(0, 0)} == {(8, 0), (8, 3)}
    statistics.applied(Applied(dropped_groups=[3]))
    assert set(statistics.went_out) - {(0, 0)} == {(8, 0)}
