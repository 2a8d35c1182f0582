"""Certificates for tests, made fresh by the product's own authority, in a folder of the test's."""

import ssl
import time
from pathlib import Path

from tern_security.authority import Pair, issue, make_authority
from tern_security.cluster_directory import ClusterDirectory, Wanted
from tern_security.contexts import PeerCheck, make_context
from tern_security.peer_identity import CLIENT, ROLES, PeerIdentity
from tern_security.tls import ClusterTls, TlsFiles

CLUSTER = "tern"


class Pki:
    """One cluster directory; certificates are made when they are first asked for."""

    def __init__(self, root: Path, cluster: str = CLUSTER) -> None:
        self.directory = ClusterDirectory(root)
        self.directory.make([], cluster=cluster, now_s=time.time())
        self.cluster = cluster

    @property
    def authority(self) -> Pair:
        """Its authority."""
        return Pair(cert=self.directory.ca_cert.read_bytes(), key=self.directory.ca_key.read_bytes())

    def files(self, role: str, name: str) -> TlsFiles:
        """Where the certificate of *name* is."""
        self.directory.make([Wanted(role=role, name=name)], now_s=time.time())
        pair = self.directory.pair(role, name)
        return TlsFiles(cert=pair.cert, key=pair.key, ca=self.directory.ca_cert)

    def tls(self, role: str, name: str) -> ClusterTls:
        """The TLS of that process, not watching."""
        return ClusterTls(self.files(role, name), role=role, name=name)

    def server(self, role: str, name: str, *roles: str) -> ssl.SSLContext:
        """A listener's context of that process, for peers with one of *roles*, or any."""
        return self.tls(role, name).server(frozenset(roles) or ROLES)

    def client(self, role: str, name: str, *roles: str) -> ssl.SSLContext:
        """A client's context of that process, to peers with one of *roles*, or any."""
        wanted = frozenset(roles) or ROLES
        if role != CLIENT:
            return self.tls(role, name).client(wanted)
        files = self.files(role, name)  # good for one end only, so no process runs on it
        check = PeerCheck(self.cluster, wanted)
        return make_context(server_side=False, cert=files.cert, key=files.key, ca=files.ca, check=check)

    def write(self, files: TlsFiles, pair: Pair) -> None:
        """Put *pair* where *files* say."""
        files.cert.write_bytes(pair.cert)
        files.key.write_bytes(pair.key)

    def renewed(self, role: str, name: str, *, days: float = 90, now_s: float | None = None) -> Pair:
        """Another certificate for the same process."""
        identity = PeerIdentity(cluster=self.cluster, role=role, name=name)
        return issue(self.authority, identity, ["127.0.0.1"], now_s=now_s or time.time(), days=days)


def stranger(root: Path, role: str, name: str) -> TlsFiles:
    """A certificate with the right words of an authority that nobody here trusts (but whose holder trusts itself)."""
    return Pki(root / "stranger").files(role, name)


def another_authority(cluster: str = CLUSTER) -> Pair:
    """As make_authority, of now."""
    return make_authority(cluster, now_s=time.time())
