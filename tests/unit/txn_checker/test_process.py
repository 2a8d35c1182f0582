"""A real checker process: it listens, survives garbage, refuses what it cannot run with, stays small, and stops cleanly."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tern_cli.mesh.process_table import rss_bytes
from tern_service import SettingsError, load_settings
from tern_txn_checker.config import PREFIX, CheckerSettings

SEED = 8_090
DEADLINE_S = 60.0
# Without FastAPI, httpx and numpy: 34 MiB. With FastAPI it would be 50, with all of them 65.
RSS_MAX_BYTES = 44 * 1024 * 1024


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A cluster key."""
    path = tmp_path / "cluster.key"
    path.write_bytes(bytes(32))
    path.chmod(0o600)
    return path


def command(key: Path, *arguments: str) -> list[str]:
    """The command line of a checker whose name server is not there."""
    base = [sys.executable, "-m", "tern_txn_checker", "--namesrv", "http://127.0.0.1:1", "--cluster-key-file", str(key)]
    return [*base, *arguments]


@contextlib.contextmanager
def running(key: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process on a free port and that port, read from its first log line."""
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    process = subprocess.Popen(command(key, "--port", "0", *arguments), stderr=subprocess.PIPE, text=True, env=environ)
    try:
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        yield process, first["port"]
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        process.stderr and process.stderr.close()


def eventually(check: Callable[[], Any], what: str) -> Any:
    """The first true answer; AssertionError at the deadline."""
    end = time.monotonic() + DEADLINE_S
    while not (found := check()):
        assert time.monotonic() < end, what
        time.sleep(0.01)
    return found


def get(port: int, path: str) -> httpx.Response:
    """One question, repeated until the process answers."""

    def ask() -> httpx.Response | None:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_S)
        return None

    answer: httpx.Response = eventually(ask, f"{path} is answered")
    return answer


def throw(port: int, garbage: bytes) -> None:
    """Send *garbage* and hang up when the server does."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock, contextlib.suppress(OSError):
        sock.sendall(garbage)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):
            pass


def test_it_serves_its_routes_after_garbage_stays_small_and_stops_on_sigterm(key: Path) -> None:
    """Without a name server it lives, is not ready, and says why. Exit code 0, no traceback."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    with running(key, "--check-hosts", "127.0.0.1,localhost", "--name", "checker-7") as (process, port):
        assert get(port, "/healthz?verbose").json()["checker"] == "checker-7"
        for beginning in (b"", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"POST /v1/checker HTTP/1.1\r\n"):
            for _ in range(5):
                throw(port, beginning + chance.randbytes(chance.randrange(1, 4_000)))
        ready = get(port, "/readyz")
        assert (ready.status_code, ready.json()["name_server"], ready.json()["leaders"]) == (503, False, {})
        assert get(port, "/v1/checker").json()["hosts"] == []
        metrics = get(port, "/metrics").text
        assert "ternmq_txn_checker_claimed_total 0.0" in metrics
        assert "ternmq_txn_checker_process_resident_memory_bytes" in metrics
        assert get(port, "/nothing").json()["code"] == "route-not-found"
        assert rss_bytes(process.pid) < RSS_MAX_BYTES
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert "raceback" not in log
    assert {json.loads(line)["level"] for line in log.splitlines()} <= {"INFO", "WARNING"}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--port", "{port}"], ["{port}", "127.0.0.1", "--port", "in use"]),
        (["--listen", "0.0.0.0"], ["0.0.0.0", "--listen", "authentication and TLS"]),
        (["--cluster-key-file", "/nowhere"], ["/nowhere", "--cluster-key-file"]),
    ],
)
def test_what_it_cannot_run_with_is_one_sentence_and_78(key: Path, arguments: list[str], parts: list[str]) -> None:
    """No traceback at a user's mistake."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = command(key, *[argument.format(port=port) for argument in arguments])
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert done.returncode == 78
    errors = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(errors) == 1
    for part in parts:
        assert part.format(port=port) in errors[0]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--check-host", "a"], ["--check-host", "--check-hosts"]),
        (["--check-hosts", "a.example.com,169.254.169.254"], ["169.254.169.254", "never called"]),
        (["--check-hosts", "http://a"], ["http://a"]),
        (["--ca-file", "/nowhere"], ["/nowhere", "--ca-file"]),
        (["--namesrv", "127.0.0.1:9876"], ["127.0.0.1:9876", "--namesrv", "URL"]),
        (["--claim-ms", "999ms"], ["--claim-ms", "1000 to 120000"]),
        (["--name", "x" * 65], ["--name", "64"]),
        (["--log-level", "LOUD"], ["--log-level", "LOUD"]),
    ],
)
def test_settings_that_cannot_be_used_are_named(arguments: list[str], parts: list[str]) -> None:
    """With what to write instead, before anything is opened."""
    base = ["--namesrv", "http://127.0.0.1:1", "--cluster-key-file", "key"]
    with pytest.raises(SettingsError) as refused:
        load_settings(CheckerSettings, prefix=PREFIX, environ={}, arguments=[*base, *arguments])
    for part in parts:
        assert part in refused.value.text


def test_serve_starts_it(key: Path) -> None:
    """`ternmq serve txn-checker` is the same process."""
    words = [sys.executable, "-m", "tern_cli", "serve", "txn-checker", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert (done.returncode, "--check-hosts" in done.stdout, "TERN_TXN_CHECKER_CHECK_HOSTS" in done.stdout) == (
        0,
        True,
        True,
    )
