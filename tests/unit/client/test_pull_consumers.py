"""Pull consumers over a proxy that answers from memory: places, pages, what is kept between two lives, what retention dropped."""

import asyncio
import json
import threading
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tern_client import (
    BlockingPullConsumer,
    ClientClosed,
    FileOffsets,
    GroupOffsets,
    MemoryOffsets,
    PullConsumer,
    RetryPolicy,
)
from tern_client.transport.exchange import Request, Response
from tern_wire.errors import GroupNotFound, OffsetExpired, TernError
from tern_wire.link.codec import encode_msgpack
from tern_wire.paths import MSGPACK, PROBLEM

pytestmark = pytest.mark.anyio
POLICY = RetryPolicy(deadline_ms=1_000, first_delay_ms=1)


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


class Shelf:
    """Queues of one topic, and groups, behind both kinds of transport. A pull with a wait ends at once."""

    def __init__(self, **queues: int) -> None:
        self.ends = {f"broker-a:{name[1:]}": count for name, count in queues.items()}
        self.mins = dict.fromkeys(self.ends, 0)
        self.groups: dict[str, dict[str, int]] = {}
        self.asked: list[str] = []

    def answer(self, request: Request) -> Response:
        """The response to any request of a pull consumer."""
        url = urlsplit(request.path)
        self.asked.append(request.path)
        try:
            document = self._answer(request, url.path.split("/"), {k: v[0] for k, v in parse_qs(url.query).items()})
        except TernError as error:
            return Response(error.status, {"content-type": PROBLEM}, json.dumps(error.problem()).encode())
        return Response(200, {"content-type": MSGPACK}, encode_msgpack(document))

    def _answer(self, request: Request, parts: list[str], query: Mapping[str, str]) -> dict[str, Any]:
        if parts[2] == "groups":
            return self._group(request, parts[3], query)
        if parts[-1] == "offsets":
            rows = [{"queue": q, "min_offset": self.mins[q], "max_offset": end} for q, end in self.ends.items()]
            return {"queues": rows}
        queue = parts[5]
        end, text = self.ends[queue], query["offset"]
        offset = {"earliest": self.mins[queue], "latest": end}.get(text, 0) if not text.isdecimal() else int(text)
        if offset < self.mins[queue]:
            raise OffsetExpired(offset=offset, min_offset=self.mins[queue])
        next_offset = min(end, offset + int(query["max_messages"]))
        # A filter wants every third message.
        wanted = [n for n in range(offset, next_offset) if "tags" not in query or n % 3 == 0]
        messages = [
            {
                "message_id": f"{queue}-{n}",
                "topic": "t",
                "queue": queue,
                "offset": n,
                "body": b"%d" % n,
                "born_at": 1,
                "stored_at": 1,
            }
            for n in wanted
        ]
        return {"messages": messages, "next_offset": max(offset, next_offset), "max_offset": end}

    def _group(self, request: Request, group: str, query: Mapping[str, str]) -> dict[str, Any]:
        if request.method == "PUT" and not request.path.endswith("/offsets"):
            self.groups.setdefault(group, {})
            return {}
        if group not in self.groups:
            raise GroupNotFound(group=group)
        if request.method == "PUT":
            self.groups[group] |= json.loads(request.body)["offsets"]
        return {"offsets": self.groups[group]}


class Blocking:
    """The transport of a blocking client."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def exchange(self, _endpoint: str, request: Request, _timeout_ms: float) -> Response:
        """As BlockingTransport."""
        return self._shelf.answer(request)

    def abandon(self) -> None:
        """As BlockingTransport."""

    def close(self) -> None:
        """As BlockingTransport."""


class Waiting:
    """The transport of an async client."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def exchange(self, _endpoint: str, request: Request, _timeout_ms: float) -> Response:
        """As Transport."""
        await asyncio.sleep(0)
        return self._shelf.answer(request)

    async def close(self) -> None:
        """As Transport."""


def reader(shelf: Shelf, **options: Any) -> BlockingPullConsumer:
    """A blocking consumer of topic t."""
    return BlockingPullConsumer("http://127.0.0.1:1", "t", transport=Blocking(shelf), policy=POLICY, **options)


def test_all_queues_are_read_in_pages_each_message_once() -> None:
    """In order within a queue; it ends when nothing more comes, and goes on when iterated again."""
    shelf = Shelf(q0=7, q1=0, q2=3)
    with reader(shelf, max_messages=2) as consumer:
        seen = [(message.queue, message.offset) for message in consumer.until_idle()]
        assert sorted(seen) == [("broker-a:0", n) for n in range(7)] + [("broker-a:2", n) for n in range(3)]
        assert [offset for queue, offset in seen if queue == "broker-a:0"] == list(range(7))
        shelf.ends["broker-a:1"] = 1
        assert [message.message_id for message in consumer.until_idle()] == ["broker-a:1-0"]


