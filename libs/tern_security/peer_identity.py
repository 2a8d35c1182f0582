"""The name in a certificate: `mq://CLUSTER/ROLE/NAME`, the one URI among its alternative names.

It identifies peers of the mesh instead of host names: addresses change with every container, roles
do not. Pure. Reference: RFC 5280, section 4.2.1.6 (uniformResourceIdentifier); the idea is that of
SPIFFE's X.509-SVID.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SCHEME = "mq://"
NAME_SERVER, BROKER, PROXY, CHECKER, CLIENT = "name-server", "broker", "proxy", "checker", "client"
ROLES = frozenset({NAME_SERVER, BROKER, PROXY, CHECKER, CLIENT})
# The client whose certificate may change write permissions, configuration and leadership.
OPERATOR = "operator"
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentity:
    """A certificate's holder.
    ValueError for an unknown role, and for names that a URI cannot hold.
    """

    cluster: str
    role: str
    name: str

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"'{self.role}' is no role of a certificate; one of {', '.join(sorted(ROLES))}.")
        for what, text in (("cluster", self.cluster), ("name", self.name)):
            if _PART.fullmatch(text) is None:
                raise ValueError(f"'{text}' cannot be the {what} in a certificate; use letters, digits, '.', '_', '-'.")

    @property
    def uri(self) -> str:
        """The identity as a URI."""
        return f"{SCHEME}{self.cluster}/{self.role}/{self.name}"

    @property
    def is_operator(self) -> bool:
        """Whether this is an operator's certificate, not that of a read-only client such as a
        scraper.
        """
        return self.role == CLIENT and self.name == OPERATOR


def read_identity(uri: str) -> PeerIdentity:
    """Decode *uri*; ValueError if it is no identity."""
    parts = uri.removeprefix(SCHEME).split("/")
    if not uri.startswith(SCHEME) or len(parts) != 3:
        raise ValueError("The certificate's URI is not mq://CLUSTER/ROLE/NAME.")
    return PeerIdentity(cluster=parts[0], role=parts[1], name=parts[2])


def identity_of(certificate: Mapping[str, Any] | None) -> PeerIdentity:
    """The identity in *certificate* (ssl's getpeercert()); ValueError without exactly one URI."""
    names = (certificate or {}).get("subjectAltName", ())
    uris = [text for kind, text in names if kind == "URI"]
    if len(uris) != 1:
        raise ValueError(f"The certificate has {len(uris)} URIs; one of this cluster has exactly one.")
    return read_identity(uris[0])


def peer_of(transport: Any) -> PeerIdentity | None:
    """The peer of *transport* (asyncio's or uvloop's); None without TLS or without a certificate.
    The handshake has checked authority, role and cluster (`contexts.py`).
    """
    certificate = transport.get_extra_info("peercert")
    return identity_of(certificate) if certificate else None
