"""The source and the sink through Spark Connect: the client has no JVM, and the server runs the same Python. Some 30 s.

The client is a process of its own, because a process has either a session of its own or one of a Connect server.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.client.batch_server import batch_server
from tests.support.client.record_server import Script, record_server, stored

pytest.importorskip("pyspark", reason="the spark extra is not installed")
pytest.importorskip("grpc", reason="the connect extra is not installed")

from tern_spark.session import java_command

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(java_command(os.environ) is None, reason="Spark needs Java"),
    pytest.mark.timeout(400),
]
ROOT = Path(__file__).resolve().parents[2]
CLIENT = """
import json, sys
from pyspark.sql import SparkSession
import tern_spark
source, sink, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
tern_spark.register(spark)
read = {"endpoint": source, "subscribe": "orders", "startingOffsets": "earliest"}
write = {"endpoint": sink}
rows = spark.read.format("ternmq").options(**read, minPartitions="2").load()
told = {"kind": type(spark).__module__, "rows": rows.select("queue_id", "queue_offset").distinct().count()}
rows.selectExpr("body", "keys AS key").write.format("ternmq").mode("append").options(**write, topic="copied").save()
stream = spark.readStream.format("ternmq").options(**read).load().selectExpr("body")
query = stream.writeStream.format("ternmq").options(**write, topic="streamed").option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
try:
    spark.read.format("ternmq").options(endpoint=source, subscribe="orders", startingOffset="earliest").load().collect()
except Exception as error:
    told["mistake"] = str(error)
spark.stop()
print(json.dumps(told))
"""
SETTINGS = """
spark.ui.enabled false
spark.driver.memory 700m
spark.sql.shuffle.partitions 2
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


def test_a_batch_a_write_and_a_stream_through_a_connect_server(tmp_path: Path) -> None:
    """400 rows of two queues: read, written exactly once, and streamed exactly once. A mistake is answered in the source's words."""
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "log4j2.properties").write_bytes((ROOT / "spark" / "conf" / "log4j2.properties").read_bytes())
    (conf / "spark-defaults.conf").write_text(SETTINGS, "utf-8")
    paths = [str(ROOT / "libs"), str(ROOT / "spark"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    queues = {
        f"broker-a:{queue}": [stored(at, b"%d/%d" % (queue, at), {"KEYS": f"k{at}"}, queue=queue) for at in range(200)]
        for queue in (0, 1)
    }
    with record_server(Script(queues=queues)) as source, batch_server() as store:
        command = [sys.executable, "-c", CLIENT, source.url, store.url, str(tmp_path / "checkpoint")]
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr[-4_000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    assert (told["kind"], told["rows"]) == ("pyspark.sql.connect.session", 400)
    assert "did you mean 'startingOffsets'" in told["mistake"]
    expected = sorted(b"%d/%d" % (queue, at) for queue in (0, 1) for at in range(200))
    assert sorted(store.bodies("copied")) == sorted(store.bodies("streamed")) == expected
    assert {message["keys"][0] for message in store.topics["copied"]} == {f"k{at}" for at in range(200)}
    assert sorted(told["final"] for told in store.publications) == [False, True]
