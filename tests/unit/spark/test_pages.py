"""The page reader against a scripted proxy over real HTTP: it ends by offset, repeats what can be cured, and fails over."""

import threading
from collections.abc import Iterator

import pytest

from tern_spark import ProxyPages, read_options
from tern_spark.partition import TaskPartition
from tern_spark.ranges import TopicMadeAgain
from tern_spark.source import TernReader
from tern_wire.errors import NoLeader, NotAcceptable, OffsetExpired, OutcomeUnknown, TernError, TopicNotFound
from tests.support.client.record_server import Script, record_server, stored

NO_LEADER = (503, {"code": "no-leader", "broker_group": "broker-a", "retry_after_ms": 700})
READ_COLUMNS = ("queue_offset", "body")


@pytest.fixture
def proxy() -> Iterator[Script]:
    """A proxy with ten messages in queue broker-a:0 and none in broker-a:1."""
    rows = [stored(number, f"message {number}".encode()) for number in range(10)]
    with record_server(Script(queues={"broker-a:0": rows, "broker-a:1": []})) as script:
        yield script


def pages_of(*urls: str, retries: int = 4, pauses_s: list[float] | None = None) -> ProxyPages:
    """A page reader that notes its pauses instead of waiting."""
    pauses_s = [] if pauses_s is None else pauses_s
    return ProxyPages(urls, timeout_ms=5_000, retries=retries, retry_interval_ms=100, pause_s=pauses_s.append)


def read_all(script: Script, **options: str) -> list[int]:
    """Offsets that a whole read yields, partition by partition, without Spark."""
    given = read_options({"endpoint": script.url, "subscribe": "orders", "fetchRetryIntervalMs": "1", **options})
    reader = TernReader(given, READ_COLUMNS)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [offset for batch in batches for offset in batch.column("queue_offset").to_pylist()]


def test_spans_tell_what_every_queue_holds(proxy: Script) -> None:
    """One offsets call."""
    with pages_of(proxy.url) as pages:
        assert [(found.queue, found.min_offset, found.max_offset) for found in pages.spans("orders")] == [
            ("broker-a:0", 0, 10),
            ("broker-a:1", 0, 0),
        ]
    assert len(proxy.seen) == 1


@pytest.mark.parametrize("prefetch", ["0", "1", "2"])
@pytest.mark.parametrize("page_rows_max", [1, 3, 10, 11])
def test_a_read_yields_every_offset_once_whatever_the_pages(proxy: Script, page_rows_max: int, prefetch: str) -> None:
    """Pages of any length; the read ends at the planned end."""
    proxy.page_rows_max = page_rows_max
    assert read_all(proxy, prefetchPages=prefetch) == list(range(10))


def test_a_task_that_is_left_early_leaves_no_thread_and_asks_for_no_more(proxy: Script) -> None:
    """Spark drops the iterator of a task as soon as a limit is reached: pages of one row, of which one is taken."""
    proxy.page_rows_max = 1
    reader = TernReader(read_options({"endpoint": proxy.url, "subscribe": "orders"}), READ_COLUMNS)
    (part,) = reader.partitions()
    rows = reader.read(part)
    assert next(rows).column("queue_offset").to_pylist() == [0]
    rows.close()  # type: ignore[attr-defined]
    assert "ternmq-read-ahead" not in {thread.name for thread in threading.enumerate()}
    pulled = [path for path in proxy.seen if "/queues/" in path]
    assert len(pulled) <= 4  # the one taken, two ahead, and one under way


def test_failures_are_cured_beside_the_decoder_as_without_it(proxy: Script) -> None:
    """Each page's first request fails, in turn by no leader, a broken connection and a gateway."""
    proxy.page_rows_max = 4
    reader = TernReader(
        read_options({"endpoint": proxy.url, "subscribe": "orders", "fetchRetryIntervalMs": "1"}), READ_COLUMNS
    )
    (part,) = reader.partitions()
    proxy.faults = [(503, {"code": "no-leader", "broker_group": "broker-a"}), "drop", (504, {})]
    found = [offset for batch in reader.read(part) for offset in batch.column("queue_offset").to_pylist()]
    assert found == list(range(10))
    assert not proxy.faults


