"""Ranges are split and joined into tasks: every offset is in one task, in few tasks, and the limits hold."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_spark import QueueRange, ReadOptions
from tern_spark.planning.tasks import RANGE_COST_ROWS, TASK_ROWS_MIN, divide, join
from tern_spark.ranges import split_ranges

OPTIONS = ReadOptions(endpoints=("http://a:1",), topics=("orders",))


def range_of(queue: int, rows: int, start: int = 0) -> QueueRange:
    """*rows* offsets of queue number *queue*."""
    return QueueRange(topic="orders", queue=f"broker-a:{queue}", start=start, end=start + rows)


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


@given(ranges, st.integers(0, 700), st.integers(0, 40))
def test_tasks_hold_every_offset_once_and_keep_the_limits(
    found: list[QueueRange], rows_max: int, partitions_min: int
) -> None:
    """Property: the pieces of all tasks are the pieces of the split, in order within a task, and no task is too large."""
    pieces = split_ranges(found, rows_max=rows_max, partitions_min=partitions_min)
    tasks = join(pieces, rows_max=rows_max, tasks_min=partitions_min)
    assert sorted((each.queue, each.start) for task in tasks for each in task) == sorted(
        (each.queue, each.start) for each in pieces
    )
    assert all(tasks)
    assert all(sum(each.rows for each in task) <= rows_max for task in tasks) or not rows_max
    assert len(tasks) >= min(partitions_min, len(pieces))
    for task in tasks:
        for before, after in pairwise(each for each in task if each.queue == task[0].queue):
            assert before.end <= after.start


def test_a_small_batch_over_many_queues_is_one_task() -> None:
    """1,000 rows over 8 queues."""
    assert [len(task) for task in divide([range_of(queue, 125) for queue in range(8)], OPTIONS)] == [8]


def test_large_queues_are_a_task_each_and_small_ones_beside_them_are_joined() -> None:
    """Two queues with much, six with little: as many tasks as there is work for, about even."""
    found = [range_of(queue, 2 * TASK_ROWS_MIN if queue < 2 else 10) for queue in range(8)]
    tasks = divide(found, OPTIONS)
    assert len(tasks) == 5
    assert [task for task in tasks if found[0] in task or found[1] in task] == [(found[0],), (found[1],)]


def test_a_range_is_split_by_estimated_bytes() -> None:
    """1,000 rows of 100 bytes, at most 25,000 bytes a task: four tasks; without an estimate, one."""
    options = replace(OPTIONS, bytes_per_partition_max=25_000)
    assert [sum(each.rows for each in task) for task in divide([range_of(0, 1_000)], options, 100)] == [250] * 4
    assert len(divide([range_of(0, 1_000)], options)) == 1


@pytest.mark.parametrize("rows_max", [10, 1_000])
def test_the_stricter_of_rows_and_bytes_counts(rows_max: int) -> None:
    """maxRowsPerPartition and maxBytesPerPartition together."""
    options = replace(OPTIONS, bytes_per_partition_max=65_536, rows_per_partition_max=rows_max)
    sizes = [sum(each.rows for each in task) for task in divide([range_of(0, 1_000)], options, 1_000)]
    assert max(sizes) <= min(rows_max, 65)
    assert sum(sizes) == 1_000


def test_ten_thousand_queues_are_divided_into_even_tasks() -> None:
    """Each with 800 rows: as many tasks as there is work for, none with much more than another."""
    tasks = divide([range_of(queue, 800) for queue in range(10_000)], OPTIONS)
    sizes = [sum(each.rows for each in task) for task in tasks]
    assert len(tasks) == -(-(8_000_000 + 10_000 * RANGE_COST_ROWS) // TASK_ROWS_MIN)
    assert max(sizes) - min(sizes) <= 800


def test_ten_thousand_queues_with_a_row_each_are_not_one_task() -> None:
    """Each queue is a request: 10,000 of them in turn would take ten seconds and more."""
    tasks = divide([range_of(queue, 1) for queue in range(10_000)], OPTIONS)
    sizes = [len(task) for task in tasks]
    assert len(tasks) == -(-10_000 * (1 + RANGE_COST_ROWS) // TASK_ROWS_MIN)
    assert max(sizes) - min(sizes) <= 1
