"""The stream's reader as Spark calls it, against a scripted proxy: begins, ends of batches, replay, progress. No Java."""

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from tern_spark import OptionError, read_options
from tern_spark.stream.offsets import CheckpointMismatch
from tern_spark.stream.reader import TernStreamReader
from tern_wire.errors import OffsetExpired
from tests.support.client.record_server import Script, record_server, stored

COLUMNS = ("queue_id", "queue_offset")
ALL = ReadAllAvailable()
# Readers of a test, to be stopped behind it.
OPENED: list[TernStreamReader] = []


@pytest.fixture
def proxy() -> Iterator[Script]:
    """Ten messages in queue broker-a:0 and four in broker-a:1."""
    queues = {f"broker-a:{queue}": rows_of(0, 10 - 6 * queue, queue) for queue in (0, 1)}
    with record_server(Script(queues=queues)) as script:
        yield script
        while OPENED:
            OPENED.pop().stop()


class Clock:
    """A clock that a test sets."""

    ms = 0

    def __call__(self) -> int:
        return self.ms


def rows_of(first: int, end: int, queue: int = 0) -> list[bytes]:
    """Messages with these offsets."""
    return [stored(number, b"x" * 50, queue=queue) for number in range(first, end)]


def reader_of(script: Script, clock: Clock | None = None, /, **options: str) -> TernStreamReader:
    """A reader from the beginning of the topic, if no option says otherwise."""
    given = {"endpoint": script.url, "subscribe": "orders", "startingOffsets": "earliest", **options}
    return opened(given, clock)


def opened(given: dict[str, str], clock: Clock | None = None) -> TernStreamReader:
    """A reader with these options alone."""
    OPENED.append(TernStreamReader(read_options(given, "stream"), COLUMNS, clock or Clock()))
    return OPENED[-1]


def queues_of(document: dict[str, Any]) -> dict[str, int]:
    """Offset by queue of an offsets document, which survives JSON as a checkpoint does it."""
    found: dict[str, int] = json.loads(json.dumps(document))["topics"]["orders"]["queues"]
    return found


def rows_read(reader: TernStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    """Queue and offset of every row of a batch, read by a reader that was pickled to a task."""
    worker = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in reader.partitions(start, end) for batch in worker.read(part)]
    return sorted((row["queue_id"], row["queue_offset"]) for batch in batches for row in batch.to_pylist())


