"""Three name servers that never talk to each other, three brokers: two of them killed, brokers killed, stopped and deposed."""

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from tests.procs.test_name_servers import held, lone_proxy
from tests.support.mesh.mesh import Mesh, eventually, running_mesh

NAME_SERVERS = 3
# `ternmq up` expires a silent broker after 5 s and looks every 0.5 s.
EXPIRED_WITHIN_S = 40


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """Three brokers, three name servers, one proxy; each test leaves them running."""
    directory = tmp_path_factory.mktemp("mesh") / "tern"
    with running_mesh(directory, "--brokers", "3", "--namesrvs", str(NAME_SERVERS)) as running:
        yield running


def urls(mesh: Mesh) -> list[str]:
    """All name servers."""
    return [f"http://127.0.0.1:{mesh.port_base + 10 + number}" for number in range(NAME_SERVERS)]


def group_at(mesh: Mesh, url: str) -> dict[str, Any]:
    """What one name server says of the broker group; empty when it does not answer, or does not know it."""
    try:
        group: dict[str, Any] = mesh.client.get(f"{url}/v1/routes").json()["broker_groups"].get("broker-a", {})
    except httpx.TransportError:
        return {}
    return group


def route_at(mesh: Mesh, url: str, topic: str) -> dict[str, Any]:
    """The topic's route at one name server; empty while it has none."""
    answer = mesh.client.get(f"{url}/v1/topics/{topic}/route")
    route: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
    return route


def wait_until_whole(mesh: Mesh) -> str:
    """Until all three brokers are registered at all name servers, which agree on the leader; its name."""

    def leader() -> str:
        groups = [group_at(mesh, url) for url in urls(mesh)]
        names = {group.get("leader", "") for group in groups}
        is_whole = all(len(group.get("nodes", ())) == 3 for group in groups)
        return names.pop() if is_whole and len(names) == 1 else ""

    return str(eventually(leader, within_s=30, what="a whole group at all name servers"))


def is_stored(client: httpx.Client) -> bool:
    """Whether a message is stored, now or by an attempt whose outcome was not known."""
    reply = client.post("/v1/topics/two-dead/messages", content=b"x", headers={"Idempotency-Key": str(client.base_url)})
    return reply.status_code in {200, 201}


def exchange(client: httpx.Client, topic: str, body: bytes) -> None:
    """A message is sent, received and acknowledged; AssertionError otherwise."""
    assert client.post(f"/v1/topics/{topic}/messages", content=body).status_code == 201
    received = client.post(f"/v1/topics/{topic}/groups/readers/receive?wait=10s").json()["messages"]
    handles = {"receipt_handles": [message["receipt_handle"] for message in received]}
    assert len(received) == 1
    assert client.post(f"/v1/topics/{topic}/groups/readers/ack", json=handles).status_code == 200


def test_with_two_of_three_name_servers_dead_everything_goes_on(mesh: Mesh) -> None:
    """Topics are made, messages sent and received, a proxy starts, a leader dies; the two that come back learn everything again."""
    wait_until_whole(mesh)
    with held(mesh):
        for number in range(NAME_SERVERS - 1):
            mesh.kill(f"namesrv-{number}")
        mesh.create("two-dead", "readers")
        with httpx.Client(base_url=mesh.endpoint, trust_env=False, timeout=30) as client:
            exchange(client, "two-dead", b"one")
        key = mesh.directory / "cluster.key"
        with lone_proxy(mesh.port_base + 9, ",".join(urls(mesh)), key, "--cluster", "tern") as fresh:
            eventually(lambda: fresh.get("/readyz").status_code == 200, within_s=30, what="a proxy that is ready")
            eventually(
                lambda: fresh.get("/v1/topics/two-dead/offsets").status_code == 200, within_s=30, what="the topic"
            )
            exchange(fresh, "two-dead", b"two")
            mesh.kill(mesh.leader())
            with httpx.Client(base_url=mesh.endpoint, trust_env=False, timeout=30) as client:
                for proxy in (client, fresh):
                    eventually(partial(is_stored, proxy), within_s=30, what=f"the new leader at {proxy.base_url}")
    wait_until_whole(mesh)
    for url in urls(mesh):
        route = eventually(partial(route_at, mesh, url, "two-dead"), within_s=30, what=f"the topic at {url}")
        assert route["topics"]["two-dead"]["broker-a"]["queues"] == 4


