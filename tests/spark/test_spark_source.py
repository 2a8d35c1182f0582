"""The source inside a real Spark session, against a scripted proxy over real HTTP: what only Spark itself can show."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.record_server import Script, record_server, stored

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tern_spark import row_schema
from tern_spark.session import java_command

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(java_command(os.environ) is None, reason="Spark needs Java"),
    # PySpark's own: unclosed sockets of its gateway, and warnings about the pandas and Python it will need one day.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(600),
]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def proxy() -> Iterator[Script]:
    """Two queues with 300 and 200 messages, in pages of 64."""
    queues = {
        f"broker-a:{queue}": [
            stored(number, f"{queue}/{number}".encode(), {"TAGS": "red", "size": "L"}, queue=queue)
            for number in range(300 - 100 * queue)
        ]
        for queue in (0, 1)
    }
    with record_server(Script(queues=queues, page_rows_max=64)) as script:
        yield script


def read(spark: Any, script: Script, schema: str = "", **options: str) -> Any:
    """A DataFrame over the scripted topic."""
    reader = spark.read.format("ternmq").option("endpoint", script.url).option("subscribe", "orders")
    reader = reader.schema(schema) if schema else reader
    return reader.options(**options).load()


def test_every_row_arrives_once_with_all_its_columns(spark: Any, proxy: Script) -> None:
    """Read the whole topic: 500 distinct (queue, offset), the documented schema, and the values of one row."""
    frame = read(spark, proxy)
    assert frame.schema.simpleString() == f"struct<{row_schema().replace(' ', ':').replace(',:', ',')}>"
    rows = frame.collect()
    assert len({(row.queue_id, row.queue_offset) for row in rows}) == len(rows) == 500
    row = next(row for row in rows if (row.queue_id, row.queue_offset) == (1, 150))
    assert (row.topic, row.broker, row.message_id) == ("orders", "broker-a", "id-1-150")
    assert (bytes(row.body), row.tags, row.keys, row.properties) == (b"1/150", "red", None, {"size": "L"})
    assert frame.selectExpr("unix_millis(born_ts)").where("queue_id = 1 and queue_offset = 150").first()[0] == 150_000


def test_a_subset_schema_reads_those_columns_only(spark: Any, proxy: Script) -> None:
    """`.schema(...)` is the projection: columns in the order asked for."""
    frame = read(spark, proxy, "queue_offset bigint, queue_id int")
    assert frame.columns == ["queue_offset", "queue_id"]
    assert frame.groupBy("queue_id").count().orderBy("queue_id").collect() == [(0, 300), (1, 200)]


def test_ranges_are_frozen_once_for_all_actions_on_a_frame(spark: Any, proxy: Script) -> None:
    """Two actions on one frame, messages added between them: both see the same rows. A new frame sees the new ones."""
    frame = read(spark, proxy, "queue_offset bigint")
    assert frame.count() == 500
    proxy.queues["broker-a:1"].append(stored(200, b"late", queue=1))
    assert frame.count() == 500
    assert read(spark, proxy, "queue_offset bigint").count() == 501


def test_options_reach_the_plan(spark: Any, proxy: Script) -> None:
    """An offset document and maxRowsPerPartition: exactly that range, in that many tasks."""
    starting = '{"orders": {"broker-a:0": 100, "broker-a:1": -1}}'
    frame = read(spark, proxy, "queue_offset bigint", startingOffsets=starting, maxRowsPerPartition="50")
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row[0] for row in frame.collect()) == list(range(100, 300))


def test_an_empty_topic_is_a_frame_without_rows(spark: Any) -> None:
    """No partitions at all: Spark's own empty partition is read as nothing."""
    with record_server(Script(queues={"broker-a:0": []})) as script:
        assert read(spark, script).collect() == []


def test_a_failed_task_is_tried_again_and_counts_nothing_twice(spark: Any, proxy: Script) -> None:
    """Without own repeats a broken connection fails the task; Spark repeats it, and the rows are the same."""
    frame = read(spark, proxy, "queue_id int, queue_offset bigint", fetchRetries="0", minPartitions="2")
    assert frame.rdd.getNumPartitions() == 2  # planned, so that the faults below meet tasks
    proxy.faults = ["drop", "drop"]
    assert frame.distinct().count() == 500


@pytest.mark.parametrize(
    ("options", "schema", "says"),
    [
        ({"startingOffset": "earliest"}, "", "did you mean 'startingOffsets'"),
        ({}, "queue_offset int", "column 'queue_offset' is bigint"),
        ({}, "offset bigint", "nearest is 'queue_offset'"),
    ],
)
def test_mistakes_are_answered_in_the_words_of_the_source(
    spark: Any, proxy: Script, options: dict[str, str], schema: str, says: str
) -> None:
    """Spark passes our sentence on to the user."""
    with pytest.raises(Exception, match=says):
        read(spark, proxy, schema, **options).collect()


def test_sql_can_query_a_topic(spark: Any, proxy: Script) -> None:
    """CREATE TEMPORARY VIEW ... USING ternmq, and a GROUP BY."""
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING ternmq OPTIONS (endpoint '{proxy.url}', subscribe 'orders')"
    )
    assert spark.sql("SELECT tags, count(*) FROM orders GROUP BY tags").collect() == [("red", 500)]


def test_sql_can_query_a_view(spark: Any, proxy: Script) -> None:
    """A table of queues, without naming a topic; `.schema(...)` and mistakes as for messages."""
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW queues USING ternmq OPTIONS (endpoint '{proxy.url}', view 'queues')")
    assert spark.sql("SELECT count(*), sum(messages) FROM queues").collect() == [(2, 500)]
    view = spark.read.format("ternmq").option("endpoint", proxy.url).option("view", "queues")
    assert view.schema("messages bigint").load().columns == ["messages"]
    with pytest.raises(Exception, match="'lag' is not a column of view 'queues'"):
        view.schema("lag bigint").load().collect()


def test_workers_are_reached_over_unix_sockets(spark: Any) -> None:
    """The settings of our folder are in force: over TCP each task waits some 40 ms, and Java's temporary folder may have too long a path."""
    settings = spark.sparkContext.getConf()
    assert settings.get("spark.python.unix.domain.socket.enabled") == "true"
    assert settings.get("spark.python.unix.domain.socket.dir") == "/tmp"
