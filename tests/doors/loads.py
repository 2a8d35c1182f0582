"""Who asks too much: one function for each way. Each works until its time is over, in a process of its own, and says what it was answered."""

import asyncio
import contextlib
import json
import resource
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from tests.doors.client import Connection, Door, kind_of

Load = Callable[[Door, float, Counter[str]], Coroutine[Any, Any, None]]
BROKEN = (OSError, TimeoutError, asyncio.IncompleteReadError)
PAUSE_S = 0.2
# So many come in one moment, and so many a second: what they hold is measured, not that they come.
OPENED_AT_ONCE, OPENED_PER_S = 50, 1_500
# With TLS a handshake costs both sides some milliseconds.
OPENED_WITH_TLS_PER_S = 250


async def _ask_on(
    door: Door, until_s: float, seen: Counter[str], make: Callable[[], tuple[str, str, bytes]], context: Any
) -> None:
    connection = Connection(door, context)
    while time.monotonic() < until_s:
        try:
            kind = kind_of(*await connection.ask(*make()))
        except BROKEN as error:
            kind = type(error).__name__
        seen[kind] += 1
        if kind != "200":
            await asyncio.sleep(PAUSE_S)
    connection.close()


def opened_per_s(door: Door) -> int:
    """How many clients of a load come in a second."""
    return OPENED_WITH_TLS_PER_S if door.cafile else OPENED_PER_S


