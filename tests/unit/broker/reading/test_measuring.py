"""Stored bytes between offsets: exact sums, parts and budgets, in steps, and what retention takes meanwhile."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_broker.reading.measuring import Allowance, Measurement
from tern_store.unread import STEP_ENTRIES
from tern_wire.link.rows import QUEUE_ENTRIES

FREE = 1 << 40


class Rows:
    """The rows of one queue as a store reads them, at most *page* at a time."""

    def __init__(self, sizes: list[int], page: int = STEP_ENTRIES, least: int = 0) -> None:
        self._rows = np.zeros(len(sizes), QUEUE_ENTRIES)
        self._rows["size"] = sizes
        self._page, self._least = page, least
        self.counts: list[int] = []

    def read_queue(self, _topic_id: int, _queue: int, offset: int, count: int) -> Any:
        """Rows from *offset* on; none below the oldest."""
        self.counts.append(count)
        return self._rows[offset : offset + min(count, self._page)] if offset >= self._least else self._rows[:0]


def measure(
    rows: Rows, *, begin: int = 0, end: int, rows_max: int = FREE, allowance: Allowance | None = None, **limits: int
) -> Measurement:
    """A measurement that has run to its end."""
    measured = Measurement(begin=begin, **limits)
    allowance = allowance or Allowance(FREE, FREE)
    for _ in measured.steps(rows, 1, 0, end=end, rows_max=rows_max, allowance=allowance):  # type: ignore[arg-type]
        pass
    return measured


def by_hand(sizes: list[int], step_bytes: int) -> list[int]:
    """The cuts of [0, len(sizes)), one message after the other."""
    cuts: list[int] = []
    part = 0
    for offset, size in enumerate(sizes):
        if offset > (cuts[-1] if cuts else 0) and part + size > step_bytes:
            cuts.append(offset)
            part = 0
        part += size
    return cuts


@given(
    sizes=st.lists(st.integers(1, 500), max_size=60),
    page=st.integers(1, 20),
    step_bytes=st.integers(1, 2_000),
    budget_bytes=st.integers(0, 8_000),
)
def test_sums_cuts_and_budgets_are_those_of_a_count_by_hand(
    sizes: list[int], page: int, step_bytes: int, budget_bytes: int
) -> None:
    """Wherever the pages of the reading end."""
    whole = measure(Rows(sizes, page), end=len(sizes), step_bytes=step_bytes)
    assert (whole.measured_to, whole.size_bytes) == (len(sizes), sum(sizes))
    assert whole.cuts == by_hand(sizes, step_bytes)
    for first, behind in pairwise([0, *whole.cuts, len(sizes)]):
        assert sum(sizes[first:behind]) <= step_bytes or behind == first + 1
    budget = measure(Rows(sizes, page), end=len(sizes), step_bytes=step_bytes, budget_bytes=budget_bytes)
    assert budget.size_bytes == sum(sizes[: budget.measured_to]) <= budget_bytes
    assert budget.measured_to == len(sizes) or budget.size_bytes + sizes[budget.measured_to] > budget_bytes
    assert budget.cuts == by_hand(sizes[: budget.measured_to], step_bytes)


def test_a_measurement_ends_with_its_rows_or_cuts_and_goes_on_from_there() -> None:
    """The parts together are what one measurement would have found."""
    sizes = [100] * 1_000
    first = measure(Rows(sizes), end=1_000, rows_max=300)
    rest = measure(Rows(sizes), begin=first.measured_to, end=1_000)
    assert (first.measured_to, first.size_bytes, rest.size_bytes) == (300, 30_000, 70_000)
    allowance = Allowance(FREE, 3)
    cut = measure(Rows(sizes), end=1_000, step_bytes=1_000, allowance=allowance)
    assert (cut.cuts, cut.measured_to, cut.size_bytes, allowance.cuts) == ([10, 20, 30], 30, 3_000, 0)


def test_a_step_reads_a_bounded_number_of_rows() -> None:
    """And tells how many it took."""
    rows, allowance = Rows([1] * 40_000), Allowance(50_000, 10)
    assert measure(rows, end=40_000, allowance=allowance).size_bytes == 40_000
    assert max(rows.counts) == STEP_ENTRIES
    assert allowance.rows == 10_000


@pytest.mark.parametrize(("begin", "end"), [(0, 0), (5, 5), (5, 3)])
def test_an_empty_range_has_nothing(begin: int, end: int) -> None:
    """Nor is anything read for it."""
    rows = Rows([1] * 10)
    measured = measure(rows, begin=begin, end=end)
    assert (measured.measured_to, measured.size_bytes, rows.counts) == (begin, 0, [])


def test_what_retention_has_dropped_meanwhile_ends_it() -> None:
    """The range is as far as it was read."""
    measured = measure(Rows([1] * 10, least=4), end=10)
    assert (measured.measured_to, measured.size_bytes) == (0, 0)
