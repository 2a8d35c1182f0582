"""A pipeline from topic to topic over a real mesh whose driver is killed again and again: each row is in the end there once, and in order.

`make kill-spark` kills it KILLS times; `make test-spark` at the two points that matter most. The seed is printed. With GROUPS=2 the
numbers lie in two broker groups, and what the pipeline writes in one of them, as a query's rows have to.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tern_spark.columns import record_batch
from tern_spark.pages import ProxyPages
from tern_spark.session import java_command
from tern_wire.names import parse_queue
from tests.support.mesh.mesh import Mesh, eventually, running_mesh
from tests.support.mesh.second_group import second_group

KILLS = int(os.environ.get("TERNMQ_SPARK_KILLS", "2"))
GROUPS = int(os.environ.get("TERNMQ_SPARK_GROUPS", "1"))
SEED = int(os.environ.get("TERNMQ_SPARK_KILL_SEED", "1"))
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(java_command(os.environ) is None, reason="Spark needs Java"),
    pytest.mark.timeout(300 + 60 * KILLS),
]
ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join([str(ROOT / "libs"), str(ROOT / "spark"), str(ROOT), os.environ.get("PYTHONPATH", "")])
BATCH_ROWS = 100
# Enough batches that every kill finds the pipeline at work: two for each, and four for what is done while it is about to be killed. A batch costs
# two seconds of a core.
ROWS = BATCH_ROWS * (4 + 2 * KILLS)
# A driver of its own: doubled numbers from `numbers` to `doubled`, in the order of each queue.
DRIVER = """
import sys
from pathlib import Path
from tern_spark.session import open_session
endpoint, conf, checkpoint, rows = sys.argv[1:]
spark = open_session("killed", conf_dir=Path(conf), memory_mb=512)
read = spark.readStream.format("ternmq").option("endpoint", endpoint).option("subscribe", "numbers")
read = read.option("startingOffsets", "earliest").option("maxRowsPerTrigger", rows).load()
doubled = read.selectExpr("CAST(2 * CAST(CAST(body AS STRING) AS INT) AS STRING) AS body",
    "concat(broker, '-', queue_id) AS message_group", "CAST(queue_offset AS STRING) AS key")
query = doubled.writeStream.format("ternmq").option("endpoint", endpoint).option("topic", "doubled")
query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
"""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the mesh knows of the query."""

    batch: int
    staged: int


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """One broker and one proxy. Another broker group comes if it is asked for: what is made before lies in one, later topics in
    both.
    """
    with (
        running_mesh(tmp_path_factory.mktemp("mesh") / "tern", "--brokers", "1", "--proxies", "1") as running,
        second_group(running) as second,
    ):
        create(running, "doubled")
        if GROUPS > 1:
            second.start()
        create(running, "numbers")
        yield running


def create(mesh: Mesh, topic: str) -> None:
    """A topic of four queues in each broker group."""
    assert mesh.settled("PUT", f"/v1/topics/{topic}", json={"queues": 4}).status_code in {200, 201}


def progress(mesh: Mesh) -> Progress:
    """Of the one query that publishes."""
    found = mesh.settled("GET", "/v1/publications").json()["publications"]
    return Progress(found[0].get("batch", -1), found[0]["staged_rows"]) if found else Progress(-1, 0)


def stored(mesh: Mesh, topic: str) -> list[tuple[str, int]]:
    """Where each message of *topic* lies, and its number, queue by queue."""
    found = []
    with ProxyPages(
        [f"http://127.0.0.1:{mesh.port_base}"], timeout_ms=10_000, retries=3, retry_interval_ms=100
    ) as pages:
        for span in pages.spans(topic):
            at = span.min_offset
            while at < span.max_offset:
                page = pages.page(topic, span.queue, at, span.max_offset, 1 << 22)
                rows = record_batch(page.records, topic=topic, queue=parse_queue(span.queue, topic)).to_pylist()
                found += [(span.queue, int(row["body"])) for row in rows]
                at = page.next_offset
    return found


