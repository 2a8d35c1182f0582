"""Retention on real processes: every node drops the same segments, readers are told where the log begins, restarts agree."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.mesh.mesh import Mesh, eventually, running_mesh

SEGMENT_SIZE_BYTES = 16 << 20


def fill(mesh: Mesh, size_bytes: int) -> None:
    """Send so many bytes in messages of 60,000."""
    messages = [{"body": "x" * 60_000} for _ in range(20)]
    for _ in range(size_bytes // (60_000 * 20) + 1):
        assert mesh.settled("POST", "/v1/topics/old/messages/batch", json={"messages": messages}).status_code == 200


def begins(mesh: Mesh) -> set[Any]:
    """Where the logs of all nodes begin: first index and names of the segments that are left before the last one."""
    found = set()
    for node in mesh.brokers():
        names = sorted(path.name for path in (mesh.directory / "data" / node / "commitlog").glob("0*"))
        found.add((mesh.broker(node).get("log_first_index"), names[0]))
    return found


def test_every_node_drops_the_same_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By size; a leased message of the oldest segment stays readable; after `kill -9` of all nothing has come back."""
    monkeypatch.setenv("TERN_BROKER_RETENTION_BYTES", str(SEGMENT_SIZE_BYTES))
    with running_mesh(tmp_path, "--brokers", "3") as mesh:
        mesh.create("old", group="slow", queues=1, invisible="1s")
        mesh.settled("POST", "/v1/topics/old/messages", content=b"the first")
        receive = "/v1/topics/old/groups/slow/receive"
        (held,) = mesh.settled("POST", receive, json={"max_messages": 1, "wait": "5s", "invisible": "5m"}).json()[
            "messages"
        ]
        assert held["body"] == "the first"
        fill(mesh, 4 * SEGMENT_SIZE_BYTES)
        mesh.client.post(mesh.broker_http(mesh.leader()) + "/v1/broker/trim")
        (begin,) = eventually(
            lambda: found if len(found := begins(mesh)) == 1 and min(found)[0] > 1 else None,
            within_s=60,
            what="all nodes begin at the same place",
        )
        assert begin[1] != "0" * 20
        (queue,) = mesh.settled("GET", "/v1/topics/old/offsets").json()["queues"]
        assert queue["min_offset"] > 0
        gone = mesh.settled("GET", "/v1/topics/old/queues/broker-a:0/messages?offset=0")
        assert (gone.status_code, gone.json()["code"], gone.json()["min_offset"]) == (
            410,
            "offset-expired",
            queue["min_offset"],
        )
        for node in mesh.brokers():
            mesh.kill(node)
        mesh.run("up")
        (after,) = mesh.settled("GET", "/v1/topics/old/offsets").json()["queues"]
        assert after["min_offset"] >= queue["min_offset"]
        path = f"/v1/topics/old/queues/broker-a:0/messages?offset={after['min_offset']}&max_messages=1"
        assert mesh.settled("GET", path).json()["messages"][0]["offset"] == after["min_offset"]
        ack = mesh.settled("POST", "/v1/topics/old/groups/slow/ack", json={"receipt_handles": [held["receipt_handle"]]})
        assert ack.json()["failed"] == 0
