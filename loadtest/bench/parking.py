"""The figures of parked receives: the cost of thousands, and the latency of one message to them."""

import asyncio
import contextlib
import re
import statistics
import time
from collections.abc import AsyncIterator

import msgspec

from loadtest.bench.closed_loop import BenchFailed, prepare
from loadtest.bench.figures import Figure
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.own_mesh import HOST, OwnMesh
from loadtest.bench.process_cpu import cpu_seconds, memory_mb
from tern_wire import paths

POLLS = 5_000
MESSAGES = 300
TOPIC, GROUP = "parked", "waiting"
IDLE_S = 8.0
# Before the mesh counts as at rest: first saves, memory that is given back.
REST_S = 5.0
PARKED_WITHIN_S = 20.0
# Between two messages: all receives are parked again before the next one.
PAUSE_S = 0.03
_PARKED = re.compile(rb"^\w*parked_polls\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)
_JSON = {"Content-Type": paths.JSON}


class _Message(msgspec.Struct):
    receipt_handle: str
    body: str


class _Reply(msgspec.Struct):
    messages: list[_Message]


class _Polls:
    """Many connections that wait, each for one message at a time.

    Owns the arrived messages and their times (s).
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._stopped = False
        self.waiting = 0
        self._wanted, self.all_wait = 0, asyncio.Event()
        self._expected, self.all_came = 0, asyncio.Event()
        self.arrived: dict[str, float] = {}
        self.empty = 0

    async def run(self, count: int) -> list[asyncio.Task[None]]:
        """Open *count* connections and park them."""
        tasks = []
        self._wanted = count
        for first in range(0, count, 100):
            opened = await asyncio.gather(
                *(HttpConnection.open(HOST, self._port) for _ in range(min(100, count - first)))
            )
            tasks += [asyncio.create_task(self._poll(connection)) for connection in opened]
        await self.all_wait.wait()
        return tasks

    def expect(self, messages: int) -> None:
        """Set `all_came` once *messages* messages have arrived."""
        self._expected = messages

    def stop(self) -> None:
        """Send no more requests."""
        self._stopped = True

    async def _poll(self, connection: HttpConnection) -> None:
        decode = msgspec.json.Decoder(_Reply).decode
        handles: list[str] = []
        while not self._stopped:
            settle = [{"receipt_handle": handle, "action": "ack"} for handle in handles]
            body = msgspec.json.encode({"max_messages": 1, "wait": "30s", "settle": settle})
            self.waiting += 1
            if self.waiting == self._wanted:
                self.all_wait.set()
            status, answer = await connection.request(*prepare("POST", paths.receive_path(TOPIC, GROUP), body, _JSON))
            self.waiting -= 1
            if status != 200:
                raise BenchFailed(f"a receive got {status}: {answer[:300]!r}")
            now_s = time.perf_counter()
            messages = decode(answer).messages
            self.empty += not messages
            handles = [message.receipt_handle for message in messages]
            for message in messages:
                if message.body in self.arrived:
                    raise BenchFailed(f"message {message.body} came twice")
                self.arrived[message.body] = now_s
            if len(self.arrived) == self._expected:
                self.all_came.set()


async def bench_parked(mesh: OwnMesh, *, polls: int = POLLS, messages: int = MESSAGES) -> AsyncIterator[Figure]:
    """Yield parked_cost and parked_delivery.

    parked_cost: memory of the broker that grew most with all receives parked, CPU of the broker
    that used most, of every process, and of every process at rest before; `cpu_percent_more` is
    what the parked receives cost all of them. parked_delivery: ms from the answer of a send.
    """
    mesh.ask("PUT", paths.topic_path(TOPIC), {"queues": 4})
    mesh.ask("PUT", paths.group_path(GROUP), {"invisible": "60s"})
    brokers = {name: pid for name, pid in mesh.pids.items() if name.startswith("broker-")}
    before = {name: memory_mb({name: pid})[0] for name, pid in brokers.items()}
    await asyncio.sleep(REST_S)
    services = {name: pid for name, pid in mesh.pids.items() if name != "load"}
    at_rest = await _cpu_percent(services)
    waiting = _Polls(mesh.port)
    tasks = await waiting.run(polls)
    await _all_parked(mesh, polls)
    percent = await _cpu_percent(services)
    grown = {name: memory_mb({name: pid})[0] - before[name] for name, pid in brokers.items()}
    proxy_mb = round(memory_mb({name: pid for name, pid in mesh.pids.items() if name.startswith("proxy-")})[0], 1)
    more = {
        "polls": polls,
        "cpu_percent": max(percent[name] for name in brokers),
        "cpu_percent_more": round(sum(percent.values()) - sum(at_rest.values()), 2),
        "cpu_percent_each": percent,
        "cpu_percent_at_rest": at_rest,
        "proxy_mb": proxy_mb,
    }
    yield Figure(bench="parked", figure="parked_cost", value=max(grown.values()), unit="MB", more=more)
    yield await _deliver(mesh, waiting, messages, tasks)


async def _cpu_percent(pids: dict[str, int]) -> dict[str, float]:
    """Return the percentage of a core that each process uses without requests."""
    cpu, began_s = cpu_seconds(pids), time.perf_counter()
    await asyncio.sleep(IDLE_S)
    took_s, after = time.perf_counter() - began_s, cpu_seconds(pids)
    return {name: round((after[name] - cpu[name]) / took_s * 100, 2) for name in pids}


async def _all_parked(mesh: OwnMesh, polls: int) -> None:
    """Wait until the proxy reports all receives as parked.

    Their requests were sent before, but the look at the queues still costs the broker CPU.
    """
    deadline_s = time.perf_counter() + PARKED_WITHIN_S
    connection = await HttpConnection.open(HOST, mesh.port)
    while True:
        _, text = await connection.request(*prepare("GET", "/metrics", b""))
        found = _PARKED.search(text)
        if found and float(found[1]) >= polls:
            return
        if time.perf_counter() > deadline_s:
            raise BenchFailed(
                f"{found and found[1].decode()} of {polls} polls are parked after {PARKED_WITHIN_S:.0f} s"
            )
        await asyncio.sleep(0.1)


async def _deliver(mesh: OwnMesh, waiting: _Polls, messages: int, tasks: list[asyncio.Task[None]]) -> Figure:
    waiting.expect(messages)
    sender = await HttpConnection.open(HOST, mesh.port)
    asked, answered = [], []
    for number in range(messages):
        asked.append(time.perf_counter())
        status, body = await sender.request(*prepare("POST", paths.messages_path(TOPIC), str(number).encode()))
        answered.append(time.perf_counter())
        if status != 201:
            raise BenchFailed(f"a send got {status}: {body[:300]!r}")
        await asyncio.sleep(PAUSE_S)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(waiting.all_came.wait(), 5)
    waiting.stop()
    failed = [task.exception() for task in tasks if task.done() and not task.cancelled() and task.exception()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if failed or len(waiting.arrived) != messages:
        raise BenchFailed(f"{len(waiting.arrived)} of {messages} messages came: {failed[:1]}")
    late_ms = sorted(max(0.0, waiting.arrived[str(number)] - answered[number]) * 1_000 for number in range(messages))
    whole_ms = sorted((waiting.arrived[str(number)] - asked[number]) * 1_000 for number in range(messages))
    p50, p99 = statistics.median(late_ms), late_ms[int(messages * 0.99)]
    more = {
        "p50_ms": round(p50, 2),
        "p99_ms": round(p99, 2),
        "from_asking_p50_ms": round(statistics.median(whole_ms), 2),
        "from_asking_p99_ms": round(whole_ms[int(messages * 0.99)], 2),
        "woken_for_nothing": waiting.empty,
    }
    return Figure(bench="parked", figure="parked_delivery", value=p50, unit="ms", more=more)
