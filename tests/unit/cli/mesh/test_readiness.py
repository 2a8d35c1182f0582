"""When `ternmq up` says that the mesh is up: every address that it tells answers, and every checker works."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tern_cli.mesh.readiness import why_not_ready
from tern_cli.mesh.start import Probes

HERE = Path()
FIRST, SECOND, CHECKER = "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:70"


def mesh(**states: str) -> dict[str, Any]:
    """Two proxies, a broker and a checker."""
    rows = [("proxy_0", "proxy", FIRST), ("proxy_1", "proxy", SECOND), ("broker", "broker", "http://127.0.0.1:22")]
    rows.append(("checker", "txn-checker", CHECKER))
    processes = [
        {"name": name, "role": role, "url": url, "state": states.get(name, "running")} for name, role, url in rows
    ]
    return {"proxies": [FIRST, SECOND], "namesrvs": ["http://127.0.0.1:10"], "processes": processes}


def probes(*late: str) -> Probes:
    """The processes *late* are not ready."""
    return Probes(
        accepts=lambda url, _: f"{url} accepts nothing" if url in late else "",
        warms_up=lambda _url, _: "",
        why_not_ready=lambda row, _: f"{row['name']} is late" if row["name"] in late else "",
    )


def test_every_proxy_and_every_checker_is_waited_for() -> None:
    """The second proxy's address is told, so it must answer."""
    assert probes().why_not(mesh(), HERE) == probes().who_is_late(mesh(), HERE) == ""
    assert probes("proxy_1").who_is_late(mesh(), HERE) == "proxy_1 is late"
    assert probes("checker").who_is_late(mesh(), HERE) == "checker is late"
    assert probes(FIRST, "proxy_1").why_not(mesh(), HERE) == f"{FIRST} accepts nothing"


def test_who_has_failed_for_good_is_not_waited_for_nor_a_broker() -> None:
    """The group serves without the broker; who has failed is named in the notes of `up`."""
    assert probes("proxy_1", "checker").who_is_late(mesh(proxy_1="failed", checker="failed"), HERE) == ""
    assert probes("broker").who_is_late(mesh(), HERE) == ""


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A process whose /readyz says so; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_readyz_decides_and_its_word_is_told() -> None:
    """503 and nobody there are told with the process's name."""
    for role in ("proxy", "txn-checker"):
        with answering(200, b"{}") as url:
            assert why_not_ready({"name": "it", "role": role, "url": url}, HERE) == ""
        with answering(503, b'{"ready":false}') as url:
            said = why_not_ready({"name": "it", "role": role, "url": url}, HERE)
            assert said == f'it at {url} answers 503: {{"ready":false}}'
        said = why_not_ready({"name": "it", "role": role, "url": url}, HERE)
        assert said.startswith(f"it at {url} does not answer")
