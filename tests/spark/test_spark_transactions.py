"""The pages that Spark plans and reads, and the columns that it makes of them, from a real mesh: what is committed, and nothing else. No Java."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the spark extra is not installed")

from tern_spark.columns import record_batch
from tern_spark.pages import ProxyPages
from tern_wire.names import parse_queue
from tern_wire.records.read import decode_record
from tests.support.mesh.mesh import Mesh, running_mesh


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """One broker is enough: how it replicates is not what is read."""
    with running_mesh(tmp_path_factory.mktemp("mesh") / "tern", "--brokers", "1") as running:
        yield running


def spark_sees(pages: ProxyPages, topic: str) -> list[bytes]:
    """Bodies of all that Spark would plan to read, and then read."""
    bodies: list[bytes] = []
    for span in pages.spans(topic):
        at = span.min_offset
        while at < span.max_offset:
            page = pages.page(topic, span.queue, at, span.max_offset, 1 << 20)
            left = memoryview(page.records)
            while left:
                record = decode_record(left)
                bodies.append(bytes(record.body))
                left = left[record.size_bytes :]
            at = page.next_offset
    return sorted(bodies)


def arrow_sees(pages: ProxyPages, topic: str) -> list[bytes]:
    """As spark_sees, as columns."""

    bodies: list[bytes] = []
    for span in pages.spans(topic):
        if span.max_offset > span.min_offset:
            page = pages.page(topic, span.queue, span.min_offset, span.max_offset, 1 << 20)
            batch = record_batch(page.records, topic=topic, queue=parse_queue(span.queue, topic))
            bodies += batch.column("body").to_pylist()
    return sorted(bodies)


@pytest.mark.parametrize("reads", [spark_sees, arrow_sees])
def test_spark_reads_what_is_committed_and_nothing_else(mesh: Mesh, reads: Any) -> None:
    """By the source's own reader of pages: nothing while all is open, then what was committed, and never what was rolled back."""
    name = f"tx-{reads.__name__.replace('_', '-')}"
    declared = {"queues": 2, "type": "TRANSACTION"}
    assert mesh.settled("PUT", f"/v1/topics/{name}", json=declared).status_code == 201
    assert mesh.settled("PUT", f"/v1/producer-groups/{name}", json={"check_after": "10m"}).status_code == 201

    def begin(number: int) -> str:
        headers = {"MQ-Producer-Group": name, "Idempotency-Key": f"{name}-{number}"}
        answer = mesh.settled("POST", f"/v1/topics/{name}/transactions", content=b"%d" % number, headers=headers)
        return str(answer.json()["transaction_id"])

    def end(one: str, verb: str) -> int:
        return mesh.settled("POST", f"/v1/transactions/{one}/{verb}").status_code

    with ProxyPages([mesh.endpoint], timeout_ms=10_000, retries=20, retry_interval_ms=100) as pages:
        begun = [begin(number) for number in range(6)]
        assert reads(pages, name) == []
        for number, one in enumerate(begun[:5]):
            assert end(one, "rollback" if number % 2 else "commit") == 200
        assert reads(pages, name) == [b"0", b"2", b"4"]
        assert end(begun[5], "commit") == 200
        assert reads(pages, name) == [b"0", b"2", b"4", b"5"]
