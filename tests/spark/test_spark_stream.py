"""The stream inside a real Spark, against a scripted proxy: checkpoints, restarts, kills; what only Spark itself can show."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.record_server import Script, record_server, stored
from tests.support.mesh.mesh import eventually

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tern_spark.session import java_command

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(java_command(os.environ) is None, reason="Spark needs Java"),
    # PySpark's own: unclosed sockets of its gateway, and warnings about the pandas and Python it will need one day.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(400),
]
ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join([str(ROOT / "libs"), str(ROOT / "spark"), str(ROOT), os.environ.get("PYTHONPATH", "")])
# A driver of its own: all that is there into Parquet, 50 rows a batch.
DRIVER = """
import sys
from pathlib import Path
from tern_spark.session import open_session
endpoint, conf, out, checkpoint = sys.argv[1:]
spark = open_session("killed", conf_dir=Path(conf), memory_mb=512)
rows = spark.readStream.format("ternmq").option("endpoint", endpoint).option("subscribe", "orders")
rows = rows.option("startingOffsets", "earliest").option("maxRowsPerTrigger", "50").option("group", "archive")
rows = rows.load().select("queue_id", "queue_offset")
query = rows.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.fixture
def proxy() -> Iterator[Script]:
    """Two queues with 300 and 200 messages, in pages of 64."""
    queues = {f"broker-a:{queue}": rows_of(0, 300 - 100 * queue, queue) for queue in (0, 1)}
    with record_server(Script(queues=queues, page_rows_max=64)) as script:
        yield script


def rows_of(first: int, end: int, queue: int = 0) -> list[bytes]:
    """Messages with these offsets."""
    return [stored(number, b"x", queue=queue) for number in range(first, end)]


def run(spark: Any, script: Script, folder: Path, **options: str) -> Any:
    """One AvailableNow run into Parquet, to its end or its error; the query."""
    reader = spark.readStream.format("ternmq").option("endpoint", script.url).option("subscribe", "orders")
    reader = reader.options(**{"startingOffsets": "earliest", "maxRowsPerTrigger": "150", **options})
    rows = reader.load().select("queue_id", "queue_offset", "broker")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    query.awaitTermination()
    return query


def rows_written(spark: Any, folder: Path) -> list[tuple[str, int, int]]:
    """Broker group, queue and offset of all rows in the table, in order."""
    found = spark.read.parquet(str(folder / "out")).collect()
    return sorted((row.broker if "broker" in row else "", row.queue_id, row.queue_offset) for row in found)


@pytest.mark.parametrize("driver_rows_max", ["4096", "0"])
def test_a_run_reads_all_once_and_a_restart_continues(
    spark: Any, proxy: Script, tmp_path: Path, driver_rows_max: str
) -> None:
    """Two runs on one checkpoint, messages and a new queue of another broker group between: every row is there once.

    The group stands at the end of the last batch, and progress shows the ends of the queues. No page is asked for twice: what the driver has
    read no task reads.
    """
    query = run(spark, proxy, tmp_path, group="archive", maxDriverRows=driver_rows_max)
    pages = [path for path in proxy.seen if "/messages?" in path]
    assert len(pages) == len(set(pages)) >= 8
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [150] * 3 + [
        50
    ]
    assert proxy.groups["archive"] == {"broker-a:0": 300, "broker-a:1": 200}
    assert '"broker-a:0":300' in str(query.recentProgress[0]["sources"][0]["latestOffset"]).replace(" ", "").replace(
        "'", '"'
    )
    proxy.queues["broker-a:0"] += rows_of(300, 320)
    proxy.queues["broker-b:0"] = rows_of(0, 30)
    run(spark, proxy, tmp_path, group="archive", maxDriverRows=driver_rows_max)
    expected = [("broker-a", 0, at) for at in range(320)] + [("broker-a", 1, at) for at in range(200)]
    assert rows_written(spark, tmp_path) == expected + [("broker-b", 0, at) for at in range(30)]
    assert proxy.groups["archive"] == {"broker-a:0": 320, "broker-a:1": 200, "broker-b:0": 30}


def test_a_queue_that_appears_in_the_middle_of_a_run_is_read(spark: Any, proxy: Script) -> None:
    """A running query; the queue comes between two triggers."""
    reader = spark.readStream.format("ternmq").option("endpoint", proxy.url).option("subscribe", "orders")
    rows = reader.option("startingOffsets", "earliest").load().select("broker", "queue_offset")
    query = rows.writeStream.format("memory").queryName("mid_run").trigger(processingTime="100 milliseconds").start()
    try:
        eventually(lambda: spark.table("mid_run").count() == 500, within_s=60, what="the first 500 rows")
        proxy.queues["broker-b:0"] = rows_of(0, 30)
        eventually(lambda: spark.table("mid_run").count() == 530, within_s=60, what="the rows of the new queue")
        assert spark.table("mid_run").where("broker = 'broker-b'").distinct().count() == 30
    finally:
        query.stop()


def test_a_topic_that_was_made_again_fails_the_query_in_one_sentence(spark: Any, proxy: Script, tmp_path: Path) -> None:
    """Between two runs on one checkpoint."""
    run(spark, proxy, tmp_path)
    proxy.created_ms = 2
    with pytest.raises(Exception, match="Topic 'orders' was deleted and made again since the stream read it"):
        run(spark, proxy, tmp_path)


def test_a_killed_driver_loses_nothing_and_repeats_nothing(spark: Any, proxy: Script, tmp_path: Path) -> None:
    """SIGKILL of the driver with all of its processes while batches of an AvailableNow run are written, twice; then a run to its end."""
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    command = [sys.executable, "-c", DRIVER, proxy.url, str(ROOT / "spark" / "conf"), str(out), str(checkpoint)]
    environment = {**os.environ, "PYTHONPATH": PATHS}

    def started() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)

    for batch in (1, 4):
        driver = started()
        committed = checkpoint / "commits" / str(batch)
        try:
            eventually(committed.exists, within_s=120, what=f"batch {batch} is committed")
            assert driver.poll() is None, "the run was over before it was killed"
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait(30)
    assert started().wait(120) == 0
    expected = [("", 0, at) for at in range(300)] + [("", 1, at) for at in range(200)]
    assert rows_written(spark, tmp_path) == expected
    assert proxy.groups["archive"] == {"broker-a:0": 300, "broker-a:1": 200}
