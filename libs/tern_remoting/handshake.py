"""Mutual authentication: an HMAC-SHA256 challenge with the 32-byte cluster key, sans-IO.

 client -> HELLO      | version 1 | role | name | group id | nonce 16 |
 server -> CHALLENGE  | version 1 | role | name | nonce 16 | mac 32 |
 client -> PROOF      | mac 32 |
 server -> WELCOME    | (empty) |
A text is | size 1 | UTF-8 |. A mac covers its direction, the whole HELLO and the CHALLENGE up to
its mac. Both nonces, both names and the group id are thereby bound, and a mac can be neither
replayed nor reflected. Before PROOF the server sends nothing that an unauthenticated peer may not
have; a refusal is a closed connection without a message.

Frames after the handshake are neither encrypted nor signed: TLS below the link does that.
Reference: mutual challenge-response as in ISO/IEC 9798-4; HMAC of RFC 2104.
"""

import hmac
import struct
from dataclasses import dataclass
from typing import Protocol

from tern_remoting.errors import HandshakeRefused, WrongCertificate, WrongGroup, WrongKey
from tern_remoting.frames import Frame
from tern_security.peer_identity import BROKER, PeerIdentity
from tern_wire.limits import TLS_HANDSHAKE_MAX_MS

KEY_SIZE_BYTES = 32
NONCE_SIZE_BYTES = 16
PROTOCOL_VERSION = 1
ROLES = frozenset({"proxy", "broker", "checker"})
# Limit of frames before the peer is authenticated.
GREETING_SIZE_MAX_BYTES = 4 * 1024
# Two round trips on a bad network.
HANDSHAKE_TIMEOUT_S = 2.0
# A TLS handshake is milliseconds of work and some turns of both loops. On a machine with ten times
# more work than cores these add up to seconds, and a retry after too short a time-out is more work.
TLS_TIMEOUT_S = TLS_HANDSHAKE_MAX_MS / 1_000

HELLO, CHALLENGE, PROOF, WELCOME = 0x7F01, 0x7F02, 0x7F03, 0x7F04

