"""Workers as processes against a real mesh: what a crash loop costs, and what a stop leaves."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tern_client import (
    BlockingProducer,
    OutgoingMessage,
    Producer,
    PulledMessage,
    ReceivedMessage,
    ReplyTimeout,
    Worker,
)
from tests.mesh import test_fifo as fifo
from tests.mesh.test_dead_letters import letters_of
from tests.mesh.test_retry import both, consumer_of, prepare, taken
from tests.support.mesh.mesh import Mesh, eventually

# A leader that dies after it has leased and before it has answered counts an attempt that nobody saw.
pytestmark = pytest.mark.calm
ROOT = Path(__file__).resolve().parents[3]
STARTS, MESSAGES, ATTEMPTS_MAX = 22, 100, 4
PROGRAM = """
import asyncio
import os
from tern_client import ReceivedMessage, Worker

worker = Worker({endpoints!r})


@worker.on({topic!r}, group={group!r}, concurrency=4)
async def handle(message: ReceivedMessage) -> None:
    os.write(1, b"%s %d\\n" % (message.body, message.attempt))  # one write: two processes share the pipe
    await asyncio.sleep(0.005)
"""


def environment() -> dict[str, str]:
    """That of a process in any folder."""
    path = [str(ROOT / "libs"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def rest_of(mesh: Mesh, topic: str, group: str, count: int) -> dict[str, int]:
    """Receive and ack what is left until *count* messages were seen or are dead; attempts by body."""
    seen: dict[str, int] = {}
    with consumer_of(mesh, topic, group) as consumer:

        def is_all_there() -> bool:
            messages = taken(consumer, 100, 500)
            seen.update({message.body.decode(): message.attempt for message in messages})
            assert consumer.ack(*messages) == {} if messages else True
            return len(seen) + len(letters_of(mesh, group)) >= count

        eventually(is_all_there, within_s=30, what="every message, once more or dead")
    return seen


def test_a_crash_loop_kills_no_message_whose_handler_had_not_begun(mesh: Mesh) -> None:
    """22 starts of a worker with 8 places that dies by `kill -9` at its first message, 100 messages: exactly those that were begun count attempts."""
    prepare(mesh, "worker-loop", MESSAGES, "worker-crashing", invisible="1s", max_attempts=ATTEMPTS_MAX)
    command = [sys.executable, "-m", "tests.support.client.crashing_worker", ",".join(both(mesh))]
    done = subprocess.run(
        [*command, "worker-loop", "worker-crashing", str(STARTS)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    begun = Counter(line.split()[0] for line in done.stdout.splitlines())
    assert begun.total() == STARTS
    seen = rest_of(mesh, "worker-loop", "worker-crashing", MESSAGES)
    assert seen == {body: begun[body] + 1 for body in seen}
    assert all(begun[letter["body"]] == ATTEMPTS_MAX for letter in letters_of(mesh, "worker-crashing"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_stop_in_the_middle_leaves_every_message_acked_or_untouched(
    mesh: Mesh, number: signal.Signals, tmp_path: Path
) -> None:
    """`ternmq worker` with two processes: exit code 0, and attempts that count are handlers that began."""
    topic, group = f"worker-{number.name}", f"worker-stopped-{number.name}"
    prepare(mesh, topic, 400, group, invisible="1m")
    (tmp_path / "app.py").write_text(PROGRAM.format(endpoints=both(mesh), topic=topic, group=group))
    command = [sys.executable, "-m", "tern_cli", "worker", "app:worker", "--processes", "2", "--grace", "20s"]
    begun: list[str] = []
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            while len(begun) < 60:
                begun.append(worker.stdout.readline())
            worker.send_signal(number)
            begun += worker.stdout.readlines()
            assert worker.wait(30) == 0
        finally:
            worker.kill()
    handled = {line.split()[0] for line in begun}
    assert len(handled) == len(begun)
    assert {line.split()[1] for line in begun} == {"1"}
    seen = rest_of(mesh, topic, group, 400 - len(handled))
    assert seen.keys().isdisjoint(handled)
    assert set(seen.values()) == {1}


def test_an_ordered_worker_keeps_the_order_of_a_fifo_group_over_failures(mesh: Mesh) -> None:
    """Two workers, eight places each; every tenth message fails at first and holds up its own message group."""
    fifo.prepare(mesh, "worker-steps", "worker-ledger", queues=2, retry={"policy": "custom", "delays": ["200ms"]})
    sent = fifo.by_message_group(fifo.send(mesh, "worker-steps", *(f"g{number % 20}" for number in range(200))))
    seen: list[tuple[str, str]] = []

    async def work() -> None:
        workers = [Worker(both(mesh)), Worker(both(mesh))]

        def subscribe(worker: Worker) -> None:
            @worker.on("worker-steps", group="worker-ledger", concurrency=8, ordered=True)
            async def handle(message: ReceivedMessage) -> None:
                if int(message.body) % 10 == 0 and message.attempt == 1:
                    raise ZeroDivisionError
                seen.append((message.message_group, message.body.decode()))

        for worker in workers:
            subscribe(worker)
        async with workers[0], workers[1], asyncio.timeout(60):
            while len(seen) < 200:
                await asyncio.sleep(0.01)
        rows = [worker.stats().subscriptions[0] for worker in workers]
        assert sum(row.acked for row in rows) == 200
        assert sum(row.failed for row in rows) == 20

    asyncio.run(work())
    assert fifo.by_message_group(seen) == sent


def test_a_broadcast_worker_and_a_replay_read_all_of_a_topic(mesh: Mesh) -> None:
    """From the earliest message on, over four queues; and what comes meanwhile."""
    mesh.create("worker-prices")
    seen: list[bytes] = []

    async def work() -> None:
        worker = Worker(both(mesh))

        @worker.on("worker-prices", broadcast=True, start="earliest", concurrency=4)
        def handle(message: PulledMessage) -> None:
            seen.append(message.body)

        with BlockingProducer(mesh.endpoint) as producer:
            producer.send_batch("worker-prices", [OutgoingMessage(body=b"%d" % number) for number in range(50)])
            async with worker, asyncio.timeout(60):
                while len(seen) < 50:
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(producer.send, "worker-prices", b"new")
                while len(seen) < 51:
                    await asyncio.sleep(0.01)

    asyncio.run(work())
    assert sorted(seen) == sorted([*(b"%d" % number for number in range(50)), b"new"])


def test_what_a_handler_returns_is_the_reply_to_a_request(mesh: Mesh) -> None:
    """As JSON; from an async handler and from a thread. A message that asks for nothing is acked alone, and what cannot be written is a failure."""
    mesh.create("worker-async-prices", "worker-pricing")
    mesh.create("worker-thread-prices")
    worker = Worker(both(mesh), grace="5s")

    @worker.on("worker-async-prices", group="worker-pricing", retry_in="1m")
    async def price(item: str) -> object:
        return {"item": item, "price": 900} if item != "nothing" else object()

    @worker.on("worker-thread-prices", group="worker-pricing")
    def price_in_a_thread(item: str) -> dict[str, object]:
        return {"item": item, "price": 1_400}

    async def work() -> None:
        async with worker, Producer(both(mesh)) as producer:
            first = await producer.request("worker-async-prices", "cup", timeout="20s")
            second = await producer.request("worker-thread-prices", "plate", timeout="20s")
            assert (first.decode(), second.decode()) == (
                {"item": "cup", "price": 900},
                {"item": "plate", "price": 1_400},
            )
            await producer.send("worker-async-prices", "saucer")
            with pytest.raises(ReplyTimeout):
                await producer.request("worker-async-prices", "nothing", timeout="1s")

            def ended() -> tuple[int, int]:
                rows = worker.stats().subscriptions
                return sum(row.acked for row in rows), sum(row.failed for row in rows)

            async with asyncio.timeout(30):
                while ended() != (3, 1):
                    await asyncio.sleep(0.01)

    asyncio.run(work())
