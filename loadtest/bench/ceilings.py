"""Ceilings of this machine, measured in the same run.

A bare HTTP echo under the same load, and synced file writes.
"""

import asyncio
import itertools
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from loadtest.bench.closed_loop import BenchFailed, Prepared, run_closed_loop
from loadtest.bench.http_load import HttpConnection

CEILING_S = 2.0
_WRITE_SIZE_BYTES = 512 * 1024
_COPIES = 3


async def echo_ceiling(requests: list[Prepared], connections: int) -> float:
    """Return the requests per second of a bare asyncio server.

    It is a process of its own and answers each request with the request's body.
    """
    turns = itertools.cycle(requests)

    async def step(connection: HttpConnection) -> int:
        request = next(turns)
        status, body = await connection.request(*request)
        if status != 200 or len(body) != len(request.body):
            raise BenchFailed(f"the echo answered {status} with {len(body)} bytes")
        return 1

    argv = (sys.executable, "-m", "loadtest.bench.echo", "serve")
    process = await asyncio.create_subprocess_exec(*argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        run = await run_closed_loop(port, connections, step, seconds=CEILING_S, pids={})
    finally:
        process.stdin.close()
        await process.wait()
    return run.per_s


def synced_mb_per_s(folder: Path) -> float:
    """Return the MB/s of each of three files at once, as three brokers on one disk write.

    Each file gets 512 KiB, fdatasync, and again.
    """
    data = os.urandom(_WRITE_SIZE_BYTES)

    def write(number: int) -> float:
        path = folder / f"ceiling-{number}"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            began_s, written = time.perf_counter(), 0
            while time.perf_counter() - began_s < CEILING_S:
                written += os.write(handle, data)
                os.fdatasync(handle)
            return written / 1e6 / (time.perf_counter() - began_s)
        finally:
            os.close(handle)
            path.unlink()

    with ThreadPoolExecutor(_COPIES) as threads:
        return min(threads.map(write, range(_COPIES)))
