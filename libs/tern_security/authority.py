"""The cluster's own certificate authority: makes itself and certificates for the mesh.

PEM in and out. EC keys on P-256 throughout: signatures of 70 bytes that every TLS library supports.
The only file that imports cryptography for certificates; used by `ternmq init-cluster`, `ternmq up
--secure` and tests. Time is an argument.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tern_security.peer_identity import CLIENT, PeerIdentity, read_identity

AUTHORITY_DAYS = 3_650
CERTIFICATE_DAYS = 90
# Machines whose clocks differ by less than this trust a new certificate at once.
_BACKDATED = datetime.timedelta(minutes=5)
_COMMON_NAME_LENGTH_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key, PEM. The key's text is a secret."""

    cert: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Pair(...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """Facts in a certificate: its URI's identity, hosts and addresses, and end (seconds since
    1970).
    """

    identity: PeerIdentity
    hosts: tuple[str, ...]
    expires_s: float


def make_authority(cluster: str, *, now_s: float, days: int = AUTHORITY_DAYS) -> Pair:
    """Make an authority for *cluster*."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster[:_COMMON_NAME_LENGTH_MAX]),
            x509.NameAttribute(NameOID.COMMON_NAME, "TernMQ cluster authority"),
        ]
    )
    builder = (
        _dated(now_s, days)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Pair(cert=builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM), key=_key_pem(key))


def issue(
    authority: Pair, identity: PeerIdentity, hosts: Sequence[str], *, now_s: float, days: float = CERTIFICATE_DAYS
) -> Pair:
    """Issue a certificate with a new key for *identity*, signed by *authority*.
    *hosts*: its DNS names and IP addresses.
    """
    issuer = x509.load_pem_x509_certificate(authority.cert)
    issuer_key = load_pem_private_key(authority.key, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if identity.role != CLIENT:
        uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri), *map(_host, dict.fromkeys(hosts))]
    subject = f"{identity.role} {identity.name}"[:_COMMON_NAME_LENGTH_MAX]
    builder = (
        _dated(now_s, days)
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    return Pair(cert=builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.PEM), key=_key_pem(key))


def cluster_of(authority_cert: bytes) -> str:
    """The cluster of an authority; ValueError if `init-cluster` did not make it."""
    found = x509.load_pem_x509_certificate(authority_cert).subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    if len(found) != 1:
        raise ValueError("ca.crt is not an authority that init-cluster made")
    return str(found[0].value)


def read_certificate(cert: bytes) -> CertificateFacts:
    """Decode *cert* (PEM, the first one in it); ValueError if it is no cluster's certificate."""
    certificate = x509.load_pem_x509_certificate(cert)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return CertificateFacts(
        identity=read_identity(uris[0] if len(uris) == 1 else ""),
        hosts=(*names.get_values_for_type(x509.DNSName), *addresses),
        expires_s=certificate.not_valid_after_utc.timestamp(),
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return x509.DNSName(text)


def _dated(now_s: float, days: float) -> x509.CertificateBuilder:
    now = datetime.datetime.fromtimestamp(int(now_s), datetime.UTC)
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
