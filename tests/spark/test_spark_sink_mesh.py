"""Rows that the sink stores in a real mesh: all of them, once, with their fields and in order. No Java."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import pyarrow as pa

from tern_spark.columns import record_batch
from tern_spark.pages import ProxyPages
from tern_spark.sink.options import write_options
from tern_spark.sink.writer import write_rows
from tern_wire.names import parse_queue
from tests.support.mesh.mesh import Mesh, running_mesh


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """One broker is enough: how it replicates is not what is written."""
    with running_mesh(tmp_path_factory.mktemp("mesh") / "tern", "--brokers", "1") as running:
        yield running


def stored(mesh: Mesh, topic: str) -> list[dict[str, Any]]:
    """All messages of *topic*, queue by queue, in order."""
    rows: list[dict[str, Any]] = []
    with ProxyPages([mesh.endpoint], timeout_ms=10_000, retries=20, retry_interval_ms=100) as pages:
        for span in pages.spans(topic):
            at = span.min_offset
            while at < span.max_offset:
                page = pages.page(topic, span.queue, at, span.max_offset, 1 << 22)
                if page.records:
                    rows += record_batch(page.records, topic=topic, queue=parse_queue(span.queue, topic)).to_pylist()
                at = page.next_offset
    return rows


def write(mesh: Mesh, topic: str, columns: dict[str, Any], **given: str) -> None:
    """Write a RecordBatch twice, as two attempts of one task."""
    options = write_options({"endpoint": mesh.endpoint, "topic": topic, "delivery": "at_least_once"} | given)
    for _ in range(2):
        write_rows(iter([pa.RecordBatch.from_pydict(columns)]), options, 0, topic)


def test_each_row_is_stored_once_with_its_fields(mesh: Mesh) -> None:
    """5,000 rows with all fields, by two attempts of a task."""
    count = 5_000
    columns = {
        "body": pa.array([b"%d" % number for number in range(count)]),
        "key": pa.array([f"k{number} all" if number % 2 else None for number in range(count)]),
        "tags": pa.array([f"t{number % 3}" for number in range(count)]),
        "properties": pa.array(
            [[("n", str(number)), ("none", None)] for number in range(count)], pa.map_(pa.string(), pa.string())
        ),
    }
    write(mesh, "sunk", columns)
    rows = stored(mesh, "sunk")
    assert sorted(int(row["body"]) for row in rows) == list(range(count))
    for row in rows:
        number = int(row["body"])
        assert (row["tags"], row["keys"]) == (f"t{number % 3}", f"k{number} all" if number % 2 else None)
        assert dict(row["properties"]) == {"n": str(number)}


def test_rows_of_a_message_group_keep_their_order(mesh: Mesh) -> None:
    """2,000 rows of 1 KiB over 20 groups: each is in one queue, and in the order of the rows."""
    assert mesh.settled("PUT", "/v1/topics/ordered", json={"queues": 4, "type": "FIFO"}).status_code == 201
    count = 2_000
    columns = {
        "body": pa.array([b"%d|" % number + b"." * 1_024 for number in range(count)]),
        "message_group": pa.array([f"g{number % 20}" for number in range(count)]),
    }
    write(mesh, "ordered", columns)
    found: dict[str, list[tuple[int, int]]] = {}
    for row in stored(mesh, "ordered"):
        number = int(row["body"].split(b"|")[0])
        found.setdefault(f"g{number % 20}", []).append((row["queue_id"], number))
    for group, rows in found.items():
        assert [number for _, number in rows] == list(range(int(group[1:]), count, 20))
        assert len({queue for queue, _ in rows}) == 1
    assert len({queue for rows in found.values() for queue, _ in rows}) > 1
