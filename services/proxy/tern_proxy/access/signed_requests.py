"""Signed requests: the client has an Ed25519 key, of which the cluster keeps the public half, or a secret that the cluster can compute (HMAC-SHA256).

A signature covers at least @method, @path, @query and @authority, content-digest (sha-256 or sha-512) if there is a body, and mq-namespace if there is one; it has `created`
(at most 300 s from now), `keyid` (the kid) and `nonce` (good once at this proxy). The body is hashed while it arrives, before a handler has the
last piece of it.

Law: the signature names its algorithm (`alg`; without one it is Ed25519), and the key must be of that kind: what one kind is verified with is
never looked at for the other, so no public key is ever a secret. What verifying costs follows from what the request says, whether its kid is
known, of another kind, or not known.

What the SDK writes is read by `core/access/signature_form.py`, and costs a fifth of what Ed25519 costs by itself; what is written in any other way is read by
the library, at three times of what Ed25519 costs. Both say the same of everything.

Reference: RFC 9421 (HTTP Message Signatures; 3.3.3 HMAC, 3.3.6 Ed25519), RFC 9530 (Content-Digest), RFC 8032 (Ed25519), RFC 2104 (HMAC).
"""

import hashlib
import hmac
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import http_sf
from cryptography.exceptions import InvalidSignature as WrongSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, InvalidSignature, algorithms
from msgspec import Struct
from starlette.types import Message, Receive, Scope

from tern_proxy.core.access.namespaces import HEADER, SCOPE_HEADERS
from tern_proxy.core.access.signature_form import WrittenSignature, read_form
from tern_service.problems import has_body
from tern_wire.errors import Unauthenticated
from tern_wire.limits import (
    SIGNATURE_KEYS_KEPT_MAX,
    SIGNATURE_NONCE_LENGTH_MAX,
    SIGNATURE_NONCE_LENGTH_MIN,
    SIGNATURE_WINDOW_MS,
)
from tern_wire.principals.client_keys import ED25519, HMAC

COVERED = ("@method", "@path", "@query", "@authority")
DIGEST = "content-digest"
# Whose names these are must not change on the way, where there is a namespace.
NAMESPACE = HEADER.decode()
_HASHES: dict[str, Callable[[bytes], Any]] = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}
# What an unknown kid is verified with; the private half is known to everybody, so nothing that it verifies is let through.
_NOBODY = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
# Reasons, for the audit alone.
_NOT_NOW, _NOT_HELD, _NO_KEY = "not created now", "the signature does not hold", "no such key"


class VerifyingKey:
    """What signatures of a key are verified with: *public_key* those of Ed25519, *secret* those of HMAC, 32 bytes each. The other one is empty,
    and both are if the key signs nothing. Of the secret only *mac* is kept, the HMAC of nothing yet; it goes with this."""

    __slots__ = ("mac", "public_key")

    def __init__(self, *, public_key: bytes = b"", secret: bytes = b"") -> None:
        self.public_key = public_key
        self.mac = _begin(secret) if secret else None

    def __repr__(self) -> str:
        """Which of them there is: a secret is in no log of whoever prints this."""
        return f"VerifyingKey({HMAC if self.mac else ED25519 if self.public_key else 'none'})"


def _begin(secret: bytes) -> hmac.HMAC:
    return hmac.new(secret, digestmod="sha256")


_UNKNOWN = VerifyingKey()
_NOBODYS_MAC = _begin(bytes(32))
FindKey = Callable[[str], VerifyingKey | None]


class Signed(Struct, frozen=True, gc=False):
    """A signature that holds: whose key, the nonce, and when it was made (seconds since 1970); *digests*: what the body must hash to, by algorithm, none without a body."""

    kid: str
    nonce: str
    created_s: int
    digests: dict[str, bytes]


class NotSigned(Exception):
    """The signature does not hold, or says too little. *kid*: which key it claims, "" when it claims none; *reason* is for the audit."""

    def __init__(self, kid: str, reason: str) -> None:
        super().__init__(reason)
        self.kid, self.reason = kid, reason


def read_signature(scope: Scope, find: FindKey, now_ms: int) -> Signed:
    """The signature of the request; NotSigned unless it holds. *find*: what a kid verifies with, as far as it may be used now."""
    with_body, sent = has_body(scope), scope.get(SCOPE_HEADERS)
    fields, scheme = sent or scope["headers"], scope.get("scheme", "http")
    path, query = _path_of(scope), scope["query_string"]
    written = read_form(scope["method"], scheme, path, query, fields, with_body, sent is not None)
    return read_any_signature(scope, find, now_ms) if written is None else _verify(written, find, now_ms, with_body)


def _verify(written: WrittenSignature, find: FindKey, now_ms: int, with_body: bool) -> Signed:
    kid = written.kid
    if abs(written.created_s * 1_000 - now_ms) > SIGNATURE_WINDOW_MS:
        raise NotSigned("", _NOT_NOW)
    key = find(kid) or _UNKNOWN
    if written.algorithm == HMAC:
        is_known = key.mac is not None
        if not hmac.compare_digest(_digest(key.mac or _NOBODYS_MAC, written.base), written.signature):
            raise NotSigned(kid, _NOT_HELD)
    else:
        is_known = bool(key.public_key)
        try:
            public_key = _public_key(key.public_key) if is_known else _NOBODY
            public_key.verify(written.signature, written.base)
        except (WrongSignature, ValueError) as error:
            raise NotSigned(kid, str(error)[:200] or _NOT_HELD) from None
    if not is_known:
        raise NotSigned(kid, _NO_KEY)
    return Signed(kid, written.nonce, written.created_s, written.digests if with_body else {})


