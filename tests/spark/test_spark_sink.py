"""The sink inside a real Spark session, against a scripted proxy over real HTTP: what only Spark itself can show."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.batch_server import Fault, Store, batch_server

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tern_spark.session import java_command

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(java_command(os.environ) is None, reason="Spark needs Java"),
    # PySpark's own: unclosed sockets of its gateway, and warnings about the pandas and Python it will need one day.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(300),
]
ROOT = Path(__file__).resolve().parents[2]
NOT_FOUND: Fault = (404, {"code": "topic-not-found", "topic": "orders"})


@pytest.fixture
def store() -> Iterator[Store]:
    """A proxy that stores batches."""
    with batch_server() as serving:
        yield serving


def write(frame: Any, store: Store, mode: str = "append", **options: str) -> None:
    """Write *frame* to the topic orders."""
    given = {"endpoint": store.url, "delivery": "at_least_once", "topic": "orders"} | options
    frame.write.format("ternmq").mode(mode).options(**given).save()


def start(frame: Any, store: Store, checkpoint: Path, mode: str = "append", **options: str) -> Any:
    """Write the stream *frame* to the topic orders, as far as there is input."""
    given = {"endpoint": store.url, "delivery": "at_least_once", "topic": "orders"} | options
    writer = frame.writeStream.format("ternmq").options(**given).option("checkpointLocation", str(checkpoint))
    return writer.outputMode(mode).trigger(availableNow=True).start()


def test_every_row_arrives_with_all_its_fields(spark: Any, store: Store) -> None:
    """3,000 rows over three tasks: each once, and the fields of one of them."""
    frame = spark.range(0, 3_000, 1, 3).selectExpr(
        *("CAST(id AS STRING) AS value", "concat('k', id, ' all') AS key", "IF(id = 7, NULL, 'red') AS tags"),
        *("map('n', CAST(id AS STRING)) AS properties", "IF(id = 7, 'g', NULL) AS message_group"),
        "timestamp_millis(1700000000000 + id) AS deliver_at",
    )
    write(frame, store)
    messages = {message["body"]: message for message in store.topics["orders"]}
    assert len(messages) == len(store.topics["orders"]) == 3_000
    seventh = dict(messages[b"7"])
    assert len(seventh.pop("idempotency_key")) == 60
    assert seventh == {
        "body": b"7",
        "keys": ["k7", "all"],
        "properties": {"n": "7"},
        "message_group": "g",
        "deliver_at": 1_700_000_000_007,
    }
    assert messages[b"8"]["tag"] == "red"


def test_a_failed_task_is_tried_again_and_stores_nothing_twice(spark: Any, store: Store) -> None:
    """The second request of a task fails for good, so Spark repeats the task: its first rows are stored already."""
    frame = spark.range(0, 3_000, 1, 1).selectExpr("CAST(id AS STRING) AS body")
    store.faults = [set(), NOT_FOUND]
    write(frame, store, requestsInFlight="1")
    assert sorted(store.bodies(), key=int) == [b"%d" % number for number in range(3_000)]
    assert len(store.sizes) == 5


def test_two_writes_of_one_frame_are_two_copies(spark: Any, store: Store) -> None:
    """Keys name the write: only a repeat within it is one."""
    frame = spark.range(0, 10, 1, 1).selectExpr("CAST(id AS STRING) AS body")
    write(frame, store)
    write(frame, store)
    assert len(store.bodies()) == 20


def test_a_stream_is_written_batch_by_batch_and_continues_at_its_checkpoint(
    spark: Any, store: Store, tmp_path: Path
) -> None:
    """AvailableNow over two files, then over a third one: each line once."""
    lines = tmp_path / "lines"
    lines.mkdir()
    for number in range(3):
        if number == 2:
            assert sorted(store.bodies()) == [b"0", b"1"]
        (lines / f"{number}.txt").write_text(f"{number}\n")
        if number:
            frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines))
            start(frame, store, tmp_path / "checkpoint").awaitTermination()
    assert sorted(store.bodies()) == [b"0", b"1", b"2"]


def test_a_batch_that_fails_is_written_again_without_second_copies(spark: Any, store: Store, tmp_path: Path) -> None:
    """The query ends in the middle of a batch; started again, the same batch has the same keys."""
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "0.txt").write_text("".join(f"{number}\n" for number in range(3_000)))
    store.faults = [set(), *[NOT_FOUND] * 3]
    failed = start(spark.readStream.text(str(lines)), store, tmp_path / "checkpoint", requestsInFlight="1")
    with pytest.raises(Exception, match="orders"):
        failed.awaitTermination()
    assert len(store.bodies()) == 1_024
    store.faults = []
    start(spark.readStream.text(str(lines)), store, tmp_path / "checkpoint").awaitTermination()
    assert sorted(store.bodies(), key=int) == [b"%d" % number for number in range(3_000)]


def test_a_write_is_visible_at_once_and_a_failed_one_not_at_all(spark: Any, store: Store) -> None:
    """Exactly once, the default: a failed task is repeated under another attempt; a failed write leaves nothing."""
    frame = spark.range(0, 3_000, 1, 3).selectExpr("CAST(id AS STRING) AS body")
    store.faults = [set(), NOT_FOUND]
    write(frame, store, delivery="exactly_once")
    assert sorted(store.bodies(), key=int) == [b"%d" % number for number in range(3_000)]
    (told,) = store.publications
    assert (told["final"], len(told["stages"])) == (True, 3)
    # The second task fails as often as Spark tries it.
    store.faults = [set(), *[NOT_FOUND] * 20]
    with pytest.raises(Exception, match="orders"):
        write(spark.range(0, 3_000, 1, 1).selectExpr("CAST(id AS STRING) AS body"), store, delivery="exactly_once")
    assert len(store.bodies()) == 3_000
    assert len(store.publications) == 1


def test_a_stream_publishes_each_batch_once(spark: Any, store: Store, tmp_path: Path) -> None:
    """Two batches and a filter that leaves nothing of a third; a batch whose commit Spark has lost runs again, and is a repeat."""
    lines, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    lines.mkdir()
    for number, text in enumerate(("a", "b", "none")):
        (lines / f"{number}.txt").write_text(f"{text}\n")
        frame = spark.readStream.text(str(lines)).where("value <> 'none'")
        start(frame, store, checkpoint, delivery="exactly_once").awaitTermination()
    assert store.bodies() == [b"a", b"b"]
    assert [told["batch"] for told in store.publications] == [0, 1, 2]
    assert [len(told["stages"]) for told in store.publications] == [1, 1, 0]
    (query,) = store.published
    # As after a SIGKILL of the driver between the publication and Spark's note of it.
    for kept in checkpoint.glob("commits/*2*"):
        kept.unlink()
    for kept in checkpoint.glob("commits/.*2*"):
        kept.unlink()
    (lines / "3.txt").write_text("c\n")
    frame = spark.readStream.text(str(lines)).where("value <> 'none'")
    start(frame, store, checkpoint, delivery="exactly_once").awaitTermination()
    assert store.bodies() == [b"a", b"b", b"c"]
    assert [told["batch"] for told in store.publications] == [0, 1, 2, 2, 3]
    assert store.published == {query: 3}


@pytest.mark.parametrize(
    ("columns", "options", "mode", "says"),
    [
        ("'a' AS value", {"topics": "a"}, "append", "did you mean 'topic'"),
        ("'a' AS value", {"delivery": ""}, "append", "delivery is ''; use exactly_once"),
        ("'a' AS value", {}, "overwrite", "a topic cannot be overwritten"),
        ("'a' AS value, 'b' AS tag", {}, "append", "the nearest name is 'tags'"),
        ("id AS value", {}, "append", "column 'value' is bigint; write it as binary or string"),
    ],
)
def test_mistakes_are_refused_before_any_task(
    spark: Any, store: Store, columns: str, options: dict[str, str], mode: str, says: str
) -> None:
    """Spark passes our sentence on to the user."""
    with pytest.raises(Exception, match=says):
        write(spark.range(1).selectExpr(*columns.split(", ")), store, mode, **options)
    assert store.sizes == []
