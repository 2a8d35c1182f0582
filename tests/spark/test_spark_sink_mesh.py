"""Rows that the sink stores in a real mesh of two broker groups: all of them, once, with their fields and in order. No Java."""

from collections.abc import Callable, Iterator
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
from tests.support.mesh.second_group import second_group

pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """Three brokers and two proxies, which the last test kills, and a second broker group."""
    options = ("--brokers", "3", "--proxies", "2")
    with running_mesh(tmp_path_factory.mktemp("mesh") / "tern", *options) as running, second_group(running) as second:
        second.start()
        yield running


def endpoints(mesh: Mesh) -> list[str]:
    """Both proxies."""
    return [f"http://127.0.0.1:{mesh.port_base + number}" for number in range(2)]


def stored(mesh: Mesh, topic: str) -> list[dict[str, Any]]:
    """All messages of *topic*, queue by queue, in order."""
    rows: list[dict[str, Any]] = []
    with ProxyPages(endpoints(mesh), timeout_ms=10_000, retries=30, retry_interval_ms=100) as pages:
        for span in pages.spans(topic):
            at = span.min_offset
            while at < span.max_offset:
                page = pages.page(topic, span.queue, at, span.max_offset, 1 << 22)
                if page.records:
                    rows += record_batch(page.records, topic=topic, queue=parse_queue(span.queue, topic)).to_pylist()
                at = page.next_offset
    return rows


def write(mesh: Mesh, topic: str, found: Iterator[Any], **given: str) -> None:
    """Write RecordBatches as a task does."""
    options = {"endpoint": ",".join(endpoints(mesh)), "topic": topic, "delivery": "at_least_once"}
    write_rows(found, write_options(options | given), 0, topic)


def test_each_row_is_stored_once_over_all_broker_groups(mesh: Mesh) -> None:
    """5,000 rows with all fields, by two attempts of a task."""
    mesh.create("sunk")
    count = 5_000
    rows = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"%d" % number for number in range(count)]),
            "key": pa.array([f"k{number} all" if number % 2 else None for number in range(count)]),
            "tags": pa.array([f"t{number % 3}" for number in range(count)]),
            "properties": pa.array(
                [[("n", str(number)), ("none", None)] for number in range(count)], pa.map_(pa.string(), pa.string())
            ),
        }
    )
    for _ in range(2):
        write(mesh, "sunk", iter([rows]))
    found = stored(mesh, "sunk")
    assert sorted(int(row["body"]) for row in found) == list(range(count))
    assert {row["broker"] for row in found} == {"broker-a", "broker-b"}
    for row in found:
        number = int(row["body"])
        assert (row["tags"], row["keys"]) == (f"t{number % 3}", f"k{number} all" if number % 2 else None)
        assert dict(row["properties"]) == {"n": str(number)}


def ordered(start: int, count: int) -> Any:
    """Rows of 1 KiB from *start* on, over 20 message groups."""
    numbers = range(start, start + count)
    bodies = pa.array([b"%d|" % number + b"." * 1_024 for number in numbers])
    return pa.RecordBatch.from_pydict({"body": bodies, "message_group": [f"g{number % 20}" for number in numbers]})


def check_order(mesh: Mesh, topic: str, count: int) -> None:
    """Each message group is in one queue, complete, each row once, and in order."""
    found: dict[int, list[tuple[str, int, int]]] = {}
    for row in stored(mesh, topic):
        number = int(row["body"].split(b"|")[0])
        found.setdefault(number % 20, []).append((row["broker"], row["queue_id"], number))
    assert sorted(found) == list(range(20))
    for group, rows in found.items():
        assert [number for _, _, number in rows] == list(range(group, count, 20))
        assert len({(broker, queue) for broker, queue, _ in rows}) == 1
    assert {broker for rows in found.values() for broker, _, _ in rows} == {"broker-a", "broker-b"}


def test_rows_of_a_message_group_keep_their_order(mesh: Mesh) -> None:
    """2,000 rows by two attempts of a task."""
    assert mesh.settled("PUT", "/v1/topics/ordered", json={"queues": 4, "type": "FIFO"}).status_code == 201
    for _ in range(2):
        write(mesh, "ordered", iter([ordered(0, 2_000)]))
    check_order(mesh, "ordered", 2_000)


def test_a_killed_proxy_and_a_killed_leader_cost_no_row_and_no_order(mesh: Mesh) -> None:
    """The first proxy, then the leading broker, each while rows are under way: nothing lost, nothing twice."""
    assert mesh.settled("PUT", "/v1/topics/killed", json={"queues": 4, "type": "FIFO"}).status_code == 201
    kills: dict[int, Callable[[], int]] = {4: lambda: mesh.kill("proxy-0"), 8: lambda: mesh.kill(mesh.leader())}

    def rows() -> Iterator[Any]:
        for number in range(12):
            if number in kills:
                kills[number]()
            yield ordered(number * 500, 500)

    write(mesh, "killed", rows())
    check_order(mesh, "killed", 6_000)
