"""Sockets between Raft peers: one live link to each, dialled by the node with the greater name. Owner: the core loop."""

import logging
import random

from tern_raft.frames import RAFT_CODE
from tern_raft.transport import PeerTransport
from tern_remoting import Frame, Link, LinkServer, Redialer
from tern_wire.errors import LinkBodyMalformed
from tern_wire.limits import FRAME_SIZE_MAX_BYTES
from tern_wire.requests import Parts

log = logging.getLogger(__name__)
# Members of a group and a few reconnects in progress.
CONNECTIONS_MAX = 32


class PeerLinks:
    """Links of one node to the other members of its group."""

    def __init__(
        self,
        me: str,
        members: dict[str, tuple[str, int]],
        *,
        key: bytes,
        group_id: str,
        listen: str,
        rng: random.Random,
    ) -> None:
        self._me, self._members = me, members
        self._key, self._group_id, self._listen, self._rng = key, group_id, listen, rng
        self._links: dict[str, Link] = {}
        self._redialers: list[Redialer] = []
        self._server: LinkServer | None = None
        self._transport: PeerTransport | None = None

    async def start(self, transport: PeerTransport) -> None:
        """Listen, and dial every member with a smaller name."""
        self._transport = transport
        self._server = LinkServer(
            self._listen,
            self._members[self._me][1],
            key=self._key,
            name=self._me,
            group_id=self._group_id,
            on_frame=self._on_frame,
            on_ready=self._on_ready,
            on_lost=self._on_lost,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
            connections_max=CONNECTIONS_MAX,
        )
        await self._server.start()
        for name, (host, port) in self._members.items():
            if name < self._me:
                self._redialers.append(self._dial(host, port))

    def _dial(self, host: str, port: int) -> Redialer:
        return Redialer(
            host,
            port,
            key=self._key,
            role="broker",
            name=self._me,
            group_id=self._group_id,
            on_frame=self._on_frame,
            on_up=self._on_ready,
            on_down=self._on_lost,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
            rng=self._rng,
        )

    async def stop(self) -> None:
        """Close everything."""
        for redialer in self._redialers:
            redialer.close()
        if self._server is not None:
            await self._server.stop()

    def post(self, peer: str, parts: Parts) -> bool:
        """Send one Raft message to *peer*; False when there is no link."""
        link = self._links.get(peer)
        return link is not None and link.post(RAFT_CODE, parts)

    def buffered(self, peer: str) -> int:
        """Bytes not yet taken by the kernel."""
        link = self._links.get(peer)
        return 0 if link is None else link.buffered_bytes

    def _on_ready(self, link: Link) -> None:
        peer = link.peer.name
        if link.peer.role != "broker" or peer not in self._members or peer == self._me:
            link.close("not a member of this broker group")
            return
        old = self._links.get(peer)
        self._links[peer] = link
        if old is not None:
            old.close("a newer link of the same peer")
            self._bound.lost(peer)
        self._bound.connected(peer)

    def _on_lost(self, link: Link, error: Exception | None = None) -> None:
        peer = link.peer.name if link.peer is not None else ""
        if self._links.get(peer) is link:
            del self._links[peer]
            self._bound.lost(peer)

    def _on_frame(self, link: Link, frame: Frame) -> None:
        if frame.code != RAFT_CODE or self._links.get(link.peer.name) is not link:
            link.close("not a Raft message of the live link")
            return
        try:
            self._bound.receive(link.peer.name, frame.body)
        except LinkBodyMalformed as error:
            log.warning("closed a peer's link", extra={"peer": link.peer.name, "reason": error.detail})
            link.close("malformed Raft message")

    @property
    def _bound(self) -> PeerTransport:
        assert self._transport is not None
        return self._transport
