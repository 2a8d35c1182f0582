"""kill -9 on real processes: the leader under load, all brokers at once, a proxy between receive and ack."""

import json
import os
import signal
import threading
import time
from typing import Any

import httpx
import pytest

from tests.support.mesh.mesh import Mesh, eventually


class Sender:
    """Sends keyed batches until told to stop, repeating each with its keys until it is answered 2xx."""

    def __init__(self, endpoint: str, topic: str) -> None:
        self.endpoint, self.topic = endpoint, topic
        self.acked: dict[str, tuple[str, int]] = {}
        self.acked_at_s: list[float] = []
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx.Client(timeout=10, trust_env=False) as client:
            batch = 0
            while not self._stop.is_set():
                keys = [f"{batch}-{number}" for number in range(20)]
                messages = [{"body": key, "idempotency_key": key} for key in keys]
                self._send(client, messages)
                batch += 1

    def _send(self, client: httpx.Client, messages: list[dict[str, str]]) -> None:
        give_up_s = time.monotonic() + 30
        while time.monotonic() < give_up_s:
            reply = client.post(f"{self.endpoint}/v1/topics/{self.topic}/messages/batch", json={"messages": messages})
            if reply.status_code == 200:
                for message, result in zip(messages, reply.json()["results"], strict=True):
                    self.acked[message["body"]] = (result["queue"], result["offset"])
                self.acked_at_s.append(time.monotonic())
                return
            if reply.status_code not in (503, 504):
                self.failures.append(f"{reply.status_code} {reply.text[:300]}")
                return
        self.failures.append("not answered within 30 s")


def stored(mesh: Mesh, topic: str) -> dict[tuple[str, int], str]:
    """Everything in the topic: (queue, offset) to body."""
    found: dict[tuple[str, int], str] = {}
    queues = mesh.settled("GET", f"/v1/topics/{topic}/offsets").json()["queues"]
    for queue in queues:
        at = queue["min_offset"]
        while at < queue["max_offset"]:
            page = mesh.settled(
                "GET", f"/v1/topics/{topic}/queues/{queue['queue']}/messages?offset={at}&max_messages=1000"
            )
            for message in page.json()["messages"]:
                found[message["queue"], message["offset"]] = message["body"]
            at = int(page.headers["mq-next-offset"])
    return found


def settled_offsets(mesh: Mesh, topic: str, group: str) -> dict[str, int]:
    """Committed offsets of a group."""
    offsets: dict[str, int] = mesh.settled("GET", f"/v1/groups/{group}/offsets?topic={topic}").json()["offsets"]
    return offsets


def test_the_death_of_the_leader_loses_nothing_and_stores_nothing_twice(mesh: Mesh) -> None:
    """kill -9 the leader while keyed batches are sent: each acked one is stored once where its receipt says."""
    mesh.create("deaths")
    with Sender(mesh.endpoint, "deaths") as sender:
        eventually(lambda: len(sender.acked) > 500, within_s=20, what="some sends")
        leader = mesh.leader()
        term, pid = mesh.term(), mesh.kill(leader)
        killed_s, before = time.monotonic(), len(sender.acked_at_s)
        eventually(lambda: len(sender.acked_at_s) > before + 20, within_s=20, what="sends at the new leader")
        gap_s = max(b - a for a, b in zip(sender.acked_at_s[before - 1 :], sender.acked_at_s[before:], strict=False))
        print(f"sends were interrupted for {gap_s:.2f} s")
        # The killed broker, once it is back, may have been elected again.
        eventually(lambda: mesh.term() > term, within_s=20, what="a later term")
        eventually(lambda: mesh.pid(leader) != pid, within_s=20, what="the killed broker is started again")
        more = len(sender.acked)
        eventually(lambda: len(sender.acked) > more + 500, within_s=20, what="more sends")
    assert sender.failures == []
    found = stored(mesh, "deaths")
    assert {place: body for body, place in sender.acked.items()} == {
        place: body for place, body in found.items() if body in sender.acked
    }
    assert len(found) == len(set(found.values())), "something was stored twice"
    print(f"{len(sender.acked)} acked, {len(found)} stored, {time.monotonic() - killed_s:.1f} s after the kill")

    def caught_up() -> bool:
        status, lead = mesh.broker(leader), mesh.broker(mesh.leader())
        return bool(status) and status["applied_index"] >= lead["commit_index"] and status["stored"] >= 0

    eventually(caught_up, within_s=20, what="the killed broker has caught up")


