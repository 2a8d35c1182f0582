"""A node without a log that it may use greets its peers all the same: that it has lost what it had is something they must know.

It keeps of what it hears where its peers answer HTTP, for it has to copy the log of one: until it has, it takes no part. Owner: the core loop.
"""

from collections.abc import Callable

from tern_raft.frames import decode_message, encode_message
from tern_raft.membership import Membership, is_hello
from tern_wire.link.requests import Parts

# Where a log ends that is not there.
NO_LOG = (0, 0)


class Greeter:
    """What the links of such a node report to, as to a PeerTransport."""

    def __init__(self, membership: Membership, post: Callable[[str, Parts], bool]) -> None:
        self._membership, self._post = membership, post
        self._http_ports: dict[str, int] = {}

    def connected(self, peer: str) -> None:
        """A link to *peer* is up."""
        self._post(peer, encode_message(self._membership.hello(NO_LOG)))

    def lost(self, peer: str) -> None:
        """The link to *peer* is gone."""

    def receive(self, peer: str, body: bytes | memoryview) -> None:
        """One message of *peer*; LinkBodyMalformed when it is none."""
        message = decode_message(body)
        if message["type"] == "hello" and is_hello(message) and message.get("http_port"):
            self._http_ports[peer] = message["http_port"]

    def http_port_of(self, peer: str) -> int:
        """Where *peer* has said that it answers HTTP, on whatever link; 0 if it has not."""
        return self._http_ports.get(peer, 0)
