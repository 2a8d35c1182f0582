"""TLS contexts that check roles: a peer of another cluster or role fails the handshake itself.

This holds for every library that makes the handshake. Listeners and clients keep one
`ReloadingContext`; each new connection uses its current context. Certificate, key and trust store
therefore change together, and trust can be withdrawn (a live context could only add trust). uvloop,
asyncio and anyio call `wrap_bio`, http.client calls `wrap_socket`; neither uses more of it.
"""

import ssl
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from tern_security.peer_identity import identity_of


class TlsRefusal(StrEnum):
    """Fixed reasons of failed handshakes, for counters."""

    PLAIN = "plain"  # bytes that are no TLS, or an unsupported version
    CERTIFICATE = "certificate"  # none, from a foreign authority, expired, or the peer does not trust ours
    ROLE = "role"  # a good certificate of another cluster, or of a role not allowed here
    LATE = "late"  # not over in time, or given up by the peer
    CROWDED = "crowded"  # too many handshakes under way: this one made room


_CERTIFICATE_REASONS = ("CERT", "_CA", "ACCESS_DENIED", "DECRYPT_ERROR")


class WrongPeer(ssl.SSLCertVerificationError):
    """The certificate is good, but its holder is not allowed here."""


class PeerCheck:
    """The peers that one context accepts. *cluster* "": any cluster of a trusted authority.
    *roles* None: any peer, without a certificate (the proxy's clients).
    """

    def __init__(
        self, cluster: str, roles: frozenset[str] | None, *, on_refusal: Callable[[TlsRefusal], None] = lambda _: None
    ) -> None:
        self.cluster, self.roles, self._on_refusal = cluster, roles, on_refusal

    def passed(self, certificate: dict[str, Any] | None) -> None:
        """Check the *certificate* of a peer after its handshake; WrongPeer."""
        if self.roles is None:
            return
        try:
            peer = identity_of(certificate)
        except ValueError as error:
            raise WrongPeer(str(error)) from error
        if peer.cluster != (self.cluster or peer.cluster) or peer.role not in self.roles:
            raise WrongPeer(f"a {peer.role} of cluster {peer.cluster} has no business here")

    def failed(self, error: ssl.SSLError) -> None:
        """Count *error*, which ended a handshake."""
        reason = getattr(error, "reason", None) or ""
        if isinstance(error, WrongPeer):
            self._on_refusal(TlsRefusal.ROLE)
        elif isinstance(error, ssl.SSLCertVerificationError) or any(word in reason for word in _CERTIFICATE_REASONS):
            self._on_refusal(TlsRefusal.CERTIFICATE)
        elif isinstance(error, ssl.SSLEOFError):
            self._on_refusal(TlsRefusal.LATE)
        else:
            self._on_refusal(TlsRefusal.PLAIN)


class CheckedContext(ssl.SSLContext):
    """One generation: a context whose handshakes end with its `check`."""

    check: PeerCheck


class _CheckedObject(ssl.SSLObject):
    """A connection for event loops."""

    def do_handshake(self) -> None:
        """Call ssl's method, then the check."""
        check = _check_of(self)
        try:
            super().do_handshake()
            check.passed(self.getpeercert())
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            check.failed(error)
            raise


class _CheckedSocket(ssl.SSLSocket):
    """A connection for http.client."""

    def do_handshake(self, block: bool = False) -> None:
        """Call ssl's method, then the check."""
        check = _check_of(self)
        try:
            super().do_handshake(block)
            check.passed(self.getpeercert())
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            check.failed(error)
            raise


def _check_of(connection: ssl.SSLObject | ssl.SSLSocket) -> PeerCheck:
    context = connection.context
    assert isinstance(context, CheckedContext)
    return context.check


def make_context(
    *,
    server_side: bool,
    cert: Path | None,
    key: Path | None,
    ca: Path,
    check: PeerCheck,
    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> CheckedContext:
    """Make a generation from the present files.
    OSError, ssl.SSLError included, if they do not fit.
    """
    context = CheckedContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.check = check
    context.sslobject_class, context.sslsocket_class = _CheckedObject, _CheckedSocket
    context.minimum_version = minimum
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if not server_side:
        context.check_hostname = False  # peers of the mesh have roles and names, and their addresses change
    if check.roles is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ca)
        if server_side:
            # A resumed session would skip the check of a certificate that may not be trusted any
            # more.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
    if cert is not None:
        context.load_cert_chain(cert, key, password=_no_password)
    return context


def _no_password() -> str:
    """Fail where OpenSSL would prompt for a passphrase: a service has no terminal."""
    raise ssl.SSLError("the key is locked with a passphrase; services take keys without one")


class ReloadingContext(ssl.SSLContext):
    """A context that forwards to the newest generation.
    Only `ClusterTls` sets `current`, on any thread.
    """

    current: CheckedContext

    def wrap_bio(self, *arguments: Any, **keywords: Any) -> ssl.SSLObject:
        """Make a connection of the newest generation."""
        return self.current.wrap_bio(*arguments, **keywords)

    def wrap_socket(self, *arguments: Any, **keywords: Any) -> ssl.SSLSocket:
        """Make a connection of the newest generation."""
        return self.current.wrap_socket(*arguments, **keywords)


def reloading(first: CheckedContext, *, server_side: bool) -> ReloadingContext:
    """A context that forwards to *first* until `current` is replaced."""
    context = ReloadingContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    if not server_side:
        context.check_hostname = False
    context.current = first
    return context
