"""Leadership through real processes: what the nodes say of it, and handing it over while messages are sent."""

import json
import threading
from collections import Counter

import httpx
import pytest

from tests.support.mesh.mesh import Mesh, eventually


@pytest.mark.calm
def test_leadership_is_handed_over_and_shown_while_sends_go_on(mesh: Mesh) -> None:
    """`ternmq raft transfer-leader` to a named follower: no send without a key fails, and all who are asked name the new leader."""
    mesh.create("handover")
    statuses: Counter[int] = Counter()
    stop = threading.Event()

    def send() -> None:
        with httpx.Client(timeout=10, trust_env=False) as client:
            while not stop.is_set():
                answer = client.post(f"{mesh.endpoint}/v1/topics/handover/messages", content=b"x")
                statuses[answer.status_code] += 1

    sender = threading.Thread(target=send)
    sender.start()
    try:
        eventually(lambda: statuses[201] > 20, within_s=20, what="some sends")
        before = mesh.leader()
        to = next(name for name in mesh.brokers() if name != before)
        told = json.loads(mesh.run("raft", "transfer-leader", "--to", to, "-o", "json").stdout)
        assert (told["leader"], told["before"], told["broker_group"]) == (to, before, "broker-a")
        more = statuses[201] + 20
        eventually(lambda: statuses[201] > more, within_s=20, what="sends at the new leader")
    finally:
        stop.set()
        sender.join()
    assert statuses.keys() == {201}
    rows = {row["node"]: row for row in json.loads(mesh.run("raft", "status", "-o", "json").stdout)}
    assert rows.keys() == set(mesh.brokers())
    assert (rows[to]["role"], rows[to]["serving"], rows[to]["term"]) == ("leader", True, told["term"])
    assert {name: row["peers"] for name, row in rows.items()} == dict.fromkeys(rows, 2)
    group = mesh.call("GET", "/v1/cluster").json()["broker_groups"]["broker-a"]
    assert (group["leader"], group["term"]) == (to, told["term"])
    facts = {name: node["raft"] for name, node in group["nodes"].items()}
    assert {name: fact["role"] == "leader" for name, fact in facts.items()} == {name: name == to for name in facts}
    assert all(fact["commit_index"] > 0 and fact["lag"] is not None and fact["fsync_ms"] > 0 for fact in facts.values())
    metrics = mesh.client.get(mesh.broker_http(to) + "/metrics").text
    assert "ternmq_broker_is_leader 1.0" in metrics
    assert f'ternmq_broker_follower_lag_entries{{peer="{before}"}}' in metrics


@pytest.mark.calm
def test_a_follower_does_not_hand_over_what_it_has_not(mesh: Mesh) -> None:
    """409, and who leads."""
    leader = mesh.leader()
    follower = next(name for name in mesh.brokers() if name != leader)
    answer = mesh.client.post(mesh.broker_http(follower) + "/v1/broker/transfer", json={})
    assert (answer.status_code, answer.json()["leader"], bool(answer.json()["reason"])) == (409, leader, True)
