"""Small pages are decoded together: in order, within a size, heads apart from whole records."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_spark import QueueRange
from tern_spark.pages import Page
from tern_spark.reading import JOIN_SIZE_MAX_BYTES, Fetched, join_pages
from tern_wire.errors import OutcomeUnknown

sizes = st.one_of(st.integers(1, 100), st.integers(JOIN_SIZE_MAX_BYTES // 3, JOIN_SIZE_MAX_BYTES * 2))


def page_of(at: int, size_bytes: int, *, is_heads: bool = False, is_last: bool = True) -> Fetched:
    """Page number *at*, which is the last one of its range or not."""
    found = QueueRange(topic="t", queue=f"a:{at}", start=0, end=10)
    return found, Page(records=bytes(size_bytes), next_offset=10 if is_last else 5, is_heads=is_heads)


@given(st.lists(st.tuples(sizes, st.booleans(), st.booleans()), max_size=30))
def test_pages_are_joined_in_order_within_the_size(wanted: list[tuple[int, bool, bool]]) -> None:
    """Property: every page is there once, in order; a batch ends only when the next page has no place in it."""
    pages = [
        page_of(at, size_bytes, is_heads=is_heads, is_last=is_last)
        for at, (size_bytes, is_heads, is_last) in enumerate(wanted)
    ]
    joined = list(join_pages(iter(pages)))
    assert [page for batch in joined for page in batch] == pages
    for batch in joined:
        assert len({page.is_heads for _, page in batch}) == 1
        assert len(batch) == 1 or sum(len(page.records) for _, page in batch) <= JOIN_SIZE_MAX_BYTES
        assert all(page.next_offset == found.end for found, page in batch[:-1])
    for batch, later in pairwise(joined):
        size_bytes = sum(len(page.records) for _, page in batch) + len(later[0][1].records)
        is_other = batch[0][1].is_heads != later[0][1].is_heads
        is_open = batch[-1][1].next_offset < batch[-1][0].end
        assert is_other or is_open or size_bytes > JOIN_SIZE_MAX_BYTES


def test_a_page_of_a_range_that_goes_on_is_given_at_once() -> None:
    """A reader that wants one row takes no page behind the first one that has it."""
    taken = []

    def fetched() -> Iterator[Fetched]:
        for at in range(10):
            taken.append(at)
            yield page_of(at, 1, is_last=at == 0)

    next(join_pages(fetched()))
    assert taken == [0, 1]


def test_an_error_comes_behind_the_pages_before_it() -> None:
    """Two small pages wait for more, then the read fails: both are given, and then the error."""

    def fetched() -> Iterator[Fetched]:
        yield from (page_of(0, 1), page_of(1, 1))
        raise OutcomeUnknown(reason="no answer")

    found = join_pages(fetched())
    assert len(next(found)) == 2
    with pytest.raises(OutcomeUnknown):
        next(found)
