"""The figure of a name server: registrations of four broker groups with a thousand topics each.

Each group then reports that nothing has changed. Over HTTP at a real process of its own, one after
the other on one connection, as when all groups come back at once. Each round is a new reign with
other topics, so that every registration is processed completely.
"""

import asyncio
import json
import socket
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection

from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.figures import Figure
from loadtest.bench.own_mesh import HOST
from tern_wire.link.codec import encode_json
from tern_wire.paths import REGISTER_PATH
from tern_wire.routing.route import Registration, TopicRoute

BROKER_GROUPS, TOPICS, ROUNDS = 4, 1_000, 9
_START_WITHIN_S = 20.0


async def bench_registering() -> Figure:
    """Return register_4x1000: ms until all four have registered.

    Also the ms of four heartbeats that report "unchanged", and the bytes of one.
    """
    return await asyncio.to_thread(_measure)


def _measure() -> Figure:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "tern_namesrv", "--listen", HOST, "--port", str(port), "--cluster", "bench"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - our own module
    connection = HTTPConnection(HOST, port, timeout=30)
    try:
        _wait_until_it_listens(connection)
        registered_ms, unchanged_ms, size_bytes = [], [], 0
        for reign in range(ROUNDS):
            leaders = [_leader(number, reign) for number in range(BROKER_GROUPS)]
            registered_ms.append(_say(connection, leaders))
            unchanged = [replace(leader, topics={}, has_topics=False) for leader in leaders]
            unchanged_ms.append(_say(connection, unchanged))
            size_bytes = max(len(encode_json(said)) for said in unchanged)
        known = len(json.loads(_ask(connection, "GET", "/v1/routes"))["topics"])
    finally:
        connection.close()
        process.terminate()
        process.wait(timeout=30)
    if known != BROKER_GROUPS * TOPICS:
        raise BenchFailed(f"the name server knows {known} topics, not {BROKER_GROUPS * TOPICS}")
    return Figure(
        bench="mesh",
        figure="register_4x1000",
        value=statistics.median(registered_ms),
        unit="ms",
        more={
            "worst_ms": round(max(registered_ms), 1),
            "unchanged_ms": round(statistics.median(unchanged_ms), 2),
            "heartbeat_bytes": size_bytes,
        },
    )


def _leader(number: int, reign: int) -> Registration:
    name = f"broker-{'abcd'[number]}"
    route = [TopicRoute(topic_id=topic, queues=8) for topic in range(TOPICS)]
    return Registration(
        cluster="bench",
        broker_group=name,
        node=f"{name}-0",
        link=f"{HOST}:1{number}911",
        http=f"{HOST}:1{number}913",
        is_leader=True,
        term=reign + 1,
        group_size=3,
        data_version=1,
        topics={f"{name}-topic-{reign % 2}-{topic:04}": route[topic] for topic in range(TOPICS)},
    )


def _say(connection: HTTPConnection, said: list[Registration]) -> float:
    """Return the ms of all registrations, from the documents to the last answer."""
    began_s = time.perf_counter()
    for registration in said:
        _ask(connection, "POST", REGISTER_PATH, encode_json(registration))
    return (time.perf_counter() - began_s) * 1_000


def _ask(connection: HTTPConnection, method: str, path: str, body: bytes | None = None) -> bytes:
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    answer = connection.getresponse()
    told = answer.read()
    if answer.status >= 300:
        raise BenchFailed(f"{method} {path}: {answer.status} {told[:300].decode(errors='replace')}")
    return told


def _wait_until_it_listens(connection: HTTPConnection) -> None:
    until_s = time.monotonic() + _START_WITHIN_S
    while time.monotonic() < until_s:
        with suppress(OSError):
            _ask(connection, "GET", "/readyz")
            return
        connection.close()
        time.sleep(0.02)
    raise BenchFailed(f"the name server does not listen after {_START_WITHIN_S:.0f} s")
