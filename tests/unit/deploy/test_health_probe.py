"""The probe of the containers: it derives the root key as everybody else does, and takes nothing but a 200 for health."""

import ssl
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copyfile

import pytest

from deploy import health_probe
from tern_security.cluster_directory import ClusterDirectory, Wanted
from tern_wire.principals.client_keys import root_key_text


class Answering(BaseHTTPRequestHandler):
    """200 at /ok, 503 elsewhere; notes what it was shown."""

    protocol_version = "HTTP/1.1"

    def __init__(self, shown: list[str], *arguments: object) -> None:
        self.shown = shown
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """One answer."""
        self.shown.append(self.headers.get("Authorization", ""))
        self.send_response(200 if self.path == "/ok" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the init service hands out to one process."""
    directory = ClusterDirectory(tmp_path_factory.mktemp("cluster"))
    directory.make([Wanted(role="broker", name="broker-a-0")], cluster="test", now_s=time.time())
    folder, pair = tmp_path_factory.mktemp("secrets"), directory.pair("broker", "broker-a-0")
    for name, source in (("tls.crt", pair.cert), ("tls.key", pair.key), ("ca.crt", directory.ca_cert)):
        copyfile(source, folder / name)
    copyfile(directory.cluster_key, folder / "cluster.key")
    return folder


@pytest.fixture
def shown() -> list[str]:
    """The Authorization of every request."""
    return []


@pytest.fixture
def url(secrets: Path, shown: list[str]) -> Iterator[str]:
    """A listener that takes peers with a certificate of the cluster, and nobody else."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=secrets / "ca.crt")
    context.load_cert_chain(secrets / "tls.crt", secrets / "tls.key")
    context.verify_mode = ssl.CERT_REQUIRED
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Answering, shown)) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def probed(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of the probe."""
    monkeypatch.setattr("sys.argv", ["health_probe.py", *arguments])
    return health_probe.main()


def test_a_listener_that_answers_200_to_a_peer_of_the_cluster_is_healthy(
    monkeypatch: pytest.MonkeyPatch, url: str, secrets: Path, shown: list[str]
) -> None:
    """With the container's own certificate, and without a key where none is asked for."""
    assert probed(monkeypatch, f"{url}/ok", str(secrets)) == 0
    assert shown == [""]


def test_another_status_is_not_healthy(monkeypatch: pytest.MonkeyPatch, url: str, secrets: Path) -> None:
    """503 is what a process answers that is not ready."""
    assert probed(monkeypatch, f"{url}/readyz", str(secrets)) == 1


def test_nobody_who_listens_is_not_healthy(monkeypatch: pytest.MonkeyPatch, secrets: Path) -> None:
    """A port on which nothing listens."""
    assert probed(monkeypatch, "https://127.0.0.1:1/ok", str(secrets)) == 1


def test_the_root_key_follows_from_the_cluster_key_as_proxies_derive_it(
    monkeypatch: pytest.MonkeyPatch, url: str, secrets: Path, shown: list[str]
) -> None:
    """The probe cannot import our packages, so it says the same in its own words."""
    assert probed(monkeypatch, f"{url}/ok", str(secrets), "--root") == 0
    assert shown == [f"Bearer {root_key_text((secrets / 'cluster.key').read_bytes())}"]
