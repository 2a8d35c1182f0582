"""The client that is to notice nothing: sends at a steady rate, receives what it has sent, and acks it. A process of its own."""

import asyncio
import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.doors.client import LATER, Connection, Door, kind_of

RATE_PER_S = 200
CONNECTIONS = 32
RECEIVERS = 4
TOPIC, GROUP = "steady", "steady"
# Not sent, since all connections waited for an answer.
BUSY = "no connection was free"


@dataclass(slots=True)
class Seen:
    """What one phase was like. Latencies of sends in ms, from the moment at which they were due."""

    seconds: float = 0.0
    answers: Counter[str] = field(default_factory=Counter)
    acked: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def per_s(self) -> float:
        """Messages stored a second."""
        return self.answers["201"] / self.seconds if self.seconds else 0.0

    def percentile(self, share: float) -> float:
        """The latency that this share of sends stays below, in ms."""
        return sorted(self.latencies_ms)[int(share * (len(self.latencies_ms) - 1))] if self.latencies_ms else 0.0

    @property
    def refused(self) -> dict[str, int]:
        """As wrong, but for what a pause of the machine does as well: sends that were not made, since all connections waited (these are missing in
        the rate, and what they waited for is in the slowest sends), and answers that say when to come again."""
        return {kind: count for kind, count in self.wrong.items() if kind != BUSY and LATER not in kind}

    @property
    def postponed(self) -> dict[str, int]:
        """Answers that say when to come again, by their code: an election or a broker that answered nothing for a while."""
        return {kind: count for kind, count in self.wrong.items() if LATER in kind}

    @property
    def wrong(self) -> dict[str, int]:
        """Answers that nobody may get who asks for little."""
        return {kind: count for kind, count in self.answers.items() if kind not in {"201", "200"}}


class Steady:
    """Works until `stop`; `take` ends a phase and begins the next. Owner: one event loop."""

    def __init__(self, door: Door, per_s: float) -> None:
        self._door, self._context, self._per_s = door, door.context(), per_s
        self._seen, self._began_s = Seen(), time.monotonic()
        self._idle = [Connection(door, self._context) for _ in range(CONNECTIONS)]
        self._is_over = False

    async def run(self) -> None:
        """Send, receive and ack."""
        async with asyncio.TaskGroup() as group:
            for _ in range(RECEIVERS):
                group.create_task(self._receive())
            due_s = time.monotonic()
            while not self._is_over:
                due_s += 1 / self._per_s
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                if self._idle:
                    group.create_task(self._send(due_s))
                else:
                    self._seen.answers[BUSY] += 1

    def take(self) -> Seen:
        """What there was since the last time."""
        seen, now_s = self._seen, time.monotonic()
        seen.seconds = now_s - self._began_s
        self._seen, self._began_s = Seen(), now_s
        return seen

    def stop(self) -> None:
        """Everything ends soon."""
        self._is_over = True

    async def _send(self, due_s: float) -> None:
        connection = self._idle.pop()
        try:
            kind = _named(*await connection.ask("POST", f"/v1/topics/{TOPIC}/messages", b"x" * 200))
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            kind = type(error).__name__
        self._idle.append(connection)
        self._seen.answers[kind] += 1
        self._seen.latencies_ms.append((time.monotonic() - due_s) * 1_000)

    async def _receive(self) -> None:
        connection = Connection(self._door, self._context)
        path = f"/v1/topics/{TOPIC}/groups/{GROUP}/receive"
        acks: list[dict[str, Any]] = []
        while not self._is_over:
            asked = json.dumps({"wait": "1s", "max_messages": 32, "settle": acks}).encode()
            try:
                status, answer = await connection.ask("POST", path, asked, "Content-Type: application/json\r\n")
                kind = _named(status, answer)
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                kind = type(error).__name__
            if kind == "200":
                self._seen.acked += len(acks)
                acks = [{"receipt_handle": each["receipt_handle"]} for each in json.loads(answer)["messages"]]
            else:
                self._seen.answers[f"receive {kind}"] += 1
                await asyncio.sleep(0.1)


def _named(status: int, answer: bytes) -> str:
    kind = kind_of(status, answer)
    return f"{kind} ({json.loads(answer).get('code')})" if kind == LATER else kind


def first_in_line() -> None:
    """Its client is on a machine of its own: what it measures is the mesh, not how long it waits for a core itself."""
    with contextlib.suppress(PermissionError):
        os.nice(-5)


def work(door: Door, per_s: float, asked: Any, told: Any) -> None:
    """A process that sends *per_s* messages a second: each thing that comes through *asked* ends a phase, whose Seen goes to *told*; None
    ends it all."""

    async def run() -> None:
        steady = Steady(door, per_s)
        working = asyncio.create_task(steady.run())
        wait: Callable[[], Any] = asked.recv
        while await asyncio.to_thread(wait) is not None:
            told.send(steady.take())
        steady.stop()
        await working

    first_in_line()
    asyncio.run(run())


def one_after_the_other(door: Door, seconds: float, told: Any) -> None:
    """A process: sends without a pause for that time; how many were stored a second, and every other answer, go to *told*."""

    async def run() -> None:
        connection, seen = Connection(door, door.context()), Counter[str]()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            try:
                kind = kind_of(*await connection.ask("POST", f"/v1/topics/{TOPIC}/messages", b"x" * 1024))
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                kind = type(error).__name__
            seen[kind] += 1
        told.send((seen.pop("201", 0) / seconds, dict(seen)))

    first_in_line()
    asyncio.run(run())
