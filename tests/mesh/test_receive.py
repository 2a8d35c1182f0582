"""Receives from several queues: each queue has its turn, also one of another size, and a client that goes away takes nothing with it."""

import json
import socket
import time
from typing import Any

from tests.mesh.test_groups import receive
from tests.support.mesh.mesh import Mesh, eventually


def fill(mesh: Mesh, topic: str, counts: dict[int, int]) -> None:
    """So many messages in each of these queues."""
    messages = [
        {"body": f"{queue}-{number}", "queue": f"broker-a:{queue}", "idempotency_key": f"{topic}-{queue}-{number}"}
        for queue, count in counts.items()
        for number in range(count)
    ]
    answer = mesh.patient("POST", f"/v1/topics/{topic}/messages/batch", json={"messages": messages})
    assert answer.json()["failed"] == 0, answer.text


def ack(mesh: Mesh, topic: str, group: str, messages: list[dict[str, Any]]) -> None:
    """All of them."""
    handles = {"receipt_handles": [message["receipt_handle"] for message in messages]}
    acked = mesh.patient("POST", f"/v1/topics/{topic}/groups/{group}/ack", json=handles)
    assert (acked.status_code, acked.json()["failed"]) == (200, 0), acked.text


def test_a_long_queue_does_not_starve_the_others(mesh: Mesh) -> None:
    """400 messages in one queue and 5 in each of three: all short ones have come before half of the long one has."""
    mesh.create("fair", "fair-readers", queues=4)
    fill(mesh, "fair", {0: 400, 1: 5, 2: 5, 3: 5})
    seen: list[str] = []
    while {f"{queue}-4" for queue in (1, 2, 3)} - set(seen):
        messages = receive(mesh, "fair", "fair-readers", max_messages=8, wait="2s")
        ack(mesh, "fair", "fair-readers", messages)
        seen += [message["body"] for message in messages]
        assert len([body for body in seen if body.startswith("0-")]) < 200
    assert len(seen) == len(set(seen))
    for queue in range(4):
        numbers = [int(body[2:]) for body in seen if body.startswith(f"{queue}-")]
        assert numbers == sorted(numbers)


def test_a_receive_takes_no_more_than_it_may(mesh: Mesh) -> None:
    """By count and by bytes, a single large message excepted; what was left comes with the next one."""
    mesh.create("bounded", "bounded-readers", queues=1)
    messages = [
        {"body": f"{number}" + "x" * 10_000, "queue": "broker-a:0", "idempotency_key": f"bounded-{number}"}
        for number in range(10)
    ]
    sent = mesh.patient("POST", "/v1/topics/bounded/messages/batch", json={"messages": messages})
    assert sent.json()["failed"] == 0, sent.text
    sizes = []
    for most in ({"max_messages": 3}, {"max_bytes": 25_000}, {"max_bytes": 1}, {"max_messages": 256}):
        sizes.append(receive(mesh, "bounded", "bounded-readers", **most))
    assert [len(got) for got in sizes] == [3, 2, 1, 4]
    assert [message["body"][0] for got in sizes for message in got] == [f"{number}" for number in range(10)]


def test_who_hangs_up_while_it_waits_takes_no_message_with_it(mesh: Mesh) -> None:
    """Its poll is over: the message that comes then goes to the one who is there, as its first attempt."""
    mesh.create("hung-up", "hung-up-readers", queues=1)
    body = json.dumps({"wait": "30s"}).encode()
    path = "/v1/topics/hung-up/groups/hung-up-readers/receive"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    before = parked(mesh)
    with socket.create_connection(("127.0.0.1", mesh.port_base), timeout=5) as client:
        client.sendall(head.encode() + body)
        eventually(lambda: parked(mesh) > before, within_s=30, what="a parked poll")
    eventually(lambda: parked(mesh) == before, within_s=30, what="the end of the poll")
    began = time.monotonic()
    fill(mesh, "hung-up", {0: 1})
    (message,) = receive(mesh, "hung-up", "hung-up-readers", wait="10s")
    assert (message["body"], message["attempt"]) == ("0-0", 1)
    assert time.monotonic() - began < 25, "the lease of the one who hung up is 30 s"


def parked(mesh: Mesh) -> float:
    """Polls that wait at the first proxy."""
    lines = mesh.call("GET", "/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if "parked_polls" in line and not line.startswith("#"))
