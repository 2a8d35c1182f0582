"""Small batches that the driver reads: through PySpark's own protocol, and every case that is left to a task. No Java."""

import io
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.serializers import read_int, write_with_length
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from tern_spark import read_options
from tern_spark.source import TernSource
from tern_spark.stream.reader import TernStreamReader
from tern_spark.stream.small_batches import PASSED_OVER, RANGES_MAX, SIZE_MAX_BYTES
from tern_wire.errors import OffsetExpired
from tests.support.client.record_server import Script, record_server, stored

SCHEMA = StructType([StructField("queue_id", IntegerType()), StructField("queue_offset", LongType())])
ALL = ReadAllAvailable()
WANTED = [(0, at) for at in range(10)] + [(1, at) for at in range(4)]
# Readers of a test, to be stopped behind it.
OPENED: list[TernStreamReader] = []
Batch = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture
def proxy() -> Iterator[Script]:
    """Ten messages in queue broker-a:0 and four in broker-a:1."""
    queues = {
        f"broker-a:{queue}": [stored(at, b"x" * 50, queue=queue) for at in range(10 - 6 * queue)] for queue in (0, 1)
    }
    with record_server(Script(queues=queues)) as script:
        yield script
        while OPENED:
            OPENED.pop().stop()


def reader_of(script: Script, *columns: str, **options: str) -> TernStreamReader:
    """A reader from the beginning of the topic."""
    given = {"endpoint": script.url, "subscribe": "orders", "startingOffsets": "earliest", **options}
    OPENED.append(TernStreamReader(read_options(given, "stream"), columns or ("queue_id", "queue_offset")))
    return OPENED[-1]


def all_of(reader: TernStreamReader) -> Batch:
    """One batch with everything that there is."""
    start = reader.initialOffset()
    return start, reader.latestOffset(start, ALL)


def planned(reader: TernStreamReader, batch: Batch) -> tuple[list[Any], list[tuple[int, int]] | None]:
    """The partitions that PySpark gets from the reader, and the rows that it sends with them; None: tasks read them."""
    request, answer = io.BytesIO(), io.BytesIO()
    for offsets in batch:
        write_with_length(json.dumps(offsets).encode(), request)
    request.seek(0)
    runner.partitions_func(reader, TernSource({}), SCHEMA, 10_000, request, answer)
    answer.seek(0)
    partitions = [pickle.loads(answer.read(read_int(answer))) for _ in range(read_int(answer))]
    if (kind := read_int(answer)) == runner.PREFETCHED_RECORDS_NOT_FOUND:
        return partitions, None
    if kind == runner.EMPTY_PYARROW_RECORD_BATCHES:
        return partitions, []
    read_int(answer)
    with pa.ipc.open_stream(answer) as stream:
        table = stream.read_all()
    return partitions, sorted((row["queue_id"], row["queue_offset"]) for row in table.to_pylist())


def read_by_tasks(reader: TernStreamReader, partitions: list[Any]) -> list[tuple[int, int]]:
    """The rows that tasks read, with a reader of their own."""
    worker = pickle.loads(pickle.dumps(reader))
    rows = [row for part in partitions for batch in worker.read(part) for row in batch.to_pylist()]
    return sorted((row["queue_id"], row["queue_offset"]) for row in rows)


def test_rows_come_with_the_partition_and_are_those_a_task_would_read(proxy: Script) -> None:
    """Both at once, because a block that Spark loses is read by a task; and the reader has limits and lag before and behind."""
    reader = reader_of(proxy)
    batch = all_of(reader)
    for _ in range(3):  # a batch may be planned again
        partitions, rows = planned(reader, batch)
        assert (rows, read_by_tasks(reader, partitions)) == (WANTED, WANTED)
        assert not isinstance(reader, _SimpleStreamReaderWrapper)
    flags = io.BytesIO()
    runner.check_support_func(reader, flags)
    flags.seek(0)
    assert read_int(flags) == runner.SUPPORTS_ADMISSION_CONTROL | runner.SUPPORTS_TRIGGER_AVAILABLE_NOW
    assert reader.reportLatestOffset() is not None


