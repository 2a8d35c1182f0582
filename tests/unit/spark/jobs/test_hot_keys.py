"""The hottest keys of a backlog: which blocks of it are read, and that a summary of bounded size counts no key too high and misses no hot one."""

from argparse import Namespace
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tern_jobs.lag_job import keys_by_topic
from tern_jobs.reports.hot_keys import (
    BLOCK_ROWS_MAX,
    SAMPLE_BLOCKS_MAX,
    KeyCounts,
    count_keys,
    keys_of,
    sample,
)
from tern_jobs.reports.lags import GroupLag, QueueLag, Sample, TopicLag, fresh_ranges, trends
from tern_spark import read_options
from tern_spark.ranges import QueueRange
from tests.support.client.record_server import Script, record_server, stored

SIZES = st.lists(st.integers(0, 60_000), min_size=1, max_size=400)


def ranges_of(sizes: list[int]) -> list[QueueRange]:
    """A queue of each size, each from another offset on."""
    return [
        QueueRange(topic="orders", queue=f"broker-a:{number}", start=number, end=number + rows)
        for number, rows in enumerate(sizes)
    ]


def offsets(ranges: list[QueueRange]) -> list[tuple[str, int]]:
    """Every row of *ranges*."""
    return [(found.queue, at) for found in ranges for at in range(found.start, found.end)]


@example(
    sizes=[BLOCK_ROWS_MAX - 7] * (SAMPLE_BLOCKS_MAX + 2)
)  # more blocks than allowed, with fewer rows than they may have
@given(sizes=SIZES)
def test_a_sample_is_bounded_and_lies_in_the_backlog(sizes: list[int]) -> None:
    """However many queues and rows there are: so many blocks of so many rows at most, no row twice, each in its queue."""
    ranges = ranges_of(sizes)
    blocks = sample(ranges)
    assert len(blocks) <= SAMPLE_BLOCKS_MAX and all(0 < block.rows <= BLOCK_ROWS_MAX for block in blocks)
    found = offsets(blocks)
    assert len(set(found)) == len(found)
    by_queue = {each.queue: each for each in ranges}
    assert all(by_queue[each.queue].start <= each.start < each.end <= by_queue[each.queue].end for each in blocks)
    assert bool(blocks) == any(sizes)


@given(sizes=st.lists(st.integers(0, 600), min_size=1, max_size=20))
def test_a_small_backlog_is_read_whole(sizes: list[int]) -> None:
    """Every row once."""
    assert offsets(sample(ranges_of(sizes))) == offsets(ranges_of(sizes))


def test_a_queue_with_a_tenth_of_the_rows_has_a_tenth_of_the_sample() -> None:
    """Of two queues of 900,000 and 100,000 rows."""
    blocks = sample(ranges_of([900_000, 100_000]))
    rows = Counter({"broker-a:0": 0, "broker-a:1": 0})
    for block in blocks:
        rows[block.queue] += block.rows
    assert rows.total() == SAMPLE_BLOCKS_MAX * BLOCK_ROWS_MAX
    assert rows["broker-a:1"] / rows.total() == pytest.approx(0.1, abs=0.01)


@given(batches=st.lists(st.lists(st.none() | st.integers(0, 60), max_size=80), max_size=8), held=st.integers(1, 20))
def test_a_summary_counts_no_key_too_high_and_misses_no_hot_one(batches: list[list[int | None]], held: int) -> None:
    """Against exact counts, with room for few keys."""
    counts, exact = KeyCounts(held), Counter[str]()
    for batch in batches:
        keys = [None if key is None else f"k{key}" for key in batch]
        counts.add(pa.array(keys, pa.string()))
        exact.update(key for key in keys if key)
    told = dict(counts.top(1_000))
    assert len(told) <= 2 * held
    assert counts.rows == sum(map(len, batches))
    assert counts.too_low <= exact.total() // (held + 1)
    for key, count in exact.items():
        assert count - counts.too_low <= told.get(key, 0) <= count


def test_each_key_of_a_message_counts_and_a_message_without_one_is_no_key() -> None:
    """Keys are joined by a blank."""
    counts = KeyCounts()
    counts.add(pa.array(["a b", "a", None, "", "b a"], pa.string()))
    assert (counts.top(5), counts.rows, counts.too_low) == ([("a", 3), ("b", 2)], 5, 0)


def test_what_retention_has_deleted_meanwhile_is_not_counted() -> None:
    """The first of three blocks of 100."""
    found = count_keys(ranges_of([300]), lambda block: pa.array(["k"] * block.rows) if block.start else None)
    assert (found.rows, found.top(1)) == (200, [("k", 200)])


def test_keys_come_from_the_proxies_as_many_requests_as_blocks() -> None:
    """One queue of 1,000 messages of which every third has the key `hot`, over real HTTP."""
    rows = [stored(at, b"x", {"KEYS": "hot" if at % 3 == 0 else f"k{at}"}) for at in range(1_000)]
    with record_server(Script(queues={"broker-a:0": rows})) as script:
        options = read_options({"endpoint": script.url, "subscribe": "orders"})
        found = keys_of([QueueRange(topic="orders", queue="broker-a:0", start=0, end=1_000)], options)
        assert (found.rows, found.top(1)) == (1_000, [("hot", 334)])
        assert len(script.seen) == 8
        script.min_offset = 600
        gone = keys_of([QueueRange(topic="orders", queue="broker-a:0", start=0, end=1_000)], options)
    assert 0 < gone.rows <= 400


def test_what_waits_or_has_just_come_is_looked_at() -> None:
    """A queue with lag, one that was read while it grew, one at rest, and a new one."""

    def at(time_ms: int, queues: dict[str, tuple[int, int]]) -> Sample:
        found = [QueueLag(name, max_offset=end, lag=lag, lag_ms=0) for name, (end, lag) in queues.items()]
        return Sample(time_ms, [GroupLag("billing", 0, 0, 0, [TopicLag("orders", found)])])

    samples = [
        at(0, {"a": (10, 4), "b": (10, 0), "c": (10, 0)}),
        at(1, {"a": (12, 5), "b": (15, 0), "c": (10, 0), "d": (3, 3)}),
    ]
    found = {each.queue: (each.start, each.end) for each in fresh_ranges(samples, "billing", "orders")}
    assert found == {"a": (7, 12), "b": (10, 15), "c": (10, 10), "d": (0, 3)}
    assert fresh_ranges(samples, "billing", "payments") == []


def test_keys_that_may_not_be_read_are_told_and_the_others_are_there() -> None:
    """Lag may be seen by those who may not read; of two topics the first one's pages are refused."""
    rows = [stored(at, b"x", {"KEYS": "hot"}) for at in range(3)]
    queue = QueueLag("broker-a:0", max_offset=3, lag=3, lag_ms=0)
    found = [GroupLag("billing", 6, 0, 0, [TopicLag(topic, [queue]) for topic in ("orders", "payments")])]
    with record_server(Script(queues={"broker-a:0": rows})) as script:
        script.faults = [(403, {"code": "forbidden", "required_permission": "SUB of topic 'orders'"})]
        given = Namespace(endpoint=script.url, key_file=None, ca_file=None)
        keys, refused = keys_by_topic(trends([Sample(0, found)]), [Sample(0, found)], given)
        assert len(script.seen) == 2
    assert {name: counts.top(1) for name, counts in keys.items()} == {("billing", "payments"): [("hot", 3)]}
    assert refused.startswith("orders: This needs SUB of topic 'orders'")
