"""GET /v1/cluster: the nodes' Raft facts, asked for the answer; and how they are made of what nodes say."""

import asyncio
from typing import Any

import pytest

from tern_proxy.core.cluster import raft_facts
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
LEADER: dict[str, Any] = {
    "node": "broker-a-0",
    "role": "leader",
    "serving": True,
    "term": 7,
    "commit_index": 41,
    "applied_index": 40,
    "last_index": 45,
    "synced_index": 44,
    "fsync_ms": 1.5,
    "peers": [
        {"node": "broker-a-1", "connected": True, "match_index": 42},
        {"node": "broker-a-2", "connected": False, "match_index": 30},
    ],
}
FOLLOWER: dict[str, Any] = {**LEADER, "node": "broker-a-1", "role": "follower", "serving": False, "peers": []}


async def nodes_of(mesh: ProxyMesh, *answering: MemoryBroker) -> dict[str, Any]:
    """What the cluster shows of each node, once *answering* have answered in time, which takes several looks on a busy machine."""
    async with asyncio.timeout(30):
        while True:
            found = (await mesh.http.get("/v1/cluster")).json()["broker_groups"]["broker-a"]["nodes"]
            if all(found[node.node]["raft"] is not None for node in answering):
                return dict(found)


async def test_the_cluster_shows_each_nodes_raft_facts_as_of_now() -> None:
    """Fresh with every question; of a node that hangs, and of one whose link is down, nothing."""
    nodes = [MemoryBroker(KEY, node=f"broker-a-{number}", leads=not number) for number in range(3)]
    nodes[0].facts = {**LEADER, "term": 1}
    nodes[1].facts = {**FOLLOWER, "term": 1}
    async with proxy_mesh(*nodes) as mesh:
        link = mesh.proxy.groups["broker-a"].link
        await eventually(lambda: all(node["connected"] for node in link.nodes().values()), "all links")
        nodes[2].is_paused = True
        found = await nodes_of(mesh, nodes[0], nodes[1])
        assert [found[node.node]["connected"] for node in nodes] == [True, True, True]
        assert found["broker-a-0"]["raft"] == {
            "role": "leader",
            "serving": True,
            "term": 1,
            "commit_index": 41,
            "applied_index": 40,
            "last_index": 45,
            "synced_index": 44,
            "lag": 0,
            "fsync_ms": 1.5,
        }
        assert (found["broker-a-1"]["raft"]["role"], found["broker-a-1"]["raft"]["lag"]) == ("follower", 3)
        assert found["broker-a-2"]["raft"] is None
        nodes[0].facts["last_index"] = 46
        await nodes[1].server.stop()
        found = await nodes_of(mesh, nodes[0])
        assert found["broker-a-0"]["raft"]["last_index"] == 46
        assert (found["broker-a-1"]["connected"], found["broker-a-1"]["raft"]) == (False, None)


def test_lag_is_what_the_newest_leader_says() -> None:
    """A deposed one that does not know it yet has no say; without a leader nobody knows."""
    deposed = {**LEADER, "node": "broker-a-1", "term": 6, "last_index": 99, "peers": []}
    facts = raft_facts({"broker-a-0": LEADER, "broker-a-1": deposed, "broker-a-2": FOLLOWER})
    assert {name: fact.lag for name, fact in facts.items() if fact} == {
        "broker-a-0": 0,
        "broker-a-1": 3,
        "broker-a-2": 15,
    }
    (alone,) = raft_facts({"broker-a-1": FOLLOWER}).values()
    assert alone is not None
    assert alone.lag is None


def test_a_node_that_says_nothing_has_no_facts() -> None:
    """And does not disturb the others'."""
    facts = raft_facts({"broker-a-0": LEADER, "broker-a-1": {}})
    assert facts["broker-a-1"] is None
    assert facts["broker-a-0"] is not None