def test_a_loop_waits_without_end_until_it_is_stopped() -> None:
    """Another thread writes after a while, and stops it then. What was there and not handed out comes to the next life."""
    shelf, offsets = Shelf(q0=0), MemoryOffsets()
    with reader(shelf, offsets=offsets) as consumer:
        seen: list[int] = []

        def work() -> None:
            for message in consumer:
                seen.append(message.offset)
                if message.offset == 2:
                    consumer.stop()
            consumer.commit()

        worker = threading.Thread(target=work)
        worker.start()
        worker.join(0.05)
        assert worker.is_alive()
        shelf.ends["broker-a:0"] = 9
        worker.join(10)
        assert (worker.is_alive(), seen, list(consumer)) == (False, [0, 1, 2], [])
    with reader(shelf, offsets=offsets) as consumer:
        assert [message.offset for message in consumer.until_idle()] == list(range(3, 9))


@pytest.mark.parametrize("kind", ["memory", "file", "group"])
def test_a_place_is_kept_as_far_as_messages_were_handed_out(kind: str, tmp_path: Path) -> None:
    """What was not handed out, or not committed, comes again in the next life; the rest does not."""
    shelf = Shelf(q0=6)
    memory = MemoryOffsets()

    def offsets() -> Any:
        return {"memory": memory, "file": FileOffsets(tmp_path / "places"), "group": GroupOffsets("mine")}[kind]

    with reader(shelf, offsets=offsets(), max_messages=4) as consumer:
        first = [message.offset for message in islice(consumer.until_idle(), 3)]
        consumer.commit()
    with reader(shelf, offsets=offsets(), max_messages=4) as consumer:
        rest = [message.offset for message in consumer.until_idle()]
    assert (first, rest) == ([0, 1, 2], [3, 4, 5])
    with reader(shelf, offsets=offsets(), max_messages=4) as consumer:
        assert [message.offset for message in consumer.until_idle()] == [3, 4, 5]
        consumer.commit()
    with reader(shelf, offsets=offsets()) as consumer:
        assert list(consumer.until_idle()) == []


def test_what_a_filter_passes_over_is_behind_the_consumer() -> None:
    """Its place is where the broker has looked to, not the last message that it got."""
    shelf, offsets = Shelf(q0=8), MemoryOffsets()
    with reader(shelf, offsets=offsets, tags="a", max_messages=5) as consumer:
        assert [message.offset for message in consumer.until_idle()] == [0, 3, 6]
        consumer.commit()
    assert offsets.load() == {"broker-a:0": 8}


def test_where_retention_was_faster_it_goes_on_with_the_oldest_and_says_how_much_was_lost() -> None:
    """No error, no silent gap."""
    shelf, offsets = Shelf(q0=10), MemoryOffsets()
    offsets.save({"broker-a:0": 2})
    shelf.mins["broker-a:0"] = 6
    with reader(shelf, offsets=offsets) as consumer:
        assert [message.offset for message in consumer.until_idle()] == [6, 7, 8, 9]
        assert consumer.skipped == 4


def test_a_start_is_for_queues_without_a_place() -> None:
    """latest: only what comes after; a committed place wins."""
    shelf, offsets = Shelf(q0=4, q1=4), MemoryOffsets()
    offsets.save({"broker-a:1": 3})
    with reader(shelf, offsets=offsets, start="latest") as consumer:
        assert [message.message_id for message in consumer.until_idle()] == ["broker-a:1-3"]
        shelf.ends["broker-a:0"] = 5
        assert [message.message_id for message in consumer.until_idle()] == ["broker-a:0-4"]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    """Better than to begin anew without a word."""
    path = tmp_path / "places"
    path.write_text('["no", "offsets"]')
    with reader(Shelf(q0=1), offsets=FileOffsets(path)) as consumer, pytest.raises(ValueError, match="places"):
        list(consumer.until_idle())


async def test_the_async_consumer_reads_all_queues_and_commits_what_it_handed_out() -> None:
    """Pages of several queues in turn; a second life goes on where the first committed."""
    shelf, offsets = Shelf(q0=5, q1=5), MemoryOffsets()

    async def life(count: int) -> list[str]:
        async with PullConsumer(
            "http://127.0.0.1:1", "t", offsets=offsets, transport=Waiting(shelf), policy=POLICY, max_messages=2
        ) as consumer:
            seen = []
            async for message in consumer:
                seen.append(message.message_id)
                if len(seen) == count:
                    break
            await consumer.commit()
        return seen

    first, second = await life(4), await life(6)
    assert sorted(first + second) == sorted(f"broker-a:{q}-{n}" for q in range(2) for n in range(5))


async def test_closing_ends_a_waiting_loop() -> None:
    """ClientClosed, as with every other client."""
    consumer = PullConsumer("http://127.0.0.1:1", "t", transport=Waiting(Shelf(q0=0)), policy=POLICY)
    waiting = asyncio.create_task(anext(consumer))
    while not waiting.done():
        await asyncio.sleep(0)
        if consumer._pullers:
            await consumer.close()
    with pytest.raises(ClientClosed):
        waiting.result()
