"""No port of a secure mesh but the proxies' answers anything to strangers, and certificates decide who may say what."""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tern_security.authority import issue
from tern_security.peer_identity import PeerIdentity
from tests.support.mesh.mesh import eventually
from tests.support.mesh.secure_mesh import SecureMesh
from tests.support.pki.cluster_pki import stranger

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
# A link's HELLO of a proxy, and bytes that are nothing.
HELLO = b"\x00\x00\x00\x2c" + b"\x7f\x01" + bytes(42)
NOISE = bytes(range(256)) * 8
# Longer than a handshake may take anywhere.
PATIENCE_S = 8.0


def inner_ports(mesh: SecureMesh) -> Iterator[tuple[str, int]]:
    """Every port but the proxies'."""
    for process in mesh.processes():
        if process["role"] != "proxy":
            for use, port in process["ports"].items():
                yield f"{process['name']} {use}", port


def said(port: int, words: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """What the port answers to *words*, over TLS with *context*, until it closes."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain:
        sock = plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")
        with sock:
            sock.sendall(words)
            while part := sock.recv(65_536):
                answer += part
    return answer


def without_hosts(context: ssl.SSLContext) -> ssl.SSLContext:
    """Trusts whoever answers: a stranger does not care."""
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize("words", [REQUEST, HELLO, NOISE], ids=["http", "hello", "noise"])
def test_no_inner_port_answers_in_the_clear(words: bytes, secure_mesh: SecureMesh) -> None:
    """Not a byte, but for TLS's own alert."""
    for name, port in inner_ports(secure_mesh):
        answer = said(port, words)
        assert answer == b"" or answer[:1] == b"\x15", f"{name} says {answer[:80]!r}"


def test_no_inner_port_answers_who_has_no_certificate_of_the_cluster(secure_mesh: SecureMesh, tmp_path: Path) -> None:
    """Neither to nobody, nor to a stranger with the right words in a certificate of another authority."""
    files = stranger(tmp_path, "broker", "broker-a-1")
    strange = without_hosts(ssl.create_default_context())
    strange.load_cert_chain(files.cert, files.key)
    for name, port in inner_ports(secure_mesh):
        for context in (without_hosts(ssl.create_default_context()), strange):
            assert said(port, REQUEST, context) == b"", name


def test_link_and_raft_ports_say_nothing_to_a_client_of_the_cluster(secure_mesh: SecureMesh) -> None:
    """A scraper's certificate is for HTTP."""
    context = without_hosts(secure_mesh.context("scraper"))
    asked = 0
    for name, port in inner_ports(secure_mesh):
        if not name.endswith("http"):
            asked += 1
            for words in (HELLO, NOISE):
                assert said(port, words, context) == b"", name
    assert asked == 6


def test_the_proxy_speaks_tls_only(secure_mesh: SecureMesh) -> None:
    """A request in the clear, whose key would be everybody's, is not answered."""
    with secure_mesh.with_key() as client:
        assert client.get("/healthz").status_code == 200
    answer = said(secure_mesh.port_base, REQUEST)
    assert answer == b"" or answer[:1] == b"\x15"


def _is_ready(scraper: httpx.Client, url: str) -> bool:
    return scraper.get(url + "/readyz").status_code == 200


def test_health_and_metrics_of_every_process_are_for_any_certificate_of_the_cluster(secure_mesh: SecureMesh) -> None:
    """A scraper sees when the certificate ends, and that strangers were refused."""
    urls = [secure_mesh.namesrv, secure_mesh.checker_http, *map(secure_mesh.broker_http, secure_mesh.brokers())]
    with secure_mesh.inside("scraper") as scraper:
        for url in urls:
            for path in ("/healthz", "/readyz", "/metrics"):
                assert scraper.get(url + path).status_code == 200, url + path
            lines = dict(
                line.rsplit(" ", 1) for line in scraper.get(url + "/metrics").text.splitlines() if line[0] != "#"
            )
            left_s = float(lines["ternmq_tls_certificate_expiry_timestamp_seconds"]) - time.time()
            assert 89 * 86_400 < left_s < 91 * 86_400
            assert float(lines["ternmq_insecure"]) == 0


def test_a_scraper_changes_nothing(secure_mesh: SecureMesh) -> None:
    """Configuration, write permissions, retention and leadership take the operator's certificate."""
    broker = secure_mesh.broker_http("broker-a-0")
    requests = [
        ("PUT", f"{secure_mesh.namesrv}/v1/kv/a/b", {"value": "x"}),
        ("DELETE", f"{secure_mesh.namesrv}/v1/kv/a/b", None),
        ("POST", f"{secure_mesh.namesrv}/v1/broker-groups/broker-a/write-permission", {"writable": False}),
        ("POST", f"{broker}/v1/broker/trim", None),
        ("POST", f"{broker}/v1/broker/transfer", {"to": ""}),
        ("POST", f"{broker}/v1/broker/choose", {"node": "broker-a-0"}),
    ]
    with secure_mesh.inside("scraper") as scraper:
        for method, url, document in requests:
            answer = scraper.request(method, url, json=document)
            assert (answer.status_code, answer.json()["code"]) == (403, "certificate-forbidden"), url
    with secure_mesh.inside("operator") as operator:
        method, url, document = requests[0]
        assert operator.request(method, url, json=document).status_code == 200


def test_a_backup_takes_the_cluster_key_and_the_operator_s_certificate(
    secure_mesh: SecureMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both `ternmq backup` works over TLS; with a scraper's certificate, or another key, nothing is copied."""
    secure_mesh.client.put(f"{secure_mesh.endpoint}/v1/topics/kept", json={"queues": 1}).raise_for_status()
    (tmp_path / "wrong.key").write_bytes(bytes(32))
    wrong = secure_mesh.run(
        "backup", str(tmp_path / "w"), "--cluster-key-file", str(tmp_path / "wrong.key"), check=False
    )
    assert (wrong.returncode, "Only nodes of the cluster may ask here" in wrong.stderr) == (1, True)
    secure_mesh.run("backup", str(tmp_path / "backup"))
    assert "No damage" in secure_mesh.run_plain("store", "verify", "--data-dir", str(tmp_path / "backup")).stdout
    scraper = secure_mesh.cluster.pair("client", "scraper")
    monkeypatch.setenv("TERNMQ_OPERATOR_CERT_FILE", str(scraper.cert))
    monkeypatch.setenv("TERNMQ_OPERATOR_KEY_FILE", str(scraper.key))
    other = secure_mesh.run("backup", str(tmp_path / "s"), check=False)
    assert (other.returncode, "This takes another certificate" in other.stderr) == (1, True)
    assert not [path for name in ("w", "s") for path in (tmp_path / name / "commitlog").glob("*")]


def test_a_broker_registers_and_unregisters_itself_alone(secure_mesh: SecureMesh, tmp_path: Path) -> None:
    """A broker of the cluster that says it is another one, and a proxy that says it is a broker, change no route."""
    leaving = {"cluster": "tern", "broker_group": "broker-a", "node": "broker-a-0"}
    arriving = {
        **leaving, "link": "127.0.0.1:1", "http": "127.0.0.1:2", "is_leader": True, "term": 10_000, "group_size": 3,
        "data_version": 1, "topics": {},
    }  # fmt: skip
    for role, name in (("broker", "broker-a-1"), ("proxy", "proxy-0"), ("client", "operator")):
        identity = PeerIdentity(cluster="tern", role=role, name=name)
        pair = issue(secure_mesh.authority, identity, [], now_s=time.time())
        cert, key = tmp_path / "c", tmp_path / "k"
        cert.write_bytes(pair.cert)
        key.write_bytes(pair.key)
        context = secure_mesh.context()
        context.load_cert_chain(cert, key)
        with httpx.Client(verify=context, trust_env=False) as peer:
            for path, document in (("register", arriving), ("unregister", leaving)):
                answer = peer.post(f"{secure_mesh.namesrv}/v1/brokers/{path}", json=document)
                assert (answer.status_code, answer.json()["code"]) == (403, "certificate-forbidden"), (role, path)
    with secure_mesh.inside("operator") as operator:
        routes = operator.get(f"{secure_mesh.namesrv}/v1/routes").json()
    assert routes["broker_groups"]["broker-a"]["nodes"]["broker-a-0"]["link"] != "127.0.0.1:1"


def test_renewed_certificates_are_served_within_five_seconds_and_no_request_fails(secure_mesh: SecureMesh) -> None:
    """`init-cluster --renew` on a running mesh: every listener shows the new one, links go on, and so do requests."""
    urls = [secure_mesh.namesrv, secure_mesh.checker_http, *map(secure_mesh.broker_http, secure_mesh.brokers())]
    ports = [*(int(url.rpartition(":")[2]) for url in urls), secure_mesh.port_base, secure_mesh.port_base + 1]
    before = {port: shown(port) for port in ports}
    secure_mesh.client.put(f"{secure_mesh.endpoint}/v1/topics/renewal", json={"queues": 1}).raise_for_status()
    done = secure_mesh.run_plain("init-cluster", str(secure_mesh.directory), "--renew")
    assert "renewed" in done.stdout
    began_s, asked = time.monotonic(), 0

    def all_new() -> bool:
        nonlocal asked
        answers = [
            secure_mesh.client.get(f"{secure_mesh.endpoint}/v1/topics/renewal").status_code,
            secure_mesh.call("GET", "/v1/topics/renewal", proxy=1).status_code,
        ]
        with secure_mesh.with_key() as fresh:
            answers.append(fresh.get("/healthz").status_code)
        assert answers == [200, 200, 200]
        asked += 1
        return all(shown(port) != before[port] for port in ports)

    eventually(all_new, within_s=30, what="every listener shows its new certificate")
    assert asked
    assert time.monotonic() - began_s < 5
    assert secure_mesh.broker(secure_mesh.leader())["serving"]


def shown(port: int) -> str:
    """The certificate that the listener shows, PEM."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=PATIENCE_S)
