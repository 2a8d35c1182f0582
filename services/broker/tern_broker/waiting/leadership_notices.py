"""Notify every linked proxy and checker whether this node leads and serves, so that none has to ask
after an election.

    link opens ............ LEADERSHIP(node, term, serving)
    serving begins, ends .. the same, to all

A notice that a full link does not take is not repeated: the peer then finds the leader by a
request, as it does when a link is down.
"""

from collections.abc import Callable

from tern_remoting import Link
from tern_wire.link.heads import head_parts
from tern_wire.link.status import Leadership


class LeadershipNotices:
    """Owner: the core loop. *role* returns this node's term and whether it serves, now."""

    def __init__(self, node: str, role: Callable[[], tuple[int, bool]]) -> None:
        self._node, self._role = node, role
        self._links: dict[Link, None] = {}
        self._was_serving = False

    def opened(self, link: Link) -> None:
        """Register a link after its handshake, and notify it."""
        if link.peer.role in {"proxy", "checker"}:
            self._links[link] = None
            self._tell(link)

    def lost(self, link: Link, _: Exception | None = None) -> None:
        """Remove a closed link."""
        self._links.pop(link, None)

    def role_changed(self) -> None:
        """Notify all links if the change of this node's role concerns them."""
        _, is_serving = self._role()
        if is_serving or self._was_serving:
            self._was_serving = is_serving
            for link in self._links:
                self._tell(link)

    def _tell(self, link: Link) -> None:
        term, is_serving = self._role()
        link.post(Leadership.code, head_parts(Leadership(self._node, term, is_serving)))
