"""The security of one process, made once at its start: protection, TLS, and the metrics of both.

Also authorization on the mesh's own HTTP (name servers, brokers, checkers): with TLS every request
has a peer of the cluster. Each may read, brokers write for themselves, and only the operator's
certificate makes an operator's changes.
"""

import logging
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.requests import Request

from tern_security.contexts import TlsRefusal
from tern_security.peer_identity import BROKER, OPERATOR, ROLES, PeerIdentity
from tern_security.tls import ClusterTls
from tern_service.protection import NOTICE_OPTIONAL, Protection
from tern_wire.errors import CertificateForbidden

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSecurity:
    """One process's security.
    *tls* None: no encryption, which `protection_of` allows on loopback only.
    """

    protection: Protection
    tls: ClusterTls | None = None

    def server(self, roles: frozenset[str] | None = ROLES) -> ssl.SSLContext | None:
        """A context for a listener whose peers have one of *roles*; None without TLS.
        One per listener. *roles* None: clients without certificates.
        """
        return None if self.tls is None else self.tls.server(roles)

    def client(self, *roles: str) -> ssl.SSLContext | None:
        """A context for connections to peers with one of *roles*; None without TLS.
        One per client.
        """
        return None if self.tls is None else self.tls.client(frozenset(roles))

    def refused(self, refusal: TlsRefusal) -> None:
        """Count a failed handshake."""
        if self.tls is not None:
            self.tls.refused(refusal)

    def announce(self) -> None:
        """Log how this process is protected, once it listens."""
        notice = self.protection.notice
        if notice:
            logger.log(logging.WARNING if self.protection.is_insecure else logging.INFO, notice)
        if self.tls is not None:
            facts = {"identity": self.tls.identity.uri, "expires_s": int(self.tls.certificate_expires_s)}
            logger.info("TLS is on", extra=facts)

    def info(self, **facts: Any) -> dict[str, Any]:
        """*facts* for /healthz, with the notice."""
        return {**facts, "notice": self.protection.notice, "insecure": self.protection.is_insecure}

    def register(self, registry: CollectorRegistry) -> None:
        """Add the metrics to *registry*."""
        registry.register(SecurityMetrics(self))


# For loopback, as in tests and `ternmq up`.
UNPROTECTED = ProcessSecurity(protection=Protection(requires_keys=False, has_tls=False, notice=NOTICE_OPTIONAL))


class SecurityMetrics(Collector):
    """`ternmq_insecure`, and with TLS the certificates' ends, reloads and refused handshakes."""

    def __init__(self, security: ProcessSecurity) -> None:
        self._security = security

    def collect(self) -> Iterable[Metric]:
        """The present values."""
        is_insecure = float(self._security.protection.is_insecure)
        yield GaugeMetricFamily("ternmq_insecure", "1 while exposed without authentication or TLS", is_insecure)
        tls = self._security.tls
        if tls is None:
            return
        yield GaugeMetricFamily(
            "ternmq_tls_certificate_expiry_timestamp_seconds", "When the certificate ends", tls.certificate_expires_s
        )
        yield GaugeMetricFamily(
            "ternmq_tls_authority_expiry_timestamp_seconds", "When the first trusted authority ends", tls.ca_expires_s
        )
        yield CounterMetricFamily("ternmq_tls_reloads", "Changes of certificate, key or trust store taken", tls.reloads)
        yield CounterMetricFamily("ternmq_tls_failed_reloads", "Changes that could not be used", tls.failed_reloads)
        refused = CounterMetricFamily("ternmq_tls_refused_handshakes", "Handshakes that failed", labels=["reason"])
        for reason, count in tls.refusals().items():
            refused.add_metric([reason], float(count))
        yield refused


def peer_of_request(request: Request) -> PeerIdentity | None:
    """The peer of *request* by certificate; None without TLS."""
    peer = getattr(request.state, "peer", None)
    return peer if isinstance(peer, PeerIdentity) else None


def require_operator(request: Request) -> None:
    """Raise CertificateForbidden unless the peer is the operator, or there is no TLS."""
    peer = peer_of_request(request)
    if peer is not None and not peer.is_operator:
        raise CertificateForbidden(required=f"the client '{OPERATOR}'")


def require_broker(request: Request, node: str) -> None:
    """Raise CertificateForbidden unless the peer is the broker *node*, or there is no TLS."""
    peer = peer_of_request(request)
    if peer is not None and (peer.role != BROKER or peer.name != node):
        raise CertificateForbidden(required=f"the broker '{node}'")
