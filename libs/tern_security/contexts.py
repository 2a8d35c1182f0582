"""TLS contexts that know roles: a peer of another cluster or role fails the handshake itself, whatever library makes it.

A `ReloadingContext` is what listeners and clients hold for ever; each new connection uses the context that is in it then. So
a certificate, its key and the trust store change together and at once, and what was trusted once can be forgotten (a live context could only learn more).
uvloop, asyncio and anyio call `wrap_bio`, http.client calls `wrap_socket`; neither looks further.
"""

import ssl
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from tern_security.peer_identity import identity_of


class TlsRefusal(StrEnum):
    """Why a handshake failed, for counters: these and no others, whatever strangers send."""

    PLAIN = "plain"  # bytes that are no TLS, or of a version that is not spoken here
    CERTIFICATE = "certificate"  # none, one of a stranger's authority, an expired one, or the peer does not trust ours
    ROLE = "role"  # a good certificate of another cluster, or of a role that has no business here
    LATE = "late"  # not over in time, or given up by the peer
    CROWDED = "crowded"  # too many handshakes under way: this one made room


_CERTIFICATE_REASONS = ("CERT", "_CA", "ACCESS_DENIED", "DECRYPT_ERROR")


class WrongPeer(ssl.SSLCertVerificationError):
    """The certificate is good, and its holder has no business here."""


class PeerCheck:
    """Whom one context talks to. *cluster* "": that of any whose authority is trusted. *roles* None: anybody, who need not show a
    certificate (the proxy's clients)."""

    def __init__(
        self, cluster: str, roles: frozenset[str] | None, *, on_refusal: Callable[[TlsRefusal], None] = lambda _: None
    ) -> None:
        self.cluster, self.roles, self._on_refusal = cluster, roles, on_refusal

    def passed(self, certificate: dict[str, Any] | None) -> None:
        """Look at the *certificate* of a peer whose handshake is done; WrongPeer."""
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
    """For everything that has an event loop."""

    def do_handshake(self) -> None:
        """As ssl's, and the check."""
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
    """For http.client."""

    def do_handshake(self, block: bool = False) -> None:
        """As ssl's, and the check."""
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
    """One generation from the files as they are now. OSError (ssl.SSLError among them) when they cannot be used together."""
    context = CheckedContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.check = check
    context.sslobject_class, context.sslsocket_class = _CheckedObject, _CheckedSocket
    context.minimum_version = minimum
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if not server_side:
        context.check_hostname = False  # peers of the mesh are known by role and name, and their addresses change
    if check.roles is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ca)
        if server_side:
            # A resumed session would skip the look at a certificate that may not be trusted any more.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
    if cert is not None:
        context.load_cert_chain(cert, key, password=_no_password)
    return context


def _no_password() -> str:
    """OpenSSL would ask the terminal for one, and a service has none."""
    raise ssl.SSLError("the key is locked with a passphrase; services take keys without one")


class ReloadingContext(ssl.SSLContext):
    """Stands for the newest generation. Whose `current` is replaced, in any thread, by `ClusterTls` alone."""

    current: CheckedContext

    def wrap_bio(self, *arguments: Any, **keywords: Any) -> ssl.SSLObject:
        """A connection of the newest generation."""
        return self.current.wrap_bio(*arguments, **keywords)

    def wrap_socket(self, *arguments: Any, **keywords: Any) -> ssl.SSLSocket:
        """A connection of the newest generation."""
        return self.current.wrap_socket(*arguments, **keywords)


def reloading(first: CheckedContext, *, server_side: bool) -> ReloadingContext:
    """A context that stands for *first* until another takes its place."""
    context = ReloadingContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    if not server_side:
        context.check_hostname = False
    context.current = first
    return context
