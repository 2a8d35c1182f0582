"""The effect of consumers that are far behind on producers.

A backlog of 1,000,000 messages is read at full speed while producers send at half of theirs.
"""

import asyncio
import itertools
import random
import statistics
from collections.abc import AsyncIterator
from concurrent.futures import Executor

from loadtest.bench.beside import Consumed, consume, second_process
from loadtest.bench.closed_loop import BenchFailed, run_closed_loop, run_to_end
from loadtest.bench.delivery.sizes import Sizes
from loadtest.bench.figures import Figure
from loadtest.bench.own_mesh import OwnMesh
from loadtest.bench.pacing import Paced, run_paced
from loadtest.bench.receiving import GROUP, check_committed
from loadtest.bench.sending import (
    BATCH_CONNECTIONS,
    BATCH_MESSAGES,
    batch_requests,
    check_stored,
    send_batches,
    send_singles,
    single_requests,
)
from tern_wire import paths

PRODUCERS = 64
_QUEUES = 8


async def load_backlog(mesh: OwnMesh, topic: str, messages: int, rng: random.Random) -> int:
    """Fill a topic with about *messages* messages of 1 KiB; return their number.

    They are sent in whole batches of 100.
    """
    mesh.ask("PUT", paths.topic_path(topic), {"queues": _QUEUES})
    requests = itertools.islice(itertools.cycle(batch_requests(topic, rng)), messages // BATCH_MESSAGES)
    sent = await run_to_end(mesh.port, BATCH_CONNECTIONS, send_batches(requests))
    check_stored(mesh, topic, sent.total)
    return sent.total


class Producers:
    """Single sends of 1 KiB over 64 connections. Owns the number of acknowledged messages."""

    def __init__(self, mesh: OwnMesh, topic: str, sizes: Sizes, rng: random.Random) -> None:
        self._mesh, self._topic, self._sizes = mesh, topic, sizes
        self._step = send_singles(itertools.cycle(single_requests(topic, rng)))
        self._acknowledged = 0
        mesh.ask("PUT", paths.topic_path(topic), {"queues": _QUEUES})

    async def at_full_speed(self) -> float:
        """Run one turn at full speed; return messages a second."""
        sizes = self._sizes
        run = await run_closed_loop(
            *(self._mesh.port, PRODUCERS, self._step),
            seconds=sizes.seconds,
            pids=self._mesh.pids,
            warm_up_s=sizes.warm_up_s,
        )
        self._acknowledged += run.total
        return run.per_s

    async def paced(self, per_s: float) -> Paced:
        """Run one turn at this pace."""
        sizes = self._sizes
        run = await run_paced(
            *(self._mesh.port, PRODUCERS, self._step),
            per_s=per_s,
            seconds=sizes.turn_s,
            warm_up_s=sizes.turn_warm_up_s,
        )
        self._acknowledged += run.total
        return run

    def check(self) -> None:
        """Raise BenchFailed unless the acknowledged messages are stored."""
        check_stored(self._mesh, self._topic, self._acknowledged)


async def bench_backlog(mesh: OwnMesh, sizes: Sizes, rng: random.Random) -> AsyncIterator[Figure]:
    """Yield backlog_reader: turns of paced sends without and with consumers.

    The consumers are a process of their own. The value is the producers' rate beside them.
    """
    topic = "backlog"
    backlog = await load_backlog(mesh, topic, sizes.backlog_messages, rng)
    mesh.ask("PUT", paths.group_path(GROUP), {"invisible": "10m"})
    producers = Producers(mesh, "producing", sizes, rng)
    fastest = await producers.at_full_speed()
    alone: list[Paced] = []
    beside: list[Paced] = []
    read: list[Consumed] = []
    with second_process() as process:
        for _ in range(sizes.rounds):
            alone.append(await producers.paced(fastest / 2))
            paced, consumed = await _both(mesh, topic, producers, fastest / 2, sizes, process)
            beside.append(paced)
            read.append(consumed)
    producers.check()
    acked = sum(one.acked for one in read)
    if not acked:
        raise BenchFailed("the consumers received nothing")
    check_committed(mesh, topic, GROUP, acked)
    p99_ms, alone_ms = (statistics.median(one.p99_ms for one in turns) for turns in (beside, alone))
    per_s = statistics.median(one.per_s for one in beside)
    more = {
        "full_speed": round(fastest),
        "pace": round(fastest / 2),
        "pace_kept": round(per_s / (fastest / 2), 3),
        "p50_ms": round(statistics.median(one.p50_ms for one in beside), 3),
        "p99_ms": round(p99_ms, 3),
        "alone_p99_ms": round(alone_ms, 3),
        "p99_ratio": round(p99_ms / alone_ms, 3),
        "read_per_s": round(statistics.median(one.per_s for one in read)),
        "backlog": backlog,
        "backlog_left": backlog - acked,
        "rounds": sizes.rounds,
    }
    yield Figure(bench="delivery", figure="backlog_reader", value=per_s, unit="msg/s", more=more)


async def _both(
    mesh: OwnMesh, topic: str, producers: Producers, per_s: float, sizes: Sizes, process: Executor
) -> tuple[Paced, Consumed]:
    """Run one turn of both; the consumers begin with the producers' warm-up and end with them."""
    loop = asyncio.get_running_loop()
    consuming = loop.run_in_executor(process, consume, mesh, topic, GROUP, sizes.turn_s, sizes.turn_warm_up_s)
    return await producers.paced(per_s), await consuming
