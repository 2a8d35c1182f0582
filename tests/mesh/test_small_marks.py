"""Marks that are minutes or hundreds of MiB away by default, in a mesh that has them near: silent members, and readers that are far behind."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.mesh.mesh import Mesh, eventually, running_mesh

EXPIRY_MS = 4_000
OLD_DATA_MIN_BYTES = 256 << 10
BODY_SIZE_BYTES = 64 << 10
QUEUES = 4
HERE = "/v1/groups/silence"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """Three brokers with small marks; it takes the place of the folder's mesh here, for the failover too."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TERN_BROKER_MEMBER_EXPIRY_MS", str(EXPIRY_MS))
        environment.setenv("TERN_BROKER_OLD_DATA_MIN_BYTES", str(OLD_DATA_MIN_BYTES))
        with running_mesh(tmp_path_factory.mktemp("mesh") / "tern") as running:
            yield running


def beat(mesh: Mesh, member: str) -> dict[str, Any]:
    """One heartbeat."""
    said = {"member": member, "subscriptions": {"silence": "*"}}
    answer = mesh.patient("POST", f"{HERE}/members/heartbeat", json=said)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_member_that_falls_silent_is_gone_with_its_queues_and_locks(mesh: Mesh) -> None:
    """Not one that goes on saying that it is there; who is left reads everything, and locks under a later epoch."""
    mesh.create("silence", "silence", queues=QUEUES)
    first, second = beat(mesh, "m1"), beat(mesh, "m2")
    assert {first["expires_in_ms"], second["expires_in_ms"]} == {EXPIRY_MS}
    lock = {"topic": "silence", "queues": ["broker-a:0"]}
    locked = mesh.patient("POST", f"{HERE}/locks", json={**lock, "member": "m1"}).json()["locked"]

    def is_alone() -> bool:
        beat(mesh, "m2")
        members = mesh.patient("GET", f"{HERE}/members").json()["members"]
        assert "m2" in [member["member"] for member in members]
        return len(members) == 1

    eventually(is_alone, within_s=60, what="m1 is gone")
    assert beat(mesh, "m2")["generation"] > second["generation"]
    assignments = mesh.patient("GET", f"{HERE}/assignments?topic=silence").json()["assignments"]
    assert {member: len(queues) for member, queues in assignments.items()} == {"m2": QUEUES}
    again = mesh.patient("POST", f"{HERE}/locks", json={**lock, "member": "m2"}).json()["locked"]
    assert again["broker-a:0"] > locked["broker-a:0"]
    late = mesh.patient("POST", f"{HERE}/locks", json={**lock, "member": "m1"})
    assert (late.status_code, late.json()["code"]) == (404, "member-not-found")


def follower_pulls(mesh: Mesh) -> float:
    """How many pulls followers have answered so far."""
    metrics = mesh.client.get(mesh.endpoint + "/metrics").text
    name = 'ternmq_proxy_follower_pulls_total{of="all"}'
    return next(float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line.startswith(name))


def read_all(mesh: Mesh, topic: str, count: int) -> list[tuple[int, str]]:
    """Offsets and the first letters of all messages, page by page as a job reads them."""
    found: list[tuple[int, str]] = []
    while len(found) < count:
        path = f"/v1/topics/{topic}/queues/broker-a:0/messages?offset={len(found)}&max_bytes={4 * BODY_SIZE_BYTES}"
        page = mesh.patient("GET", path).json()
        assert page["next_offset"] <= page["max_offset"]
        found += [(message["offset"], message["body"][:8]) for message in page["messages"]]
    return found


def test_a_reader_that_is_far_behind_reads_from_followers_and_misses_nothing(mesh: Mesh) -> None:
    """Every message once and in order, and nothing behind the end."""
    mesh.create("old", queues=1)
    bodies = [f"{number:08}" + "x" * BODY_SIZE_BYTES for number in range(48)]
    for number, body in enumerate(bodies):
        key = {"Idempotency-Key": f"old-{number}"}
        sent = mesh.patient("POST", "/v1/topics/old/messages", content=body.encode(), headers=key)
        assert sent.status_code in {200, 201}, sent.text
    wanted = [(number, body[:8]) for number, body in enumerate(bodies)]
    before = follower_pulls(mesh)

    def is_served_by_followers() -> bool:
        assert read_all(mesh, "old", len(bodies)) == wanted
        return follower_pulls(mesh) > before

    eventually(is_served_by_followers, within_s=30, what="a follower that serves old data")
