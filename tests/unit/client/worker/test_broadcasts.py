"""A broadcast: every worker reads all messages from its start on, each place behind what was handled."""

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tern_client import FileOffsets, MemoryOffsets, PulledMessage, Worker
from tern_wire.errors import TopicNotFound
from tests.support.client.scripted_proxy import Asked, Reply, ScriptedProxy, packed, refused
from tests.unit.client.worker.running_worker import QUICK, until, working

QUEUES = ("broker-a:0", "broker-a:1")


class Log:
    """Queues of topic t, in memory. A pull with a wait is answered when there is a message, or after the wait."""

    def __init__(self, *counts: int) -> None:
        self.queues = {
            queue: [b"%s %d" % (queue[-1:].encode(), at) for at in range(count)]
            for queue, count in zip(QUEUES, counts, strict=True)
        }
        self.pulled: list[dict[str, str]] = []

    def answer(self, asked: Asked) -> Reply | Awaitable[Reply]:
        """To a question for offsets, or a pull."""
        url = urlsplit(asked.path)
        if "/t/" not in url.path:
            return refused(TopicNotFound(topic="nowhere"))
        if url.path.endswith("/offsets"):
            return packed(
                {
                    "queues": [
                        {"queue": queue, "min_offset": 0, "max_offset": len(log)} for queue, log in self.queues.items()
                    ]
                }
            )
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        queue = next(queue for queue in QUEUES if queue in url.path.replace("%3A", ":"))
        self.pulled.append(query)
        found = self._page(queue, query)
        return packed(found) if found["messages"] or "wait" not in query else self._wait(queue, query)

    async def _wait(self, queue: str, query: dict[str, str]) -> Reply:
        offset = query["offset"]
        at = {"earliest": "0", "latest": str(len(self.queues[queue]))}.get(offset, offset)
        until_s = asyncio.get_running_loop().time() + int(query["wait"]) / 1_000
        while len(self.queues[queue]) <= int(at) and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(0.002)
        return packed(self._page(queue, {**query, "offset": at}))

    def _page(self, queue: str, query: dict[str, str]) -> dict[str, Any]:
        log = self.queues[queue]
        offset = {"earliest": 0, "latest": len(log)}.get(query["offset"], -1)
        offset = int(query["offset"]) if offset < 0 else offset
        end = min(len(log), offset + int(query["max_messages"]))
        messages = [
            {
                "message_id": f"{queue}-{at}",
                "topic": "t",
                "queue": queue,
                "offset": at,
                "body": log[at],
                "born_at": 1,
                "stored_at": 2,
            }
            for at in range(offset, end)
        ]
        return {"messages": messages, "next_offset": end, "max_offset": len(log)}


async def test_every_worker_gets_all_messages_from_its_start_on() -> None:
    """One from the earliest on, in the order of each queue; one from offsets; one only what is new."""
    log, seen = Log(3, 200), [list[bytes](), list[bytes](), list[bytes]()]
    async with ScriptedProxy(answer=log.answer) as proxy:
        workers = [Worker(proxy.url, policy=QUICK) for _ in range(3)]

        def subscribe(number: int, start: Any) -> None:
            @workers[number].on("t", broadcast=True, start=start)
            async def handle(message: PulledMessage) -> None:
                seen[number].append(message.body)

        subscribe(0, "earliest")
        subscribe(1, {QUEUES[0]: 2, QUEUES[1]: 199})
        subscribe(2, None)
        async with working(workers[0]), working(workers[1]), working(workers[2]):
            await until(lambda: len(seen[0]) == 203 and len(seen[1]) == 2)
            await until(lambda: sum(query["offset"] == "latest" for query in log.pulled) >= 2)
            await until(lambda: any(query["offset"] == "3" for query in log.pulled))
            log.queues[QUEUES[0]].append(b"new")
            await until(lambda: all(bodies[-1:] == [b"new"] for bodies in seen))
    assert [body for body in seen[0] if body.startswith(b"1")] == log.queues[QUEUES[1]]
    assert sorted(seen[1]) == [b"0 2", b"1 199", b"new"]
    assert seen[2] == [b"new"]
    (row,) = workers[0].stats().subscriptions
    assert (row.group, row.received, row.handled, row.failed, row.in_flight_messages) == ("", 204, 204, 0, 0)


async def test_the_next_run_begins_behind_what_was_handled(tmp_path: Path) -> None:
    """A stop in the middle: what had not begun comes in the next run, and nothing twice."""
    log, seen = Log(60, 60), list[bytes]()
    async with ScriptedProxy(answer=log.answer) as proxy:
        while len(seen) < 120:
            worker = Worker(proxy.url, policy=QUICK)
            worker.on("t", broadcast=True, start="earliest", offsets=FileOffsets(tmp_path / "places"))(
                stopping(worker, seen, len(seen) + 25)
            )
            await asyncio.wait_for(worker.serve(), 20)
    assert sorted(seen) == sorted(log.queues[QUEUES[0]] + log.queues[QUEUES[1]])


def stopping(worker: Worker, seen: list[bytes], at: int) -> Any:
    """A handler that stops its worker at the *at*th message."""

    async def handle(body: bytes) -> None:
        seen.append(body)
        if len(seen) in {at, 120}:
            worker.stop()
            await until(lambda: worker.stats().state == "stopping")

    return handle


async def test_an_exception_is_logged_and_the_reader_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """There is no retry in a broadcast; handlers run side by side up to the concurrency, batches too."""
    log, barrier, sizes = Log(6, 0), threading.Barrier(3), list[int]()
    async with ScriptedProxy(answer=log.answer) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", broadcast=True, start="earliest", concurrency=3, batch_max=2)
        def handle(bodies: list[bytes]) -> None:
            barrier.wait(10)
            sizes.append(len(bodies))
            if b"0 2" in bodies:
                raise ZeroDivisionError

        async with working(worker):
            await until(lambda: worker.stats().subscriptions[0].handled == 6)
    assert sizes == [2, 2, 2]
    assert worker.stats().subscriptions[0].failed == 1
    assert "at broker-a:0, offset 2: ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("forced", [True, False])
async def test_a_message_whose_handler_was_ended_is_read_again(forced: bool) -> None:
    """Its place is not kept: at a stop at once, and after the grace."""
    log, places, begun = Log(3, 0), MemoryOffsets(), asyncio.Event()
    async with ScriptedProxy(answer=log.answer) as proxy:
        worker = Worker(proxy.url, policy=QUICK, grace="1h" if forced else "20ms")

        @worker.on("t", broadcast=True, start="earliest", offsets=places)
        async def handle(body: bytes) -> None:
            if body == b"0 1":
                begun.set()
                await asyncio.Event().wait()

        async with working(worker) as serving:
            await begun.wait()
            worker.stop()
            if forced:
                worker.stop(at_once=True)
            await asyncio.wait_for(serving, 20)
    assert places.load()[QUEUES[0]] == 1


async def test_a_broadcast_of_a_topic_that_there_is_not_ends_the_worker() -> None:
    """As a group's subscription does."""
    log = Log(0, 0)
    async with ScriptedProxy(answer=log.answer) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("nowhere", broadcast=True)
        async def handle(_body: bytes) -> None:
            """Does nothing."""

        with pytest.raises(Exception, match="nowhere"):
            await asyncio.wait_for(worker.serve(), 20)