def test_the_death_of_all_brokers_keeps_messages_offsets_and_leases(mesh: Mesh) -> None:
    """kill -9 all three at once, `ternmq up` again: acked messages, committed offsets, live and ended leases."""
    mesh.create("all", "survivors", queues=2, invisible="60s")
    messages = [{"body": f"{n}", "idempotency_key": f"k{n}"} for n in range(300)]
    sent = mesh.call("POST", "/v1/topics/all/messages/batch", json={"messages": messages}).json()["results"]
    receive = "/v1/topics/all/groups/survivors/receive"
    first = mesh.call("POST", receive, json={"max_messages": 50}).json()["messages"]
    held = mesh.call("POST", receive, json={"max_messages": 10}).json()["messages"]
    short = mesh.call("POST", receive, json={"max_messages": 10, "invisible": "1s"}).json()["messages"]
    handles = [m["receipt_handle"] for m in first]
    ack = "/v1/topics/all/groups/survivors/ack"
    assert mesh.call("POST", ack, json={"receipt_handles": handles}).json()["failed"] == 0
    before = settled_offsets(mesh, "all", "survivors")
    for name in mesh.brokers():
        mesh.kill(name)
    mesh.run("up")
    assert {(r["queue"], r["offset"]): f"{r['index']}" for r in sent} == stored(mesh, "all")
    assert before == settled_offsets(mesh, "all", "survivors")
    repeated = mesh.settled("POST", "/v1/topics/all/messages/batch", json={"messages": messages}).json()["results"]
    assert [(r["queue"], r["offset"]) for r in sent] == [(r["queue"], r["offset"]) for r in repeated]

    def come_back() -> Any:
        got = mesh.settled("POST", receive, json={"max_messages": 256, "wait": "1s"}).json()["messages"]
        seen.extend(got)
        return len(seen) >= 240

    seen: list[dict[str, Any]] = []
    eventually(come_back, within_s=30, what="everything but the acked and the held ones")
    bodies = [m["body"] for m in seen]
    assert len(bodies) == len(set(bodies))
    assert {m["body"] for m in first + held}.isdisjoint(bodies)
    assert {m["body"] for m in short} <= set(bodies)
    acked = mesh.settled("POST", ack, json={"receipt_handles": [m["receipt_handle"] for m in held]})
    assert (acked.status_code, acked.json()["failed"]) == (200, 0), "a lease from before the deaths is still good"


def test_an_ack_succeeds_at_another_proxy_after_the_first_one_died(mesh: Mesh) -> None:
    """Receive at proxy 0, kill -9 it, ack at proxy 1 with the same handle: nothing comes back."""
    mesh.create("proxies", "proxy-readers", invisible="1s")
    mesh.call("POST", "/v1/topics/proxies/messages", content=b"once")
    got = mesh.call(
        "POST", "/v1/topics/proxies/groups/proxy-readers/receive", json={"wait": "5s", "invisible": "3s"}
    ).json()
    handle = got["messages"][0]["receipt_handle"]
    mesh.kill("proxy-0")
    acked = mesh.settled(
        "POST", "/v1/topics/proxies/groups/proxy-readers/ack", json={"receipt_handles": [handle]}, proxy=1
    )
    assert (acked.status_code, acked.json()["failed"]) == (200, 0)
    again = mesh.call("POST", "/v1/topics/proxies/groups/proxy-readers/receive", json={"wait": "4s"}, proxy=1).json()
    assert again["messages"] == []


def test_without_a_majority_sends_are_503_and_come_back_with_it(mesh: Mesh) -> None:
    """Two of three brokers stopped: no-leader with Retry-After, nothing stored; continued: stored."""
    mesh.create("quorum")
    stopped = [name for name in mesh.brokers() if name != mesh.leader()]
    pids = [mesh.kill(name, signal.SIGSTOP) for name in stopped]
    try:

        def refused() -> Any:
            reply = mesh.call("POST", "/v1/topics/quorum/messages", content=b"x")
            return reply if reply.status_code == 503 else None

        reply = eventually(refused, within_s=20, what="503 without a majority")
        assert reply.json()["code"] == "no-leader"
        assert int(reply.headers["retry-after"]) >= 1
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert mesh.settled("POST", "/v1/topics/quorum/messages", content=b"y", within_s=20).status_code == 201


def test_a_mesh_document_is_json_for_scripts(mesh: Mesh) -> None:
    """What scripts and the demo rely on: names, roles and pids of all processes."""
    document = json.loads(mesh.run("status", "-o", "json").stdout)
    assert {"broker", "proxy", "namesrv"} <= {process["role"] for process in document["processes"]}


pytestmark = pytest.mark.timeout(450)
