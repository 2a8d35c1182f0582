"""Secrets of HMAC keys: computed from the cluster key and what the table of principals has, and kept nowhere. Pure.

    D      = HMAC-SHA256(cluster key, "ternmq hmac-sha256 signing keys 1")
    secret = HMAC-SHA256(D, kid 16 | 0 | principal | 0 | salt 32)

The replicated state has the salt alone, from which nobody learns anything without the cluster key. With it everybody can sign for any
principal, which is no new power: it is the root key, it seals callers and receipt handles, and it speaks at every link.

Law: two keys never have one input. A kid has 16 letters or digits and a name no zero byte, so each zero ends one part, and the salt is the last
32 bytes. What else the cluster key is used for with HMAC begins with other words ("ternmq root key", "ternmq link"), and D is used for nothing else.
Reference: RFC 2104; NIST SP 800-108 (a key for each purpose, by a label and a context).
"""

import hmac

from tern_wire.errors import ClusterKeyMissing
from tern_wire.principals.client_keys import SALT_SIZE_BYTES, is_kid

CLUSTER_KEY_SIZE_BYTES = 32
# Its number is that of the way in which secrets are computed: another way has another number, and the keys of both can be told apart.
_LABEL = b"ternmq hmac-sha256 signing keys 1"
_END = b"\0"


class SigningSecrets:
    """Computes secrets. Immutable."""

    __slots__ = ("_key",)

    def __init__(self, cluster_key: bytes) -> None:
        """Whatever *cluster_key* is: one that is too short to be a secret computes none."""
        is_secret = len(cluster_key) >= CLUSTER_KEY_SIZE_BYTES
        self._key = hmac.digest(cluster_key, _LABEL, "sha256") if is_secret else b""

    @property
    def is_there(self) -> bool:
        """Whether there is a cluster key to compute secrets with."""
        return bool(self._key)

    def of(self, principal: str, kid: str, salt: bytes) -> bytes:
        """The 32 bytes with which *principal* signs under its key *kid* with that *salt* (32 bytes).

        ClusterKeyMissing; ValueError when one of them could be mistaken for a part of another.
        """
        if not self._key:
            raise ClusterKeyMissing()
        name = principal.encode()
        if not is_kid(kid) or not name or _END in name or len(salt) != SALT_SIZE_BYTES:
            raise ValueError(
                "a kid of 16 letters or digits, a name without zero bytes and a salt of 32 bytes are needed"
            )
        return hmac.digest(self._key, b"%b\0%b\0%b" % (kid.encode(), name, salt), "sha256")
