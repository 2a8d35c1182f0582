"""Signed requests (RFC 9421): the client has an Ed25519 key, the cluster its public half.

A signature covers at least @method, @path, @query and @authority, content-digest (sha-256 or
sha-512) if there is a body, and mq-namespace if there is one. It has `created` (at most 300 s from
now), `keyid` (the kid) and `nonce` (good once at this proxy). The body is hashed while it arrives,
before a handler has the last piece of it.

Law: the library reads the signature and builds the signed text; nothing is parsed here. The work of
verification is the same for every kid, known or not. SECURITY.md argues why there is no second
reader.

Reference: RFC 9421 (HTTP Message Signatures, 3.3.6 Ed25519), RFC 9530 (Content-Digest), RFC 8032.
"""

import hmac
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256, sha512
from typing import Any

import http_sf
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, InvalidSignature, algorithms
from msgspec import Struct
from starlette.types import Message, Receive, Scope

from tern_proxy.core.access.namespaces import HEADER, SCOPE_HEADERS
from tern_service.problems import has_body
from tern_wire.errors import Unauthenticated
from tern_wire.limits import (
    SIGNATURE_KEYS_KEPT_MAX,
    SIGNATURE_NONCE_LENGTH_MAX,
    SIGNATURE_NONCE_LENGTH_MIN,
    SIGNATURE_WINDOW_MS,
)
from tern_wire.principals.client_keys import HMAC

COVERED = ("@method", "@path", "@query", "@authority")
DIGEST = "content-digest"
# The meaning of the names in the path depends on the namespace, so it is covered if present.
NAMESPACE = HEADER.decode()
_HASHES: dict[str, Callable[[bytes], Any]] = {"sha-256": sha256, "sha-512": sha512}
# Verifies signatures of unknown kids. Its private half is public, so no request that it verifies is
# accepted.
_NOBODY = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
# Returns the public half of a kid's key; b"" when there is no such key or it cannot sign.
FindKey = Callable[[str], bytes]


class Signed(Struct, frozen=True, gc=False):
    """A valid signature: its key, its nonce and its time (seconds since 1970).

    *digests*: by algorithm, the hashes that the body must have; none without a body.
    """

    kid: str
    nonce: str
    created_s: int
    digests: dict[str, bytes]


class NotSigned(Exception):
    """The signature is invalid, or covers too little.

    *kid*: the key that it claims, "" if it claims none; *reason* is for the audit.
    """

    def __init__(self, kid: str, reason: str) -> None:
        super().__init__(reason)
        self.kid, self.reason = kid, reason


class HmacSigned(NotSigned):
    """The signature has `alg="hmac-sha256"`, which no release accepts any more."""


def read_signature(scope: Scope, find: FindKey, now_ms: int) -> Signed:
    """Return the signature of the request; raise NotSigned unless it is valid.

    *find* returns the key of a kid, if the key is usable now.
    """
    keys, with_body = _Keys(find), has_body(scope)
    required = (*COVERED, *((DIGEST,) if with_body else ()), *((NAMESPACE,) if SCOPE_HEADERS in scope else ()))
    try:
        (result,) = _Verifier(now_ms, keys).verify(_View(scope), max_age=None)
        covered: dict[str, str] = result.covered_components
        for name in required:
            # Without parameters. The library's own check has the same result and parses every name
            # twice, for 0.1 ms.
            if f'"{name}"' not in covered:
                raise InvalidSignature(f"{name} is not covered")
        nonce, created_s = result.nonce or "", int(result.parameters["created"])
        digests = _digests(covered[f'"{DIGEST}"']) if with_body else {}
    except (InvalidSignature, ValueError, KeyError, TypeError) as error:
        # Ed25519 gives no reason for an invalid signature.
        raise NotSigned(keys.kid, str(error)[:200] or "the signature does not hold") from None
    if not keys.is_known:
        raise NotSigned(keys.kid, "no such key")
    if not SIGNATURE_NONCE_LENGTH_MIN <= len(nonce) <= SIGNATURE_NONCE_LENGTH_MAX:
        limits = f"{SIGNATURE_NONCE_LENGTH_MIN} to {SIGNATURE_NONCE_LENGTH_MAX}"
        raise NotSigned(keys.kid, f"a nonce has {limits} characters")
    return Signed(keys.kid, nonce, created_s, digests)