def run(
    reader: TernStreamReader, start: dict[str, Any] | None = None
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Batches, as Spark asks for them, until there is none."""
    at = start or reader.initialOffset()
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        yield at, end
        at = end


def test_batches_cover_every_offset_once_and_the_limit_is_exact(proxy: Script) -> None:
    """14 rows in batches of 4."""
    reader = reader_of(proxy, maxRowsPerTrigger="4")
    batches = [rows_read(reader, start, end) for start, end in run(reader)]
    assert [len(batch) for batch in batches] == [4, 4, 4, 2]
    expected = [(0, at) for at in range(10)] + [(1, at) for at in range(4)]
    assert sorted(row for batch in batches for row in batch) == expected


def test_the_document_of_offsets_is_as_it_is_documented(proxy: Script) -> None:
    """Version, topics, their identity, the next offset of every queue."""
    reader = reader_of(proxy)
    assert reader.initialOffset() == {
        "version": 1,
        "topics": {"orders": {"created_at": 1, "queues": {"broker-a:0": 0, "broker-a:1": 0}}},
    }


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"version": 2, "topics": {}}, "offsets of version 2, and this release reads up to 1"),
        ({"orders": 5}, "no offsets of a 'ternmq' stream"),
    ],
)
def test_offsets_of_a_newer_release_or_another_source_are_refused(
    proxy: Script, document: dict[str, Any], says: str
) -> None:
    """One sentence that says what to do."""
    with pytest.raises(CheckpointMismatch, match=says):
        reader_of(proxy).latestOffset(document, ALL)


def test_a_stream_begins_at_the_end_and_that_does_not_move(proxy: Script) -> None:
    """`latest` is the default; the second call of initialOffset gives the first answer."""
    given = {"endpoint": proxy.url, "subscribe": "orders"}
    reader = opened(given)
    first = reader.initialOffset()
    proxy.queues["broker-a:0"] += rows_of(10, 12)
    assert queues_of(reader.initialOffset()) == queues_of(first) == {"broker-a:0": 10, "broker-a:1": 4}
    assert rows_read(reader, first, reader.latestOffset(first, ALL)) == [(0, 10), (0, 11)]


def test_a_group_pins_the_begin_at_the_broker(proxy: Script) -> None:
    """A restart before the first batch is committed begins where the first run did, though the end has moved."""
    first = queues_of(reader_of(proxy, group="billing", startingOffsets="latest").initialOffset())
    assert proxy.groups["billing"] == first == {"broker-a:0": 10, "broker-a:1": 4}
    proxy.queues["broker-a:0"] += rows_of(10, 12)
    assert queues_of(reader_of(proxy, group="billing", startingOffsets="latest").initialOffset()) == first


def test_two_queries_that_begin_at_once_begin_at_the_same_offsets(proxy: Script) -> None:
    """Another one commits between this one's look and its commit: its begin counts where it has one."""
    proxy.others["billing"] = {"broker-a:0": 3}
    found = queues_of(reader_of(proxy, group="billing", startingOffsets="latest").initialOffset())
    assert found == proxy.groups["billing"] == {"broker-a:0": 3, "broker-a:1": 4}


def test_a_group_that_has_begun_in_one_queue_begins_there(proxy: Script) -> None:
    """startingOffsets counts for the other queue, and is pinned there."""
    proxy.groups["billing"] = {"broker-a:0": 7}
    assert queues_of(reader_of(proxy, group="billing").initialOffset()) == {"broker-a:0": 7, "broker-a:1": 0}
    assert proxy.groups["billing"] == {"broker-a:0": 7, "broker-a:1": 0}


def test_progress_is_committed_for_every_batch_and_the_last(proxy: Script) -> None:
    """What `start` of latestOffset is behind has been processed; `commit` is not needed."""
    reader = reader_of(proxy, group="billing", maxRowsPerTrigger="10")
    seen = [(queues_of(start), dict(proxy.groups["billing"])) for start, _ in run(reader)]
    assert all(start == committed for start, committed in seen)
    assert proxy.groups["billing"] == {"broker-a:0": 10, "broker-a:1": 4}


def test_a_trigger_takes_one_request_and_one_more_if_there_is_progress_to_commit(proxy: Script) -> None:
    """The driver's calls."""
    reader = reader_of(proxy, group="billing", maxRowsPerTrigger="4")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(4))
    proxy.seen.clear()
    reader.latestOffset(end, ReadMaxRows(4))
    assert proxy.seen == ["/v1/topics/orders", "/v1/groups/billing/offsets"]


def test_a_replayed_batch_needs_no_earlier_call(proxy: Script) -> None:
    """A restart calls prepareForTriggerAvailableNow and partitions(start, end); the rows are those of the first run."""
    first = reader_of(proxy, maxRowsPerTrigger="5")
    start, end = next(run(first))
    rows = rows_read(first, start, end)
    proxy.queues["broker-a:0"] += rows_of(10, 40)
    second = reader_of(proxy, maxRowsPerTrigger="5")
    second.prepareForTriggerAvailableNow()
    assert rows_read(second, start, end) == rows


def test_a_new_queue_begins_at_its_first_message_also_in_a_replay(proxy: Script) -> None:
    """It is in `end` and not in `start`; where it began is in the document, so that a replay reads the same."""
    reader = reader_of(proxy)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    proxy.min_offset = 1
    proxy.queues["broker-b:0"] = rows_of(0, 3)
    end = reader.latestOffset(start, ALL)
    proxy.min_offset = 0
    assert end["topics"]["orders"]["began"] == {"broker-b:0": 1}
    for again in (reader, reader_of(proxy)):
        assert rows_read(again, start, end) == [(0, 1), (0, 2)]


def test_an_idle_trigger_returns_its_start(proxy: Script) -> None:
    """Also when an empty queue has appeared: an equal document is no batch."""
    reader = reader_of(proxy)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    proxy.queues["broker-b:0"] = []
    assert reader.latestOffset(end, ALL) == end
    assert reader.partitions(end, end) == []


