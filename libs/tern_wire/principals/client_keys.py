"""Keys of clients: their text, their stored form, and the times and networks of their use. Pure.

    mqk_<kid>_<43>   a bearer key: 256 random bits, base64url without padding; its holder is the
                     principal
    mqs_<kid>_<43>   a signing key: the 32 bytes of an Ed25519 private key, as above; it never
                     leaves its owner
    mqh_<kid>_<43>   an HMAC key of an earlier build, not accepted any more

*kid*: 16 letters or digits, the key's name, which is no secret: logs and lists show it. The cluster
stores the SHA-256 of a bearer key's whole text, and the public half of an Ed25519 key. 256 random
bits need no slow hash: there is nothing to guess.

Law: replicated state and data directories may hold HMAC keys of earlier builds, as a salt. They
load, are listed, can be revoked, and never authenticate anybody.

The root key is computed from the cluster key, so every proxy has it without a message, and only a
new cluster key revokes it: `mqk_root000000000000_<base64url(HMAC-SHA256(cluster key, "ternmq root
key 1"))>`.
Reference: RFC 4648 section 5 (base64url); RFC 8032; RFC 4632 (networks).
"""

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from tern_wire.errors import InvalidField
from tern_wire.limits import KEY_NETWORKS_MAX, PRINCIPAL_TEXT_LENGTH_MAX
from tern_wire.settings.topic_settings import is_whole

BEARER, ED25519, HMAC = "bearer", "ed25519", "hmac-sha256"
# The state of a key whose type is not accepted any more, in the HTTP API.
NOT_ACCEPTED = "not-accepted"
# The types that are made and accepted.
KEY_TYPES = (BEARER, ED25519)
BEARER_PREFIX, SIGNING_PREFIX, HMAC_PREFIX = "mqk_", "mqs_", "mqh_"
KID_LENGTH, SECRET_SIZE_BYTES, DIGEST_SIZE_BYTES, SALT_SIZE_BYTES = 16, 32, 32, 32
# The alphabet of new kids: 95 bits, so that none is given twice.
KID_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
ROOT_KID = "root000000000000"
TIME_MAX_MS = (1 << 53) - 1

