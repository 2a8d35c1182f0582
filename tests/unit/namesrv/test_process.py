"""A real name server process: it listens, survives garbage, names a port in use, and stops cleanly."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tern_wire.paths import ROUTES_PATH

SEED = 9_876
DEADLINE_S = 60.0


def command(*arguments: str) -> list[str]:
    """The command line of a name server."""
    return [sys.executable, "-m", "tern_namesrv", *arguments]


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process on a free port and that port, read from its first log line."""
    process = subprocess.Popen(command("--port", "0", *arguments), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        yield process, first["port"]
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        process.stderr and process.stderr.close()


def wait_until_ready(port: int) -> None:
    """Poll /readyz with a deadline."""
    end = time.monotonic() + DEADLINE_S
    while True:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=DEADLINE_S).status_code == 200:
                return
        assert time.monotonic() < end, "the name server did not become ready"


def throw(port: int, garbage: bytes) -> None:
    """Send *garbage* and hang up when the server does, or after half a second."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock, contextlib.suppress(OSError):
        sock.sendall(garbage)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):
            pass


def test_it_serves_after_garbage_and_stops_cleanly_on_sigterm() -> None:
    """Random bytes leave neither a traceback nor an unusable server; SIGTERM is exit code 0."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    with running() as (process, port):
        wait_until_ready(port)
        for beginning in (b"", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"POST /v1/brokers/register HTTP/1.1\r\n"):
            for _ in range(10):
                throw(port, beginning + chance.randbytes(chance.randrange(1, 4_000)))
        assert httpx.get(f"http://127.0.0.1:{port}{ROUTES_PATH}", timeout=DEADLINE_S).status_code == 200
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert "raceback" not in log
    assert {json.loads(line)["level"] for line in log.splitlines()} <= {"INFO"}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--port", "{port}"], ["{port}", "127.0.0.1", "--port", "in use"]),
        (["--listen", "0.0.0.0"], ["0.0.0.0", "--listen", "authentication and TLS"]),
        (["--prot", "1"], ["--prot", "--port"]),
        (["--log-level", "LOUD"], ["--log-level", "LOUD"]),
    ],
)
def test_what_it_cannot_run_with_is_one_sentence_and_78(arguments: list[str], parts: list[str]) -> None:
    """No traceback at a user's mistake."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            command(*[argument.format(port=port) for argument in arguments]),
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
            env=os.environ,
        )
    assert done.returncode == 78
    errors = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(errors) == 1
    for part in parts:
        assert part.format(port=port) in errors[0]


def test_damaged_files_end_the_start_and_a_directory_serves_one_process(tmp_path: Path) -> None:
    """One sentence with the file and what to do, exit code 78; what is good is served, and held."""
    (tmp_path / "kvConfig.json").write_text('{"configTable":{"NS":{"key":"value"}},"crc32":"00000000"}')
    damaged = start_in_vain(tmp_path)
    assert f"{tmp_path}/kvConfig.json is damaged" in damaged
    assert "ternmq namesrv kv put" in damaged
    (tmp_path / "kvConfig.json").write_text('{"configTable":{"NS":{"key":"value"}}}')
    with running("--data-dir", str(tmp_path)) as (_, port):
        wait_until_ready(port)
        found = httpx.get(f"http://127.0.0.1:{port}/v1/kv/NS/key", timeout=DEADLINE_S)
        assert found.json()["value"] == "value"
        assert "belongs to another name server" in start_in_vain(tmp_path)


def start_in_vain(data_dir: Path) -> str:
    """What a name server on *data_dir* says when it does not start."""
    arguments = command("--port", "0", "--data-dir", str(data_dir))
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert done.returncode == 78
    (error,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    return error