def test_available_now_ends_where_the_topic_ended_when_it_began(proxy: Script) -> None:
    """Messages and queues that come later belong to the next run."""
    reader = reader_of(proxy, maxRowsPerTrigger="6", minRowsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    total = 0
    for start, end in run(reader):
        total += len(rows_read(reader, start, end))
        proxy.queues["broker-a:0"] += rows_of(len(proxy.queues["broker-a:0"]), len(proxy.queues["broker-a:0"]) + 3)
        proxy.queues["broker-b:0"] = rows_of(0, 3)
    assert total == 14


def test_all_available_is_read_whatever_the_options_limit(proxy: Script) -> None:
    """Trigger.Once and its like: the limit that Spark gives counts."""
    reader = reader_of(proxy, maxRowsPerTrigger="2")
    start = reader.initialOffset()
    assert queues_of(reader.latestOffset(start, ALL)) == {"broker-a:0": 10, "broker-a:1": 4}


def test_the_default_limit_is_that_of_the_options(proxy: Script) -> None:
    """Spark passes it back to latestOffset."""
    limits = [
        reader_of(proxy, **options).getDefaultReadLimit()
        for options in ({"maxRowsPerTrigger": "5"}, {"maxBytesPerTrigger": "6"}, {"minRowsPerTrigger": "7"}, {})
    ]
    assert limits == [ReadMaxRows(5), ReadMaxBytes(6), ReadMinRows(7), ReadAllAvailable()]


@pytest.mark.parametrize(
    ("admission", "size_max_bytes"),
    [
        *((name, size) for name in ("proportional", "even") for size in (1, 300, 1_000, 2_500, 100_000)),
        *(("oldest", 1_000), ("aligned", 1_000)),
    ],
)
def test_a_limit_of_bytes_is_exact_whatever_the_sizes(proxy: Script, admission: str, size_max_bytes: int) -> None:
    """Small and large bodies in turn: no batch is larger, but for a single message, and all are read once."""
    for queue, records in proxy.queues.items():
        bodies = [b"x" * (10 if at % 3 else 900) for at in range(len(records))]
        proxy.queues[queue] = [stored(at, body, queue=int(queue[-1])) for at, body in enumerate(bodies)]
    clock = Clock()
    clock.ms = 60_000
    reader = reader_of(proxy, clock, maxBytesPerTrigger=str(size_max_bytes), admission=admission)
    seen: list[tuple[int, int]] = []
    for start, end in run(reader):
        rows = rows_read(reader, start, end)
        sizes = [len(proxy.queues[f"broker-a:{queue}"][offset]) for queue, offset in rows]
        assert sum(sizes) <= size_max_bytes or len(rows) == 1
        seen += rows
    assert sorted(seen) == [(0, at) for at in range(10)] + [(1, at) for at in range(4)]


def test_tasks_are_split_by_the_stored_bytes(proxy: Script) -> None:
    """maxBytesPerPartition: 600 rows of about 500 bytes in parts of at most 65,536."""
    proxy.queues = {"broker-a:0": [stored(at, b"x" * 400) for at in range(600)]}
    reader = reader_of(proxy, maxBytesPerPartition="65536")
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ALL))
    sizes = [sum(map(len, proxy.queues["broker-a:0"][each.start : each.end])) for part in parts for each in part.ranges]
    assert len(sizes) == -(-sum(sizes) // 65_536)
    assert max(sizes) <= 65_536


def test_a_small_batch_is_held_until_the_delay_is_over(proxy: Script) -> None:
    """minRowsPerTrigger: the first batch comes at once, the next one when 5 rows wait or 10 s are over."""
    clock = Clock()
    reader = reader_of(proxy, clock, minRowsPerTrigger="5", maxTriggerDelay="10s")
    limit = reader.getDefaultReadLimit()
    at = reader.latestOffset(reader.initialOffset(), limit)
    proxy.queues["broker-a:0"] += rows_of(10, 14)
    clock.ms = 9_999
    assert reader.latestOffset(at, limit) == at
    clock.ms = 10_000
    later = reader.latestOffset(at, limit)
    assert queues_of(later)["broker-a:0"] == 14
    proxy.queues["broker-a:0"] += rows_of(14, 19)
    assert queues_of(reader.latestOffset(later, limit))["broker-a:0"] == 19


@pytest.mark.parametrize(
    ("strategy", "taken"),
    [
        ("proportional", {"broker-a:0": 4, "broker-a:1": 2}),
        ("even", {"broker-a:0": 3, "broker-a:1": 3}),
        ("oldest", {"broker-a:0": 3, "broker-a:1": 3}),
        ("aligned", {"broker-a:0": 3, "broker-a:1": 3}),
    ],
)
def test_admission_is_the_option_s(proxy: Script, strategy: str, taken: dict[str, int]) -> None:
    """Six of 14 rows; record N of each queue was stored at second N."""
    clock = Clock()
    clock.ms = 60_000
    reader = reader_of(proxy, clock, admission=strategy)
    assert queues_of(reader.latestOffset(reader.initialOffset(), ReadMaxRows(6))) == taken


def test_lag_is_the_distance_from_the_reported_ends(proxy: Script) -> None:
    """reportLatestOffset has the ends that the trigger found, and asks nobody."""
    reader = reader_of(proxy)
    assert reader.reportLatestOffset() is None
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(4))
    proxy.seen.clear()
    assert queues_of(reader.reportLatestOffset() or {}) == {"broker-a:0": 10, "broker-a:1": 4}
    assert proxy.seen == []


