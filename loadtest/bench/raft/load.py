"""The load of a leading node in `bench-raft`, and the protocol between node and parent.

    parent -> node   one JSON line: the fields of `Load`
    node -> parent   one JSON line: {"leads": true} at each begin of leadership;
                     {"leads": false} in answer to a `Load` if it does not lead;
                     otherwise the fields of `Loaded`

A node ends when its standard input does.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

# Replicates one payload of the given bytes; done when a majority has it on disk.
Submit = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """*clients* that each send their next payload when the last one is on a majority's disks.

    *grouped*: payloads that wait for an entry under way form the next one, as in the broker.
    """

    size_bytes: int
    clients: int
    seconds: float
    grouped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The result of a load. *cpu_s*: of this process, per second of the load."""

    requests: int
    entries: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds


class Grouping:
    """Group commit as in the broker's proposer.

    One entry is on its way; payloads that arrive meanwhile form the next one.
    """

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self.entries = 0

    async def submit(self, payload: bytes) -> None:
        """Replicate a payload in a group with others."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((payload, done))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
        await done

    async def _drain(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            self.entries += 1
            await self._submit(b"".join(payload for payload, _ in group))
            for _, done in group:
                done.set_result(None)
        self._task = None


async def run_load(load: Load, submit: Submit, now: Callable[[], float] = time.perf_counter) -> Loaded:
    """Run *load*; the first tenth of it does not count. *now*: seconds."""
    payload = os.urandom(load.size_bytes)
    grouping = Grouping(submit) if load.grouped else None
    send = grouping.submit if grouping is not None else submit
    latencies: list[float] = []
    counts_from, ends = now() + load.seconds / 10, now() + load.seconds

    async def client() -> None:
        while (began := now()) < ends:
            await send(payload)
            if began >= counts_from:
                latencies.append(now() - began)

    workers = [asyncio.create_task(client()) for _ in range(load.clients)]
    await asyncio.sleep(max(0.0, counts_from - now()))
    cpu_s, began, entries = time.process_time(), now(), grouping.entries if grouping is not None else 0
    await asyncio.gather(*workers)
    took_s = now() - began
    latencies.sort()
    if not latencies:
        raise RuntimeError("nothing was replicated in time")
    return Loaded(
        requests=len(latencies),
        entries=grouping.entries - entries if grouping is not None else len(latencies),
        seconds=took_s,
        p50_ms=statistics.median(latencies) * 1e3,
        p99_ms=latencies[int(len(latencies) * 0.99)] * 1e3,
        cpu_s=(time.process_time() - cpu_s) / took_s,
    )


async def obey(leads: Callable[[], bool], submit: Submit) -> None:
    """Execute the parent's lines until there are no more."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if leads():
            say(asdict(await run_load(Load(**json.loads(line)), submit)))
        else:
            say({"leads": False})


def say(document: dict[str, Any]) -> None:
    """Send a line to the parent."""
    print(json.dumps(document), flush=True)
