"""Attempts in a real mesh: a worker that crashes in a loop, and what its dead letters are."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tern_client import Consumer
from tests.mesh import test_fifo as fifo
from tests.mesh.test_dead_letters import letters_of
from tests.mesh.test_retry import both, consumer_of, prepare, taken
from tests.support.mesh.mesh import Mesh, eventually

# A leader that dies after it has leased and before it has answered counts an attempt that nobody saw: its proxy cannot know of it.
pytestmark = pytest.mark.calm
ROOT = Path(__file__).resolve().parents[2]
STARTS, ATTEMPTS_MAX = 22, 4


async def crash_at_the_first(mesh: Mesh, topic: str, group: str) -> tuple[str, int]:
    """A start of a worker whose handler fails; what it got, and as which attempt."""
    got: list[tuple[str, int]] = []
    with contextlib.suppress(ZeroDivisionError):
        async with asyncio.timeout(20), Consumer(both(mesh), topic, group) as consumer:
            async for message in consumer:
                got.append((message.body.decode(), message.attempt))
                raise ZeroDivisionError
    return got[0]


def test_a_worker_that_crashes_in_a_loop_kills_no_message_that_it_was_not_handed(mesh: Mesh) -> None:
    """22 starts, leases of a second: the first messages die of their attempts, and nobody counts one for any other."""
    prepare(mesh, "crash-loop", 40, "crashing", invisible="1s", max_attempts=ATTEMPTS_MAX)
    handed = [asyncio.run(crash_at_the_first(mesh, "crash-loop", "crashing")) for _ in range(STARTS)]
    attempts = {body: [attempt for other, attempt in handed if other == body] for body, _ in handed}
    assert all(counted == list(range(1, len(counted) + 1)) for counted in attempts.values()), handed
    with consumer_of(mesh, "crash-loop", "crashing") as consumer:
        seen: dict[str, int] = {}

        def is_all_there() -> bool:
            dead = len(letters_of(mesh, "crashing"))
            messages = taken(consumer, 100, 1_000)
            seen.update({message.body.decode(): message.attempt for message in messages})
            assert consumer.ack(*messages) == {} if messages else True
            return len(seen) + dead >= 40

        eventually(is_all_there, within_s=30, what="every message, once more or dead")
    assert {int(body) for body, attempt in seen.items() if attempt > 1} <= {int(body) for body in attempts}
    assert all(attempt == len(attempts.get(body, [])) + 1 for body, attempt in seen.items()), (seen, attempts)
    assert all(len(attempts[letter["body"]]) == ATTEMPTS_MAX for letter in letters_of(mesh, "crashing"))


@pytest.mark.parametrize("shell", ["async", "blocking"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_what_a_worker_had_when_it_was_ended_counts_only_as_far_as_it_was_handed_out(
    mesh: Mesh, shell: str, number: signal.Signals
) -> None:
    """In order, exactly; killed at its first message, too."""
    topic, group = f"ended-{shell}-{number.name}", f"ending-{shell}-{number.name}"
    prepare(mesh, topic, 40, group, invisible="2s")
    command = [sys.executable, "-m", "tests.support.client.consuming_worker", shell, mesh.endpoint, "1", topic, group]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, env=os.environ, text=True) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline()
            worker.send_signal(number)
            worker.wait(30)
        finally:
            worker.kill()
    attempts: dict[str, int] = {}
    with consumer_of(mesh, topic, group) as consumer:

        def take_all() -> bool:
            messages = taken(consumer, 100, 500)
            for message in messages:
                attempts.setdefault(message.body.decode(), message.attempt)
            consumer.confirm(*messages)
            return len(attempts) == 40

        eventually(take_all, within_s=30, what="all 40")
    assert sorted(attempts.values()) == [1] * 39 + [2]


def test_what_goes_back_unseen_keeps_the_order_of_its_message_groups(mesh: Mesh) -> None:
    """Workers that leave their loops in the middle, one after the other: each message group comes in order, every message as its first attempt."""
    fifo.prepare(mesh, "leaving", "leavers", queues=1, invisible="30s")
    sent = fifo.by_message_group(fifo.send(mesh, "leaving", *("abcdefghijkl" * 5)))
    seen: list[tuple[str, str]] = []
    attempts: set[int] = set()

    def work() -> bool:
        with consumer_of(mesh, "leaving", "leavers") as consumer:
            for handled, message in enumerate(consumer.until_idle(500), 1):
                seen.append((message.message_group, message.body.decode()))
                attempts.add(message.attempt)
                consumer.confirm(message)
                if handled == 5:  # of 1, 2 and 4 that it has received, if it is quick
                    break
        return len(seen) >= 60

    eventually(work, within_s=60, what="all 60")
    assert (fifo.by_message_group(seen), attempts) == (sent, {1})
