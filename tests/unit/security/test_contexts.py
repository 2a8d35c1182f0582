"""Handshakes in memory: who gets through, who does not, and what is counted."""

import ssl
import time
from pathlib import Path

import pytest

from tern_security.authority import issue
from tern_security.contexts import TlsRefusal, WrongPeer
from tern_security.peer_identity import PeerIdentity
from tern_security.tls import ClusterTls
from tests.support.pki.cluster_pki import Pki, another_authority


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """A cluster."""
    return Pki(tmp_path / "cluster")


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after their handshake, and a word from the server to the client; ssl.SSLError of whichever end fails first."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_side=False, server_hostname="broker")
    other = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [one, other]
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
    other.write(b"word")
    assert one.read(4) == b"word"
    return one, other


def test_peers_with_the_right_roles_know_each_other(pki: Pki) -> None:
    """Both see the other's certificate, over TLS 1.3."""
    one, other = shake_hands(
        pki.client("proxy", "proxy-0", "broker"), pki.server("broker", "broker-a-0", "proxy", "checker")
    )
    assert one.version() == other.version() == "TLSv1.3"
    assert ("URI", "mq://tern/proxy/proxy-0") in other.getpeercert()["subjectAltName"]  # type: ignore[index]
    assert ("URI", "mq://tern/broker/broker-a-0") in one.getpeercert()["subjectAltName"]  # type: ignore[index]


def test_a_client_of_another_role_fails_the_handshake_of_the_server(pki: Pki) -> None:
    """A proxy does not speak Raft, however good its certificate is; it is counted."""
    tls = pki.tls("broker", "broker-a-0")
    with pytest.raises(WrongPeer):
        shake_hands(pki.client("proxy", "proxy-0"), tls.server(frozenset({"broker"})))
    assert tls.refusals()["role"] == 1


def test_a_server_of_another_role_fails_the_handshake_of_the_client(pki: Pki) -> None:
    """Who answers where a broker should, and is none, is told nothing."""
    tls = pki.tls("proxy", "proxy-0")
    with pytest.raises(WrongPeer):
        shake_hands(tls.client(frozenset({"broker"})), pki.server("checker", "checker-0"))
    assert tls.refusals()["role"] == 1


def test_a_peer_of_another_cluster_with_the_same_authority_is_refused(pki: Pki, tmp_path: Path) -> None:
    """Two clusters of one authority stay two clusters."""
    files = pki.files("proxy", "proxy-0")
    elsewhere = PeerIdentity(cluster="other", role="proxy", name="proxy-0")
    pki.write(files, issue(pki.authority, elsewhere, [], now_s=time.time()))
    other = ClusterTls(files, role="proxy")
    with pytest.raises(WrongPeer):
        shake_hands(other.client(frozenset({"broker"})), pki.server("broker", "broker-a-0"))


def test_a_certificate_of_a_strangers_authority_is_refused_and_counted(pki: Pki, tmp_path: Path) -> None:
    """The right words of an authority that is not trusted are worth nothing, in both directions."""
    strange = Pki(tmp_path / "strange")
    tls = pki.tls("broker", "broker-a-0")
    context = strange.client("proxy", "proxy-0")
    context.current.load_verify_locations(pki.directory.ca_cert)  # type: ignore[attr-defined]
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context, tls.server(frozenset({"proxy"})))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tls.client(frozenset({"proxy"})), strange.server("proxy", "proxy-0"))
    assert tls.refusals()["certificate"] == 2


def test_who_shows_no_certificate_is_refused(pki: Pki) -> None:
    """Inside the mesh nobody is anonymous."""
    tls = pki.tls("broker", "broker-a-0")
    nobody = ssl.create_default_context(cafile=str(pki.directory.ca_cert))
    nobody.check_hostname = False
    with pytest.raises(ssl.SSLError):
        shake_hands(nobody, tls.server(frozenset({"proxy"})))
    assert tls.refusals()["certificate"] == 1


def test_the_listener_for_clients_asks_for_no_certificate(pki: Pki) -> None:
    """Clients have keys; a certificate that they would show is not looked at."""
    nobody = ssl.create_default_context(cafile=str(pki.directory.ca_cert))
    nobody.check_hostname = False
    _, server = shake_hands(nobody, pki.tls("proxy", "proxy-0").server(None))
    assert not server.getpeercert()


def test_what_is_no_tls_is_counted_as_plain(pki: Pki) -> None:
    """HTTP to a TLS port."""
    tls = pki.tls("broker", "broker-a-0")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    end = tls.server(frozenset({"broker"})).wrap_bio(incoming, outgoing, server_side=True)
    with pytest.raises(ssl.SSLError):
        end.do_handshake()
    assert tls.refusals() == dict.fromkeys(TlsRefusal, 0) | {"plain": 1}


def test_tls_1_2_is_not_spoken_unless_it_is_asked_for_and_never_inside(pki: Pki) -> None:
    """The setting is for old clients of the proxy; the mesh's own processes are all of one age."""
    old = ssl.create_default_context(cafile=str(pki.directory.ca_cert))
    old.check_hostname, old.maximum_version = False, ssl.TLSVersion.TLSv1_2
    files = pki.files("proxy", "proxy-0")
    strict = ClusterTls(files, role="proxy")
    lenient = ClusterTls(files, role="proxy", minimum=ssl.TLSVersion.TLSv1_2)
    with pytest.raises(ssl.SSLError):
        shake_hands(old, strict.server(None))
    one, _ = shake_hands(old, lenient.server(None))
    assert one.version() == "TLSv1.2"
    old.load_cert_chain(files.cert, files.key)
    with pytest.raises(ssl.SSLError):
        shake_hands(old, lenient.server(frozenset({"proxy"})))


def test_an_authority_that_is_trusted_no_more_opens_no_connection(pki: Pki) -> None:
    """A new trust store replaces the old one: a live context of OpenSSL's could only learn more."""
    old = pki.client("proxy", "proxy-0", "broker")
    tls = pki.tls("broker", "broker-a-0")
    server = tls.server(frozenset({"proxy"}))
    shake_hands(old, server)
    fresh = another_authority()
    files = pki.files("broker", "broker-a-0")
    identity = PeerIdentity(cluster="tern", role="broker", name="broker-a-0")
    pki.write(files, issue(fresh, identity, [], now_s=time.time()))
    files.ca.write_bytes(fresh.cert)
    assert tls.look()
    with pytest.raises(ssl.SSLCertVerificationError):
        old.current.load_verify_locations(files.ca)  # type: ignore[attr-defined]
        shake_hands(old, server)
