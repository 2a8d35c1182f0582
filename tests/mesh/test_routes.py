"""What name servers tell: where a topic lives, its ordered configuration, and a broker group that may not be written for a while."""

import json
from typing import Any

from tests.support.mesh.mesh import Mesh, eventually


def route(mesh: Mesh, topic: str, proxy: int = 0) -> dict[str, Any]:
    """The topic's route as a proxy knows it."""
    answer = mesh.patient("GET", f"/v1/topics/{topic}/route", proxy=proxy)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_a_route_names_queues_nodes_and_the_leader_at_every_proxy(mesh: Mesh) -> None:
    """Proxies follow it as soon as a topic grows; a topic that is not there is a problem that says how to create it."""
    mesh.create("routed", queues=3)
    assert mesh.patient("PUT", "/v1/topics/routed", json={"queues": 5}).status_code == 200
    for proxy in (0, 1):

        def is_complete(proxy: int = proxy) -> bool:
            found = route(mesh, "routed", proxy)
            group = found["broker_groups"]["broker-a"]
            queues = [data["write_queues"] for data in found["queue_data"]]
            return queues == [5] and len(group["nodes"]) == 3 and group["leader"] == mesh.leader(within_s=30)

        eventually(is_complete, within_s=30, what=f"the whole route at proxy {proxy}")
    unknown = mesh.patient("GET", "/v1/topics/never-routed/route")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "topic-not-found")
    assert "PUT /v1/topics/never-routed" in unknown.json()["detail"]


def test_an_ordered_configuration_reaches_every_proxy(mesh: Mesh) -> None:
    """Told once by the command line to both name servers; taken back again."""
    mesh.create("ordered-config", queues=4)
    mesh.run("namesrv", "kv", "put", "ORDER_TOPIC_CONFIG", "ordered-config", "broker-a:4")
    for proxy in (0, 1):
        eventually(
            lambda proxy=proxy: route(mesh, "ordered-config", proxy)["order"] == "broker-a:4",  # type: ignore[misc]
            within_s=40,
            what=f"the ordered configuration at proxy {proxy}",
        )
    listed = json.loads(mesh.run("namesrv", "kv", "ls", "ORDER_TOPIC_CONFIG", "-o", "json").stdout)
    assert "ordered-config" in json.dumps(listed)
    mesh.run("namesrv", "kv", "rm", "ORDER_TOPIC_CONFIG", "ordered-config")
    eventually(lambda: not route(mesh, "ordered-config")["order"], within_s=40, what="no ordered configuration")


def test_a_group_without_write_permission_takes_no_sends_and_goes_on_reading(mesh: Mesh) -> None:
    """503 with its own code until it is restored; what was stored before is received meanwhile."""
    mesh.create("withdrawn", "withdrawn-readers", queues=1)
    send = "/v1/topics/withdrawn/messages"
    assert mesh.patient("POST", send + "?idempotency_key=w1", content=b"before").status_code in {200, 201}

    def is_refused() -> bool:
        answer = mesh.call("POST", send, content=b"x")
        return answer.status_code == 503 and answer.json()["code"] == "broker-group-not-writable"

    mesh.run("namesrv", "wipe-write", "broker-a")
    try:
        eventually(is_refused, within_s=30, what="a refused send")
        path = "/v1/topics/withdrawn/groups/withdrawn-readers/receive"
        got = mesh.patient("POST", path, json={"wait": "10s", "attempt_id": "withdrawn"}).json()["messages"]
        assert got[0]["body"] == "before"
        assert [data["perm"] for data in route(mesh, "withdrawn")["queue_data"]] == [4]
        assert mesh.settled("GET", "/v1/cluster").json()["broker_groups"]["broker-a"]["writable"] is False
    finally:
        mesh.run("namesrv", "restore-write", "broker-a")
    for proxy in (0, 1):
        answer = mesh.settled(
            "POST", f"{send}?idempotency_key=w{proxy + 2}", content=b"after", proxy=proxy, within_s=40
        )
        assert answer.status_code in {200, 201, 504}, answer.text
