"""An Ed25519 key for tests: its owner's half, its row in the table of principals, and requests that
it signs.
"""

import hmac
from base64 import b64encode
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tern_client.transport import signing
from tern_client.transport.exchange import Headers, Request
from tern_wire.principals.client_keys import ClientKey
from tern_wire.principals.principals import Principal, PrincipalTable
from tests.support.proxy.guarded_mesh import OWN, GuardedMesh, grant

ENDPOINT, SEND = "http://proxy", "/v1/topics/orders/messages"
NOW_MS = 1_800_000_000_000
KID, PRIVATE = "S" * 16, bytes(range(64, 96))
PUBLIC = Ed25519PrivateKey.from_private_bytes(PRIVATE).public_key().public_bytes_raw()
KEY = ClientKey(kid=KID, public_key=PUBLIC)
REQUEST = Request("POST", f"{SEND}?tag=a&key=b", (("Content-Type", "text/plain"),), b"hello")


def sign(request: Request = REQUEST, *, private: bytes = PRIVATE, made_ms: int = NOW_MS) -> Headers:
    """The headers that the SDK adds."""
    return signing.signer(KID, private, lambda: made_ms / 1_000)(request, ENDPOINT)


def sign_by_hmac(kid: str, secret: bytes, request: Request = REQUEST) -> Headers:
    """The headers that the SDK of an earlier build adds with an HMAC key."""
    parameters = f';created={NOW_MS // 1_000};keyid="{kid}";alg="hmac-sha256";nonce="{"n" * 22}"'
    base, text, digest = signing.signature_base(request, ENDPOINT, parameters)
    mac = b64encode(hmac.digest(secret, base, "sha256")).decode()
    added = (("Signature-Input", f"pyhms={text}"), ("Signature", f"pyhms=:{mac}:"))
    return (*added, ("Content-Digest", digest)) if digest else added


def find(kid: str) -> bytes:
    """The public half in the table."""
    return PUBLIC if kid == KID else b""


def publish(mesh: GuardedMesh, *keys: ClientKey, name: str = "signer", grants: tuple[str, ...] = OWN) -> None:
    """A new table, in which the signer has those keys and nobody else is."""
    principal = Principal(name=name, grants=tuple(map(grant, grants)), keys=keys)
    mesh.known.table = PrincipalTable.of([principal], mesh.known.table.version + 1)


def sign_in(mesh: GuardedMesh) -> None:
    """The signer is a principal with everything of its own."""
    mesh.clock.ms = NOW_MS
    publish(mesh, KEY)


async def send(mesh: GuardedMesh, headers: Headers, body: bytes = REQUEST.body) -> Any:
    """That request with those headers."""
    return await mesh.http.post(REQUEST.path, content=body, headers=[*REQUEST.headers, *headers])
