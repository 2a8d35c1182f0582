"""Three processes that replicate, driven by their parent; and probes of the disk beside them."""

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadtest.bench.raft.load import Load, Loaded

_NODES = 3
_START_S = 20.0
_PROBE_SIZE_BYTES = 1 << 30


class Trio:
    """A running group of three processes; `load` runs on the leader."""

    def __init__(self, module: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        ports = [str(port) for port in _free_ports(_NODES)]
        self._processes = [
            subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-m", module, str(number), str(folder), *ports],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            for number in range(_NODES)
        ]
        self.pids = {f"node-{number}": process.pid for number, process in enumerate(self._processes)}

    def load(self, load: Load) -> Loaded:
        """Run *load* on the leader; RuntimeError when no node leads in time."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            for process in self._processes:
                answer = self._ask(process, json.dumps(asdict(load)))
                if "requests" in answer:
                    return Loaded(**answer)
            time.sleep(0.05)
        raise RuntimeError("no node of the group leads")

    def stop(self) -> None:
        """End all three."""
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _ask(self, process: subprocess.Popen[str], line: str) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        while said := process.stdout.readline():
            document: dict[str, Any] = json.loads(said)
            if document.get("leads") is not True:
                return document
        raise RuntimeError(f"a node ended with exit code {process.wait()}")


@contextmanager
def trio(module: str, folder: Path) -> Iterator[Trio]:
    """Yield a group of `python -m module` processes with their files below *folder*."""
    group = Trio(module, folder)
    try:
        yield group
    finally:
        group.stop()


class DiskProbe:
    """Probes of the disk: writes of three processes at once, and one sync of a small write."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._pool = ProcessPoolExecutor(_NODES)
        list(self._pool.map(time.sleep, [0.1] * _NODES))  # the processes exist before any measurement

    def mb_per_s(self, size_bytes: int, seconds: float) -> float:
        """Return the MB/s of each of three files at once (their mean): write, fdatasync, again."""
        jobs = [(str(self._folder / f"probe-{number}"), size_bytes, seconds) for number in range(_NODES)]
        return statistics.mean(size_bytes / 1e6 / statistics.mean(took) for took in self._pool.map(_write_synced, jobs))

    def sync_p50_ms(self, size_bytes: int, seconds: float) -> float:
        """Return the median of write and fdatasync of *size_bytes* at a file's end, alone."""
        return statistics.median(_write_synced((str(self._folder / "probe-alone"), size_bytes, seconds))) * 1e3

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown()


def _write_synced(job: tuple[str, int, float]) -> list[float]:
    """Return the seconds of each write with its fdatasync.

    The writes follow each other in a file that is allocated like the log's segments.
    """
    path, size_bytes, seconds = job
    data, took, at = os.urandom(size_bytes), [], 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.posix_fallocate(fd, 0, _PROBE_SIZE_BYTES)
        os.fdatasync(fd)
        ends = time.perf_counter() + seconds
        while (began := time.perf_counter()) < ends:
            os.pwrite(fd, data, at)
            os.fdatasync(fd)
            took.append(time.perf_counter() - began)
            at = (at + size_bytes) % _PROBE_SIZE_BYTES
    finally:
        os.close(fd)
    return took


def _free_ports(count: int) -> list[int]:
    """Return ports below the kernel's ephemeral ones.

    So no connection of ours takes a port before its listener does.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports
