"""The figure of the SDK: the rate of `send_batch` of a producer in Python.

It is separate from the others, since its cost is the client's.
"""

import asyncio
import random

from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.figures import Figure
from loadtest.bench.own_mesh import HOST, OwnMesh
from loadtest.bench.process_cpu import cpu_seconds, cpu_us_each
from loadtest.bench.sending import BATCH_MESSAGES, BODY_SIZE_BYTES
from tern_client import OutgoingMessage, Producer
from tern_wire import paths

_TASKS = 8
_TOPIC = "sdk"


async def bench_sdk(mesh: OwnMesh, rng: random.Random, *, seconds: float) -> Figure:
    """Return sdk_send_batch: 8 tasks on one Producer, 100 messages in each call.

    Each message has its idempotency key.
    """
    mesh.ask("PUT", paths.topic_path(_TOPIC), {"queues": 8})
    messages = [OutgoingMessage(body=rng.randbytes(BODY_SIZE_BYTES)) for _ in range(BATCH_MESSAGES)]
    clock = asyncio.get_running_loop().time
    sent = 0

    async def send_until(end_s: float) -> None:
        nonlocal sent
        while clock() < end_s:
            outcome = await producer.send_batch(_TOPIC, messages)
            sent += len(outcome.confirmed())

    async with Producer(f"http://{HOST}:{mesh.port}") as producer:
        began_s, cpu = clock(), cpu_seconds(mesh.pids)
        await asyncio.gather(*(send_until(began_s + seconds) for _ in range(_TASKS)))
        took_s, cpu_after = clock() - began_s, cpu_seconds(mesh.pids)
    if mesh.stored(_TOPIC) != sent:
        raise BenchFailed(f"{_TOPIC}: {sent} sends were confirmed, {mesh.stored(_TOPIC)} messages are stored")
    return Figure(
        bench="mesh",
        figure="sdk_send_batch",
        value=sent / took_s,
        unit="msg/s",
        cpu_us_per_message=cpu_us_each(cpu, cpu_after, sent),
    )
