"""The start-up rule in real processes: what would listen beyond loopback without TLS and keys ends with 78 before any port opens."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pki.cluster_pki import Pki

ARGUMENTS = {
    "tern_namesrv": ["--port", "0"],
    "tern_proxy": ["--port", "0", "--namesrv", "{scheme}://127.0.0.1:1", "--cluster-key-file", "{key}"],
    "tern_txn_checker": ["--port", "0", "--namesrv", "{scheme}://127.0.0.1:1", "--cluster-key-file", "{key}"],
    "tern_broker": [
        "--peers", "broker-a-0=127.0.0.1:{port}", "--raft-port", "{port}", "--link-port", "{port}", "--http-port", "0",
        "--data-dir", "{data}", "--cluster-key-file", "{key}", "--group-id", "0" * 32, "--advertise", "127.0.0.1",
    ],
}  # fmt: skip
ROLES = {
    "tern_namesrv": ("name-server", "n"),
    "tern_proxy": ("proxy", "p"),
    "tern_txn_checker": ("checker", "c"),
    "tern_broker": ("broker", "broker-a-0"),
}


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """A cluster."""
    return Pki(tmp_path / "cluster")


def start(service: str, pki: Pki, *more: str, scheme: str = "http") -> subprocess.CompletedProcess[str]:
    """Run *service* until it ends."""
    words = {"key": pki.directory.cluster_key, "data": pki.directory.root / "data", "port": 19, "scheme": scheme}
    arguments = [text.format(**words) for text in ARGUMENTS[service]]
    command = [sys.executable, "-P", "-m", service, *arguments, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("service", "listen"), [*((service, "0.0.0.0") for service in sorted(ARGUMENTS)), ("tern_namesrv", "::")]
)
def test_a_listener_beyond_loopback_without_tls_ends_with_78(service: str, listen: str, pki: Pki) -> None:
    """In one sentence that names the settings."""
    done = start(service, pki, "--listen", listen)
    assert done.returncode == 78, done.stderr
    assert all(text in done.stderr for text in ("--listen", "--tls-cert-file", "--tls-key-file", "--tls-ca-file"))
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("service", ["tern_proxy"])
def test_switching_authentication_off_beyond_loopback_ends_with_78(service: str, pki: Pki) -> None:
    """Certificates do not make up for it."""
    done = start(service, pki, "--listen", "0.0.0.0", "--auth", "off", *tls_of(service, pki), scheme="https")
    assert done.returncode == 78, done.stderr
    assert "--auth off" in done.stderr


@pytest.mark.parametrize("service", ["tern_broker", "tern_txn_checker"])
def test_the_certificate_of_another_role_ends_with_78(service: str, pki: Pki) -> None:
    """Before anything is listened on, and without a word of the key."""
    done = start(service, pki, *tls_of("tern_proxy" if service != "tern_proxy" else "tern_broker", pki), scheme="https")
    assert done.returncode == 78, done.stderr
    assert "belongs to" in done.stderr


@pytest.mark.parametrize("service", ["tern_namesrv"])
def test_a_key_that_others_can_read_ends_with_78(service: str, pki: Pki) -> None:
    """With the command that mends it."""
    arguments = tls_of(service, pki)
    Path(arguments[3]).chmod(0o644)
    done = start(service, pki, *arguments, scheme="https")
    assert done.returncode == 78, done.stderr
    assert f"chmod 600 {arguments[3]}" in done.stderr


def tls_of(service: str, pki: Pki) -> list[str]:
    """The options of *service* with its own certificate."""
    files = pki.files(*ROLES[service])
    return ["--tls-cert-file", str(files.cert), "--tls-key-file", str(files.key), "--tls-ca-file", str(files.ca)]
