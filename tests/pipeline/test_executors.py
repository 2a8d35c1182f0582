"""Tasks that run twice at once, a key that is revoked, a machine that dies with its task: on a standalone cluster of two machines.

Scripted proxies say when what happens. Some 100 s, most of them for JVMs to start. Both machines are on loopback; they need two
addresses, because Spark runs the second attempt of a slow task on another host only.
"""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.batch_server import Store, batch_server
from tests.support.client.record_server import Script, record_server, stored

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tern_spark.session import java_command, open_session
from tests.cluster.spark_cluster import SparkCluster, running_cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(java_command(os.environ) is None, reason="Spark needs Java"),
    # PySpark's own: unclosed sockets of its gateway, and warnings about the pandas and Python it will need one day.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(400),
]
ROOT = Path(__file__).resolve().parents[2]
# A task is slow as soon as it takes longer than the other one. Efficiency would be judged by rows, which a held task has not told.
SETTINGS = """
spark.speculation true
spark.speculation.interval 100ms
spark.speculation.minTaskRuntime 100ms
spark.speculation.multiplier 1.1
spark.speculation.quantile 0.5
spark.speculation.efficiency.enabled false
spark.executorEnv.PYTHONPATH {paths}
"""
_HELD_S = 120


@dataclass(frozen=True, slots=True)
class Machines:
    """A session on the cluster, and the cluster."""

    spark: Any
    cluster: SparkCluster


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two workers of one core; the last test kills one of them."""
    folder = tmp_path_factory.mktemp("cluster")
    conf = folder / "conf"
    conf.mkdir()
    (conf / "log4j2.properties").write_bytes((ROOT / "spark" / "conf" / "log4j2.properties").read_bytes())
    paths = os.pathsep.join(str(path) for path in (ROOT / "libs", ROOT / "spark", ROOT))
    (conf / "spark-defaults.conf").write_text(SETTINGS.format(paths=paths), "utf-8")
    with running_cluster(folder / "spark", workers=1) as cluster, pytest.MonkeyPatch.context() as patch:
        cluster.start_worker("worker-2", "127.0.0.2")
        patch.setenv("PYTHONPATH", os.pathsep.join([paths, os.environ.get("PYTHONPATH", "")]))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = open_session("executors", conf_dir=conf, memory_mb=700, master=cluster.master)
        yield Machines(session, cluster)
        session.stop()


@pytest.fixture
def source() -> Iterator[Script]:
    """Two queues of 2,500 messages, which are read by a task each."""
    queues = {
        f"broker-a:{queue}": [stored(number, b"%d/%d" % (queue, number), queue=queue) for number in range(2_500)]
        for queue in (0, 1)
    }
    with record_server(Script(queues=queues)) as script:
        yield script


@pytest.fixture
def store() -> Iterator[Store]:
    """Where the rows are written."""
    with batch_server() as serving:
        yield serving


class Crossing:
    """Holds a request until others have come as far: *wanted* of them. It gives up in the end, so that a test fails and does not hang."""

    def __init__(self, wanted: int) -> None:
        self._wanted, self._came = wanted, 0
        self._changed = threading.Condition()

    @property
    def is_open(self) -> bool:
        """Whether all have come."""
        return self._came >= self._wanted

    def cross(self) -> None:
        """Come, and wait for the others."""
        with self._changed:
            self._came += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.is_open, _HELD_S)


def read_options(source: Script) -> dict[str, str]:
    """Each queue is a task."""
    return {"endpoint": source.url, "subscribe": "orders", "startingOffsets": "earliest", "minPartitions": "2"}


def write_options(store: Store) -> dict[str, str]:
    """One request of a task at a time, which is not repeated while it is held."""
    patient = str(1_000 * 2 * _HELD_S)
    timing = {"requestTimeoutMs": patient, "sendTimeoutMs": patient, "requestsInFlight": "1"}
    return {"endpoint": store.url, "topic": "copy", **timing}


def queue_of(messages: list[dict[str, Any]]) -> bytes:
    """The queue that the messages of one task come from."""
    (queue,) = {message["body"].partition(b"/")[0] for message in messages}
    return bytes(queue)


def expected() -> list[bytes]:
    """Every row once."""
    return sorted(b"%d/%d" % (queue, number) for queue in (0, 1) for number in range(2_500))


@pytest.mark.parametrize(
    "options",
    [
        {"delivery": "exactly_once"},
        {"delivery": "at_least_once"},
        # Shows that both attempts write: nothing tells a second copy from the first one.
        {"delivery": "at_least_once", "idempotent": "false"},
    ],
    ids=["exactly_once", "at_least_once", "without_keys"],
)
def test_two_attempts_that_both_read_and_write_are_one_copy(
    machines: Machines, source: Script, store: Store, options: dict[str, str]
) -> None:
    """The first request of the second task is held until Spark's other attempt at it sends the same rows: both read and write them."""
    twins = Crossing(2)

    def hold(messages: list[dict[str, Any]]) -> None:
        if queue_of(messages) == b"1" and not twins.is_open:
            twins.cross()

    store.before_request = hold
    rows = machines.spark.read.format("ternmq").options(**read_options(source)).load().selectExpr("body")
    rows.write.format("ternmq").mode("append").options(**write_options(store), **options).save()
    assert twins.is_open, "Spark began no second attempt"
    if options.get("idempotent") == "false":
        assert len(store.bodies("copy")) > len(expected()) and sorted(set(store.bodies("copy"))) == expected()
    else:
        assert sorted(store.bodies("copy")) == expected()
    if options["delivery"] == "exactly_once":
        (told,) = store.publications
        assert sorted(stage["partition"] for stage in told["stages"]) == [0, 1]


