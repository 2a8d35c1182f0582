"""What the source reads of a real mesh is what is visible, and the same bytes whenever it is read: bodies of 4 MiB, transactions,
staged rows and delayed messages among it; while a proxy and the leader are killed, and from a backup. No Java; some 40 s.
"""

import json
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import pyarrow as pa
import pyarrow.parquet as pq

from tern_spark import QueueRange, read_options
from tern_spark.pages import ProxyPages
from tern_spark.schema import COLUMNS
from tern_spark.sink.options import write_options
from tern_spark.sink.publishing import publish
from tern_spark.sink.requests import Place
from tern_spark.sink.staging import Receipt, new_attempt, stage
from tern_spark.sink.writer import batches_of, write_rows
from tern_spark.source import TernReader
from tern_spark.stream.reader import TernStreamReader
from tern_wire.errors import TernError
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES
from tests.support.client.job_runs import run as run_job
from tests.support.client.record_server import Script
from tests.support.mesh.mesh import Mesh, eventually, free_port_base, kept_up, running_mesh

TOPIC, PLAIN, SMALL = "kept", "plain", 300
ALL = tuple(COLUMNS)
# Bytes of a body as large as allowed, without a pattern that a wrong cut would hide.
LARGE = random.Random(4).randbytes(MESSAGE_BODY_SIZE_MAX_BYTES)
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """Three brokers and two proxies. The topic has 300 messages, a large one in their middle, and what only some may see."""
    options = ("--brokers", "3", "--proxies", "2")
    with running_mesh(tmp_path_factory.mktemp("mesh") / "tern", *options) as running:
        declared = {"queues": 2, "type": "MIXED"}
        assert running.settled("PUT", f"/v1/topics/{TOPIC}", json=declared).status_code == 201
        running.create(TOPIC, queues=2)
        for topic in (PLAIN, "large"):
            running.create(topic, queues=1)
        fill(running)
        yield running


