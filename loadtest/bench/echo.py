"""The ceiling of the benchmark's own client: its speed against a bare HTTP echo server.

    python -m loadtest.bench.echo        prints requests per second at 1, 16 and 64 connections
    python -m loadtest.bench.echo serve  only the server, until standard input ends; prints its port

A figure measured through `http_load` is valid only well below this ceiling.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from typing import cast

import uvloop

from loadtest.bench.http_load import HttpConnection, HttpError, MessageReader

REQUESTS_PER_ROUND = 20_000
BODY_SIZE_BYTES = 1024
CONNECTIONS = (1, 16, 64)


class EchoServer(asyncio.Protocol):
    """One connection of the echo server: answers every request with 200 and its own body."""

    def __init__(self) -> None:
        self._reader = MessageReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer each complete request; close the connection on malformed ones."""
        assert self._transport is not None
        try:
            requests = self._reader.feed(data)
        except HttpError:
            self._transport.abort()
            return
        for _, body in requests:
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


async def start_echo(port: int = 0) -> tuple[asyncio.Server, int]:
    """Return an echo server on loopback, and its port. Raises OSError."""
    server = await asyncio.get_running_loop().create_server(EchoServer, "127.0.0.1", port)
    return server, int(server.sockets[0].getsockname()[1])


async def requests_per_s(port: int, connections: int, requests: int, body: bytes) -> float:
    """Return the rate of *requests* echoes in all over *connections* connections."""
    opened = [await HttpConnection.open("127.0.0.1", port) for _ in range(connections)]

    async def run(connection: HttpConnection) -> None:
        for _ in range(requests // connections):
            status, echoed = await connection.request("POST", "/echo", b"", body)
            if status != 200 or len(echoed) != len(body):
                raise HttpError(f"echo answered {status} with {len(echoed)} bytes")

    began = time.perf_counter()
    await asyncio.gather(*map(run, opened))
    took_s = time.perf_counter() - began
    for connection in opened:
        connection.close()
    return requests // connections * connections / took_s


async def serve(port: int) -> None:
    """Serve until the process ends or standard input ends, so that no orphan remains."""
    server, port = await start_echo(port)
    print(port, flush=True)
    async with server:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def ceiling() -> None:
    """Print the client's ceiling against an echo server in a process of its own."""
    argv = (sys.executable, "-m", "loadtest.bench.echo", "serve")
    process = await asyncio.create_subprocess_exec(*argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        for connections in CONNECTIONS:
            rate = await requests_per_s(port, connections, REQUESTS_PER_ROUND, bytes(BODY_SIZE_BYTES))
            print(f"{connections:3d} connections, {BODY_SIZE_BYTES} B: {rate:8,.0f} requests/s")
    finally:
        process.stdin.close()
        await process.wait()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.bench.echo", description="The ceiling of the benchmark's HTTP client."
    )
    parser.add_argument("what", nargs="?", choices=["ceiling", "serve"], default="ceiling")
    parser.add_argument("--port", type=int, default=0, help="port to serve on; 0 lets the kernel choose")
    options = parser.parse_args()
    uvloop.run(serve(options.port) if options.what == "serve" else ceiling())


if __name__ == "__main__":
    main()
