"""Signed requests: used by credentials.py for Ed25519 keys.

    Signature-Input: pyhms=("@method" "@path" "@query" "@authority" "mq-namespace" "content-digest")
                     ;created=1800000000;keyid="<kid>";alg="ed25519";nonce="<22>"  (one line)
    Signature:       pyhms=:<64 bytes in base64>:
    Content-Digest:  sha-256=:<32 bytes in base64>:

The namespace and the digest of a body are covered where there are any; each attempt has its own
nonce.

Law: the signed bytes come from one template, and are to the byte what the library of RFC 9421 makes
of the request (`tests/unit/client/transport/test_signing.py` compares them). Nothing is parsed
here, the library takes ten times as long, and the SDK's plain installation does without it.
Reference: RFC 9421 sections 2.2, 2.5, 3.1, 3.3.6; RFC 9530.
"""

import re
import secrets
import time
from binascii import b2a_base64
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from urllib.parse import urlsplit

from tern_client.transport.exchange import Headers, Request
from tern_wire.extras import need_extra
from tern_wire.paths import HEADER_NAMESPACE
from tern_wire.principals.client_keys import ED25519

NAMESPACE = HEADER_NAMESPACE.lower()
_NONCE_SIZE_BYTES = 16
_PORT = re.compile(r"(.*?)(?::([0-9]*))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
# A client has some endpoints; whoever makes one client after the other has some more.
_ENDPOINTS_KEPT = 256
Sign = Callable[[bytes], bytes]


class _Signer:
    """Signs with one key."""

    __slots__ = ("_after_kid", "_now_s", "_sign")

    def __init__(self, kid: str, sign: Sign, now_s: Callable[[], float]) -> None:
        self._after_kid = f';keyid="{kid}";alg="{ED25519}";nonce="'
        self._sign, self._now_s = sign, now_s

    def __call__(self, request: Request, endpoint: str) -> Headers:
        base, text, digest = signature_base(
            request,
            endpoint,
            f';created={int(self._now_s())}{self._after_kid}{secrets.token_urlsafe(_NONCE_SIZE_BYTES)}"',
        )
        signature = b2a_base64(self._sign(base), newline=False).decode()
        added = (("Signature-Input", f"pyhms={text}"), ("Signature", f"pyhms=:{signature}:"))
        return (*added, ("Content-Digest", digest)) if digest else added


def signature_base(request: Request, endpoint: str, parameters: str) -> tuple[bytes, str, str]:
    """What is to be signed of *request* to *endpoint*; what says so, which ends in *parameters*
    (`;created=...`); and the digest, "" without a body.

    ValueError when its path or namespace is no printable ASCII, of which nothing is made here.
    """
    begin, prefix = _place(endpoint)
    path, _, query = request.path.partition("?")
    lines = f'"@method": {request.method}\n"@path": {prefix + path or "/"}\n"@query": ?{query}\n{begin}'
    covered, digest, namespace = '("@method" "@path" "@query" "@authority"', "", ""
    for name, value in request.headers:
        if name.lower() == NAMESPACE:
            namespace = value.strip()
            covered += f' "{NAMESPACE}"'
            lines += f'"{NAMESPACE}": {namespace}\n'
    if request.body:
        digest = f"sha-256=:{b2a_base64(sha256(request.body).digest(), newline=False).decode()}:"
        covered += ' "content-digest"'
        lines += f'"content-digest": {digest}\n'
    if not request.path.isprintable() or not namespace.isprintable():
        raise ValueError("a control character cannot be signed")
    text = f"{covered}){parameters}"
    return f'{lines}"@signature-params": {text}'.encode("ascii"), text, digest


@lru_cache(maxsize=_ENDPOINTS_KEPT)
def _place(endpoint: str) -> tuple[str, str]:
    """The line of the signature base for `@authority`, without the scheme's own port; and what
    stands before the path of a request.
    """
    address = urlsplit(endpoint)
    match = _PORT.fullmatch(address.netloc.rpartition("@")[2].lower())
    assert match is not None
    host, port = match.groups()
    if port and port.lstrip("0") != _DEFAULT_PORTS.get(address.scheme):
        host = f"{host}:{port}"
    return f'"@authority": {host}\n', address.path


def signer(kid: str, private_key: bytes, now_s: Callable[[], float] = time.time) -> _Signer:
    """Sign requests with an Ed25519 key: 32 bytes, RFC 8032. *now_s*: seconds since 1970.

    ExtraMissing without `ternmq-client[security]`.
    """
    need_extra("ternmq-client[security]", "An Ed25519 key", "cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - optional, and 100 ms

    return _Signer(kid, Ed25519PrivateKey.from_private_bytes(private_key).sign, now_s)
