"""The bench of what grows: every row is measured, with the topics, bodies and proxies that it names."""

from pathlib import Path

import pytest
import uvloop
from rich.console import Console

from loadtest.bench import growing
from loadtest.bench.own_mesh import OwnMesh
from tests.support.client.scripted_proxy import blocking_proxy
from tests.support.proxy.proxy_in_memory import ProxyInMemory


def test_each_quantity_grows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against proxies in memory: rates of all rows, and a table."""
    monkeypatch.setattr(growing, "BODIES_BYTES", (100, 2_000))
    monkeypatch.setattr(growing, "_proxy_mb", lambda _mesh: 50.0)
    with blocking_proxy(ProxyInMemory("").answer) as proxy:
        mesh = OwnMesh(port=int(proxy.url.rpartition(":")[2]), pids={}, startup_s=1.0, data_dir=tmp_path)
        rows = uvloop.run(growing.rows_of_one_mesh(mesh, 0.1, topics_most=100, connections_most=16))
    assert [(row.grows, row.value) for row in rows] == [
        *(("connections", 1), ("connections", 16), ("body-bytes", 100), ("body-bytes", 2_000)),
        *(("topics", 1), ("topics", 100)),
    ]
    assert min(row.per_s for row in rows) > 0
    console = Console(record=True, width=170)
    growing.show(rows, console)
    assert "2,000" in console.export_text()


def test_every_topic_and_every_body_has_its_turn() -> None:
    """More topics than bodies, and the other way round."""
    many = growing._requests([f"t{number}" for number in range(5)], [b"a", b"b"])
    assert len({next(many)[1] for _ in range(5)}) == 5
    few = growing._requests(["t"], [b"a", b"b", b"c"])
    assert len({next(few) for _ in range(3)}) == 3
