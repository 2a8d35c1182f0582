"""Signed requests: the client has an Ed25519 key, and the cluster keeps its public half only. The library does the signatures.

A signature covers at least @method, @path, @query and @authority, content-digest (sha-256 or sha-512) if there is a body, and mq-namespace if there is one; it has `created`
(at most 300 s from now), `keyid` (the kid) and `nonce` (good once at this proxy). The body is hashed while it arrives, before a handler has the
last piece of it. A kid that is not known costs as much as one that is.

Reference: RFC 9421 (HTTP Message Signatures), RFC 9530 (Content-Digest), RFC 8032 (Ed25519).
"""

import hashlib
import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import http_sf
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, InvalidSignature
from http_message_signatures.algorithms import ED25519
from starlette.types import Message, Receive, Scope

from tern_proxy.core.namespaces import HEADER, SCOPE_HEADERS
from tern_wire.client_keys import ClientKey
from tern_wire.errors import Unauthenticated
from tern_wire.limits import SIGNATURE_NONCE_LENGTH_MAX, SIGNATURE_WINDOW_MS

COVERED = ("@method", "@path", "@query", "@authority")
DIGEST = "content-digest"
# Whose names these are must not change on the way, where there is a namespace.
NAMESPACE = HEADER.decode()
_HASHES: dict[str, Callable[[], Any]] = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}
# What an unknown kid is verified with; the private half is known to everybody, so nothing that it verifies is let through.
_NOBODY = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
FindKey = Callable[[str], ClientKey | None]


@dataclass(frozen=True, slots=True)
class Signed:
    """A signature that holds: whose key, and the nonce; *digests*: what the body must hash to, by algorithm, none without a body."""

    kid: str
    nonce: str
    digests: dict[str, bytes]


class NotSigned(Exception):
    """The signature does not hold, or says too little. *kid*: which key it claims, "" when it claims none; *reason* is for the audit."""

    def __init__(self, kid: str, reason: str) -> None:
        super().__init__(reason)
        self.kid, self.reason = kid, reason


def has_body(scope: Scope) -> bool:
    """Whether its head announces a body."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )


def read_signature(scope: Scope, find: FindKey, now_ms: int) -> Signed:
    """The signature of the request; NotSigned unless it holds. *find*: the public key of a kid, as far as it may be used now."""
    resolver = _Keys(find)
    verifier = _Verifier(now_ms, resolver)
    with_body = has_body(scope)
    try:
        required = (*COVERED, *((DIGEST,) if with_body else ()), *((NAMESPACE,) if SCOPE_HEADERS in scope else ()))
        (result,) = verifier.verify(_View(scope), max_age=None, require_components=required)
        nonce = result.nonce or ""
        digests = _digests(result.covered_components[f'"{DIGEST}"']) if with_body else {}
    except (InvalidSignature, ValueError, KeyError, TypeError) as error:
        raise NotSigned(resolver.kid, str(error)[:200]) from None
    if not resolver.is_known:
        raise NotSigned(resolver.kid, "no such key")
    if not 8 <= len(nonce) <= SIGNATURE_NONCE_LENGTH_MAX:
        raise NotSigned(resolver.kid, f"a nonce has 8 to {SIGNATURE_NONCE_LENGTH_MAX} characters")
    return Signed(resolver.kid, nonce, digests)


def receive_checked(receive: Receive, digests: dict[str, bytes]) -> Receive:
    """*receive*, which raises Unauthenticated in place of a body's last piece unless the body is the one that was signed."""
    hashes = {name: _HASHES[name]() for name in digests}
    is_whole = False

    async def checked() -> Message:
        nonlocal is_whole
        message = await receive()
        if message["type"] == "http.request" and not is_whole:
            for each in hashes.values():
                each.update(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if is_whole and not all(hmac.compare_digest(hashes[name].digest(), digests[name]) for name in digests):
                raise Unauthenticated()
        return message

    return checked


def _digests(value: str) -> dict[str, bytes]:
    members: Any = http_sf.parse(value.encode("ascii"), tltype="dictionary")
    found = {name: member[0] for name, member in members.items() if name in _HASHES}
    if not found or not all(isinstance(digest, bytes) for digest in found.values()):
        raise ValueError("Content-Digest has neither sha-256 nor sha-512")
    return found


class _Verifier(HTTPMessageVerifier):
    """The library's, with our clock and our window in both directions."""

    def __init__(self, now_ms: int, keys: HTTPSignatureKeyResolver) -> None:
        super().__init__(signature_algorithm=ED25519, key_resolver=keys)
        self._now_ms = now_ms

    def validate_created_and_expires(self, sig_input: Any, max_age: Any = None) -> None:
        """InvalidSignature unless it was made less than SIGNATURE_WINDOW_MS from now and has not expired."""
        created, expires = sig_input.params.get("created"), sig_input.params.get("expires")
        if type(created) is not int or abs(created * 1_000 - self._now_ms) > SIGNATURE_WINDOW_MS:
            raise InvalidSignature("not created now")
        if expires is not None and (type(expires) is not int or expires * 1_000 <= self._now_ms):
            raise InvalidSignature("expired")


class _Keys(HTTPSignatureKeyResolver):
    """Public keys by kid, one for each kid whether it is known or not."""

    def __init__(self, find: FindKey) -> None:
        self._find = find
        self.kid, self.is_known = "", False

    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey:
        """The key to verify with."""
        self.kid = key_id
        key = self._find(key_id)
        if key is None or not key.public_key:
            return _NOBODY
        self.is_known = True
        return Ed25519PublicKey.from_public_bytes(key.public_key)


class _View:
    """An ASGI request as the library reads it."""

    def __init__(self, scope: Scope) -> None:
        self.method: str = scope["method"]
        fields = scope.get(SCOPE_HEADERS) or scope["headers"]
        self.headers = _Headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields])
        hosts = [value for name, value in self.headers.items() if name == "host"]
        if len(hosts) != 1:
            raise ValueError("one Host is needed")
        path = scope.get("raw_path") or scope["path"].encode()
        query = scope["query_string"]
        target = path.decode("latin-1") + ("?" + query.decode("latin-1") if query else "")
        self.url = f"{scope.get('scheme', 'http')}://{hosts[0]}{target}"


class _Headers:
    """Header fields in their order."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields

    def items(self) -> Iterable[tuple[str, str]]:
        """Every line."""
        return self._fields