@pytest.mark.parametrize("rows_max", [1, 3, 4, 9])
def test_partitions_of_a_queue_join_without_gap_or_overlap(proxy: Script, rows_max: int) -> None:
    """maxRowsPerPartition cuts the queue; read together, the partitions are the queue."""
    assert read_all(proxy, maxRowsPerPartition=str(rows_max)) == list(range(10))


def test_messages_sent_after_planning_are_not_read(proxy: Script) -> None:
    """The end is frozen at planning: what comes later belongs to the next read."""
    reader = TernReader(read_options({"endpoint": proxy.url, "subscribe": "orders"}), READ_COLUMNS)
    parts = reader.partitions()
    proxy.queues["broker-a:0"].append(stored(10, b"late"))
    assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 10


def test_an_empty_topic_has_no_partitions_and_spark_s_own_empty_one_reads_nothing() -> None:
    """Spark turns an empty list of partitions into one of its own and reads that."""
    with record_server(Script(queues={"broker-a:0": []})) as script:
        reader = TernReader(read_options({"endpoint": script.url, "subscribe": "orders"}), READ_COLUMNS)
        assert reader.partitions() == []
        assert list(reader.read(None)) == []
        assert len(script.seen) == 1


def test_curable_failures_are_repeated_with_growing_pauses(proxy: Script) -> None:
    """No leader, a broken connection, a gateway's 504: the page comes in the end, and no pause is shorter than asked for."""
    proxy.faults = [NO_LEADER, "drop", (504, {})]
    pauses_s: list[float] = []
    with pages_of(proxy.url, pauses_s=pauses_s) as pages:
        assert pages.page("orders", "broker-a:0", 4, 10, 1 << 20).next_offset == 10
    assert pauses_s == [0.7, 0.2, 0.4]


def test_a_failure_that_lasts_is_raised_with_the_url_and_the_number_of_repeats(proxy: Script) -> None:
    """More faults than repeats."""
    proxy.faults = [NO_LEADER] * 3
    with pages_of(proxy.url, retries=2) as pages, pytest.raises(NoLeader) as failure:
        pages.spans("orders")
    assert failure.value.__notes__ == [f"GET {proxy.url}/v1/topics/orders/offsets, 2 repeats before"]
    assert len(proxy.seen) == 3


def test_a_failure_that_no_repeat_cures_is_raised_at_once(proxy: Script) -> None:
    """An unknown topic stays unknown."""
    proxy.faults = [(404, {"code": "topic-not-found", "topic": "orders"})]
    with pages_of(proxy.url) as pages, pytest.raises(TopicNotFound):
        pages.spans("orders")
    assert len(proxy.seen) == 1


def test_a_dead_proxy_is_left_for_the_next_one(proxy: Script) -> None:
    """The first endpoint refuses connections; the second serves the page."""
    with record_server(Script(queues={})) as gone:
        dead = gone.url
    with pages_of(dead, proxy.url) as pages:
        assert pages.page("orders", "broker-a:0", 0, 3, 1 << 20).next_offset == 3


def test_a_queue_shorter_than_planned_is_asked_again(proxy: Script) -> None:
    """A new leader that has not applied everything yet answers an empty page; that is not the end of the range."""
    with pages_of(proxy.url, retries=1) as pages, pytest.raises(OutcomeUnknown) as failure:
        pages.page("orders", "broker-a:0", 10, 12, 1 << 20)
    assert failure.value.fields["reason"] == "queue broker-a:0 of 'orders' ends at 10, 12 was planned"
    assert len(proxy.seen) == 2


def test_an_answer_that_is_no_page_of_records_is_refused(proxy: Script) -> None:
    """Something else than a TernMQ proxy answers 200 with a document of its own."""
    proxy.faults = [(200, {"welcome": "to nginx"})]
    with pages_of(proxy.url) as pages, pytest.raises(NotAcceptable):
        pages.page("orders", "broker-a:0", 0, 3, 1 << 20)