def test_a_topic_that_was_made_again_ends_the_stream_or_is_read_from_its_begin(proxy: Script) -> None:
    """The same name and as many offsets: only its identity tells."""
    start = reader_of(proxy).latestOffset(reader_of(proxy).initialOffset(), ALL)
    proxy.created_ms = 2
    with pytest.raises(CheckpointMismatch, match="Topic 'orders' was deleted and made again"):
        reader_of(proxy).latestOffset(start, ALL)
    reader = reader_of(proxy, failOnDataLoss="false", group="billing")
    end = reader.latestOffset(start, ALL)
    assert len(rows_read(reader, start, end)) == 14
    assert "billing" not in proxy.groups  # offsets of the old topic are not committed in the new one


def test_a_deleted_topic_ends_the_stream(proxy: Script) -> None:
    """By its name."""
    reader = reader_of(proxy)
    start = reader.initialOffset()
    proxy.created_ms = 0
    with pytest.raises(CheckpointMismatch, match="Topic 'orders', which the stream reads, was deleted"):
        reader.latestOffset(start, ALL)


def test_a_pattern_finds_topics_as_they_come(proxy: Script) -> None:
    """At first there is none; a topic that goes keeps its place."""
    proxy.created_ms = 0
    given = {"endpoint": proxy.url, "subscribePattern": "ord.*", "startingOffsets": "latest"}
    reader = opened(given)
    start = reader.initialOffset()
    assert start == {"version": 1, "topics": {}}
    proxy.created_ms = 1
    end = reader.latestOffset(start, ALL)
    assert len(rows_read(reader, start, end)) == 14
    proxy.created_ms = 0
    assert reader.latestOffset(end, ALL) == end


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"startingOffsets": '{"orders": {"broker-a:0": 11, "broker-a:1": 0}}'}, OptionError, "11 is beyond the end"),
        ({"startingOffsets": '{"orders": {"broker-a:0": 1}}'}, OptionError, "lacks broker-a:1"),
        ({"startingOffsets": '{"orders": {"broker-a:0": 1, "broker-a:1": 3}}'}, OffsetExpired, "oldest one is 3"),
        ({"startingTimestamp": "9000"}, OptionError, "queue broker-a:1 of topic 'orders' has no message from then on"),
    ],
)
def test_a_begin_that_is_not_there_is_refused(
    proxy: Script, options: dict[str, str], error: type[Exception], says: str
) -> None:
    """In the driver, before any task."""
    proxy.min_offset = 3 if error is OffsetExpired else 0
    with pytest.raises(error, match=says):
        reader_of(proxy, **options).initialOffset()


def test_rows_that_were_deleted_before_a_task_read_them_are_counted(
    proxy: Script, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention overtakes a planned batch: it fails by the queue's name, or says in one warning what it skipped."""
    for accepted in ("true", "false"):
        proxy.min_offset = 0
        reader = reader_of(proxy, failOnDataLoss=accepted)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        proxy.min_offset = 3
        if accepted == "true":
            with pytest.raises(OffsetExpired) as failure:
                rows_read(reader, start, end)
            assert "Queue broker-a:0 of topic 'orders': offset 0 of the planned range 0 to 10" in str(
                failure.value.__notes__
            )
        else:
            assert len(rows_read(reader, start, end)) == 8
            (warning,) = caplog.records
            assert "6 messages were deleted before they were read" in warning.getMessage()


def test_a_stream_by_seconds_ago_begins_there(proxy: Script) -> None:
    """`-5s` at second 10: record 5 on, and the end of the queue that has none."""
    clock = Clock()
    clock.ms = 10_000
    found = queues_of(reader_of(proxy, clock, startingOffsets="-5s").initialOffset())
    assert found == {"broker-a:0": 5, "broker-a:1": 4}