def test_a_deposed_leaders_late_registration_changes_nothing(mesh: Mesh) -> None:
    """Its last heartbeat, delivered after another leads: 409 everywhere; and awake again it follows."""
    leader = wait_until_whole(mesh)
    before = group_at(mesh, mesh.namesrv)
    late = {
        "cluster": "tern",
        "broker_group": "broker-a",
        "node": leader,
        **before["nodes"][leader],
        "is_leader": True,
        "term": before["term"],
        "group_size": 3,
        "data_version": 10**9,
        "topics": {"forged": {"topic_id": 99, "queues": 1}},
    }

    def is_superseded(url: str) -> bool:
        group = group_at(mesh, url)
        return group.get("term", 0) > before["term"] and group["leader"] not in {"", leader}

    with held(mesh):
        mesh.kill(leader, signal.SIGSTOP)
        try:
            for url in urls(mesh):
                eventually(partial(is_superseded, url), within_s=30, what=f"another leader at {url}")
                known = group_at(mesh, url)
                for said in (late, {**late, "topics": {}, "has_topics": False}):
                    answer = mesh.client.post(f"{url}/v1/brokers/register", json=said)
                    assert (answer.status_code, answer.json()["code"]) == (409, "stale-registration")
                routes = mesh.client.get(f"{url}/v1/routes").json()
                assert (routes["broker_groups"]["broker-a"]["leader"], "forged" in routes["topics"]) == (
                    known["leader"],
                    False,
                )
        finally:
            mesh.kill(leader, signal.SIGCONT)
    assert wait_until_whole(mesh) != leader


def _knows_leader(mesh: Mesh, url: str) -> bool:
    return bool(group_at(mesh, url)["leader"] == mesh.leader())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_broker_is_removed_when_it_expires_and_a_stopped_one_at_once(mesh: Mesh, how: signal.Signals) -> None:
    """At every name server, which says in its log which of the two it was."""
    leader = wait_until_whole(mesh)
    node = next(name for name in mesh.brokers() if name != leader)

    def is_removed(url: str) -> bool:
        group = group_at(mesh, url)
        return bool(group) and node not in group["nodes"]

    logs = [mesh.directory / "logs" / f"namesrv-{number}.log" for number in range(NAME_SERVERS)]
    seen = [log.stat().st_size for log in logs]
    with held(mesh):
        mesh.kill(node, how)
        for url in urls(mesh):
            eventually(partial(is_removed, url), within_s=EXPIRED_WITHIN_S, what=f"{node} is removed at {url}")
            # The one that led, or whoever was elected since.
            eventually(partial(_knows_leader, mesh, url), within_s=30, what=f"the leader at {url}")
        for log, size in zip(logs, seen, strict=True):
            with log.open("rb") as file:
                os.lseek(file.fileno(), size, os.SEEK_SET)
                events = [json.loads(line) for line in file.read().splitlines() if line.startswith(b"{")]
            told = {event["event"] for event in events if event.get("node") == node}
            assert told & {"node left", "node expired"} == {"node left" if how is signal.SIGTERM else "node expired"}
    wait_until_whole(mesh)


def test_withdrawn_write_permission_and_configuration_outlive_all_name_servers(mesh: Mesh) -> None:
    """Told once by the command line, kept on disk: every name server is killed and says the same again. Reads go on meanwhile."""
    wait_until_whole(mesh)
    mesh.create("wiped", "readers")
    assert mesh.call("POST", "/v1/topics/wiped/messages", content=b"before").status_code == 201
    mesh.run("namesrv", "kv", "put", "ORDER_TOPIC_CONFIG", "wiped", "broker-a:4")
    mesh.run("namesrv", "wipe-write", "broker-a")

    def refused() -> bool:
        reply = mesh.call("POST", "/v1/topics/wiped/messages", content=b"x")
        return reply.status_code == 503 and reply.json()["code"] == "broker-group-not-writable"

    def is_restarted(name: str, pid: int) -> bool:
        return mesh.pid(name) not in {0, pid}

    try:
        eventually(refused, within_s=30, what="a proxy that sends nothing there")
        pids = {f"namesrv-{number}": mesh.kill(f"namesrv-{number}") for number in range(NAME_SERVERS)}
        for name, pid in pids.items():
            eventually(partial(is_restarted, name, pid), within_s=30, what=f"a new {name}")
        wait_until_whole(mesh)
        for url in urls(mesh):
            assert not group_at(mesh, url)["writable"]
            route = eventually(partial(route_at, mesh, url, "wiped"), within_s=30, what=f"the route at {url}")
            assert (route["order"], route["queue_data"][0]["perm"]) == ("broker-a:4", 4)
        assert refused()
        assert mesh.settled("POST", "/v1/topics/wiped/groups/readers/receive?wait=10s").json()["messages"]
    finally:
        mesh.run("namesrv", "restore-write", "broker-a")
    assert mesh.settled("POST", "/v1/topics/wiped/messages", content=b"after").status_code == 201
