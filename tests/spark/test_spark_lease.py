"""Retention that overtakes a batch read which began in time: with a lease, and without one. A real mesh, no Java."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tern_spark import read_options
from tern_spark.source import TernReader
from tern_wire.errors import OffsetExpired
from tests.support.mesh.mesh import Mesh, eventually, running_mesh

SEGMENT_SIZE_BYTES = 16 << 20


@pytest.fixture
def mesh(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mesh]:
    """A broker that keeps one small segment."""
    monkeypatch.setenv("TERN_BROKER_RETENTION_BYTES", str(SEGMENT_SIZE_BYTES))
    with running_mesh(tmp_path_factory.mktemp("mesh") / "tern", "--brokers", "1") as running:
        running.create("old", queues=1)
        yield running


def fill(mesh: Mesh, segments: int) -> None:
    """Send so many segments of messages of 60,000 bytes."""
    messages = [{"body": "x" * 60_000} for _ in range(20)]
    for _ in range(segments * SEGMENT_SIZE_BYTES // (60_000 * 20) + 1):
        assert mesh.settled("POST", "/v1/topics/old/messages/batch", json={"messages": messages}).status_code == 200


def ends(mesh: Mesh) -> tuple[int, int]:
    """The oldest and the next offset."""
    (queue,) = mesh.settled("GET", "/v1/topics/old/offsets").json()["queues"]
    return queue["min_offset"], queue["max_offset"]


def leases(mesh: Mesh) -> list[dict[str, Any]]:
    """All read leases."""
    found: list[dict[str, Any]] = mesh.settled("GET", "/v1/read-leases").json()["leases"]
    return found


def planned(mesh: Mesh, **options: str) -> tuple[TernReader, list[Any]]:
    """A batch read that has been planned, and its tasks, of which none has begun."""
    given = {"endpoint": mesh.endpoint, "subscribe": "old", "pageBytes": str(1 << 20), **options}
    reader = TernReader(read_options(given), ("queue_offset",))
    return reader, reader.partitions()


def offsets(reader: TernReader, tasks: list[Any]) -> list[int]:
    """What the tasks read."""
    return [offset for task in tasks for batch in reader.read(task) for offset in batch["queue_offset"].to_pylist()]


def trim(mesh: Mesh) -> None:
    """Ask for retention now."""
    assert mesh.client.post(mesh.broker_http(mesh.leader()) + "/v1/broker/trim").status_code < 300


def test_a_leased_plan_is_read_whole_and_one_without_is_overtaken(mesh: Mesh, caplog: pytest.LogCaptureFixture) -> None:
    """The same range, planned in time by three readers, of which one has no lease and one does not mind."""
    fill(mesh, 3)
    _, end = ends(mesh)
    eventually(lambda: planned(mesh)[1][0].lease, within_s=60, what="the mesh has the feature level of leases")
    begin, _ = ends(mesh)
    leased, tasks = planned(mesh, endingOffsets=f'{{"old": {{"broker-a:0": {end}}}}}')
    assert tasks[0].lease.lease in {row["lease"] for row in leases(mesh)}
    fill(mesh, 3)
    trim(mesh)
    assert offsets(leased, tasks) == list(range(begin, end))

    bare, uncovered = planned(mesh, lease="0", endingOffsets=f'{{"old": {{"broker-a:0": {end}}}}}')
    careless, others = planned(
        mesh, lease="0", failOnDataLoss="false", endingOffsets=f'{{"old": {{"broker-a:0": {end}}}}}'
    )
    for row in leases(mesh):
        assert mesh.settled("DELETE", f"/v1/read-leases/{row['lease']}").status_code == 204
    trim(mesh)
    eventually(lambda: ends(mesh)[0] > begin, within_s=60, what="retention goes on when the leases have ended")
    with pytest.raises(OffsetExpired) as failed:
        offsets(bare, uncovered)
    assert f"offset {begin} of the planned range" in "".join(failed.value.__notes__)
    oldest, _ = ends(mesh)
    with caplog.at_level(logging.WARNING):
        assert offsets(careless, others) == list(range(oldest, end))
    assert f"{min(oldest, end) - begin} messages were deleted" in caplog.text