def receive_checked(receive: Receive, digests: dict[str, bytes]) -> Receive:
    """Wrap *receive*: raise Unauthenticated in place of a wrong body's last piece.

    A body is wrong unless it is the signed one.
    """
    hashes: dict[str, Any] = {}
    is_whole = False

    async def checked() -> Message:
        nonlocal is_whole
        message = await receive()
        if is_whole or message["type"] != "http.request":
            return message
        is_whole = not message.get("more_body", False)
        piece = message.get("body", b"")
        for name, digest in digests.items():
            if name in hashes:
                hashes[name].update(piece)
            else:
                hashes[name] = _HASHES[name](piece)
            if is_whole and not hmac.compare_digest(hashes[name].digest(), digest):
                raise Unauthenticated()
        return message

    return checked


def _digests(value: str) -> dict[str, bytes]:
    members: Any = http_sf.parse(value.encode("ascii"), tltype="dictionary")
    found = {name: member[0] for name, member in members.items() if name in _HASHES}
    if not found or not all(isinstance(digest, bytes) for digest in found.values()):
        raise ValueError("Content-Digest has neither sha-256 nor sha-512")
    return found


@lru_cache(maxsize=SIGNATURE_KEYS_KEPT_MAX)
def _public_key(data: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(data)


def _path_of(scope: Scope) -> bytes:
    """Return the path in its sent form."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path


class _Verifier(HTTPMessageVerifier):
    """The library's verifier, with the proxy's clock and a window in both directions."""

    def __init__(self, now_ms: int, keys: "_Keys") -> None:
        super().__init__(signature_algorithm=algorithms.ED25519, key_resolver=keys)
        self._now_ms = now_ms

    def validate_created_and_expires(self, sig_input: Any, max_age: Any = None) -> None:
        """Raise InvalidSignature for a signature that is too old, too new or expired.

        The limit is SIGNATURE_WINDOW_MS in both directions. The library calls this first, before it
        uses the algorithm and the key; so HmacSigned depends on the request alone, and not on the
        kind of the key that it names.
        """
        if sig_input.params.get("alg") == HMAC:
            raise HmacSigned(str(sig_input.params.get("keyid", "")), "an HMAC signature")
        created, expires = sig_input.params.get("created"), sig_input.params.get("expires")
        if type(created) is not int or abs(created * 1_000 - self._now_ms) > SIGNATURE_WINDOW_MS:
            raise InvalidSignature("not created now")
        if expires is not None and (type(expires) is not int or expires * 1_000 <= self._now_ms):
            raise InvalidSignature("expired")


class _Keys(HTTPSignatureKeyResolver):
    """Finds a key for verification: some key for each kid, known or not."""

    def __init__(self, find: FindKey) -> None:
        self._find = find
        self.kid, self.is_known = "", False

    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey:
        """Return the key for verification."""
        self.kid = key_id
        public_key = self._find(key_id)
        self.is_known = bool(public_key)
        return _public_key(public_key) if self.is_known else _NOBODY


class _View:
    """An ASGI request in the form that the library reads."""

    def __init__(self, scope: Scope) -> None:
        self.method: str = scope["method"]
        fields = scope.get(SCOPE_HEADERS) or scope["headers"]
        self.headers = _Headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields])
        hosts = [value for name, value in self.headers.items() if name == "host"]
        if len(hosts) != 1:
            raise ValueError("one Host is needed")
        if not _path_of(scope).startswith(b"/"):
            raise ValueError("what comes before a path would be taken for a part of the host")
        query = scope["query_string"]
        target = _path_of(scope).decode("latin-1") + ("?" + query.decode("latin-1") if query else "")
        self.url = f"{scope.get('scheme', 'http')}://{hosts[0]}{target}"


class _Headers:
    """Header fields in their order."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields

    def items(self) -> Iterable[tuple[str, str]]:
        """Return every line."""
        return self._fields
