"""Spark and the mesh: the session, the topic as a DataFrame, and CPU by kind of process.

The session has Spark's own compilers and collector, unlike that of short jobs.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.bench.own_mesh import HOST, OwnMesh
from loadtest.bench.process_cpu import TICKS_PER_S
from loadtest.bench.spark.rows import TOPIC

_ROOT = Path(__file__).resolve().parents[3]
CORES = 2
_SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A session beside a mesh whose topic has *rows* rows; files go below *folder*."""

    spark: Any
    mesh: OwnMesh
    rows: int
    folder: Path

    def ternmq(self, reader: Any, schema: str = "", **options: str) -> Any:
        """Return the topic as a DataFrame; *reader* is `spark.read` or `spark.readStream`."""
        reader = reader.format("ternmq").option("endpoint", f"http://{HOST}:{self.mesh.port}")
        reader = reader.option("subscribe", TOPIC).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU seconds so far of brokers, proxy, JVM, Python workers and driver."""
        found = processes()
        used = {"jvm": 0.0, "python": 0.0, "brokers": 0.0, "proxy": 0.0, "driver": found[os.getpid()].own_s}
        for name, pid in self.mesh.pids.items():
            if name.startswith(("broker", "proxy")):
                used["brokers" if name.startswith("broker") else "proxy"] += found[pid].own_s
        for pid in descendants(os.getpid(), found):
            # The ended workers of Spark's fork server are in its waited time.
            if found[pid].command == "java":
                used["jvm"] += found[pid].own_s
            else:
                used["python"] += found[pid].own_s + found[pid].waited_s
        return used


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One row of /proc: CPU seconds of itself, and of its ended children."""

    command: str
    parent: int
    own_s: float
    waited_s: float


def processes(proc: Path = Path("/proc")) -> dict[int, Process]:
    """Return all processes by id. Reference: proc_pid_stat(5)."""
    found = {}
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_text()
            except OSError:  # it has ended meanwhile
                continue
            before, _, after = text.rpartition(")")
            fields = after.split()
            user, system, user_waited, system_waited = (int(field) / TICKS_PER_S for field in fields[11:15])
            found[int(folder.name)] = Process(
                command=before.partition("(")[2],
                parent=int(fields[1]),
                own_s=user + system,
                waited_s=user_waited + system_waited,
            )
    return found


def descendants(root: int, found: dict[int, Process]) -> Iterator[int]:
    """Yield the ids of all processes below *root*."""
    children = defaultdict(list)
    for pid, process in found.items():
        children[process.parent].append(pid)
    waiting = children[root]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting.extend(children[pid])


@contextmanager
def open_spark() -> Iterator[Any]:
    """Yield a local session with the `ternmq` format; its workers import this checkout."""
    os.environ["SPARK_LOCAL_IP"] = HOST
    os.environ["SPARK_CONF_DIR"] = str(_ROOT / "spark" / "conf")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT / "libs"), str(_ROOT / "spark")])
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the gateway reads the environment as it starts

    from tern_spark import register  # noqa: PLC0415 - imports PySpark

    builder = SparkSession.builder.appName("bench-spark").master(f"local[{CORES}]")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        register(spark)
        yield spark
    finally:
        spark.stop()
