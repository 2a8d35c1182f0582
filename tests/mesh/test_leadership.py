"""Leadership through real processes: what the nodes say of it, and handing it over while messages are sent."""

import json
import threading
from collections import Counter
from functools import partial

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
    assert eventually(partial(shown_leader, mesh), within_s=20, what="one leader, whoever is asked") >= (told["term"],)
    if mesh.term() == told["term"]:
        assert mesh.leader() == to, "in the term that it was handed over in"


def shown_leader(mesh: Mesh) -> tuple[int, str] | None:
    """Term and name of the leader, if the brokers, a proxy and the leader's metrics say the same in this moment; else None."""
    rows = {row["node"]: row for row in json.loads(mesh.run("raft", "status", "-o", "json").stdout)}
    assert rows.keys() == set(mesh.brokers())
    leader = next((name for name, row in rows.items() if (row["role"], row["serving"]) == ("leader", True)), "")
    if not leader or {row["peers"] for row in rows.values()} != {2}:
        return None
    group = mesh.call("GET", "/v1/cluster").json()["broker_groups"]["broker-a"]
    facts = {name: node["raft"] for name, node in group["nodes"].items()}
    is_told = all(
        fact and fact["commit_index"] > 0 and fact["lag"] is not None and fact["fsync_ms"] > 0
        for fact in facts.values()
    )
    if not is_told or {name for name, fact in facts.items() if fact["role"] == "leader"} != {leader}:
        return None
    metrics = mesh.client.get(mesh.broker_http(leader) + "/metrics").text
    shown = [f'ternmq_broker_follower_lag_entries{{peer="{name}"}}' in metrics for name in rows if name != leader]
    if "ternmq_broker_is_leader 1.0" not in metrics or not all(shown):
        return None
    term = int(rows[leader]["term"])
    return (term, leader) if (group["leader"], group["term"]) == (leader, term) else None


@pytest.mark.calm
def test_a_follower_does_not_hand_over_what_it_has_not(mesh: Mesh) -> None:
    """409, and who leads."""
    leader = mesh.leader()
    follower = next(name for name in mesh.brokers() if name != leader)
    answer = mesh.client.post(mesh.broker_http(follower) + "/v1/broker/transfer", json={})
    assert (answer.status_code, answer.json()["leader"], bool(answer.json()["reason"])) == (409, leader, True)


@pytest.mark.calm
def test_a_read_lease_outlives_the_leader_that_granted_it(mesh: Mesh) -> None:
    """It is replicated: the next leader renews it, lists it, ends it, and takes the next one."""
    mesh.create("leased-reads")
    assert mesh.call("POST", "/v1/topics/leased-reads/messages", content=b"x").status_code == 201
    wanted = {"topics": [{"topic": "leased-reads"}], "for": "10m"}
    # The feature level rises once all members of a new group are connected.
    taken = eventually(
        lambda: answer if (answer := mesh.call("POST", "/v1/read-leases", json=wanted)).status_code == 201 else None,
        within_s=20,
        what="a lease",
    ).json()
    (topic,) = taken["topics"]
    assert sum(row["end"] - row["begin"] for row in topic["queues"]) == 1
    to = next(name for name in mesh.brokers() if name != mesh.leader())
    told = json.loads(mesh.run("raft", "transfer-leader", "--to", to, "-o", "json").stdout)
    assert told["leader"] == to
    renewed = mesh.call("PUT", f"/v1/read-leases/{taken['lease']}", json={"for": "1h"})
    assert renewed.status_code == 200, renewed.text
    assert renewed.json()["leased_until"] > taken["leased_until"]
    shown = mesh.call("GET", "/v1/read-leases").json()["leases"]
    assert taken["lease"] in {row["lease"] for row in shown}
    assert mesh.call("DELETE", f"/v1/read-leases/{taken['lease']}").status_code == 204
    assert mesh.call("PUT", f"/v1/read-leases/{taken['lease']}").json()["code"] == "read-lease-not-found"
