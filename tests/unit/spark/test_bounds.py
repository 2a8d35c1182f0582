"""Where a batch begins and ends in each queue, for every kind of place that an option can name."""

from dataclasses import replace

import pytest

from tern_spark import OptionError, QueueSpan, ReadOptions
from tern_spark.options import Ago, At, AtTimes, Offsets, Place, Shift
from tern_spark.planning.bounds import Marks, bounds_of
from tern_wire.errors import OffsetExpired

OPTIONS = ReadOptions(endpoints=("http://a:1",), topics=("orders",))


def span(queue: int, low: int, high: int) -> QueueSpan:
    """Queue number *queue* of topic orders."""
    return QueueSpan(topic="orders", queue=f"broker-a:{queue}", min_offset=low, max_offset=high)


def planned(
    starting: Place,
    ending: Place = "latest",
    *,
    loss_fails: bool = True,
    late: str = "error",
    marks: Marks | None = None,
) -> list[tuple[str, int, int]]:
    """The plan over two queues: 0 holds 5 to 20, 1 is empty at 7."""
    options = replace(OPTIONS, starting=starting, ending=ending, fail_on_data_loss=loss_fails, late_start=late)
    found = bounds_of([span(0, 5, 20), span(1, 7, 7)], options, marks or Marks())
    return [(each.queue, each.start, each.end) for each in found.ranges]


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
def test_offsets_must_name_the_queues_there_are_and_lie_in_them(starting: Place, says: str) -> None:
    """A typo in a document is refused by the queue's name; it never silently reads nothing, or everything."""
    with pytest.raises(OptionError, match=f"startingOffsets: .*{says}"):
        planned(starting)


def test_an_end_before_the_start_is_refused() -> None:
    """Both offsets exist, in the wrong order."""
    both: list[Place] = [{"orders": {"broker-a:0": offset, "broker-a:1": 7}} for offset in (12, 9)]
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


def test_deleted_rows_are_counted() -> None:
    """Offsets 1 to 4 were deleted and are not read; of a range that is deleted whole, its own rows count."""
    options = replace(OPTIONS, starting={"orders": {"broker-a:0": 1}}, fail_on_data_loss=False)
    assert bounds_of([span(0, 5, 20)], options, Marks()).skipped_rows == 4
    gone = replace(options, ending={"orders": {"broker-a:0": 3}})
    assert bounds_of([span(0, 5, 20)], gone, Marks()).skipped_rows == 2


@pytest.mark.parametrize(("rows", "start"), [(1, 19), (15, 5), (16, 5), (10**9, 5)])
def test_a_shift_begins_so_many_rows_before_the_end_or_at_the_begin(rows: int, start: int) -> None:
    """`-100`: the last 100 rows of each queue."""
    assert planned(Shift(rows)) == [("broker-a:0", start, 20)]


def test_a_group_begins_where_it_stands_and_at_the_begin_of_queues_that_it_has_not_begun() -> None:
    """`startingOffsets=group`."""
    assert planned("group", marks=Marks(committed={"orders": {"broker-a:0": 11}})) == [("broker-a:0", 11, 20)]
    assert planned("group") == [("broker-a:0", 5, 20)]


MARKS = Marks(
    now_ms=10_000,
    at={
        ("orders", 4_000): {"broker-a:0": 9, "broker-a:1": 7},
        ("orders", 6_000): {"broker-a:0": 15, "broker-a:1": 7},
        ("orders", 9_000): {"broker-a:0": 25, "broker-a:1": 7},
    },
)


def test_times_become_the_first_offsets_from_then_on() -> None:
    """A start and an end by time; the time of an Ago counts back from the planning."""
    assert planned(At(4_000), At(6_000), late="latest", marks=MARKS) == [("broker-a:0", 9, 15)]
    assert planned(Ago(6_000), marks=MARKS) == [("broker-a:0", 9, 20)]
    by_queue = AtTimes({"orders": {"broker-a:0": 4_000, "": 6_000}})
    assert planned(by_queue, late="latest", marks=MARKS) == [("broker-a:0", 9, 20)]


def test_a_message_that_came_after_the_offsets_were_told_is_not_planned() -> None:
    """The offsets of a time were asked for later and lie behind the known end: the range is empty, not negative."""
    assert planned("latest", At(9_000), marks=MARKS) == []


def test_a_queue_without_a_message_from_that_time_on_fails_or_begins_at_its_end() -> None:
    """startingOffsetsByTimestampStrategy; queue 1 is empty."""
    with pytest.raises(OptionError, match="queue broker-a:1 of topic 'orders' has no message from then on"):
        planned(At(4_000), marks=MARKS)
    assert planned(At(4_000), late="latest", marks=MARKS) == [("broker-a:0", 9, 20)]


def test_an_end_by_time_before_the_start_is_nothing_to_read() -> None:
    """Only two documents of offsets contradict each other."""
    assert planned("latest", At(4_000), marks=MARKS) == []


def test_a_document_of_times_must_name_the_queues_there_are() -> None:
    """As documents of offsets."""
    with pytest.raises(OptionError, match="lacks broker-a:1"):
        planned(AtTimes({"orders": {"broker-a:0": 4_000}}), marks=MARKS)
