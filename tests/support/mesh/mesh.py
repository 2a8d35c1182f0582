"""A real mesh for tests: real processes started by `ternmq up`, on free ports, in a directory of its own."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tern_cli.mesh.files import MeshFiles
from tern_cli.mesh.process_table import port_is_free
from tern_cli.mesh.start import stop_mesh
from tests.support.mesh.claimed_names import ClaimedNames
from tests.support.proxy.documented import check_documented

# A range of ports that `ternmq up --port-base` uses.
PORTS = 100
# Of the processes among which pytest-xdist shares out tests, each takes ports that no other one does.
WORKER, WORKERS = (
    int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]),
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
)
SEGMENT_SIZE_BYTES = 16 << 20


def free_port_base(rng: random.Random) -> int:
    """The first port of a range in which the ones that a mesh needs are free now."""
    for _ in range(200):
        base = rng.randrange(
            20_000 + WORKER * PORTS, 32_000, WORKERS * PORTS
        )  # below the ports that the kernel gives to clients
        if all(port_is_free("127.0.0.1", base + offset) for offset in (0, 1, 2, 10, 11, *range(20, 63), 70, 71)):
            return base
    raise AssertionError("no free range of ports on this machine")


def eventually(check: Callable[[], Any], *, within_s: float, what: str) -> Any:
    """The first true answer of *check*, polled until the deadline; AssertionError naming *what* after it."""
    deadline_s = time.monotonic() + within_s
    while True:
        answer = check()
        if answer:
            return answer
        assert time.monotonic() < deadline_s, f"not within {within_s} s: {what} (last answer {answer!r})"
        time.sleep(0.02)


class Mesh:
    """One mesh. `up` starts it (again), `down` stops it, `kill` sends a signal to one process."""

    scheme = "http"

    def __init__(self, directory: Path, *, port_base: int, options: tuple[str, ...] = ()) -> None:
        self.directory, self.port_base, self.options = directory, port_base, options
        self.client = httpx.Client(timeout=30, trust_env=False)
        self._names = ClaimedNames()

    # Life ------------------------------------------------------------------------------------------------------
    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`ternmq ARGUMENTS --data-dir ...`."""
        command = [sys.executable, "-m", "tern_cli", *arguments, "--data-dir", str(self.directory)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert not check or done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def up(self) -> None:
        """Start, and wait until a message is accepted."""
        self.run("up", "--port-base", str(self.port_base), *self.options)

    def down(self) -> None:
        """Stop everything."""
        self.run("down")

    def processes(self) -> list[dict[str, Any]]:
        """What `ternmq up` says about its processes."""
        found: list[dict[str, Any]] = json.loads((self.directory / "mesh.json").read_text())["processes"]
        return found

    def pid(self, name: str) -> int:
        """The process id of *name* now."""
        return int(next(process["pid"] for process in self.processes() if process["name"] == name))

    def kill(self, name: str, with_signal: signal.Signals = signal.SIGKILL) -> int:
        """Send *with_signal*; the process id that got it."""
        pid = self.pid(name)
        assert pid > 1, f"{name} does not run now"  # 0 would be this very process group
        os.kill(pid, with_signal)
        return pid

    # Talk ------------------------------------------------------------------------------------------------------
    @property
    def endpoint(self) -> str:
        """The first proxy."""
        return f"{self.scheme}://127.0.0.1:{self.port_base}"

    @property
    def namesrv(self) -> str:
        """The first name server."""
        return f"{self.scheme}://127.0.0.1:{self.port_base + 10}"

    def broker_http(self, name: str) -> str:
        """The HTTP door of a broker."""
        return f"{self.scheme}://127.0.0.1:{self.port_base + 20 + 10 * int(name[-1]) + 2}"

    def call(self, method: str, path: str, *, proxy: int = 0, **options: Any) -> httpx.Response:
        """One request to a proxy; its answer is in the API document."""
        self._names.claim(method, path, options.get("headers") or {})
        url = f"{self.scheme}://127.0.0.1:{self.port_base + proxy}{path}"
        answer = self.client.request(method, url, **options)
        kind = answer.headers.get("content-type", "")
        check_documented(method, answer.request.url.path, answer.status_code, kind, answer.content)
        return answer

    def settled(self, method: str, path: str, *, within_s: float = 30, **options: Any) -> httpx.Response:
        """As call, repeated while the answer is 503 (of a GET or PUT 504, too) or nobody listens: what a patient client does."""

        def attempt() -> httpx.Response | None:
            try:
                reply = self.call(method, path, **options)
            except httpx.TransportError:
                return None
            # A read or a declaration whose outcome is not known may be asked for again.
            is_open = reply.status_code == 503 or (reply.status_code == 504 and method in {"GET", "PUT"})
            return None if is_open else reply

        answer: httpx.Response = eventually(attempt, within_s=within_s, what=f"{method} {path} answered")
        return answer

    def patient(self, method: str, path: str, **options: Any) -> httpx.Response:
        """As settled for a request that may be repeated whatever its outcome was, a send with a key for example."""

        def attempt() -> httpx.Response | None:
            reply = self.settled(method, path, **options)
            return None if reply.status_code == 504 else reply

        answer: httpx.Response = eventually(attempt, within_s=30, what=f"{method} {path} answered")
        return answer

    def broker(self, name: str) -> dict[str, Any]:
        """What one broker says about itself; {} when it does not answer."""
        try:
            found: dict[str, Any] = self.client.get(self.broker_http(name) + "/v1/broker", timeout=2).json()
        except (httpx.TransportError, json.JSONDecodeError):
            return {}
        return found

    def brokers(self) -> list[str]:
        """Names of the broker processes."""
        return [process["name"] for process in self.processes() if process["role"] == "broker"]

    def leader(self, *, within_s: float = 30) -> str:
        """The broker that leads and serves."""

        def leading() -> str:
            return next((name for name in self.brokers() if self.broker(name).get("serving")), "")

        return str(eventually(leading, within_s=within_s, what="a leader"))

    def wait_until_whole(self, *, within_s: float = 60) -> None:
        """Until every process runs, every broker follows the leader with all that is committed, and every proxy is ready."""

        def what_lacks() -> str:
            rows = self.processes()
            if lacking := [row["name"] for row in rows if row["state"] != "running"]:
                return f"{lacking} do not run"
            lead = self.broker(self.leader())
            for name in self.brokers():
                status = self.broker(name)
                if status.get("standing") != "member" or status["applied_index"] < lead.get("commit_index", 1 << 62):
                    return f"{name} is not there yet"
            proxies = range(sum(row["role"] == "proxy" for row in rows))
            try:
                answers = [self.call("GET", "/readyz", proxy=number).status_code for number in proxies]
            except httpx.TransportError as error:
                return f"a proxy does not answer: {error}"
            return "" if set(answers) == {200} else f"proxies answer {answers}"

        eventually(lambda: not what_lacks(), within_s=within_s, what="the mesh is whole")

    def log_sizes(self) -> dict[str, int]:
        """Of every log, how long it is now."""
        return {log.name: log.stat().st_size for log in (self.directory / "logs").glob("*.log")}

    def logged_since(self, sizes: dict[str, int]) -> dict[str, str]:
        """What each log has got since `log_sizes` returned *sizes*; all of one that was cut in between."""
        found = {log.name: log.read_bytes() for log in (self.directory / "logs").glob("*.log")}
        begins = {name: sizes.get(name, 0) for name in found}
        return {
            name: data[begins[name] if begins[name] <= len(data) else 0 :].decode(errors="replace")
            for name, data in found.items()
        }

    def term(self) -> int:
        """In which the group is led now; 0 when its leader went in this moment."""
        return int(self.broker(self.leader()).get("term", 0))

    def create(self, topic: str, group: str = "", queues: int = 4, invisible: str = "30s") -> None:
        """A topic that every proxy knows, and a group."""
        assert self.settled("PUT", f"/v1/topics/{topic}", json={"queues": queues}).status_code in (200, 201)
        for number, _ in enumerate(process for process in self.processes() if process["role"] == "proxy"):
            eventually(partial(self._has_heard, topic, number), within_s=15, what=f"proxy-{number} knows {topic}")
        if group:
            assert self.settled("PUT", f"/v1/groups/{group}", json={"invisible": invisible}).status_code in (200, 201)

    def _has_heard(self, topic: str, proxy: int) -> bool:
        """False while *proxy* says that there is no such topic."""
        try:
            return self.call("GET", f"/v1/topics/{topic}/offsets", proxy=proxy).status_code != 404
        except httpx.TransportError:
            return True  # it is dead or on its way: not what the caller asks


@contextmanager
def kept_up(mesh: Mesh) -> Iterator[None]:
    """*mesh* is up for the length of a block; its logs are shown when the block fails."""
    try:
        mesh.up()
        yield
    except BaseException:
        for log in sorted((mesh.directory / "logs").glob("*.log")):
            print(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:]))
        raise
    finally:
        # In this process: nobody looks at what `ternmq down` says here, and a command costs half a second of a core.
        stop_mesh(MeshFiles(mesh.directory))
        mesh.client.close()


@contextmanager
def running_mesh(directory: Path, *options: str) -> Iterator[Mesh]:
    """A mesh for the length of a block; its logs are shown when the block fails."""
    mesh = Mesh(
        directory,
        port_base=free_port_base(random.Random()),
        # Longer than `ternmq up` waits by itself: other tests, and other programs, may have the machine.
        options=("--wait", "90", "--segment-size-bytes", str(SEGMENT_SIZE_BYTES), *options),
    )
    with kept_up(mesh):
        yield mesh