def test_offsets_deleted_during_the_read_fail_it_or_are_skipped(proxy: Script) -> None:
    """Retention removes offsets 0 to 3 between planning and reading."""
    for accepted, expected in (("true", []), ("false", [4, 5, 6, 7, 8, 9])):
        proxy.min_offset = 0
        given = read_options({"endpoint": proxy.url, "subscribe": "orders", "failOnDataLoss": accepted})
        reader = TernReader(given, READ_COLUMNS)
        (part,) = reader.partitions()
        assert isinstance(part, TaskPartition)
        proxy.min_offset = 4
        if accepted == "true":
            with pytest.raises(OffsetExpired, match="oldest one is 4"):
                list(reader.read(part))
        else:
            assert [row["queue_offset"] for batch in reader.read(part) for row in batch.to_pylist()] == expected


def test_a_topic_that_was_made_again_during_the_read_fails_it_or_is_told(
    proxy: Script, caplog: pytest.LogCaptureFixture
) -> None:
    """As many rows as before, of another topic: only the time when it was made tells. A task that began before fails, too."""
    for accepted in ("true", "false"):
        proxy.created_ms = 1
        given = read_options({"endpoint": proxy.url, "subscribe": "orders", "failOnDataLoss": accepted})
        reader = TernReader(given, READ_COLUMNS)
        (part,) = reader.partitions()

        def made_again(_: int) -> None:
            proxy.created_ms = 2

        proxy.before_page = made_again
        if accepted == "true":
            with pytest.raises(TopicMadeAgain, match="'orders' was deleted and made again"):
                list(reader.read(part))
        else:
            assert sum(batch.num_rows for batch in reader.read(part)) == 10
            assert "some rows are those of the new topic" in caplog.text


@pytest.mark.parametrize("code", [401, 403])
def test_a_key_that_is_revoked_during_the_read_ends_it_at_once(proxy: Script, code: int) -> None:
    """After the first page: the refusal is no failure that a repeat cures."""
    proxy.page_rows_max = 4
    given = read_options({"endpoint": proxy.url, "subscribe": "orders", "prefetchPages": "0"})
    reader = TernReader(given, READ_COLUMNS)
    (part,) = reader.partitions()
    found = reader.read(part)
    assert next(found).num_rows == 4
    seen = len(proxy.seen)
    proxy.faults = [(code, {"code": {401: "unauthenticated", 403: "forbidden"}[code], "reason": "the key is revoked"})]
    with pytest.raises(TernError) as refused:
        list(found)
    assert (refused.value.status, len(proxy.seen) - seen) == (code, 1)


def test_a_plan_is_never_read_beyond_its_end(proxy: Script) -> None:
    """Producers go on while tasks read: every task, first or repeated, ends where the plan does."""
    given = read_options({"endpoint": proxy.url, "subscribe": "orders", "minPartitions": "3"})
    reader = TernReader(given, READ_COLUMNS)
    parts = reader.partitions()
    rows = proxy.queues["broker-a:0"]
    proxy.before_page = lambda _: rows.append(stored(len(rows), b"late"))
    for _ in range(2):
        found = [offset for part in parts for batch in reader.read(part) for offset in batch.column(0).to_pylist()]
        assert found == list(range(10))
    assert len(rows) > 10


@pytest.mark.parametrize("knows_heads", [True, False])
def test_heads_are_asked_for_where_nobody_needs_more(proxy: Script, knows_heads: bool) -> None:
    """A proxy of the release before refuses that, once for each task, and sends whole records. Columns of the body need them."""
    proxy.knows_heads = knows_heads
    given = read_options({"endpoint": proxy.url, "subscribe": "orders"})
    asked: list[list[bool]] = []
    for columns in (("queue_offset", "store_size", "topic"), ("queue_offset", "keys")):
        del proxy.seen[:]
        reader = TernReader(given, columns)
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        assert [row["queue_offset"] for row in rows] == list(range(10))
        asked.append(["fields=heads" in path for path in proxy.seen if "/queues/" in path])
    assert asked == [[True] if knows_heads else [True, False], [False]]