class Driver:
    """A process that runs the pipeline to the end of the topic, or until it is killed."""

    def __init__(self, mesh: Mesh, checkpoint: Path) -> None:
        endpoint = f"http://127.0.0.1:{mesh.port_base}"
        self._log = checkpoint.with_name("driver.log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    DRIVER,
                    endpoint,
                    str(ROOT / "spark" / "conf"),
                    str(checkpoint),
                    str(BATCH_ROWS),
                ],
                env={**os.environ, "PYTHONPATH": PATHS},
                start_new_session=True,
                stderr=log,
            )

    @property
    def is_over(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    @property
    def said(self) -> str:
        """The end of what it wrote."""
        return self._log.read_text("utf-8", errors="replace")[-6_000:]

    def wait(self) -> int:
        """Its status."""
        return self._process.wait(240)

    def kill(self) -> None:
        """SIGKILL, with its Java and its workers."""
        if not self.is_over:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)


def test_a_killed_driver_writes_every_row_once(mesh: Mesh, tmp_path: Path) -> None:
    """Killed with rows staged, between a publication and Spark's note of it, and at any other moment."""
    print(f"seed {SEED}, {KILLS} kills")
    rng = random.Random(SEED)
    for first in range(0, ROWS, 500):
        messages = [{"body": str(number)} for number in range(first, min(ROWS, first + 500))]
        assert mesh.settled("POST", "/v1/topics/numbers/messages/batch", json={"messages": messages}).status_code == 200
    checkpoint = tmp_path / "checkpoint"
    unnoted = 0
    for number in range(KILLS):
        unnoted += killed(mesh, checkpoint, ("staged", "published", "any")[number % 3], rng)
    last_run = Driver(mesh, checkpoint)
    assert last_run.wait() == 0, last_run.said
    print(f"{unnoted} of {KILLS} kills between a publication and Spark's note of it")
    source = stored(mesh, "numbers")
    found = stored(mesh, "doubled")
    assert sorted(number for _, number in found) == [2 * number for number in range(ROWS)]
    assert len({queue.partition(":")[0] for queue, _ in source}) == GROUPS
    assert len({queue.partition(":")[0] for queue, _ in found}) == 1
    # In the order of their queue: message groups keep it, each in one queue.
    in_order: dict[str, list[int]] = {}
    for queue, number in source:
        in_order.setdefault(queue, []).append(2 * number)
    by_queue: dict[str, list[int]] = {}
    for queue, number in found:
        by_queue.setdefault(queue, []).append(number)
    for numbers in in_order.values():
        wanted = set(numbers)
        (home,) = [queue for queue, held in by_queue.items() if wanted & set(held)]
        assert [number for number in by_queue[home] if number in wanted] == numbers


def killed(mesh: Mesh, checkpoint: Path, kind: str, rng: random.Random) -> bool:
    """Run the pipeline and kill it; whether that was between a publication and Spark's note of it."""
    reached = moment(mesh, kind, progress(mesh).batch, rng)
    driver = Driver(mesh, checkpoint)
    try:
        eventually(lambda: driver.is_over or reached(), within_s=120, what="the moment of a kill")
        assert not driver.is_over, f"the run was over before it was killed: {driver.said}"
    finally:
        driver.kill()
    now = progress(mesh)
    is_noted = now.batch < 0 or (checkpoint / "commits" / str(now.batch)).exists()
    print(
        f"{kind}: batch {now.batch} is published, and Spark's note is {'' if is_noted else 'not '}there; {now.staged} rows staged"
    )
    return not is_noted


def moment(mesh: Mesh, kind: str, last: int, rng: random.Random) -> Callable[[], Any]:
    """Whether it is time to kill: with rows staged, behind the next publication, or some time after it."""
    if kind == "staged":
        return lambda: progress(mesh).staged
    batch = last + rng.randint(1, 2)
    if kind == "published":
        return lambda: progress(mesh).batch >= batch
    until: list[float] = []

    def is_later() -> bool:
        if progress(mesh).batch < batch:
            return False
        if not until:
            until.append(time.monotonic() + rng.uniform(0, 2))
        return time.monotonic() >= until[0]

    return is_later
