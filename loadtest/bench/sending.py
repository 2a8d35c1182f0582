"""The figures of sends: singles over 1, 16 and 64 connections, batches of 100 over 16.

Batches are in MessagePack.
"""

import itertools
import random
from collections.abc import Iterator

import msgspec

from loadtest.bench.ceilings import echo_ceiling, synced_mb_per_s
from loadtest.bench.closed_loop import BenchFailed, Prepared, Step, prepare, run_closed_loop
from loadtest.bench.figures import Figure
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.own_mesh import OwnMesh
from tern_wire import paths

BODY_SIZE_BYTES = 1_024
BATCH_MESSAGES = 100
BATCH_CONNECTIONS = 16
# Different bodies in turn, so that no cache on the way profits from equal bytes.
_BODIES = 64
_QUEUES = 8


class _BatchReply(msgspec.Struct):
    """The used fields of a batch's answer; the receipts stay unparsed."""

    results: list[msgspec.Raw]
    failed: int = 0


_decode_batch_reply = msgspec.msgpack.Decoder(_BatchReply).decode


def single_requests(topic: str, rng: random.Random) -> list[Prepared]:
    """Return whole requests with one random body each."""
    path = paths.messages_path(topic)
    return [prepare("POST", path, rng.randbytes(BODY_SIZE_BYTES)) for _ in range(_BODIES)]


def batch_requests(topic: str, rng: random.Random) -> list[Prepared]:
    """Return whole requests with 100 random bodies each."""
    headers = {"Content-Type": paths.MSGPACK, "Accept": paths.MSGPACK}
    batches = (
        msgspec.msgpack.encode({"messages": [{"body": rng.randbytes(BODY_SIZE_BYTES)} for _ in range(BATCH_MESSAGES)]})
        for _ in range(_BODIES)
    )
    return [prepare("POST", paths.batch_path(topic), body, headers) for body in batches]


def send_singles(requests: Iterator[Prepared]) -> Step:
    """Return a step that sends the next single, until there is none.

    BenchFailed unless the message is stored.
    """

    async def step(connection: HttpConnection) -> int | None:
        request = next(requests, None)
        if request is None:
            return None
        status, body = await connection.request(*request)
        if status != 201:
            raise BenchFailed(f"a send got {status}: {body[:300]!r}")
        return 1

    return step


def send_batches(requests: Iterator[Prepared], messages: int = BATCH_MESSAGES) -> Step:
    """Return a step that sends the next batch of *messages*, until there is none.

    BenchFailed unless every message is stored.
    """

    async def step(connection: HttpConnection) -> int | None:
        request = next(requests, None)
        if request is None:
            return None
        status, body = await connection.request(*request)
        if status != 200:
            raise BenchFailed(f"a batch got {status}: {body[:300]!r}")
        reply = _decode_batch_reply(body)
        if reply.failed or len(reply.results) != messages:
            raise BenchFailed(f"a batch of {messages} got {len(reply.results)} results, {reply.failed} failed")
        return messages

    return step


async def bench_singles(mesh: OwnMesh, connections: int, rng: random.Random, *, seconds: float) -> Figure:
    """Return send_single_N: a request for each message.

    Ceiling: the same requests against a bare echo.
    """
    topic = f"single-{connections}"
    mesh.ask("PUT", paths.topic_path(topic), {"queues": _QUEUES})
    requests = single_requests(topic, rng)
    step = send_singles(itertools.cycle(requests))
    run = await run_closed_loop(mesh.port, connections, step, seconds=seconds, pids=mesh.pids)
    check_stored(mesh, topic, run.total)
    return Figure(
        bench="mesh",
        figure=f"send_single_{connections}",
        value=run.per_s,
        unit="msg/s",
        ceiling=await echo_ceiling(requests, connections),
        cpu_us_per_message=run.cpu_us,
        more={**run.latencies(), "ceiling_is": "echo"},
    )


async def bench_batches(mesh: OwnMesh, topic: str, rng: random.Random, *, seconds: float) -> Figure:
    """Return send_batch.

    Ceiling: as many bodies as three files take, written and fdatasynced 512 KiB at a time.
    """
    mesh.ask("PUT", paths.topic_path(topic), {"queues": _QUEUES})
    requests = batch_requests(topic, rng)
    step = send_batches(itertools.cycle(requests))
    run = await run_closed_loop(mesh.port, BATCH_CONNECTIONS, step, seconds=seconds, pids=mesh.pids)
    check_stored(mesh, topic, run.total)
    disk = synced_mb_per_s(mesh.data_dir)
    echo = BATCH_MESSAGES * await echo_ceiling(requests, BATCH_CONNECTIONS)
    return Figure(
        bench="mesh",
        figure="send_batch",
        value=run.per_s,
        unit="msg/s",
        ceiling=disk * 1e6 / BODY_SIZE_BYTES,
        cpu_us_per_message=run.cpu_us,
        more={
            **run.latencies(),
            "ceiling_is": f"disk, {disk:.0f} MB/s synced into each of 3 files",
            "echo_ceiling": round(echo),
            "mb_per_s": round(run.per_s * BODY_SIZE_BYTES / 1e6, 1),
        },
    )


def check_stored(mesh: OwnMesh, topic: str, acknowledged: int) -> None:
    """Raise BenchFailed unless the topic holds exactly the acknowledged messages."""
    stored = mesh.stored(topic)
    if stored != acknowledged:
        raise BenchFailed(f"{topic}: {acknowledged} sends were acknowledged, {stored} messages are stored")