async def _bit_by_bit(count: int, door: Door, make: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    tasks: list[asyncio.Task[None]] = []
    while len(tasks) < count:
        more = range(len(tasks), min(count, len(tasks) + OPENED_AT_ONCE))
        tasks += [asyncio.create_task(make(number)) for number in more]
        await asyncio.sleep(OPENED_AT_ONCE / opened_per_s(door))
    await asyncio.gather(*tasks)


def readers(count: int, page_bytes: int) -> Load:
    """*count* clients that read pages of *page_bytes* over and over."""

    async def load(door: Door, until_s: float, seen: Counter[str]) -> None:
        context = door.context()
        path = f"/v1/topics/{door.backlog}/queues/{door.queue}/messages?offset=0&max_bytes={page_bytes}"
        await _bit_by_bit(count, door, lambda _: _ask_on(door, until_s, seen, lambda: ("GET", path, b""), context))

    return load


def slow_readers(count: int, bytes_per_s: int) -> Load:
    """*count* clients that ask for 1 MiB and take the answer so slowly."""

    async def read(door: Door, until_s: float, seen: Counter[str], context: Any) -> None:
        path = f"/v1/topics/{door.backlog}/queues/{door.queue}/messages?offset=0&max_bytes={1 << 20}"
        while time.monotonic() < until_s:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", door.port, ssl=context, limit=4096)
                writer.write(door.head("GET", path, 0))
                while time.monotonic() < until_s and await reader.read(bytes_per_s // 5):
                    seen["pieces"] += 1
                    await asyncio.sleep(0.2)
                writer.transport.abort()
            except BROKEN as error:
                seen[type(error).__name__] += 1
                await asyncio.sleep(PAUSE_S)

    async def load(door: Door, until_s: float, seen: Counter[str]) -> None:
        context = door.context()
        await _bit_by_bit(count, door, lambda _: read(door, until_s, seen, context))

    return load


def bodies(count: int, declared_bytes: int, bytes_per_s: int) -> Load:
    """*count* clients that declare a large body and send it byte by byte; 0 a second: not at all."""

    async def send(door: Door, until_s: float, seen: Counter[str], context: Any) -> None:
        while time.monotonic() < until_s:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", door.port, ssl=context)
                json_body = "Content-Type: application/json\r\n"
                writer.write(door.head("POST", "/v1/topics/squat/messages/batch", declared_bytes, json_body))
                answered = asyncio.ensure_future(reader.readline())
                while time.monotonic() < until_s and not answered.done():
                    await asyncio.wait({answered}, timeout=0.5)
                    if not answered.done() and bytes_per_s:
                        writer.write(b" " * (bytes_per_s // 2))
                if answered.done():
                    line = answered.result()
                    seen[line[9:12].decode() or "closed"] += 1
                answered.cancel()
                writer.transport.abort()
            except BROKEN as error:
                seen[type(error).__name__] += 1
            await asyncio.sleep(PAUSE_S)

    async def load(door: Door, until_s: float, seen: Counter[str]) -> None:
        context = door.context()
        await _bit_by_bit(count, door, lambda _: send(door, until_s, seen, context))

    return load


def idle(count: int) -> Load:
    """*count* connections that say nothing, or have asked once; opened again when they are closed. Over TLS without its handshake."""

    async def hold(door: Door, until_s: float, seen: Counter[str], number: int) -> None:
        while time.monotonic() < until_s:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
                seen["opened"] += 1
                if number % 2 and not door.cafile:
                    writer.write(door.head("GET", "/healthz", 0))
                with contextlib.suppress(*BROKEN):
                    async with asyncio.timeout(max(0.01, until_s - time.monotonic())):
                        while await reader.read(4096):
                            pass
                writer.transport.abort()
            except BROKEN as error:
                seen[type(error).__name__] += 1
            await asyncio.sleep(1.0)

    async def load(door: Door, until_s: float, seen: Counter[str]) -> None:
        await _bit_by_bit(count, replace(door, cafile=""), lambda number: hold(door, until_s, seen, number))

    return load


def polls(count: int) -> Load:
    """*count* receives that wait for a message that never comes."""

    async def load(door: Door, until_s: float, seen: Counter[str]) -> None:
        context = door.context()
        path = "/v1/topics/quiet/groups/quiet/receive"
        body = json.dumps({"wait": "20s"}).encode()

        async def poll(_number: int) -> None:
            connection = Connection(door, context)
            while time.monotonic() < until_s:
                try:
                    async with asyncio.timeout(max(0.01, until_s - time.monotonic())):
                        answer = await connection.ask("POST", path, body, "Content-Type: application/json\r\n")
                    seen[kind := kind_of(*answer)] += 1
                except BROKEN as error:
                    seen[kind := type(error).__name__] += 1
                if kind != "200":
                    await asyncio.sleep(1.0)
            connection.close()

        await _bit_by_bit(count, door, poll)

    return load


def greedy(count: int) -> Load:
    """*count* connections of one principal that send as fast as they can."""

    async def load(door: Door, until_s: float, seen: Counter[str]) -> None:
        context = door.context()

        async def send() -> None:
            connection = Connection(door, context)
            while time.monotonic() < until_s:
                try:
                    seen[kind_of(*await connection.ask("POST", "/v1/topics/squat/messages", b"x" * 1024))] += 1
                except BROKEN as error:
                    seen[type(error).__name__] += 1
                    await asyncio.sleep(PAUSE_S)
            connection.close()

        await asyncio.gather(*(send() for _ in range(count)))

    return load


def topic_maker() -> Load:
    """One client that makes topics as fast as it can."""

    async def load(door: Door, until_s: float, seen: Counter[str]) -> None:
        connection = Connection(door, door.context())
        made = 0
        while time.monotonic() < until_s:
            try:
                path, kind = f"/v1/topics/made-{time.monotonic_ns()}-{made}", "Content-Type: application/json\r\n"
                status, answer = await connection.ask("PUT", path, b'{"queues": 1}', kind)
                seen[kind_of(status, answer)] += 1
            except BROKEN as error:
                seen[type(error).__name__] += 1
            made += 1
        connection.close()

    return load


LOADS: dict[str, Load] = {
    "1,000 readers of 1 MiB": readers(1_000, 1 << 20),
    "64 readers of 4 MiB": readers(64, 4 << 20),
    "500 slow readers": slow_readers(500, 10_000),
    "64 bodies that dribble": bodies(64, 16 << 20, 1_500),
    "2,000 heads without bodies": bodies(2_000, 100, 0),
    "9,000 idle connections": idle(9_000),
    "5,000 parked polls": polls(5_000),
    "one principal, far over its quota": greedy(16),
    "a loop that makes topics": topic_maker(),
}
# How many clients each has, for those that take a while until they are all there.
COUNTS = {
    "1,000 readers of 1 MiB": 1_000,
    "500 slow readers": 500,
    "2,000 heads without bodies": 2_000,
    "9,000 idle connections": 9_000,
    "5,000 parked polls": 5_000,
}
# Beside these one client sends one message after the other.
READERS: dict[str, Load] = {f"{count:,} readers": readers(count, 1 << 20) for count in (4, 60, 160, 1_000)}


def opening_s(name: str, door: Door) -> float:
    """How long it takes until all clients of the load *name* are there."""
    return 1.0 + COUNTS.get(name, 0) / opened_per_s(door)


def work(name: str, door: Door, seconds: float, told: Any) -> None:
    """A process: the load *name* for that time; what it was answered goes to *told*."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    seen: Counter[str] = Counter()
    asyncio.run({**LOADS, **READERS}[name](door, time.monotonic() + seconds, seen))
    told.send(seen)
