"""A second broker group beside a running mesh, by the command line: it joins, takes its share, and is emptied again; nobody misses a message."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_client import BlockingAdmin, BlockingProducer
from tests.support.mesh.mesh import Mesh, running_mesh
from tests.support.mesh.second_group import BROKER_GROUP, second_group

pytestmark = pytest.mark.calm
RUNNER = CliRunner()


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh of its own, of one broker: other tests' topics are not moved."""
    with running_mesh(tmp_path_factory.mktemp("growing") / "tern", "--brokers", "1") as running:
        yield running


def ternmq(mesh: Mesh, *words: str) -> Result:
    """A command at *mesh*, in JSON."""
    more = ["-o", "json", "--endpoint", mesh.endpoint]
    return RUNNER.invoke(app, [*words, *more])


def received(mesh: Mesh, topic: str, group: str, count: int) -> set[str]:
    """Bodies of *count* messages, acknowledged."""
    found: set[str] = set()
    while len(found) < count:
        asked = {"max_messages": 32, "wait": "20s"}
        messages = mesh.call("POST", f"/v1/topics/{topic}/groups/{group}/receive", json=asked).json()["messages"]
        assert messages, f"only {sorted(found)}"
        found |= {message["body"] for message in messages}
        handles = {"receipt_handles": [message["receipt_handle"] for message in messages]}
        assert mesh.call("POST", f"/v1/topics/{topic}/groups/{group}/ack", json=handles).json()["failed"] == 0
    return found


def test_a_broker_group_joins_a_running_mesh_and_is_emptied_again(growing: Mesh) -> None:
    """Groups of all namespaces come with their settings, every topic gets a place there, and a group that starts with what comes misses nothing."""
    with BlockingAdmin(growing.endpoint) as admin, BlockingProducer(growing.endpoint) as producer:
        admin.create_topic("orders", 2)
        admin.create_group("late", start="latest")
        with BlockingAdmin(growing.endpoint, namespace="shop") as shop:
            shop.create_topic("bills", 1)
            shop.create_group("paying", max_attempts=3)
        growing.call("POST", "/v1/topics/orders/groups/late/receive", json={})
        with second_group(growing) as second:
            second.start()
            name = BROKER_GROUP
            joined = ternmq(growing, "broker-group", "join", name)
            assert joined.exit_code == 0, joined.output
            document = json.loads(joined.stdout)
            moved = {(move["namespace"], move["topic"]): move["broker_groups"] for move in document["moves"]}
            assert moved["", "orders"] == moved["shop", "bills"] == ["broker-a", name]
            assert document["groups"] >= 2
            sent = {f"m{number}" for number in range(20)}
            for body in sorted(sent):
                producer.send("orders", body.encode())
            where: dict[str, Any] = {row.queue: row.max_offset for row in admin.offsets("orders")}
            assert sum(count for queue, count in where.items() if queue.startswith(name)) > 0
            left = admin.broker_group(name)
            assert (left["unread"] > 0, left["is_drained"], left["placed"] >= 2) == (True, False, True)
            assert received(growing, "orders", "late", 20) == sent
            left = admin.broker_group(name)
            assert (left["unread"], left["in_flight"]) == (0, 0)
            _drain(growing, name)


def _drain(mesh: Mesh, name: str) -> None:
    """Nothing new goes there; topics are on their way for as long as keys are remembered, so it is not drained yet."""
    drained = ternmq(mesh, "broker-group", "drain", name, "--namesrv", mesh.namesrv)
    # A topic that has just begun to move there cannot turn round before its time.
    assert drained.exit_code == 1, drained.output
    assert "placement" in json.loads(drained.stderr.splitlines()[-1])["error"]["lines"][0]
    assert not json.loads(drained.stdout)["is_drained"]
    groups = {row["broker_group"]: row for row in json.loads(ternmq(mesh, "broker-group", "ls").stdout)}
    assert groups[name]["leader"] == f"{name}-0"
