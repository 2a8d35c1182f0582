"""Groups moved: to the ends, to a time, by a shift, to offsets; dry; with leases under way; and what is refused."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.mesh.test_groups import receive
from tests.support.mesh.mesh import Mesh, eventually


def fill(mesh: Mesh, topic: str, count: int, queue: str = "broker-a:0", first: int = 0) -> None:
    """Messages *first*, *first* + 1, ... in one queue, each once."""
    messages = [
        {"body": f"{n}", "queue": queue, "idempotency_key": f"{topic}-{queue}-{n}"} for n in range(first, first + count)
    ]
    answer = mesh.patient("POST", f"/v1/topics/{topic}/messages/batch", json={"messages": messages})
    assert answer.json()["failed"] == 0, answer.text


def seek(mesh: Mesh, group: str, topic: str, to: Any, **more: Any) -> list[tuple[str, int | None, int]]:
    """(queue, before, after) of a seek. While its outcome is not known it is repeated; a shift only if it has not moved the group."""

    def attempt() -> list[tuple[str, int | None, int]] | None:
        begun = offsets_of(mesh, group, topic).json()["offsets"]
        answer = mesh.settled("POST", f"/v1/groups/{group}/seek", json={"topic": topic, "to": to, **more})
        if answer.status_code == 504:
            moved = offsets_of(mesh, group, topic).json()["offsets"]
            is_done = "shift" in to and moved != begun
            return [(queue, begun.get(queue), moved[queue]) for queue in more.get("queues", moved)] if is_done else None
        assert answer.status_code == 200, answer.text
        return [(row["queue"], row["before"], row["after"]) for row in answer.json()["queues"]]

    rows: list[tuple[str, int | None, int]] = eventually(attempt, within_s=30, what=f"a seek of {group}")
    return rows


def same(rows: list[tuple[str, int | None, int]], expected: list[tuple[str, int | None, int]]) -> bool:
    """Whether a seek did this. One that is repeated since its leader died has been at its goal before."""
    repeated = [(queue, after, after) for queue, _, after in expected]
    return rows == expected or ("TERNMQ_FAILOVER_SEED" in os.environ and rows == repeated)


def test_a_group_goes_to_the_ends_and_by_a_shift(mesh: Mesh) -> None:
    """Forward and backward, never beyond what is there; a group that has not begun begins there."""
    mesh.create("seek-ends", "seek-ends-readers", queues=2)
    fill(mesh, "seek-ends", 10)
    group, topic = "seek-ends-readers", "seek-ends"
    assert same(seek(mesh, group, topic, "latest"), [("broker-a:0", None, 10), ("broker-a:1", None, 0)])
    assert receive(mesh, topic, group, max_messages=256) == []
    assert same(seek(mesh, group, topic, {"shift": -3}, queues=["broker-a:0"]), [("broker-a:0", 10, 7)])
    assert [message["body"] for message in receive(mesh, topic, group, max_messages=256)] == ["7", "8", "9"]
    assert same(seek(mesh, group, topic, {"shift": -100}), [("broker-a:0", 7, 0), ("broker-a:1", 0, 0)])
    assert same(seek(mesh, group, topic, {"shift": 100}), [("broker-a:0", 0, 10), ("broker-a:1", 0, 0)])
    assert same(seek(mesh, group, topic, {"offsets": {"broker-a:0": 4}}), [("broker-a:0", 10, 4)])
    assert same(seek(mesh, group, topic, "earliest"), [("broker-a:0", 4, 0), ("broker-a:1", 0, 0)])
    assert [message["offset"] for message in receive(mesh, topic, group, max_messages=256)] == list(range(10))


def test_a_dry_run_moves_nothing(mesh: Mesh) -> None:
    """It answers what would be."""
    mesh.create("seek-dry", "seek-dry-readers", queues=1)
    fill(mesh, "seek-dry", 5)
    args = ("seek-dry-readers", "seek-dry")
    assert same(seek(mesh, *args, "latest", dry_run=True), [("broker-a:0", None, 5)])
    assert mesh.settled("GET", "/v1/groups/seek-dry-readers/offsets?topic=seek-dry").json()["offsets"] == {}
    assert same(seek(mesh, *args, {"offsets": {"broker-a:0": 2}}), [("broker-a:0", None, 2)])
    assert same(seek(mesh, *args, {"shift": -1}, dry_run=True), [("broker-a:0", 2, 1)])
    assert [message["body"] for message in receive(mesh, "seek-dry", "seek-dry-readers", max_messages=256)] == [
        "2",
        "3",
        "4",
    ]


def test_a_group_goes_to_a_time(mesh: Mesh) -> None:
    """The first message that was visible then, by the group's clock."""
    mesh.create("seek-time", "seek-time-readers", queues=1)
    fill(mesh, "seek-time", 3)
    path = "/v1/topics/seek-time/queues/broker-a:0/messages?offset=2"
    last_ms = mesh.settled("GET", path).json()["messages"][0]["stored_at"]
    eventually(lambda: time.time_ns() // 1_000_000 > last_ms + 2, within_s=30, what="a later millisecond")
    fill(mesh, "seek-time", 3, first=3)
    args = ("seek-time-readers", "seek-time")
    assert same(seek(mesh, *args, {"time": last_ms + 1}), [("broker-a:0", None, 3)])
    assert same(seek(mesh, *args, {"time": "2020-01-01T00:00:00Z"}), [("broker-a:0", 3, 0)])
    assert same(seek(mesh, *args, {"time": 9_000_000_000_000}), [("broker-a:0", 0, 6)])


def test_a_seek_ends_leases_and_wakes_those_who_wait(mesh: Mesh) -> None:
    """Handles of before are answered receipt-expired; a parked poll gets what is there again."""
    mesh.create("seek-leases", "seek-leases-readers", queues=1)
    fill(mesh, "seek-leases", 4)
    topic, group = "seek-leases", "seek-leases-readers"
    held = receive(mesh, topic, group, max_messages=256)
    assert len(held) == 4
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receive, mesh, topic, group, wait="25s", max_messages=256)
        assert same(seek(mesh, group, topic, {"offsets": {"broker-a:0": 1}}), [("broker-a:0", 0, 1)])
        assert [message["body"] for message in waiting.result()] == ["1", "2", "3"]
    ack = {"receipt_handles": [message["receipt_handle"] for message in held[1:]]}
    answer = mesh.patient("POST", f"/v1/topics/{topic}/groups/{group}/ack", json=ack)
    assert (answer.status_code, answer.json()["code"]) == (410, "receipt-expired"), answer.text
    assert receive(mesh, topic, group, max_messages=256) == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"to": "latest"}, 400, "invalid-field"),
        ({"topic": "seek-bad"}, 400, "invalid-field"),
        ({"topic": "seek-bad", "to": "middle"}, 400, "invalid-field"),
        ({"topic": "seek-bad", "to": {}}, 400, "invalid-field"),
        ({"topic": "seek-bad", "to": {"shift": 1, "time": 1}}, 400, "invalid-field"),
        ({"topic": "seek-bad", "to": {"shift": 1 << 60}}, 400, "invalid-field"),
        ({"topic": "seek-bad", "to": {"shift": "1"}}, 400, "invalid-field"),
        ({"topic": "seek-bad", "to": {"time": "soon"}}, 400, "invalid-field"),
        ({"topic": "seek-bad", "to": {"time": -1}}, 400, "invalid-field"),
        ({"topic": "seek-bad", "to": {"offsets": {}}}, 400, "invalid-field"),
        ({"topic": "seek-bad", "to": {"offsets": {"broker-a:0": -1}}}, 400, "invalid-field"),
        ({"topic": "seek-bad", "to": {"offsets": {"broker-a:0": 7}}}, 400, "invalid-field"),
        ({"topic": "seek-bad", "to": {"offsets": {"broker-a:9": 0}}}, 404, "queue-not-found"),
        ({"topic": "seek-bad", "to": "latest", "queues": ["broker-a:9"]}, 404, "queue-not-found"),
        ({"topic": "seek-bad", "to": "latest", "queues": []}, 400, "invalid-field"),
        ({"topic": "seek-bad", "to": "latest", "when": "now"}, 400, "unknown-field"),
        ({"topic": "seek-nowhere", "to": "latest"}, 404, "topic-not-found"),
        ({"topic": "no/topic", "to": "latest"}, 400, "illegal-topic"),
    ],
)
def test_bad_seeks_are_problems(mesh: Mesh, body: dict[str, Any], status: int, code: str) -> None:
    """Each with its code, and nobody has moved."""
    mesh.create("seek-bad", "seek-bad-readers", queues=1)
    answer = mesh.settled("POST", "/v1/groups/seek-bad-readers/seek", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert offsets_of(mesh, "seek-bad-readers", "seek-bad").json()["offsets"] == {}


def test_a_group_that_nobody_has_declared_cannot_be_moved(mesh: Mesh) -> None:
    """404, and what to do."""
    mesh.create("seek-nobody", queues=1)
    answer = mesh.settled("POST", "/v1/groups/seek-unheard/seek", json={"topic": "seek-nobody", "to": "latest"})
    assert (answer.status_code, answer.json()["code"]) == (404, "group-not-found"), answer.text


def offsets_of(mesh: Mesh, group: str, topic: str) -> httpx.Response:
    """What the group has committed."""
    return mesh.settled("GET", f"/v1/groups/{group}/offsets?topic={topic}")
