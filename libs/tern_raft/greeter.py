"""Greetings of a node without a usable log: its peers must know that it has lost its log.

The node takes no part until it has copied a peer's log, so it keeps the HTTP ports from the
greetings that it receives. Owner: the core loop.
"""

from collections.abc import Callable

from tern_raft.frames import decode_message, encode_message
from tern_raft.membership import Membership, is_hello
from tern_wire.link.requests import Parts

# The end of a missing log.
NO_LOG = (0, 0)


class Greeter:
    """Receives the events of such a node's links, in place of a PeerTransport."""

    def __init__(self, membership: Membership, post: Callable[[str, Parts], bool]) -> None:
        self._membership, self._post = membership, post
        self._http_ports: dict[str, int] = {}

    def connected(self, peer: str) -> None:
        """Greet *peer* on its new link."""
        self._post(peer, encode_message(self._membership.hello(NO_LOG)))

    def lost(self, peer: str) -> None:
        """Ignore that the link to *peer* is gone."""

    def receive(self, peer: str, body: bytes | memoryview) -> None:
        """Handle one message of *peer*; LinkBodyMalformed if it is none."""
        message = decode_message(body)
        if message["type"] == "hello" and is_hello(message) and message.get("http_port"):
            self._http_ports[peer] = message["http_port"]

    def http_port_of(self, peer: str) -> int:
        """The HTTP port from *peer*'s latest greeting; 0 if there is none."""
        return self._http_ports.get(peer, 0)
