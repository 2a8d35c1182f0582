"""Connections of the command line to the mesh's internal HTTP ports, and to proxies.

Name servers, brokers and checkers take certificates and no keys when TLS is on: the certificate of
the client `operator`, from the mesh's data directory or from the variables below. Proxies serve
clients and take keys. Only the standard library, `tern_http.blocking` and `tern_security` are
imported, so that `ternmq status` starts fast.
"""

import http.client
import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from tern_cli.failures import CommandFailed
from tern_http.blocking import connection_to
from tern_security.cluster_directory import ClusterDirectory
from tern_security.contexts import PeerCheck, make_context
from tern_security.peer_identity import BROKER, CHECKER, CLIENT, NAME_SERVER, OPERATOR

# Variables that name a certificate, a key and an authority other than the data directory's.
CERT_VARIABLE, KEY_VARIABLE, CA_VARIABLE = "TERNMQ_OPERATOR_CERT_FILE", "TERNMQ_OPERATOR_KEY_FILE", "TERNMQ_CA_FILE"
_INTERNAL = frozenset({NAME_SERVER, BROKER, CHECKER})


def connect(url: str, *, timeout_s: float, data_dir: str = "") -> http.client.HTTPConnection:
    """Return a connection to *url* of the mesh, not opened yet.
    CommandFailed when the server requires a certificate that is missing.
    """
    return connection_to(url, timeout_s=timeout_s, tls=operator_context(data_dir) if _is_secure(url) else None)


def operator_context(data_dir: str = "") -> ssl.SSLContext:
    """Return a TLS context with the operator's certificate, for name servers, brokers and checkers.
    CommandFailed when the certificate is missing or invalid.
    """
    cert, key, ca = (os.environ.get(name, "") for name in (CERT_VARIABLE, KEY_VARIABLE, CA_VARIABLE))
    directory = ClusterDirectory(Path(data_dir or os.environ.get("TERNMQ_DATA_DIR") or ".tern"))
    pair = directory.pair(CLIENT, OPERATOR)
    try:
        return make_context(
            server_side=False,
            cert=Path(cert) if cert else pair.cert,
            key=Path(key) if key else pair.key,
            ca=Path(ca) if ca else directory.ca_cert,
            check=PeerCheck("", _INTERNAL),
        )
    except OSError as error:
        raise CommandFailed(
            "The operator's certificate cannot be used",
            f"{cert or pair.cert}, {key or pair.key}, {ca or directory.ca_cert}: {error.strerror or error}. "
            f"See {CERT_VARIABLE}, {KEY_VARIABLE}, {CA_VARIABLE}, and `ternmq init-cluster`.",
        ) from error


def connect_to_proxy(url: str, *, timeout_s: float, directory: Path) -> http.client.HTTPConnection:
    """Return a connection to the proxy at *url*.
    With TLS, the proxy's host name is verified against the authority in *directory*.
    """
    ca_cert = ClusterDirectory(directory).ca_cert
    tls = ssl.create_default_context(cafile=str(ca_cert)) if _is_secure(url) else None
    return connection_to(url, timeout_s=timeout_s, tls=tls)


def _is_secure(url: str) -> bool:
    return urlsplit(url).scheme == "https"
