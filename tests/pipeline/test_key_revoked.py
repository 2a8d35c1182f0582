"""A key that is revoked while a batch is read, a stream runs, a batch is written: one clear error, few requests, nothing half visible.

A secure mesh of one broker and no Java: some 15 s.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import pyarrow as pa

from tern_spark import read_options
from tern_spark.pages import ProxyPages
from tern_spark.sink.options import WriteOptions, write_options
from tern_spark.sink.publishing import give_up, publish
from tern_spark.sink.requests import Place
from tern_spark.sink.staging import Receipt, new_attempt, stage
from tern_spark.sink.writer import batches_of
from tern_spark.source import TernReader
from tern_spark.stream.reader import TernStreamReader
from tern_wire.errors import TernError, Unauthenticated
from tests.support.mesh.mesh import eventually
from tests.support.mesh.secure_mesh import SecureMesh, grant, running_secure_mesh

COLUMNS = ("queue_offset", "body")
ROWS = 400


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureMesh]:
    """A topic of one queue with 400 messages of 1,000 bytes, and one to be written."""
    with running_secure_mesh(tmp_path_factory.mktemp("mesh") / "tern", "--brokers", "1") as running:
        for topic in ("read-me", "write-me"):
            running.create(topic, queues=1)
        messages = [{"body": f"{number} ".ljust(1_000, "x")} for number in range(ROWS)]
        with running.with_key(running.new_key("filler", grant("topic", "read-me", "PUB"))) as client:
            sent = client.post("/v1/topics/read-me/messages/batch", json={"messages": messages})
            assert sent.status_code == 200, sent.text
        yield running


class Key:
    """A key of a principal of its own, in a file, that a test revokes."""

    def __init__(self, mesh: SecureMesh, folder: Path, principal: str, *grants: dict[str, Any]) -> None:
        self._mesh, self._principal, self._grants = mesh, principal, grants
        self.file = folder / "app.key"
        self.file.touch(mode=0o600)
        self.renew()

    def renew(self) -> None:
        """Another key, in the same file."""
        self._text = self._mesh.new_key(self._principal, *self._grants)
        self.file.write_text(self._text, "utf-8")

    def revoke(self) -> None:
        """Returns when the proxy refuses it."""
        path = f"/v1/principals/{self._principal}/keys/{self._text.split('_')[1]}"
        assert self._mesh.settled("DELETE", path).status_code == 204
        with self._mesh.with_key(self._text) as client:
            eventually(lambda: client.get("/v1/whoami").status_code == 401, within_s=10, what="the key is refused")

    def options(self, **more: str) -> dict[str, str]:
        """Those of the source and of the sink."""
        return {
            "endpoint": self._mesh.endpoint,
            "keyFile": str(self.file),
            "caFile": str(self._mesh.cluster.ca_cert),
            **more,
        }


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the requests of tasks."""
    seen: list[str] = []
    once = ProxyPages._get_once

    def noted(pages: ProxyPages, path: str, *how: Any) -> Any:
        seen.append(path)
        return once(pages, path, *how)

    monkeypatch.setattr(ProxyPages, "_get_once", noted)
    return seen


def bodies(reader: TernReader | TernStreamReader, parts: list[Any]) -> list[bytes]:
    """All that the tasks read."""
    return [body for part in parts for batch in reader.read(part) for body in batch.column("body").to_pylist()]


def test_a_batch_ends_with_the_refusal_and_asks_no_more(mesh: SecureMesh, tmp_path: Path, requests: list[str]) -> None:
    """Between two pages; the error says what to do. With another key in the same file the same plan is read whole."""
    key = Key(mesh, tmp_path, "reader", grant("topic", "read-me", "SUB", "DESCRIBE"))
    given = key.options(subscribe="read-me", pageBytes="65536", prefetchPages="0")
    reader = TernReader(read_options(given), COLUMNS)
    (part,) = reader.partitions()
    rows = reader.read(part)
    first = next(rows).num_rows
    assert 0 < first < ROWS
    key.revoke()
    del requests[:]
    with pytest.raises(Unauthenticated) as refused:
        list(rows)
    assert len(requests) == 1
    assert "\n" not in str(refused.value) and "key" in str(refused.value)
    key.renew()
    assert len(bodies(reader, [part])) == ROWS