def fill(mesh: Mesh) -> None:
    """Plain messages with the large one among them; a committed, a rolled-back and an open transaction; a delayed message that is
    due, and one that is not; rows that are staged for a batch that nobody publishes.
    """
    for first in (0, SMALL // 2):
        messages = [
            {"body": f"{number}", "properties": {"n": str(number)}} for number in range(first, first + SMALL // 2)
        ]
        assert (
            mesh.settled("POST", f"/v1/topics/{TOPIC}/messages/batch", json={"messages": messages}).status_code == 200
        )
        if not first:
            assert mesh.settled("POST", f"/v1/topics/{TOPIC}/messages", content=LARGE).status_code == 201
    for verb in ("commit", "rollback", ""):
        headers = {"MQ-Producer-Group": "shop", "Idempotency-Key": f"tx-{verb}"}
        path = f"/v1/topics/{TOPIC}/transactions"
        one = mesh.settled("POST", path, content=f"half {verb}".encode(), headers=headers).json()["transaction_id"]
        if verb:
            assert mesh.settled("POST", f"/v1/transactions/{one}/{verb}").status_code == 200
    for delay in ("1s", "1h"):
        sent = mesh.settled("POST", f"/v1/topics/{TOPIC}/messages?delay={delay}", content=f"after {delay}".encode())
        assert sent.status_code in {201, 202}, sent.text
    staged(mesh, TOPIC, [b"staged"])
    eventually(lambda: b"after 1s" in bodies(read(mesh)), within_s=60, what="the delayed message is due")


def endpoints(mesh: Mesh) -> str:
    """Both proxies."""
    return ",".join(f"http://127.0.0.1:{mesh.port_base + number}" for number in (0, 1))


def options_of(mesh: Mesh, topic: str = TOPIC, **more: str) -> dict[str, str]:
    """Options of a read that outlives the election of a leader."""
    return {"endpoint": endpoints(mesh), "subscribe": topic, "fetchRetries": "30", "pageBytes": "65536", **more}


def read(mesh: Mesh, topic: str = TOPIC) -> list[dict[str, Any]]:
    """All rows of a batch read."""
    reader = TernReader(read_options(options_of(mesh, topic)), ("queue_id", "queue_offset", "body"))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def bodies(rows: list[dict[str, Any]]) -> list[bytes]:
    """Sorted."""
    return sorted(row["body"] for row in rows)


def staged(mesh: Mesh, topic: str, rows: list[bytes]) -> Receipt:
    """A task of a write that is exactly once."""
    options = write_options({"endpoint": endpoints(mesh), "topic": topic})
    found = pa.RecordBatch.from_pydict({"body": pa.array(rows, pa.binary())})
    place = Place(query=f"write-{new_attempt()}", batch=0, partition=0, attempt=new_attempt())
    return stage(options, place, batches_of(iter([found]), options, 0, "write"))


def test_exactly_what_is_visible_is_read(mesh: Mesh) -> None:
    """No open, rolled-back, staged or early message; every other one once, the body of 4 MiB included."""
    expected = [str(number).encode() for number in range(SMALL)] + [LARGE, b"half commit", b"after 1s"]
    assert bodies(read(mesh)) == sorted(expected)


def test_a_stream_takes_a_body_of_4_mib_in_a_batch_of_its_own(mesh: Mesh) -> None:
    """A limit of 64 KiB a trigger: no other batch is larger, and every row comes once."""
    given = options_of(mesh, startingOffsets="earliest", maxBytesPerTrigger="65536")
    stream = TernStreamReader(read_options(given, "stream"), ("queue_id", "queue_offset", "store_size", "body"))
    at, found, sizes = stream.initialOffset(), [], []
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        rows = [row for part in stream.partitions(at, end) for batch in stream.read(part) for row in batch.to_pylist()]
        sizes.append((len(rows), sum(row["store_size"] for row in rows)))
        found += rows
        at = end
    stream.stop()
    assert bodies(found) == bodies(read(mesh))
    assert [rows for rows, size in sizes if size > 65_536] == [1]


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_the_sink_writes_a_body_of_4_mib_and_refuses_a_larger_one_by_its_row(mesh: Mesh, delivery: str) -> None:
    """Five of them in one partition, which are more than one request; then one byte more in the last of three rows."""
    before = len(read(mesh, "large"))

    def write(rows: list[bytes]) -> None:
        options = write_options({"endpoint": endpoints(mesh), "topic": "large", "delivery": delivery})
        if delivery == "exactly_once":
            publish(options, [staged(mesh, "large", rows)], is_final=True)
        else:
            found = pa.RecordBatch.from_pydict({"body": pa.array(rows, pa.binary())})
            write_rows(iter([found]), options, 0, f"write-{new_attempt()}")

    sent = [bytes([number]) + LARGE[1:] for number in range(5)]
    write(sent)
    assert bodies(read(mesh, "large")[before:]) == sent
    with pytest.raises(TernError) as refused:
        write([b"a", b"b", LARGE + b"x"])
    assert refused.value.status in {400, 413} and "row 2 of the partition" in "".join(refused.value.__notes__)
    if delivery == "exactly_once":
        assert len(read(mesh, "large")) == before + 5


def test_an_archive_has_the_body_of_4_mib(mesh: Mesh, tmp_path: Path) -> None:
    """Written, verified against the brokers, and read from its Parquet."""
    script = Script(queues={}, url=mesh.endpoint)
    written = run_job("archive", script, "--topics", TOPIC, "--to", str(tmp_path))
    assert written.code == 0, written.stderr
    proof = run_job("verify", script, "--archive", str(tmp_path))
    assert (proof.code, proof.facts["compared rows"]) == (0, SMALL + 3), proof.faults
    found = [body for file in tmp_path.rglob("*.parquet") for body in pq.read_table(file).column("body").to_pylist()]
    assert sorted(found) == bodies(read(mesh))


class Frozen:
    """A plan that is made once, and what its offsets are: rows of all columns, and the bytes of their records."""

    def __init__(self, mesh: Mesh) -> None:
        self._tasks = pickle.dumps(self._reader(mesh).partitions())
        self.rows, self.records = self.read(mesh)

    def _reader(self, mesh: Mesh) -> TernReader:
        return TernReader(read_options(options_of(mesh, minPartitions="4", lease="0")), ALL)

    def read(self, mesh: Mesh) -> tuple[list[dict[str, Any]], bytes]:
        """Both, from *mesh* as it is now."""
        reader, tasks = self._reader(mesh), pickle.loads(self._tasks)
        rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
        return rows, b"".join(self._bytes(mesh, found) for task in tasks for found in task.ranges)

    def _bytes(self, mesh: Mesh, found: QueueRange) -> bytes:
        pages, at = [], found.start
        with ProxyPages.of(read_options(options_of(mesh))) as proxies:
            while at < found.end:
                page = proxies.page(found.topic, found.queue, at, found.end, 1 << 20)
                pages.append(page.records)
                at = page.next_offset
        return b"".join(pages)

    def read_while(self, mesh: Mesh, act: Any) -> list[dict[str, Any]]:
        """The rows, with *act* called behind the first page of the second task."""
        reader, rows = self._reader(mesh), []
        for number, task in enumerate(pickle.loads(self._tasks)):
            for at, batch in enumerate(reader.read(task)):
                rows += batch.to_pylist()
                if (number, at) == (1, 0):
                    act()
        return rows


def test_the_same_offsets_are_the_same_bytes_whoever_dies_and_from_a_backup(mesh: Mesh, tmp_path: Path) -> None:
    """One plan, read while a proxy is killed, while the leader is killed, at the next leader, and from the restored backup, where more
    has been sent since.
    """
    frozen = Frozen(mesh)
    assert len(frozen.rows) == SMALL + 3
    done = mesh.run("backup", str(tmp_path / "backup"), "-o", "json")
    assert json.loads(done.stdout)["cut"]
    assert frozen.read_while(mesh, lambda: mesh.kill("proxy-0")) == frozen.rows
    eventually(lambda: mesh.call("GET", "/v1/topics", proxy=1).status_code == 200, within_s=30, what="a proxy answers")
    first = mesh.leader()
    assert frozen.read_while(mesh, lambda: mesh.kill(first)) == frozen.rows
    eventually(lambda: mesh.leader() != first, within_s=30, what="another broker leads")
    assert frozen.read(mesh) == (frozen.rows, frozen.records)
    mesh.down()

    again = Mesh(tmp_path / "again", port_base=free_port_base(random.Random()), options=("--proxies", "2"))
    command = [sys.executable, "-m", "tern_cli", "restore", str(tmp_path / "backup"), "--dir", str(tmp_path / "again")]
    subprocess.run(command, check=True, capture_output=True, timeout=90)
    with kept_up(again):
        sent = again.settled("POST", f"/v1/topics/{TOPIC}/messages", content=b"later")
        assert sent.status_code == 201, sent.text
        assert frozen.read(again) == (frozen.rows, frozen.records)
