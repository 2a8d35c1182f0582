"""`python -m tests.secure.reloads`: all certificates of a running secure mesh are renewed again and again under load, and no request fails. `make reloads`.

Senders and receivers keep their connections, or make a new one for each request; two proxies. A round is over when every listener shows its new
certificate. The last line of standard output is JSON; exit code 1 when a request failed or a listener took longer than 5 s.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.secure.test_ports import shown
from tests.support.mesh.secure_mesh import SecureMesh, grant, running_secure_mesh

TOPIC, GROUP = "reloads", "reloads"
_SHOWN_WITHIN_S = 5.0


class Requests:
    """Requests under way until stopped. *failures*: what was not answered as it should be."""

    def __init__(self, mesh: SecureMesh, key: str) -> None:
        self._mesh, self._key = mesh, key
        self.stop = threading.Event()
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []

    def run(self, proxy: int, *, keeps: bool) -> None:
        """Send, receive and ack at one proxy, over a connection that is kept or a new one for each."""
        kind = "kept" if keeps else "new"
        client = self._mesh.with_key(self._key, proxy=proxy)
        while not self.stop.is_set():
            if not keeps:
                client.close()
                client = self._mesh.with_key(self._key, proxy=proxy)
            try:
                self._turn(client)
                self.done[kind] += 1
            except (httpx.HTTPError, RuntimeError) as error:
                self.failures.append(f"{kind} connection, proxy-{proxy}: {error!r}")
        client.close()

    def _turn(self, client: httpx.Client) -> None:
        self._expect(client.post(f"/v1/topics/{TOPIC}/messages", content=b"x"), 201)
        path = f"/v1/topics/{TOPIC}/groups/{GROUP}"
        got = self._expect(client.post(f"{path}/receive", json={"max_messages": 32}), 200)
        handles = [message["receipt_handle"] for message in got.json()["messages"]]
        if handles:
            self._expect(client.post(f"{path}/ack", json={"receipt_handles": handles}), 200)

    def _expect(self, answer: httpx.Response, status: int) -> httpx.Response:
        if answer.status_code != status:
            raise RuntimeError(
                f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {answer.text[:200]}"
            )
        return answer


def renew(mesh: SecureMesh, ports: list[int]) -> float:
    """One round; how long it took until the last listener showed its new certificate."""
    before = {port: shown(port) for port in ports}
    mesh.run_plain("init-cluster", str(mesh.directory), "--renew")
    began_s = time.monotonic()
    left = set(ports)
    while left and time.monotonic() - began_s < 2 * _SHOWN_WITHIN_S:
        left = {port for port in left if shown(port) == before[port]}
    return time.monotonic() - began_s


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.secure.reloads", description=__doc__)
    parser.add_argument("--times", type=int, default=100, help="renewals (default 100)")
    options = parser.parse_args()
    shown_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder, running_secure_mesh(Path(folder), "--proxies", "2") as mesh:
        key = mesh.new_key("reloads", grant("topic", "*", "ALL"), grant("group", "*", "ALL"))
        mesh.create(TOPIC, GROUP)
        urls = [mesh.namesrv, mesh.checker_http, *map(mesh.broker_http, mesh.brokers())]
        ports = [*(int(url.rpartition(":")[2]) for url in urls), mesh.port_base, mesh.port_base + 1]
        requests = Requests(mesh, key)
        with ThreadPoolExecutor(4) as pool:
            tasks = [pool.submit(requests.run, proxy, keeps=keeps) for proxy in (0, 1) for keeps in (True, False)]
            try:
                for number in range(options.times):
                    shown_s.append(renew(mesh, ports))
                    print(f"{number + 1}/{options.times}: {shown_s[-1]:.1f} s", file=sys.stderr, flush=True)
            finally:
                requests.stop.set()
            for task in tasks:
                task.result()
    figures = {
        "renewals": len(shown_s),
        "slowest_s": round(max(shown_s), 2),
        "turns": dict(requests.done),
        "failures": len(requests.failures),
        "examples": requests.failures[:5],
    }
    print(json.dumps(figures))
    return int(bool(requests.failures) or max(shown_s) > _SHOWN_WITHIN_S)


if __name__ == "__main__":
    sys.exit(main())