def test_a_stream_ends_and_goes_on_from_the_same_offsets_with_another_key(mesh: SecureMesh, tmp_path: Path) -> None:
    """Revoked while a batch is read: it fails, the next plan too, and the group stays where it was. Then each row is read once."""
    may = (
        grant("topic", "read-me", "SUB", "DESCRIBE"),
        grant("group", "followers", "SUB", "ACK", "DESCRIBE", "CREATE", "ALTER"),
    )
    key = Key(mesh, tmp_path, "follower", *may)
    given = key.options(
        subscribe="read-me", startingOffsets="earliest", group="followers", maxRowsPerTrigger="150", pageBytes="65536"
    )
    options = read_options({**given, "prefetchPages": "0", "fetchTimeoutMs": "5000"}, "stream")
    stream = TernStreamReader(options, COLUMNS)
    start = stream.initialOffset()
    first = stream.latestOffset(start, stream.getDefaultReadLimit())
    found = bodies(stream, stream.partitions(start, first))
    second = stream.latestOffset(first, stream.getDefaultReadLimit())
    tasks = stream.partitions(first, second)
    rows = stream.read(tasks[0])
    next(rows)
    key.revoke()
    for refused in (lambda: list(rows), lambda: stream.latestOffset(second, stream.getDefaultReadLimit())):
        with pytest.raises(Unauthenticated):
            refused()
    stream.stop()
    committed = mesh.settled("GET", "/v1/groups/followers/offsets?topic=read-me").json()["offsets"]
    assert committed == {"broker-a:0": 150}
    key.renew()
    again = TernStreamReader(options, COLUMNS)
    at = first
    while (end := again.latestOffset(at, again.getDefaultReadLimit())) != at:
        found += bodies(again, again.partitions(at, end))
        at = end
    again.stop()
    assert [int(body.split()[0]) for body in found] == list(range(ROWS))


def staged(options: WriteOptions, partition: int, number: int) -> Receipt:
    """One task of the write `q`, batch *number*."""
    rows = pa.RecordBatch.from_pydict({"body": pa.array([b"%d/%d" % (partition, at) for at in range(50)])})
    place = Place(query=f"revoked-{number}", batch=0, partition=partition, attempt=new_attempt())
    return stage(options, place, batches_of(iter([rows]), options, partition, "q"))


def test_a_write_whose_key_is_revoked_shows_nothing(mesh: SecureMesh, tmp_path: Path) -> None:
    """Behind the first task, and behind the last: the second task and the publication are refused, and no row is visible.
    With another key the write is made again, once.
    """
    key = Key(mesh, tmp_path, "writer", grant("topic", "write-me", "PUB", "DESCRIBE"))
    options = write_options(key.options(topic="write-me"))
    receipts = [staged(options, 0, 1)]
    key.revoke()
    with pytest.raises(TernError) as task:
        staged(options, 1, 1)
    with pytest.raises(TernError) as published:
        publish(options, receipts, is_final=True)
    assert (task.value.code, published.value.code) == ("unauthenticated", "unauthenticated")
    give_up(options, receipts)
    assert visible(mesh) == 0
    key.renew()
    publish(options, [staged(options, partition, 2) for partition in (0, 1)], is_final=True)
    assert visible(mesh) == 100


def visible(mesh: SecureMesh) -> int:
    """Messages of the written topic."""
    (queue,) = mesh.settled("GET", "/v1/topics/write-me/offsets").json()["queues"]
    return int(queue["max_offset"])
