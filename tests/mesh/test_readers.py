"""Consumers that read large pages all at once: each is answered, sends go on beside them, and no link between proxy and broker breaks."""

import asyncio
from collections import Counter

import pytest

from tests.support.mesh.mesh import Mesh

READERS, PULLS = 160, 2
MESSAGES, SIZE_BYTES, PAGE_BYTES = 12, 100_000, 1 << 20
STREAM_LIMIT_BYTES = 1 << 23
PATIENCE_S = 60.0


async def ask(port: int, method: str, path: str, body: bytes, times: int, seen: Counter[object]) -> None:
    """The same request over one connection, *times* times; what was answered goes to *seen*."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=STREAM_LIMIT_BYTES)
    try:
        for _ in range(times):
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
            answer = await reader.readexactly(length)
            status = int(head.split()[1])
            seen["later" if status in {429, 503} and b"retry_after_ms" in answer else status] += 1
    finally:
        writer.close()


@pytest.mark.calm
def test_readers_that_come_at_once_are_all_answered(mesh: Mesh) -> None:
    """160 that read a page of 1 MiB twice, and one client whose sends go on: as a link broke under them, all were answered 504, for ever."""
    mesh.create("catching-up", queues=1)
    mesh.create("beside-readers", queues=1)
    for _ in range(MESSAGES):
        assert mesh.call("POST", "/v1/topics/catching-up/messages", content=b"x" * SIZE_BYTES).status_code == 201
    queue = mesh.call("GET", "/v1/topics/catching-up/offsets").json()["queues"][0]["queue"].replace(":", "%3A")
    page = f"/v1/topics/catching-up/queues/{queue}/messages?offset=0&max_bytes={PAGE_BYTES}"
    pulls: Counter[object] = Counter()
    sends: Counter[object] = Counter()

    async def both() -> None:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for _ in range(READERS):
                group.create_task(ask(mesh.port_base, "GET", page, b"", PULLS, pulls))
            group.create_task(ask(mesh.port_base, "POST", "/v1/topics/beside-readers/messages", b"x", 10, sends))

    asyncio.run(both())
    assert sends == {201: 10}
    assert set(pulls) <= {200, "later"}, pulls
    assert pulls[200] >= READERS, pulls
    assert pulls.total() == READERS * PULLS