def test_a_key_that_is_revoked_ends_a_read_and_a_write_in_one_sentence(
    machines: Machines, source: Script, store: Store
) -> None:
    """Revoked behind the first page, and behind the first request of a write: each attempt of Spark's asks once, and nothing is visible."""
    revoked: Any = (401, {"code": "unauthenticated", "reason": "The key is revoked"})
    source.page_rows_max = 1_000
    rows = machines.spark.read.format("ternmq").options(**read_options(source), prefetchPages="0").load()
    assert rows.rdd.getNumPartitions() == 2
    asked = len(source.seen)

    def revoke_reads(offset: int) -> None:
        if offset and not source.faults:
            source.faults = [revoked] * 1_000

    source.before_page = revoke_reads
    with pytest.raises(Exception, match="with a key that is valid now"):
        rows.selectExpr("body").collect()
    # Two tasks of three attempts, and the pages before.
    assert len(source.seen) - asked <= 2 * 3 + 4

    def revoke_writes(_: list[dict[str, Any]]) -> None:
        if store.sizes[1:] and not store.faults:
            store.faults = [revoked] * 1_000

    store.before_request = revoke_writes
    written = machines.spark.range(0, 5_000, 1, 2).selectExpr("CAST(id AS STRING) AS body").write.format("ternmq")
    with pytest.raises(Exception, match="with a key that is valid now"):
        written.mode("append").options(**write_options(store)).save()
    assert store.topics == {} and store.publications == []
    assert len(store.sizes) <= 2 * 3 + 2


def test_a_machine_that_dies_with_its_task_costs_no_row_and_repeats_none(
    machines: Machines, source: Script, store: Store, tmp_path: Path
) -> None:
    """A stream: killed when each machine has written a part of its task, with requests of both under way."""
    both, once = Crossing(2), threading.Lock()
    begun: set[bytes] = set()

    def kill(messages: list[dict[str, Any]]) -> None:
        queue = queue_of(messages)
        if queue not in begun:
            begun.add(queue)
        elif not both.is_open:
            both.cross()
            if once.acquire(blocking=False):
                machines.cluster.kill_worker("worker-2")

    store.before_request = kill
    rows = machines.spark.readStream.format("ternmq").options(**read_options(source)).load().selectExpr("body")
    written = rows.writeStream.format("ternmq").options(**write_options(store))
    written.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert once.locked(), "the run was over before a machine was killed"
    assert sorted(store.bodies("copy")) == expected()
    # Three requests a task, and two or more that the dead one had sent.
    assert len(store.sizes) >= 8
