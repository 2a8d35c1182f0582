"""A budget that is used up: one error, `overloaded`, with a pause, at once and only where it is; nothing was done, nothing stays behind."""

import socket
from contextlib import ExitStack

from tern_wire.limits import BATCH_SIZE_MAX_BYTES, IN_FLIGHT_SIZE_MAX_BYTES
from tests.mesh.test_topics import patient
from tests.support.mesh import Mesh, eventually


def dial(mesh: Mesh, proxy: int) -> socket.socket:
    """A connection to a proxy that says nothing yet."""
    return socket.create_connection(("127.0.0.1", mesh.port_base + proxy), timeout=10)


def test_bodies_beyond_the_budget_are_refused_at_that_proxy_alone(mesh: Mesh) -> None:
    """Eight announced batches of the largest size are a proxy's budget; a send there waits for no room, reads and the other proxy go on."""
    mesh.create("crowded", queues=1)
    path = "/v1/topics/crowded/messages"
    head = (
        f"POST {path}/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {BATCH_SIZE_MAX_BYTES}\r\n\r\n"
    )
    with ExitStack() as stack:

        def announce() -> None:
            stack.enter_context(dial(mesh, 1)).sendall(head.encode())

        for _ in range(IN_FLIGHT_SIZE_MAX_BYTES // BATCH_SIZE_MAX_BYTES):
            announce()

        def is_refused() -> bool:
            answer = mesh.call("POST", path, content=b"x", proxy=1)
            if answer.status_code == 503 and answer.json()["code"] == "overloaded":
                return True
            announce()  # an earlier one was answered at once, since nobody led
            return False

        eventually(is_refused, within_s=10, what="a refused send")
        refused = mesh.call("POST", path, content=b"x", proxy=1)
        assert refused.status_code == 503, refused.text
        assert int(refused.headers["retry-after"]) >= 1
        assert "bytes of requests in flight" in refused.json()["detail"]
        assert patient(mesh, "GET", "/v1/topics/crowded/offsets", proxy=1).status_code == 200
        sent = patient(mesh, "POST", path, content=b"x", headers={"Idempotency-Key": "elsewhere"})
        assert sent.status_code in {200, 201}
    again = patient(mesh, "POST", path, content=b"y", headers={"Idempotency-Key": "again"}, proxy=1)
    assert again.status_code in {200, 201}