def test_a_reader_travels_to_a_task_even_while_it_has_rows(proxy: Script) -> None:
    """Rows and class stay in the driver."""
    reader = reader_of(proxy)
    reader.partitions(*all_of(reader))
    assert isinstance(reader, _SimpleStreamReaderWrapper)
    assert type(pickle.loads(pickle.dumps(reader))) is TernStreamReader


def test_a_batch_in_which_a_filter_finds_nothing_has_no_rows(proxy: Script) -> None:
    """It is read all the same; an empty batch is another thing than one that tasks have to read."""
    proxy.queues = {"broker-a:0": [stored(0, b"")]}
    reader = reader_of(proxy)
    batch = all_of(reader)
    proxy.selects_nothing = True
    assert planned(reader, batch)[1] == []


@pytest.mark.parametrize(("option", "rows"), [("14", WANTED), ("13", None), ("0", None)])
def test_the_option_is_the_most_rows_that_the_driver_reads(
    proxy: Script, option: str, rows: list[tuple[int, int]] | None
) -> None:
    """14 rows; whoever reads them, they are the same."""
    reader = reader_of(proxy, maxDriverRows=option)
    partitions, found = planned(reader, all_of(reader))
    assert (found, read_by_tasks(reader, partitions)) == (rows, WANTED)


@pytest.mark.parametrize(("ranges", "is_read"), [(RANGES_MAX, True), (RANGES_MAX + 1, False)])
def test_a_batch_of_many_queues_is_left_to_the_task(proxy: Script, ranges: int, is_read: bool) -> None:
    """A row each; each queue is a request, and the planning of a trigger does not wait for hundreds of them."""
    proxy.queues = {f"broker-a:{queue}": [stored(0, b"", queue=queue)] for queue in range(ranges)}
    reader = reader_of(proxy)
    batch = all_of(reader)
    proxy.seen.clear()
    partitions, rows = planned(reader, batch)
    assert (len(partitions), rows is not None) == (1, is_read)
    assert bool(proxy.seen) == is_read


def test_a_batch_of_several_tasks_is_theirs(proxy: Script) -> None:
    """Whoever asks for parallel tasks gets them."""
    reader = reader_of(proxy, minPartitions="2")
    partitions, rows = planned(reader, all_of(reader))
    assert (len(partitions), rows) == (2, None)


@pytest.mark.parametrize("fault", ["drop", (503, {"code": "group-unavailable"})])
def test_whatever_goes_wrong_is_left_to_the_task(proxy: Script, fault: Any) -> None:
    """One request and no repeat; the next batches are left to tasks, too, and then the driver reads again."""
    reader = reader_of(proxy)
    batch = all_of(reader)
    proxy.faults.append(fault)
    proxy.seen.clear()
    partitions, rows = planned(reader, batch)
    assert (rows, len(proxy.seen)) == (None, 1)
    assert read_by_tasks(reader, partitions) == WANTED
    assert [planned(reader, batch)[1] for _ in range(PASSED_OVER)] == [None] * PASSED_OVER
    assert planned(reader, batch)[1] == WANTED


def test_a_batch_of_large_rows_is_left_to_the_task(proxy: Script) -> None:
    """The driver holds at most 8 MiB and one page: of forty rows of a mebibyte it reads a few."""
    proxy.queues = {"broker-a:0": [stored(at, bytes(1 << 20)) for at in range(40)]}
    reader = reader_of(proxy, "body")
    batch = all_of(reader)
    proxy.seen.clear()
    assert reader.partitions(*batch) and type(reader) is TernStreamReader
    assert len([path for path in proxy.seen if "/messages" in path]) <= SIZE_MAX_BYTES // (3 << 20) + 1


def test_deleted_rows_fail_the_task_as_ever(proxy: Script) -> None:
    """The plan succeeds, and the error says topic, queue and offset."""
    reader = reader_of(proxy)
    batch = all_of(reader)
    proxy.min_offset = 3
    partitions, rows = planned(reader, batch)
    assert rows is None
    with pytest.raises(OffsetExpired):
        read_by_tasks(reader, partitions)


def test_a_topic_that_is_made_again_meanwhile_is_left_to_the_task(proxy: Script) -> None:
    """The task asks when the topic was made, and fails the query."""
    reader = reader_of(proxy)
    batch = all_of(reader)
    proxy.created_ms = 2
    assert planned(reader, batch)[1] is None
