"""`python -m tests.chaos.relay`: a user-space link for each directed pair of brokers, cut and healed by lines on standard input.

    {"pairs": [{"source", "target", "listen", "port"}]}     listen, and pass on to 127.0.0.1:port
    {"cut": [source, target]}                               what source sends to target stays where it is
    {"heal": true}                                          everything flows again

Each line is answered "ok". Law: a cut is silent. Bytes wait unread in the kernel, so after healing they arrive in order, as TCP would
send them again; an end of a connection is not passed on while its direction is cut; new connections stand, and say nothing.
The process ends with its standard input, so it never outlives a run. Owner of all sockets: one event loop.
"""

import asyncio
import contextlib
import json
import sys
from typing import Any

HOST = "127.0.0.1"
CHUNK_SIZE_BYTES = 256 * 1024
# Read before a cut and not yet passed on: little, so that a cut takes hold at once.
BUFFER_SIZE_BYTES = 256 * 1024


class Directions:
    """Which directions are cut. Everything that passes on asks `open` first."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], asyncio.Event] = {}

    def _event(self, source: str, target: str) -> asyncio.Event:
        event = self._open.get((source, target))
        if event is None:
            event = self._open[source, target] = asyncio.Event()
            event.set()
        return event

    async def wait_open(self, source: str, target: str) -> None:
        """Until bytes may pass from *source* to *target*."""
        await self._event(source, target).wait()

    def cut(self, source: str, target: str) -> None:
        """Nothing passes from *source* to *target*."""
        self._event(source, target).clear()

    def heal(self) -> None:
        """Everything passes."""
        for event in self._open.values():
            event.set()


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, directions: Directions, source: str, target: str
) -> None:
    """Pass on what *source* says to *target* until either side ends, then end the other: not before the direction is open."""
    try:
        while True:
            data = await reader.read(CHUNK_SIZE_BYTES)
            await directions.wait_open(source, target)
            if not data:
                break
            writer.write(data)
            await writer.drain()
    except OSError:
        await directions.wait_open(source, target)
    writer.close()


async def relay(pair: dict[str, Any], directions: Directions) -> asyncio.Server:
    """Listen for one directed pair: the source dials, so both directions run in these connections."""
    source, target = pair["source"], pair["target"]

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await directions.wait_open(source, target)
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, pair["port"], limit=BUFFER_SIZE_BYTES)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(
            pump(reader, far_writer, directions, source, target),
            pump(far_reader, writer, directions, target, source),
        )

    return await asyncio.start_server(passed, HOST, pair["listen"], limit=BUFFER_SIZE_BYTES)


async def main() -> None:
    """Obey lines until they end."""
    loop = asyncio.get_running_loop()
    directions = Directions()
    servers: list[asyncio.Server] = []
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        order = json.loads(line)
        for pair in order.get("pairs", ()):
            servers.append(await relay(pair, directions))
        if "cut" in order:
            directions.cut(*order["cut"])
        if order.get("heal"):
            directions.heal()
        print("ok", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
