"""Planning: offsets become [start, end) ranges that cover exactly what was asked for, however they are split."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_spark import OptionError, QueueRange, QueueSpan, ReadOptions, plan_ranges
from tern_spark.options import Offsets
from tern_spark.ranges import split_ranges
from tern_wire.errors import OffsetExpired

OPTIONS = ReadOptions(endpoints=("http://a:1",), topics=("orders",))


def span(queue: int, low: int, high: int) -> QueueSpan:
    """Queue number *queue* of topic orders."""
    return QueueSpan(topic="orders", queue=f"broker-a:{queue}", min_offset=low, max_offset=high)


def planned(starting: Offsets, ending: Offsets = "latest", *, loss_fails: bool = True) -> list[tuple[str, int, int]]:
    """The plan over two queues: 0 holds 5 to 20, 1 is empty at 7."""
    options = replace(OPTIONS, starting=starting, ending=ending, fail_on_data_loss=loss_fails)
    found = plan_ranges([span(0, 5, 20), span(1, 7, 7)], options)
    return [(each.queue, each.start, each.end) for each in found]


def test_earliest_to_latest_is_what_the_queues_hold_and_empty_queues_have_no_partition() -> None:
    """The default read."""
    assert planned("earliest") == [("broker-a:0", 5, 20)]


def test_latest_to_latest_is_nothing() -> None:
    """A batch from the end to the end has no rows and is no error."""
    assert planned("latest") == []


def test_documents_may_mix_offsets_with_earliest_and_latest() -> None:
    """-2 and -1 inside a document mean earliest and latest, as in Spark's Kafka source."""
    starting: Offsets = {"orders": {"broker-a:0": 9, "broker-a:1": -2}}
    ending: Offsets = {"orders": {"broker-a:0": 12, "broker-a:1": -1}}
    assert planned(starting, ending) == [("broker-a:0", 9, 12)]


@pytest.mark.parametrize(
    ("starting", "says"),
    [
        ({"orders": {"broker-a:0": 9}}, "lacks broker-a:1"),
        ({"orders": {"broker-a:0": 9, "broker-a:1": 7, "broker-b:0": 1}}, "no queue broker-b:0"),
        ({"orders": {"broker-a:0": 21, "broker-a:1": 7}}, "21 is beyond the end of queue broker-a:0"),
        ({}, "lacks broker-a:0, broker-a:1"),
    ],
)
def test_offsets_must_name_the_queues_there_are_and_lie_in_them(starting: Offsets, says: str) -> None:
    """A typo in a document is refused by the queue's name; it never silently reads nothing, or everything."""
    with pytest.raises(OptionError, match=f"startingOffsets: .*{says}"):
        planned(starting)


def test_an_end_before_the_start_is_refused() -> None:
    """Both offsets exist, in the wrong order."""
    both: list[Offsets] = [{"orders": {"broker-a:0": offset, "broker-a:1": 7}} for offset in (12, 9)]
    with pytest.raises(OptionError, match="9 is before startingOffsets, 12"):
        planned(*both)


def test_a_deleted_start_fails_unless_loss_is_accepted() -> None:
    """Offset 3 was deleted: an error that names the oldest one kept, or the read begins there."""
    starting: Offsets = {"orders": {"broker-a:0": 3, "broker-a:1": 7}}
    with pytest.raises(OffsetExpired) as failure:
        planned(starting)
    assert failure.value.fields["min_offset"] == 5
    assert planned(starting, loss_fails=False) == [("broker-a:0", 5, 20)]
    gone: Offsets = {"orders": {"broker-a:0": 4, "broker-a:1": 7}}
    assert planned(starting, gone, loss_fails=False) == []


ranges = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 5_000)), max_size=6).map(
    lambda found: [
        QueueRange(topic="orders", queue=f"broker-a:{at}", start=start, end=start + rows)
        for at, (start, rows) in enumerate(found)
    ]
)


@given(ranges, st.integers(0, 700), st.integers(0, 40))
def test_split_ranges_cover_every_offset_once_and_keep_the_limits(
    found: list[QueueRange], rows_max: int, partitions_min: int
) -> None:
    """Property: pieces join to the ranges again, none is empty or too large, and there are enough if there are rows enough."""
    pieces = split_ranges(found, rows_max=rows_max, partitions_min=partitions_min)
    for whole in found:
        own = [piece for piece in pieces if piece.queue == whole.queue]
        assert own[0].start == whole.start
        assert own[-1].end == whole.end
        assert all(before.end == after.start for before, after in pairwise(own))
        sizes = [piece.rows for piece in own]
        assert min(sizes) > 0
        assert max(sizes) - min(sizes) <= 1
    assert all(piece.rows <= rows_max for piece in pieces) or not rows_max
    assert len(pieces) >= min(partitions_min, sum(whole.rows for whole in found))