_SIZE = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class PeerName:
    """An authenticated peer. *role* is proxy, broker or checker."""

    role: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A process's part of its handshakes; ValueError if a HELLO cannot hold it.
    An empty *group_id* accepts peers of every group id; a set one refuses all others.
    """

    key: bytes
    role: str
    name: str
    group_id: str

    def __post_init__(self) -> None:
        if len(self.key) != KEY_SIZE_BYTES:
            raise ValueError(f"a cluster key has {KEY_SIZE_BYTES} bytes, this one has {len(self.key)}")
        if self.role not in ROLES:
            raise ValueError(f"'{self.role}' is not a role; one of {', '.join(sorted(ROLES))}")
        if not 0 < len(self.name.encode()) < 256 or len(self.group_id.encode()) > 255:
            raise ValueError("a node's name has 1 to 255 bytes, a group id at most 255")


@dataclass(frozen=True, slots=True)
class Answer:
    """A handshake frame to send."""

    code: int
    body: bytes


class Handshake(Protocol):
    """One side of one handshake; *peer* is set when it is over."""

    peer: PeerName | None
    # True once the other side has proved the key, even if the handshake continues.
    trusted: bool

    def opening(self) -> Answer | None:
        """The first frame of this side, if any."""

    def receive(self, frame: Frame) -> Answer | None:
        """The next frame of this side. Raises HandshakeRefused."""


class ClientHandshake:
    """The side that dials. *nonce*: 16 bytes, never used twice."""

    def __init__(self, identity: Identity, nonce: bytes) -> None:
        self.peer: PeerName | None = None
        self.trusted = False
        self._key = identity.key
        self._hello = _version() + _texts(identity.role, identity.name, identity.group_id) + _checked(nonce)
        self._server: PeerName | None = None

    def opening(self) -> Answer:
        """The HELLO."""
        return Answer(HELLO, self._hello)

    def receive(self, frame: Frame) -> Answer | None:
        """PROOF for a good CHALLENGE, then None for WELCOME. Raises HandshakeRefused."""
        if self._server is None:
            body = _expect(frame, CHALLENGE)
            fields = _Fields(body)
            fields.version()
            server = PeerName(fields.text(), fields.text())
            fields.nonce()
            challenge = body[: fields.at]
            mac = fields.rest()
            if not hmac.compare_digest(mac, _mac(self._key, b"server", self._hello, challenge)):
                raise WrongKey("the server does not have the cluster key")
            self._server = server
            self.trusted = True
            return Answer(PROOF, _mac(self._key, b"client", self._hello, challenge))
        _expect(frame, WELCOME)
        self.peer = self._server
        return None


class ServerHandshake:
    """The side that accepts. *nonce*: 16 bytes, never used twice."""

    def __init__(self, identity: Identity, nonce: bytes) -> None:
        self.peer: PeerName | None = None
        self.trusted = False
        self._key = identity.key
        self._group_id = identity.group_id
        self._challenge = _version() + _texts(identity.role, identity.name) + _checked(nonce)
        self._hello: bytes | None = None
        self._client = PeerName("", "")

    def opening(self) -> None:
        """None: a server sends no first frame."""

    def receive(self, frame: Frame) -> Answer:
        """CHALLENGE for a good HELLO, WELCOME for a good PROOF. Raises HandshakeRefused."""
        if self._hello is None:
            body = _expect(frame, HELLO)
            fields = _Fields(body)
            fields.version()
            role, name, group_id = fields.text(), fields.text(), fields.text()
            fields.nonce()
            if fields.rest() or role not in ROLES or not name:
                raise HandshakeRefused("a malformed HELLO")
            if self._group_id and group_id != self._group_id:
                raise WrongGroup("a peer of another group id")
            self._hello = body
            self._client = PeerName(role, name)
            return Answer(CHALLENGE, self._challenge + _mac(self._key, b"server", body, self._challenge))
        mac = _expect(frame, PROOF)
        if not hmac.compare_digest(mac, _mac(self._key, b"client", self._hello, self._challenge)):
            raise WrongKey("the client does not have the cluster key")
        self.trusted = True
        self.peer = self._client
        return Answer(WELCOME, b"")


class _Fields:
    """Reads a greeting's fields in order and refuses anything that does not fit."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.at = 0

    def _take(self, size: int) -> bytes:
        field = self._body[self.at : self.at + size]
        if len(field) != size:
            raise HandshakeRefused("a truncated greeting")
        self.at += size
        return field

    def version(self) -> None:
        if self._take(1)[0] != PROTOCOL_VERSION:
            raise HandshakeRefused("another protocol version")

    def text(self) -> str:
        try:
            return self._take(self._take(1)[0]).decode()
        except UnicodeDecodeError as error:
            raise HandshakeRefused("a name that is not UTF-8") from error

    def nonce(self) -> None:
        self._take(NONCE_SIZE_BYTES)

    def rest(self) -> bytes:
        return self._body[self.at :]


def _expect(frame: Frame, code: int) -> bytes:
    if frame.code != code or frame.flags or frame.remark:
        raise HandshakeRefused("not a frame of the handshake, or out of turn")
    return bytes(frame.body)


def _version() -> bytes:
    return bytes([PROTOCOL_VERSION])


def _texts(*texts: str) -> bytes:
    return b"".join(bytes([len(text.encode())]) + text.encode() for text in texts)


def _checked(nonce: bytes) -> bytes:
    if len(nonce) != NONCE_SIZE_BYTES:
        raise ValueError(f"a nonce has {NONCE_SIZE_BYTES} bytes")
    return nonce


def _mac(key: bytes, direction: bytes, hello: bytes, challenge: bytes) -> bytes:
    message = b"ternmq link\0" + direction + _SIZE.pack(len(hello)) + hello + _SIZE.pack(len(challenge)) + challenge
    return hmac.digest(key, message, "sha256")


def check_certificate(shown: PeerIdentity | None, peer: PeerName | None) -> None:
    """Raise WrongCertificate unless the greeting matches the certificate.
    All members share the key; a certificate belongs to one process. Names of proxies and checkers
    carry no rights, and many may share one certificate.
    """
    if peer is None or shown is None:
        return
    if shown.role != peer.role or (shown.role == BROKER and shown.name != peer.name):
        raise WrongCertificate("greets under another role or name than its certificate's")