_KID = re.compile(rf"[A-Za-z0-9]{{{KID_LENGTH}}}")
_KIND_OF = {BEARER_PREFIX: BEARER, SIGNING_PREFIX: ED25519}
_TEXT = re.compile(rf"(mqk_|mqs_)([A-Za-z0-9]{{{KID_LENGTH}}})_([A-Za-z0-9_-]{{43}})")
_ROOT_LABEL = b"ternmq root key 1"
# Compared with for unknown kids, so that they take as long as known ones. It is the hash of no key.
_NO_DIGEST = bytes(DIGEST_SIZE_BYTES)
_NETWORKS_KEPT = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey:
    """One key in its stored form.

    It has *digest*, the SHA-256 of a bearer key's text; or *public_key*, 32 bytes of Ed25519; or
    *salt*, 32 bytes of an HMAC key, which is not accepted any more. It is good from *not_before_ms*
    (0: at once) until *expires_ms* (0: for ever), ms since 1970 (UTC), and only from *networks*
    (none: from anywhere). *version*: the version of the principal's document that added it.
    """

    kid: str
    digest: bytes = b""
    public_key: bytes = b""
    not_before_ms: int = 0
    expires_ms: int = 0
    created_ms: int = 0
    networks: tuple[str, ...] = ()
    description: str = ""
    version: int = 0
    salt: bytes = b""

    @property
    def kind(self) -> str:
        """`bearer`, `ed25519` or `hmac-sha256`."""
        return ED25519 if self.public_key else HMAC if self.salt else BEARER

    @property
    def is_accepted(self) -> bool:
        """Whether this release accepts keys of its kind."""
        return not self.salt

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over."""
        return 0 < self.expires_ms <= now_ms

    def is_good_at(self, now_ms: int) -> bool:
        """Whether its time has begun and has not ended."""
        return self.not_before_ms <= now_ms and not self.is_expired(now_ms)

    def is_good_from(self, address: str) -> bool:
        """Whether a client at *address* may use the key.

        *address* is an IP address as text; an IPv4 address written in IPv6 counts as IPv4.
        """
        return not self.networks or any(_contains(network, address) for network in self.networks)

    def packed(self) -> list[Any]:
        """Return the form inside a principal's document: 9 members, and the salt if there is
        one.
        """
        times = (self.not_before_ms, self.expires_ms, self.created_ms)
        packed = [self.kid, self.digest, self.public_key, *times, list(self.networks), self.description, self.version]
        return [*packed, self.salt] if self.salt else packed


def read_client_key(packed: Any) -> ClientKey:
    """Read the output of `ClientKey.packed`; InvalidField for a wrong member."""
    if not isinstance(packed, list | tuple) or len(packed) not in {9, 10}:
        raise InvalidField(reason="A key has 9 members, or 10 with a salt", pointer="/keys")
    kid, digest, public_key, not_before_ms, expires_ms, created_ms, networks, description, version = packed[:9]
    if not is_kid(kid) or kid == ROOT_KID:
        reason = f"A kid is {KID_LENGTH} letters or digits, and not that of the root key"
        raise InvalidField(reason=reason, pointer="/keys/kid")
    # A tenth member is a salt, and never empty: each key has one packed form, so that replicas
    # agree to the byte.
    sizes = tuple(map(_size, (digest, public_key, *packed[9:])))
    if sizes not in {(DIGEST_SIZE_BYTES, 0), (0, SECRET_SIZE_BYTES), (0, 0, SALT_SIZE_BYTES)}:
        raise InvalidField(
            reason="A key has a SHA-256 digest, or an Ed25519 public key, or a salt", pointer="/keys/public_key"
        )
    if not all(is_whole(time_ms, 0, TIME_MAX_MS) for time_ms in (not_before_ms, expires_ms, created_ms, version)):
        raise InvalidField(reason=f"Times and versions are 0 to {TIME_MAX_MS}", pointer="/keys")
    return ClientKey(
        kid=kid,
        digest=digest,
        public_key=public_key,
        not_before_ms=not_before_ms,
        expires_ms=expires_ms,
        created_ms=created_ms,
        networks=read_networks(networks),
        description=check_description(description, "/keys/description"),
        version=version,
        salt=packed[9] if len(packed) == 10 else b"",
    )


def read_networks(texts: Any, pointer: str = "/networks") -> tuple[str, ...]:
    """Return networks in their usual form, such as `10.0.0.0/8` or `2001:db8::/32`.

    A single address is a network of one. Raises InvalidField.
    """
    if not isinstance(texts, list | tuple) or len(texts) > KEY_NETWORKS_MAX:
        raise InvalidField(reason=f"'networks' is a list of at most {KEY_NETWORKS_MAX}", pointer=pointer)
    found: dict[str, None] = {}
    for number, text in enumerate(texts):
        try:
            if not isinstance(text, str) or "%" in text:
                raise ValueError("a network is a text without a zone")
            found[str(ip_network(text.strip()))] = None
        except ValueError as error:
            reason = f"'{str(text)[:60]}' is no network such as 10.0.0.0/8: {str(error)[:120]}"
            raise InvalidField(reason=reason, pointer=f"{pointer}/{number}") from error
    return tuple(found)


def check_key_type(kind: str, pointer: str = "/type") -> None:
    """Raise InvalidField, with the alternative, unless keys of the type *kind* can be made."""
    if kind == HMAC:
        reason = f"Keys of type {HMAC} are not made any more. Take {ED25519}, whose key the client makes, or {BEARER}"
        raise InvalidField(reason=reason, pointer=pointer)
    if kind not in KEY_TYPES:
        raise InvalidField(reason=f"'type' is one of {', '.join(KEY_TYPES)}", pointer=pointer)


def check_description(text: Any, pointer: str = "/description") -> str:
    """*text*, printable and at most PRINCIPAL_TEXT_LENGTH_MAX characters; InvalidField."""
    if not isinstance(text, str) or not text.isprintable() or len(text) > PRINCIPAL_TEXT_LENGTH_MAX:
        reason = f"A description is at most {PRINCIPAL_TEXT_LENGTH_MAX} printable characters"
        raise InvalidField(reason=reason, pointer=pointer)
    return text


# Texts --------------------------------------------------------------------------------------------
def is_kid(text: Any) -> bool:
    """Whether *text* can be the name of a key."""
    return isinstance(text, str) and _KID.fullmatch(text) is not None


def bearer_text(kid: str, secret: bytes) -> str:
    """The text of a bearer key, from SECRET_SIZE_BYTES of random bytes."""
    return f"{BEARER_PREFIX}{kid}_{_encoded(secret)}"


def signing_text(kid: str, private_key: bytes) -> str:
    """The text of a signing key, from the 32 bytes of an Ed25519 private key."""
    return f"{SIGNING_PREFIX}{kid}_{_encoded(private_key)}"


def read_key_text(text: str) -> tuple[str, str, bytes] | None:
    """Return type (one of KEY_TYPES), kid and the 32 secret bytes of a key's text; else None."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    secret = decoded(match[3])
    return None if secret is None else (_KIND_OF[match[1]], match[2], secret)


def kid_of(bearer: str) -> str:
    """The kid in the text of a bearer key; "" for any other text."""
    match = _TEXT.fullmatch(bearer)
    return match[2] if match is not None and match[1] == BEARER_PREFIX else ""


def digest_of(bearer: str) -> bytes:
    """The SHA-256 of a bearer key's text, which the cluster stores."""
    return sha256(bearer.encode("utf-8", "surrogatepass")).digest()


def is_bearer_of(key: ClientKey | None, text: str) -> bool:
    """Whether *text* is the bearer key *key*.

    It takes the same time for a right, a wrong and an unknown key (None).
    """
    known = key.digest if key is not None and key.digest else _NO_DIGEST
    return hmac.compare_digest(digest_of(text), known)


def root_key_text(cluster_key: bytes) -> str:
    """The root key of the cluster with that key."""
    return bearer_text(ROOT_KID, hmac.digest(cluster_key, _ROOT_LABEL, "sha256"))


def decoded(text: str) -> bytes | None:
    """Return the 32 bytes in 43 characters of base64url, the form of secrets and public keys.

    None for any other text.
    """
    if len(text) != 43 or not text.isascii():
        return None
    try:
        data = urlsafe_b64decode(text + "=")
    except ValueError:
        return None
    # The last two bits of the text are unused. Each key has one text only, since texts are
    # compared.
    return data if len(data) == SECRET_SIZE_BYTES and _encoded(data) == text else None


def encoded_public_key(public_key: bytes) -> str:
    """An Ed25519 public key as text: 43 characters of base64url."""
    return _encoded(public_key)


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _size(value: Any) -> int:
    return len(value) if isinstance(value, bytes) else -1


@lru_cache(maxsize=_NETWORKS_KEPT)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text)


def _contains(network: str, address: str) -> bool:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found) in _network(network)
