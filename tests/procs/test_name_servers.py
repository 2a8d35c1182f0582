"""A proxy without a name server, and a mesh whose name server dies."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.support.mesh import eventually, free_port_base, running_mesh


def test_a_proxy_that_reaches_no_name_server_answers_503_and_says_so(tmp_path: Path) -> None:
    """Every route that needs routes; health is alive, readiness is not; SIGTERM ends it."""
    port = free_port_base(random.Random())
    key = tmp_path / "cluster.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    command = [sys.executable, "-m", "tern_proxy", "--port", str(port), "--namesrv", f"http://127.0.0.1:{port + 1}"]
    process = subprocess.Popen([*command, "--cluster-key-file", str(key)], stderr=subprocess.PIPE)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=10) as client:

            def answer() -> Any:
                try:
                    return client.get("/healthz")
                except httpx.TransportError:
                    return None

            assert eventually(answer, within_s=15, what="a proxy that listens").status_code == 200
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
    finally:
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=15)
    assert process.returncode == 0
    assert b"Traceback" not in logged


def test_the_death_of_the_name_server_stops_nobody(tmp_path: Path) -> None:
    """Proxies keep their routes, brokers their leader; the restarted one learns everything again."""
    with running_mesh(tmp_path / "tern", "--brokers", "1") as mesh:
        mesh.create("routes", "readers")
        pid = mesh.kill("namesrv-0")
        assert mesh.call("POST", "/v1/topics/routes/messages", content=b"x").status_code == 201
        eventually(lambda: mesh.pid("namesrv-0") != pid, within_s=10, what="a new name server")

        def knows() -> bool:
            try:
                return "routes" in mesh.client.get(f"{mesh.namesrv}/v1/routes").json()["topics"]
            except httpx.TransportError:
                return False

        eventually(knows, within_s=10, what="routes at the new name server")
        assert mesh.settled("POST", "/v1/topics/routes/messages", content=b"y").status_code == 201
