"""Random bytes thrown at every port of a real mesh: it goes on serving, and its logs hold no traceback."""

import random
import socket
import time

import pytest

from tests.support.mesh.mesh import Mesh

CONNECTIONS = 10_000
AT_ONCE = 100


def garbage(rng: random.Random) -> bytes:
    """Noise, half HTTP, half frames, pickles, huge lengths."""
    kind = rng.randrange(6)
    noise = rng.randbytes(rng.randrange(1, 400))
    if kind == 0:
        return noise
    if kind == 1:
        return b"POST /v1/topics/t/messages HTTP/1.1\r\nContent-Length: " + noise[:8] + b"\r\n\r\n" + noise
    if kind == 2:
        return rng.choice((b"GET / HTTP/1.1\r\n", b"GET \x00 HTTP/9\r\n\r\n", b"\r\n\r\n")) + noise
    if kind == 3:
        return rng.randrange(1 << 32).to_bytes(4, "big") + b"\x01\x00\x00\x15" + noise
    if kind == 4:
        return b"\x00\x00\x00\x40\x01\x00\x00\x15" + b"cos\nsystem\n(S'true'\ntR." + noise
    return b"\xff" * rng.randrange(1, 50) + noise


def throw(ports: list[int], rng: random.Random) -> int:
    """10,000 connections, 100 at a time, each sends garbage, some read the answer, all are closed; how many connected."""
    connected = 0
    open_sockets: list[socket.socket] = []
    for number in range(CONNECTIONS):
        probe = socket.socket()
        probe.settimeout(5)
        try:
            probe.connect(("127.0.0.1", ports[number % len(ports)]))
            probe.sendall(garbage(rng))
            connected += 1
        except OSError:
            probe.close()
            continue
        open_sockets.append(probe)
        if len(open_sockets) >= AT_ONCE:
            victim = open_sockets.pop(rng.randrange(len(open_sockets)))
            if rng.random() < 0.5:
                victim.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            victim.close()
    for probe in open_sockets:
        probe.close()
    return connected


def works(mesh: Mesh, body: str) -> bool:
    """A message goes in and comes out."""
    assert mesh.settled("POST", "/v1/topics/noise/messages", content=body.encode()).status_code == 201
    got = mesh.settled("POST", "/v1/topics/noise/groups/noise-readers/receive", json={"wait": "5s"}).json()["messages"]
    handles = [message["receipt_handle"] for message in got]
    assert mesh.settled(
        "POST", "/v1/topics/noise/groups/noise-readers/ack", json={"receipt_handles": handles}
    ).is_success
    return [body] == [message["body"] for message in got]


@pytest.mark.timeout(450)
def test_random_bytes_at_every_port_leave_the_mesh_serving(mesh: Mesh) -> None:
    """Seeded; every port of every process; no process dies, none logs a traceback."""
    seed = 20261121
    print("seed", seed)
    sizes = mesh.log_sizes()
    mesh.create("noise", "noise-readers")
    assert works(mesh, "before")
    processes = {process["name"]: process for process in mesh.processes()}
    ports = [port for process in processes.values() for port in process.get("ports", {}).values()]
    assert len(ports) == 3 * 3 + 2 + 2 + 1
    began_s = time.monotonic()
    connected = throw(ports, random.Random(seed))
    print(f"{connected} connections to {len(ports)} ports in {time.monotonic() - began_s:.1f} s")
    assert connected > CONNECTIONS * 0.95
    assert works(mesh, "after")
    assert {name: process["pid"] for name, process in processes.items()} == {
        process["name"]: process["pid"] for process in mesh.processes()
    }
    for name, text in mesh.logged_since(sizes).items():
        assert "Traceback" not in text, name
