"""A signing key of each kind for tests: what its owner has, what the table of principals has of it, and requests that it signs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tern_client.transport import signing
from tern_client.transport.exchange import Headers, Request
from tern_proxy.access.signed_requests import VerifyingKey
from tern_wire.principals.client_keys import ClientKey
from tern_wire.principals.principals import Principal, PrincipalTable
from tern_wire.principals.signing_secrets import SigningSecrets
from tests.support.proxy.guarded_mesh import OWN, GuardedMesh, grant
from tests.support.proxy.proxy_mesh import KEY as CLUSTER_KEY

ENDPOINT, SEND = "http://proxy", "/v1/topics/orders/messages"
NOW_MS = 1_800_000_000_000


@dataclass(frozen=True, kw_only=True)
class Signs:
    """A key that signs: what its owner has, and what the table of principals has of it. Its principal is *signer*."""

    key: ClientKey
    secret: bytes = field(repr=False)
    make: Callable[..., Callable[[Request, str], Headers]]

    def headers(self, request: Request, secret: bytes = b"") -> Headers:
        """What the SDK adds."""
        return self.make(self.key.kid, secret or self.secret, lambda: NOW_MS / 1_000)(request, ENDPOINT)

    def find(self, kid: str) -> VerifyingKey | None:
        """What the proxy verifies with."""
        return self.verifying if kid == self.key.kid else None

    @property
    def verifying(self) -> VerifyingKey:
        """As find."""
        return VerifyingKey(public_key=self.key.public_key, secret=self.secret if self.key.salt else b"")


PRIVATE, SALT = bytes(range(64, 96)), bytes(range(1, 33))
PUBLIC = Ed25519PrivateKey.from_private_bytes(PRIVATE).public_key().public_bytes_raw()
ED25519 = Signs(key=ClientKey(kid="S" * 16, public_key=PUBLIC), secret=PRIVATE, make=signing.signer)
HMAC = Signs(
    key=ClientKey(kid="H" * 16, salt=SALT),
    secret=SigningSecrets(CLUSTER_KEY).of("signer", "H" * 16, SALT),
    make=signing.hmac_signer,
)
REQUEST = Request("POST", f"{SEND}?tag=a&key=b", (("Content-Type", "text/plain"),), b"hello")
either = pytest.mark.parametrize("signs", [ED25519, HMAC], ids=["ed25519", "hmac-sha256"])


def publish(mesh: GuardedMesh, *keys: ClientKey, name: str = "signer", grants: tuple[str, ...] = OWN) -> None:
    """A new table, in which the signer has those keys and nobody else is."""
    principal = Principal(name=name, grants=tuple(map(grant, grants)), keys=keys)
    mesh.known.table = PrincipalTable.of([principal], mesh.known.table.version + 1)


def sign_in(mesh: GuardedMesh, signs: Signs) -> None:
    """The signer is a principal with everything of its own."""
    mesh.clock.ms = NOW_MS
    publish(mesh, signs.key)


async def send(mesh: GuardedMesh, headers: Headers, body: bytes = REQUEST.body) -> Any:
    """That request with those headers."""
    return await mesh.http.post(REQUEST.path, content=body, headers=[*REQUEST.headers, *headers])
