"""Room that is used up: what is only announced takes none, large bodies stop no small request, and who asks too much is told when to come again."""

import socket
from contextlib import ExitStack

from tern_wire.limits import BATCH_SIZE_MAX_BYTES, IN_FLIGHT_SIZE_MAX_BYTES
from tests.support.mesh.mesh import Mesh, eventually

TOPIC = "/v1/topics/crowded/messages"
HEAD = (
    f"POST {TOPIC}/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    f"Content-Length: {BATCH_SIZE_MAX_BYTES}\r\n\r\n"
).encode()


def dial(mesh: Mesh, proxy: int) -> socket.socket:
    """A connection to a proxy that says nothing yet."""
    return socket.create_connection(("127.0.0.1", mesh.port_base + proxy), timeout=10)


def held(mesh: Mesh) -> int:
    """Bytes of bodies that the second proxy holds."""
    lines = mesh.call("GET", "/metrics", proxy=1).text.splitlines()
    return int(float(next(line for line in lines if line.startswith("ternmq_proxy_in_flight_bytes")).split()[-1]))


def answer_to_head(mesh: Mesh) -> bytes:
    """What one more announced batch is answered before any of it comes; b"" when it is waited for."""
    with dial(mesh, 1) as sock:
        sock.sendall(HEAD)
        sock.settimeout(0.5)
        try:
            return sock.recv(4_096)
        except TimeoutError:
            return b""


def test_batches_that_are_only_announced_stop_nobody(mesh: Mesh) -> None:
    """Four times what a proxy may hold, announced: sends, receives and acks there go on, and it is ready."""
    mesh.create("crowded", queues=1)
    # Short: the answer of a receive is lost with a leader, and its messages come again after this time.
    mesh.patient("PUT", "/v1/groups/readers", json={"invisible": "2s"})
    with ExitStack() as stack:
        for _ in range(4 * IN_FLIGHT_SIZE_MAX_BYTES // BATCH_SIZE_MAX_BYTES):
            stack.enter_context(dial(mesh, 1)).sendall(HEAD + b" ")
        sent = mesh.patient("POST", TOPIC, content=b"x", headers={"Idempotency-Key": "beside"}, proxy=1)
        assert sent.status_code in {200, 201}, sent.text
        receive = "/v1/topics/crowded/groups/readers/receive"
        got = eventually(
            lambda: mesh.patient("POST", receive, json={"max_messages": 1}, proxy=1).json()["messages"],
            within_s=30,
            what="the message",
        )
        acks = {"receipt_handles": [got[0]["receipt_handle"]]}
        assert mesh.patient("POST", "/v1/topics/crowded/groups/readers/ack", json=acks, proxy=1).status_code == 200
        assert mesh.patient("GET", "/readyz", proxy=1).json()["room"]["bytes of requests in flight"] == "free"


def test_large_bodies_that_have_come_leave_room_for_small_requests(mesh: Mesh) -> None:
    """All but the ends of as many batches as there is room for: one more is refused by its head, at that proxy alone; small sends go on."""
    mesh.create("crowded", queues=1)
    most = BATCH_SIZE_MAX_BYTES - 1
    with ExitStack() as stack:
        for _ in range(3 * IN_FLIGHT_SIZE_MAX_BYTES // 4 // BATCH_SIZE_MAX_BYTES):
            stack.enter_context(dial(mesh, 1)).sendall(HEAD + b" " * most)
        refused = eventually(lambda: answer_to_head(mesh), within_s=30, what="a refused batch")
        assert refused.startswith(b"HTTP/1.1 503 "), refused
        assert b'"code":"overloaded"' in refused
        assert b"bytes of requests in flight" in refused
        assert b"retry_after_ms" in refused
        sent = mesh.patient("POST", TOPIC, content=b"x", headers={"Idempotency-Key": "small"}, proxy=1)
        assert sent.status_code in {200, 201}, sent.text
    eventually(lambda: held(mesh) == 0, within_s=30, what="all of it given back")
