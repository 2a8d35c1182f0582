"""`rollup`: sums by topic, tag and minute, and percentiles that are right to 1.6 %."""

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_jobs.reports.latencies import bucket_of, bucket_top_ms, percentile_ms
from tests.support.client.job_runs import run, stored_on
from tests.support.client.record_server import Script, record_server

MINUTE_MS = 60_000
DAY_MINUTES = 20_000 * 1_440


def born(number: int) -> int:
    """When `stored` says that message *number* was born."""
    return number * 1_000


@pytest.fixture
def script() -> Iterator[Script]:
    """One queue: 40 messages in two minutes, even ones red, the latency is 7 ms and in the second minute 3,000 ms."""
    rows = [
        stored_on(at, b"12345", born(at) + (7 if at < 30 else 3_000), None if at % 2 else {"TAGS": "red"})
        for at in (*range(30), *range(60, 70))
    ]
    with record_server(Script(queues={"broker-a:0": rows}, page_rows_max=8)) as served:
        yield served


@pytest.mark.parametrize("rows_per_task", ["1", "9", "1000"])
def test_counts_bytes_and_latencies_by_tag_and_minute(script: Script, rows_per_task: str) -> None:
    """However the topic is divided into tasks."""
    ended = run("rollup", script, "--topics", "orders", "--rows-per-task", rows_per_task)
    assert (ended.code, ended.facts["messages"]) == (0, 40)
    (table,) = ended.result["tables"]
    assert [list(row.values())[:4] + list(row.values())[5:] for row in table["rows"]] == [
        ["orders", "", "1970-01-01T00:00Z", 15, 7, 7, 7, 7],
        ["orders", "", "1970-01-01T00:01Z", 5, 3_007, 3_007, 3_007, 3_007],
        ["orders", "red", "1970-01-01T00:00Z", 15, 7, 7, 7, 7],
        ["orders", "red", "1970-01-01T00:01Z", 5, 3_007, 3_007, 3_007, 3_007],
    ]
    assert sum(row["stored_bytes"] for row in table["rows"]) == sum(map(len, script.queues["broker-a:0"]))


def test_a_slow_minute_is_a_fault_where_a_limit_is_given(script: Script) -> None:
    """Two rows of the second minute."""
    ended = run("rollup", script, "--topics", "orders", "--latency-max-ms", "1000")
    assert (ended.code, len(ended.faults)) == (1, 2)
    assert "tag 'red', 1970-01-01T00:01Z: 99 % of the messages took up to 3007 ms, 1000 are allowed" in ended.faults[1]


def test_an_empty_topic_has_no_rows() -> None:
    """Nothing to read, nothing to sum up."""
    with record_server(Script(queues={"broker-a:0": []})) as script:
        ended = run("rollup", script, "--topics", "orders")
    assert (ended.code, ended.result["tables"][0]["rows"]) == (0, [])


@given(st.lists(st.integers(-5, 10**10), min_size=1, max_size=50), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_that_of_the_sorted_latencies(latencies_ms: list[int], share: float) -> None:
    """Exact below 1,024 ms; above at most 1/64 too high, never too low."""
    counts = Counter(bucket_of(np.array(latencies_ms, np.int64)).tolist())
    ordered = sorted(max(latency, 0) for latency in latencies_ms)
    exact = ordered[max(math.ceil(len(ordered) * share), 1) - 1]
    found = percentile_ms(counts, share)
    assert exact <= found <= exact * (1 if exact < 1_024 else 1 + 1 / 64)


def test_buckets_are_in_the_order_of_latencies_and_join() -> None:
    """The top of each bucket is in it, and the next millisecond is in the next bucket."""
    for bucket in range(1_500):
        top = bucket_top_ms(bucket)
        assert bucket_of(np.array([top, top + 1])).tolist() == [bucket, bucket + 1]
