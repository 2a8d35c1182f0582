"""Requests signed with an Ed25519 key: used by credentials.py, imported only where there is such a key.

Covered: @method, @path, @query, @authority, content-digest (sha-256) where there is a body, and the namespace where there is one; each attempt has its own nonce.
Reference: RFC 9421, RFC 9530.
"""

import datetime
import secrets
import time
from collections.abc import Callable, MutableMapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from http_message_signatures import HTTPMessageSigner
from http_message_signatures.algorithms import ED25519
from http_message_signatures.resolvers import MappingKeyResolver

from tern_client.exchange import Headers, Request
from tern_wire.paths import HEADER_NAMESPACE

COVERED = ("@method", "@path", "@query", "@authority")
NAMESPACE = HEADER_NAMESPACE.lower()
_ADDED = ("Signature-Input", "Signature", "Content-Digest")
_NONCE_SIZE_BYTES = 16


class _Outgoing:
    """A request as the library reads it, and the headers that it adds."""

    def __init__(self, request: Request, endpoint: str) -> None:
        self.method = request.method
        self.url = endpoint + request.path
        self.headers: MutableMapping[str, str] = {
            name: value for name, value in request.headers if name.lower() == NAMESPACE
        }


class _Signer:
    """Signs with one key."""

    def __init__(self, kid: str, private_key: bytes, now_s: Callable[[], float]) -> None:
        self._kid, self._now_s = kid, now_s
        keys = MappingKeyResolver(public_keys={}, private_keys={kid: Ed25519PrivateKey.from_private_bytes(private_key)})
        self._signer = HTTPMessageSigner(signature_algorithm=ED25519, key_resolver=keys)

    def __call__(self, request: Request, endpoint: str) -> Headers:
        outgoing = _Outgoing(request, endpoint)
        self._signer.sign(
            outgoing,
            key_id=self._kid,
            created=datetime.datetime.fromtimestamp(self._now_s(), datetime.UTC),
            nonce=secrets.token_urlsafe(_NONCE_SIZE_BYTES),
            covered_component_ids=(*COVERED, NAMESPACE) if outgoing.headers else COVERED,
            body=request.body or None,
        )
        return tuple((name, outgoing.headers[name]) for name in _ADDED if name in outgoing.headers)


def signer(kid: str, private_key: bytes, now_s: Callable[[], float] = time.time) -> _Signer:
    """What signs requests with that key: 32 bytes, RFC 8032. *now_s*: seconds since 1970."""
    return _Signer(kid, private_key, now_s)
