"""Every TLS context of a broker node, made once: the accepted peers of each port, and the peers
that the node connects to.

     Raft port   brokers (that are members, on a link in their certificate's name)
     link port   proxies and checkers
     HTTP        every certificate of the cluster reads; brokers copy logs; the operator also
                 trims and transfers
"""

import ssl
from dataclasses import dataclass

from tern_security.peer_identity import BROKER, CHECKER, NAME_SERVER, PROXY
from tern_service.process_security import UNPROTECTED, ProcessSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTls:
    """The contexts by purpose; all None without TLS. Any thread."""

    security: ProcessSecurity = UNPROTECTED
    raft_listener: ssl.SSLContext | None = None
    raft_dialler: ssl.SSLContext | None = None
    link_listener: ssl.SSLContext | None = None
    http_listener: ssl.SSLContext | None = None
    name_servers: ssl.SSLContext | None = None
    peers_http: ssl.SSLContext | None = None

    @classmethod
    def of(cls, security: ProcessSecurity) -> "NodeTls":
        """Return the contexts of *security*."""
        return cls(
            security=security,
            raft_listener=security.server(frozenset({BROKER})),
            raft_dialler=security.client(BROKER),
            link_listener=security.server(frozenset({PROXY, CHECKER})),
            http_listener=security.server(),
            name_servers=security.client(NAME_SERVER),
            peers_http=security.client(BROKER),
        )


NO_TLS = NodeTls()