def read_any_signature(scope: Scope, find: FindKey, now_ms: int) -> Signed:
    """As read_signature, by the library: whatever form of RFC 9421 the signature is written in."""
    resolver = _Keys(find)
    verifier = _Verifier(now_ms, resolver)
    with_body = has_body(scope)
    try:
        required = (*COVERED, *((DIGEST,) if with_body else ()), *((NAMESPACE,) if SCOPE_HEADERS in scope else ()))
        (result,) = verifier.verify(_View(scope), max_age=None, require_components=required)
        nonce, created_s = result.nonce or "", int(result.parameters["created"])
        digests = _digests(result.covered_components[f'"{DIGEST}"']) if with_body else {}
    except (InvalidSignature, ValueError, KeyError, TypeError) as error:
        # What verifies has nothing to say about a signature that does not hold.
        raise NotSigned(resolver.kid, str(error)[:200] or _NOT_HELD) from None
    if not resolver.is_known:
        raise NotSigned(resolver.kid, _NO_KEY)
    if not SIGNATURE_NONCE_LENGTH_MIN <= len(nonce) <= SIGNATURE_NONCE_LENGTH_MAX:
        limits = f"{SIGNATURE_NONCE_LENGTH_MIN} to {SIGNATURE_NONCE_LENGTH_MAX}"
        raise NotSigned(resolver.kid, f"a nonce has {limits} characters")
    return Signed(resolver.kid, nonce, created_s, digests)


def receive_checked(receive: Receive, digests: dict[str, bytes]) -> Receive:
    """*receive*, which raises Unauthenticated in place of a body's last piece unless the body is the one that was signed."""
    hashes: dict[str, Any] = {}
    is_whole = False

    async def checked() -> Message:
        nonlocal is_whole
        message = await receive()
        if is_whole or message["type"] != "http.request":
            return message
        is_whole = not message.get("more_body", False)
        piece = message.get("body", b"")
        if is_whole and not hashes:  # one piece, as most of them
            for name, digest in digests.items():
                if not hmac.compare_digest(_HASHES[name](piece).digest(), digest):
                    raise Unauthenticated()
            return message
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


def _digest(begun: hmac.HMAC, base: bytes) -> bytes:
    """As hmac.digest, which takes longer to find its way to SHA-256 than to compute it."""
    mac = begun.copy()
    mac.update(base)
    return mac.digest()


@lru_cache(maxsize=SIGNATURE_KEYS_KEPT_MAX)
def _public_key(data: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(data)


def _path_of(scope: Scope) -> bytes:
    """The path as it was sent."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path


class _Hmac(algorithms.HTTPSignatureAlgorithm):
    """As the library's own, which says another reason and is slower."""

    algorithm_id = HMAC

    def __init__(self, public_key: hmac.HMAC = _NOBODYS_MAC, private_key: Any = None) -> None:
        self._mac = public_key

    def verify(self, signature: bytes, message: bytes) -> None:
        """WrongSignature unless it holds."""
        if not hmac.compare_digest(_digest(self._mac, message), signature):
            raise WrongSignature()


class _Verifier(HTTPMessageVerifier):
    """The library's, for one request, with our clock and our window in both directions, and either algorithm."""

    def __init__(self, now_ms: int, keys: "_Keys") -> None:
        super().__init__(signature_algorithm=algorithms.ED25519, key_resolver=keys)
        self._now_ms, self._keys = now_ms, keys

    def validate_created_and_expires(self, sig_input: Any, max_age: Any = None) -> None:
        """InvalidSignature unless it was made less than SIGNATURE_WINDOW_MS from now and has not expired. What the library asks first of a
        signature, so here it is told which algorithm that names; of any other one it says itself that it is not expected."""
        if sig_input.params.get("alg") == HMAC:
            self.signature_algorithm, self._keys.kind = _Hmac, HMAC
        created, expires = sig_input.params.get("created"), sig_input.params.get("expires")
        if type(created) is not int or abs(created * 1_000 - self._now_ms) > SIGNATURE_WINDOW_MS:
            raise InvalidSignature(_NOT_NOW)
        if expires is not None and (type(expires) is not int or expires * 1_000 <= self._now_ms):
            raise InvalidSignature("expired")


class _Keys(HTTPSignatureKeyResolver):
    """What to verify with by kid, something for each kid whether it is known or not. *kind*: which algorithm the signature names."""

    def __init__(self, find: FindKey) -> None:
        self._find = find
        self.kid, self.is_known, self.kind = "", False, ED25519

    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey | hmac.HMAC:
        """The key to verify with."""
        self.kid = key_id
        key = self._find(key_id) or _UNKNOWN
        if self.kind == HMAC:
            self.is_known = key.mac is not None
            return key.mac or _NOBODYS_MAC
        self.is_known = bool(key.public_key)
        return _public_key(key.public_key) if self.is_known else _NOBODY


class _View:
    """An ASGI request as the library reads it."""

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
        """Every line."""
        return self._fields
