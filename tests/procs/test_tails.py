"""Tails over real processes: 2,000 messages while both proxies die once, and the bytes of server-sent events at a socket."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx

from tern_client import RetryPolicy, Tail
from tests.support.event_stream import EventStream
from tests.support.mesh.mesh import Mesh, eventually

MESSAGES, BATCH = 2_000, 20
PATIENT = RetryPolicy(deadline_ms=60_000)


def endpoints(mesh: Mesh) -> list[str]:
    """Both proxies."""
    return [mesh.endpoint, f"http://127.0.0.1:{mesh.port_base + 1}"]


def send_all(mesh: Mesh, topic: str, sent: list[int]) -> None:
    """Store all messages, each once, through whichever proxy answers; *sent* grows as they are stored."""
    with httpx.Client(timeout=10, trust_env=False) as client:
        for first in range(0, MESSAGES, BATCH):
            bodies = range(first, first + BATCH)
            messages = [
                {"body": str(n), "queue": f"broker-a:{n % 4}", "idempotency_key": f"{topic}-{n}"} for n in bodies
            ]

            def is_stored(messages: list[dict[str, Any]] = messages) -> bool:
                for endpoint in endpoints(mesh):
                    try:
                        answer = client.post(
                            f"{endpoint}/v1/topics/{topic}/messages/batch", json={"messages": messages}
                        )
                    except httpx.TransportError:
                        continue
                    if answer.status_code == 200:
                        return True
                return False

            eventually(is_stored, within_s=30, what="a proxy that stores")
            sent.extend(bodies)


@contextmanager
def deaths(mesh: Mesh, sent: list[int]) -> Iterator[None]:
    """kill -9 of one proxy after a quarter of the messages, SIGTERM to the other one at three quarters, when the first is back."""

    def kill() -> None:
        eventually(lambda: len(sent) >= MESSAGES // 4, within_s=60, what="a quarter of the messages")
        mesh.kill("proxy-0", signal.SIGKILL)
        eventually(lambda: len(sent) >= MESSAGES * 3 // 4, within_s=60, what="three quarters of the messages")
        mesh.wait_until_whole()
        mesh.kill("proxy-1", signal.SIGTERM)

    with ThreadPoolExecutor() as pool:
        killer = pool.submit(kill)
        yield
        killer.result()


def check_once_and_in_order(found: list[tuple[str, int, str]]) -> None:
    """Of queue, offset and body: every message once, those of each queue by offset."""
    assert sorted(int(body) for _, _, body in found) == list(range(MESSAGES))
    by_queue: dict[str, list[int]] = defaultdict(list)
    for queue, offset, _ in found:
        by_queue[queue].append(offset)
    assert all(offsets == list(range(len(offsets))) for offsets in by_queue.values())


def test_tails_across_dying_proxies_have_no_gap_and_no_repeat(mesh: Mesh) -> None:
    """The SDK's in this process and `ternmq tail` in one of its own, both from the end of an empty topic on."""
    mesh.create("live")
    words = ["tail", "live", "-n", str(MESSAGES), "-o", "json", "--earliest"]
    for endpoint in reversed(endpoints(mesh)):
        words += ["--endpoint", endpoint]
    command = subprocess.Popen(
        [sys.executable, "-m", "tern_cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    sent: list[int] = []

    async def read() -> list[tuple[str, int, str]]:
        async with (
            Tail(endpoints(mesh), "live", start="earliest", max_messages=MESSAGES, policy=PATIENT) as tail,
            asyncio.timeout(90),
        ):
            return [(each.queue, each.offset, each.body.decode()) async for each in tail]

    with ThreadPoolExecutor() as pool, deaths(mesh, sent):
        sender = pool.submit(send_all, mesh, "live", sent)
        found = asyncio.run(read())
        sender.result()
        shown, failures = command.communicate(timeout=60)
    check_once_and_in_order(found)
    assert command.returncode == 0, failures
    lines = [json.loads(line) for line in shown.splitlines()]
    check_once_and_in_order([(each["queue"], each["offset"], each["body"]) for each in lines])


def test_ctrl_c_ends_a_tail_without_a_traceback(mesh: Mesh) -> None:
    """After what was printed, with nothing on stderr."""
    mesh.create("stopped")
    mesh.call("POST", "/v1/topics/stopped/messages", content=b"hello")
    command = subprocess.Popen(
        [sys.executable, "-m", "tern_cli", "tail", "stopped", "--earliest", "--endpoint", mesh.endpoint],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    line = command.stdout.readline()
    assert line.endswith(" hello\n")
    command.send_signal(signal.SIGINT)
    rest, failures = command.communicate(timeout=30)
    assert (rest, failures, command.returncode) == ("", "", 130)


def test_the_bytes_at_a_socket_are_server_sent_events(mesh: Mesh) -> None:
    """As the WHATWG says: in chunks of any size, kept open, ended by the end of the answer; the id continues at the other proxy."""
    mesh.create("bytes")
    for body in (b"plain", b'{"a":\r\n1}', b"two\nlines\r\rand: more"):
        kind = {"content-type": "application/json"} if body.startswith(b"{") else {}
        assert mesh.call("POST", "/v1/topics/bytes/messages", content=body, headers=kind).status_code == 201
    head, stream = read_events(mesh.port_base, "/v1/topics/bytes/tail?from=earliest&max_messages=2", "")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "content-type: text/event-stream\r\n" in head
    assert "transfer-encoding: chunked" in head
    assert "content-length" not in head
    assert stream.retry_ms == 1_000
    assert [event.name for event in stream.events] == ["message", "message", "end"]
    _, rest = read_events(mesh.port_base + 1, "/v1/topics/bytes/tail?idle=0s", stream.events[1].last_event_id)
    documents = [json.loads(event.data) for event in (*stream.events[:2], *rest.events[:-1])]
    assert sorted(json.dumps(each.get("json", each.get("body"))) for each in documents) == sorted(
        ['"plain"', '{"a": 1}', json.dumps("two\nlines\r\rand: more")]
    )


def read_events(port: int, target: str, last_event_id: str) -> tuple[str, EventStream]:
    """The head of the answer, and what an EventSource makes of its chunks, one byte after the other."""
    fields = f"Last-Event-ID: {last_event_id}\r\n" if last_event_id else ""
    stream = EventStream()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n{fields}\r\n".encode())
        with connection.makefile("rb") as answer:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += answer.read(1)
            while size := int(answer.readline(), 16):
                for byte in answer.read(size):
                    stream.feed(bytes((byte,)))
                assert answer.readline() == b"\r\n"
    return head.decode().lower().replace("http/1.1 200 ok", "HTTP/1.1 200 OK"), stream
