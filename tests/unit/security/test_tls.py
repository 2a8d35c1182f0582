"""Files that change under a running process: good sets are taken, bad ones change nothing and are counted once."""

import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tern_security.peer_identity import PeerIdentity
from tern_security.tls import ClusterTls, TlsFiles, TlsUnusable
from tests.support.pki.cluster_pki import Pki, stranger

ROLE, NAME = "broker", "broker-a-0"
DAY_S = 86_400


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """A cluster."""
    return Pki(tmp_path / "cluster")


@pytest.fixture
def files(pki: Pki) -> TlsFiles:
    """The files of one broker."""
    return pki.files(ROLE, NAME)


def served(context: ssl.SSLContext, ca: Path) -> bytes:
    """The certificate that *context* shows now, DER."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=str(ca))
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    one = client.wrap_bio(to_client, to_server, server_side=False)
    other = context.wrap_bio(to_server, to_client, server_side=True)
    for end in (one, other, one):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return one.getpeercert(binary_form=True) or b""


def test_who_a_process_is_and_when_that_ends_is_read_from_its_certificate(pki: Pki, files: TlsFiles) -> None:
    """The identity, 90 days for the certificate, ten years for the authority."""
    tls = ClusterTls(files, role=ROLE, name=NAME)
    assert tls.identity == PeerIdentity(cluster="tern", role=ROLE, name=NAME)
    assert tls.certificate_expires_s == pytest.approx(time.time() + 90 * DAY_S, abs=300)
    assert tls.ca_expires_s == pytest.approx(time.time() + 3_650 * DAY_S, abs=300)


def test_a_renewed_pair_is_served_to_the_next_handshake(pki: Pki, files: TlsFiles) -> None:
    """The context that listeners hold is the same object for ever; what it shows is new."""
    tls = ClusterTls(files, role=ROLE, name=NAME)
    context = tls.server(None)
    before = served(context, files.ca)
    assert not tls.look()
    pki.write(files, pki.renewed(ROLE, NAME, days=30))
    assert tls.look()
    assert served(context, files.ca) != before
    assert tls.reloads == 1
    assert tls.certificate_expires_s == pytest.approx(time.time() + 30 * DAY_S, abs=300)
    assert not tls.look()


def key_of_another(pki: Pki, files: TlsFiles) -> None:
    files.key.write_bytes(pki.renewed(ROLE, NAME).key)


def garbage(pki: Pki, files: TlsFiles) -> None:
    files.cert.write_bytes(b"-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")


def nothing(pki: Pki, files: TlsFiles) -> None:
    files.cert.write_bytes(b"")


def removed(pki: Pki, files: TlsFiles) -> None:
    files.key.unlink()


def expired(pki: Pki, files: TlsFiles) -> None:
    pki.write(files, pki.renewed(ROLE, NAME, days=1, now_s=time.time() - 2 * DAY_S))


def not_yet_valid(pki: Pki, files: TlsFiles) -> None:
    pki.write(files, pki.renewed(ROLE, NAME, now_s=time.time() + DAY_S))


def of_another_broker(pki: Pki, files: TlsFiles) -> None:
    pki.write(files, pki.renewed(ROLE, "broker-a-1"))


def of_another_role(pki: Pki, files: TlsFiles) -> None:
    pki.write(files, pki.renewed("proxy", NAME))


def trust_that_lacks_the_issuer(pki: Pki, files: TlsFiles) -> None:
    files.ca.write_bytes(stranger(files.cert.parent, "proxy", "p").ca.read_bytes())


def empty_trust(pki: Pki, files: TlsFiles) -> None:
    files.ca.write_bytes(b"\n")


BAD = [
    key_of_another,
    garbage,
    nothing,
    removed,
    expired,
    not_yet_valid,
    of_another_broker,
    of_another_role,
    trust_that_lacks_the_issuer,
    empty_trust,
]


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: str(spoil.__name__))
def test_a_bad_set_changes_nothing_and_is_counted_once(
    spoil: Callable[[Pki, TlsFiles], None], pki: Pki, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """The old one serves on; a set is told when it is still there at the second look, since files are written one by one."""
    tls = ClusterTls(files, role=ROLE, name=NAME)
    context, good = tls.server(None), [path.read_bytes() for path in (files.cert, files.key, files.ca)]
    before = served(context, files.ca)
    spoil(pki, files)
    assert not tls.look()
    assert tls.failed_reloads == 0
    for _ in range(3):
        assert not tls.look()
    assert tls.failed_reloads == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    for path, content in zip((files.cert, files.key, files.ca), good, strict=True):
        path.write_bytes(content)
    assert served(context, files.ca) == before
    # It is not stuck: what is good is taken, whatever was there meanwhile.
    pki.write(files, pki.renewed(ROLE, NAME))
    assert tls.look()
    assert served(context, files.ca) != before


@pytest.mark.parametrize("spoil", [each for each in BAD if each not in {of_another_broker, of_another_role}])
def test_a_process_does_not_start_on_a_bad_set(
    spoil: Callable[[Pki, TlsFiles], None], pki: Pki, files: TlsFiles
) -> None:
    """One sentence that names a file; a text with the key's bytes would be a leak."""
    key = files.key.read_text().splitlines()[1]
    spoil(pki, files)
    with pytest.raises(TlsUnusable) as refused:
        ClusterTls(files, role=ROLE, name=NAME)
    assert str(files.cert) in str(refused.value) or str(files.key) in str(refused.value)
    assert key not in str(refused.value)


@pytest.mark.parametrize(("role", "name"), [("proxy", ""), ("broker", "broker-a-1")])
def test_a_process_does_not_start_on_anothers_certificate(role: str, name: str, files: TlsFiles) -> None:
    """A broker's certificate is for that broker."""
    with pytest.raises(TlsUnusable, match="belongs to broker 'broker-a-0'"):
        ClusterTls(files, role=role, name=name)


def test_a_key_with_a_passphrase_is_refused_instead_of_asked_for(pki: Pki, files: TlsFiles) -> None:
    """OpenSSL would wait at the terminal of a service that has none."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
    locked = serialization.BestAvailableEncryption(b"secret")
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    with pytest.raises(TlsUnusable):
        ClusterTls(files, role=ROLE, name=NAME)
