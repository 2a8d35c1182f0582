"""A proxy without a name server; a mesh whose name server dies, and whose brokers are dead for longer than its name server waits."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.mesh.mesh import Mesh, eventually, free_port_base, running_mesh


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """One broker, one proxy, one name server; each test leaves them running."""
    with running_mesh(tmp_path_factory.mktemp("mesh") / "tern", "--brokers", "1") as running:
        yield running


@contextlib.contextmanager
def lone_proxy(port: int, namesrv: str, key: Path, *options: str) -> Iterator[httpx.Client]:
    """A client of a proxy that no supervisor knows; it must end cleanly and without a traceback."""
    command = [sys.executable, "-m", "tern_proxy", "--port", str(port), "--namesrv", namesrv, *options]
    process = subprocess.Popen([*command, "--cluster-key-file", str(key)], stderr=subprocess.PIPE)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=10) as client:
            eventually(lambda: is_alive(client), within_s=30, what="a proxy that listens")
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=15)
    assert process.returncode == 0
    assert b"Traceback" not in logged


def is_alive(client: httpx.Client) -> bool:
    """Whether the process answers."""
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def routes_of(mesh: Mesh) -> dict[str, Any]:
    """What the name server says; {} when it does not answer."""
    try:
        routes: dict[str, Any] = mesh.client.get(f"{mesh.namesrv}/v1/routes").json()
    except httpx.TransportError:
        return {}
    return routes


@contextlib.contextmanager
def held(mesh: Mesh) -> Iterator[None]:
    """For the length of a block nothing that died is started again."""
    supervisor = json.loads((mesh.directory / "mesh.json").read_text())["supervisor"]["pid"]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(supervisor, signal.SIGCONT)


def test_a_proxy_that_reaches_no_name_server_answers_503_and_says_so(tmp_path: Path) -> None:
    """Every route that needs routes; health is alive, readiness is not; SIGTERM ends it."""
    port = free_port_base(random.Random())
    key = tmp_path / "cluster.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    with lone_proxy(port, f"http://127.0.0.1:{port + 1}", key) as client:
        assert client.get("/readyz").status_code == 503
        for method, path in (
            ("POST", "/v1/topics/t/messages"),
            ("POST", "/v1/topics/t/groups/g/receive"),
            ("GET", "/v1/topics/t/offsets"),
            ("PUT", "/v1/topics/t"),
            ("PUT", "/v1/groups/g"),
        ):
            reply = client.request(method, path)
            assert (reply.status_code, reply.json()["code"]) == (503, "no-name-server"), path
            assert int(reply.headers["retry-after"]) >= 1


def test_the_death_of_the_name_server_stops_nobody(mesh: Mesh) -> None:
    """Proxies keep their routes, brokers their leader; the restarted one learns everything again."""
    mesh.create("routes", "readers")
    pid = mesh.kill("namesrv-0")
    assert mesh.call("POST", "/v1/topics/routes/messages", content=b"x").status_code == 201
    eventually(lambda: mesh.pid("namesrv-0") not in {0, pid}, within_s=30, what="a new name server")

    eventually(lambda: "routes" in routes_of(mesh).get("topics", ()), within_s=30, what="routes at the new name server")
    assert mesh.settled("POST", "/v1/topics/routes/messages", content=b"y").status_code == 201


def test_topics_of_brokers_that_are_dead_for_long_are_waited_for_and_not_denied(mesh: Mesh) -> None:
    """Once the name server has given all brokers up: 503 from the proxy that knew them and from one that starts now; never 404.

    When they are back, sends are accepted. The supervisor sleeps meanwhile, which is no reason for it to end the mesh.
    """
    mesh.create("waits")
    eventually(lambda: "waits" in routes_of(mesh)["topics"], within_s=30, what="the topic at the name server")
    send = "/v1/topics/waits/messages"

    def given_up() -> bool:
        return not any(group["nodes"] for group in routes_of(mesh)["broker_groups"].values())

    with held(mesh):
        for name in mesh.brokers():
            mesh.kill(name)
        eventually(given_up, within_s=20, what="a name server that has given the brokers up")
        with lone_proxy(mesh.port_base + 9, mesh.namesrv, mesh.directory / "cluster.key") as fresh:
            for reply in (mesh.call("POST", send, content=b"x"), fresh.post(send, content=b"x")):
                assert (reply.status_code, reply.json()["code"]) == (503, "no-leader"), reply.text
                assert int(reply.headers["retry-after"]) >= 1
            assert fresh.post("/v1/topics/nope/messages", content=b"x").status_code == 404
    assert mesh.settled("POST", send, content=b"y").status_code == 201
