"""Admission: how much of each queue a batch takes, whatever waits; and that nobody waits for ever."""

from bisect import bisect_left
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_spark.stream.admission import OffsetsAt, Waiting, aligned, even, oldest, proportional, within_bytes

NOW_MS = 100_000
# Store times of the messages of each queue, in order.
stored = st.lists(st.lists(st.integers(0, NOW_MS), max_size=30).map(sorted), min_size=1, max_size=8)


def waiting_of(times: list[list[int]], starts: list[int] | None = None) -> list[Waiting]:
    """Queue N holds a message at each of its times; the stream stands at its start."""
    begins = starts or [0] * len(times)
    return [
        Waiting(topic="orders", queue=f"broker-a:{at}", start=min(begin, len(row)), end=len(row))
        for at, (row, begin) in enumerate(zip(times, begins, strict=True))
    ]


def asked_of(times: list[list[int]]) -> OffsetsAt:
    """What the broker answers about these queues."""

    def at(time_ms: int) -> Mapping[tuple[str, str], int]:
        return {("orders", f"broker-a:{at}"): bisect_left(row, time_ms) for at, row in enumerate(times)}

    return at


def admitted(strategy: str, waiting: list[Waiting], rows_max: int, times: list[list[int]]) -> list[int]:
    """The rows that *strategy* takes of each queue."""
    if strategy in {"oldest", "aligned"}:
        return {"oldest": oldest, "aligned": aligned}[strategy](waiting, rows_max, asked_of(times), NOW_MS)
    return {"even": even, "proportional": proportional}[strategy](waiting, rows_max)


@pytest.mark.parametrize("strategy", ["proportional", "even", "oldest", "aligned"])
@given(times=stored, starts=st.lists(st.integers(0, 10), min_size=8, max_size=8), rows_max=st.integers(1, 100))
def test_a_batch_keeps_its_limit_makes_progress_and_takes_no_more_than_waits(
    strategy: str, times: list[list[int]], starts: list[int], rows_max: int
) -> None:
    """Property, for every strategy; all but `aligned` use the limit to the last row."""
    waiting = waiting_of(times, starts[: len(times)])
    rows = admitted(strategy, waiting, rows_max, times)
    total = sum(each.rows for each in waiting)
    assert all(0 <= taken <= each.rows for taken, each in zip(rows, waiting, strict=True))
    assert min(1, total) <= sum(rows) <= rows_max
    if strategy != "aligned" or total <= rows_max:
        assert sum(rows) == min(rows_max, total)


@pytest.mark.parametrize("strategy", ["proportional", "even"])
@given(
    backlogs=st.lists(st.integers(1, 3) | st.integers(1_000, 10**6), min_size=1, max_size=12),
    rows_max=st.integers(1, 20),
)
def test_no_queue_starves(strategy: str, backlogs: list[int], rows_max: int) -> None:
    """Property: beside queues that never run dry, a queue with one row gets its turn within queues / limit batches."""
    starts = [0] * len(backlogs)
    served: set[int] = set()
    for _ in range(-(-len(backlogs) // rows_max)):
        waiting = [
            Waiting(topic="orders", queue=f"broker-a:{at}", start=start, end=start + backlogs[at])
            for at, start in enumerate(starts)
        ]
        rows = admitted(strategy, waiting, rows_max, [])
        served |= {at for at, taken in enumerate(rows) if taken}
        starts = [start + taken for start, taken in zip(starts, rows, strict=True)]
    assert served == set(range(len(backlogs)))


@given(times=stored, rows_max=st.integers(1, 100))
def test_oldest_takes_no_row_while_an_older_one_waits(times: list[list[int]], rows_max: int) -> None:
    """Property: the youngest row that is taken is not younger than the oldest one that is left."""
    rows = admitted("oldest", waiting_of(times), rows_max, times)
    taken = [time for row, count in zip(times, rows, strict=True) for time in row[:count]]
    left = [time for row, count in zip(times, rows, strict=True) for time in row[count:]]
    assert not taken or not left or max(taken) <= min(left)


@given(times=stored, rows_max=st.integers(1, 100))
def test_aligned_cuts_all_queues_at_one_time(times: list[list[int]], rows_max: int) -> None:
    """Property: every row that is taken is older than every one that is left, unless one millisecond exceeds the limit."""
    rows = admitted("aligned", waiting_of(times), rows_max, times)
    taken = [time for row, count in zip(times, rows, strict=True) for time in row[:count]]
    left = [time for row, count in zip(times, rows, strict=True) for time in row[count:]]
    if taken and left and max(taken) >= min(left):
        first_ms = min(taken + left)
        assert {*taken} == {first_ms}
        assert sum(time == first_ms for time in taken + left) > rows_max


def test_proportional_follows_the_backlog_and_even_does_not() -> None:
    """900, 90 and 10 rows wait, and 100 may be read."""
    waiting = [
        Waiting(topic="orders", queue=f"broker-a:{at}", start=0, end=rows) for at, rows in enumerate((900, 90, 10))
    ]
    assert proportional(waiting, 100) == [88, 10, 2]
    assert even(waiting, 100) == [45, 45, 10]


@given(
    rows=st.lists(st.integers(1, 500), min_size=1, max_size=6),
    size_bytes=st.integers(1, 5_000),
    size_max_bytes=st.integers(1, 100_000),
)
def test_a_limit_of_bytes_is_kept_by_the_mean_sizes(rows: list[int], size_bytes: int, size_max_bytes: int) -> None:
    """Property: as many rows as fit, at least one."""
    waiting = [Waiting(topic="orders", queue=f"broker-a:{at}", start=0, end=each) for at, each in enumerate(rows)]
    sizes = [float(size_bytes)] * len(rows)
    found = within_bytes(waiting, size_max_bytes, sizes, lambda rows_max: proportional(waiting, rows_max))
    assert sum(found) == max(1, min(sum(rows), size_max_bytes // size_bytes))
