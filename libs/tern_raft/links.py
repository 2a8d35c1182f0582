"""Sockets between Raft peers: one live link to each, dialled by the node with the greater name.

Owner: the core loop. Law: consensus receives messages only from the other members of the group,
each under its own name, on one link at a time. The key is shared, so a name is only as good as the
holders of the key. A link that claims the name of a live peer, is dialled against the rule, or
answers for another member is closed and counted.
"""

import random
import ssl
import time
from functools import partial

from tern_raft.frames import RAFT_CODE
from tern_raft.runtime import PeerListener
from tern_remoting import ONE_WAY, Frame, Link, LinkServer, Redialer, Refusal, Refusals
from tern_remoting.handshake import HANDSHAKE_TIMEOUT_S
from tern_wire.errors import LinkBodyMalformed
from tern_wire.limits import FRAME_SIZE_MAX_BYTES, PEER_CONNECTIONS_MAX
from tern_wire.link.requests import Parts

# A peer with a message this recent is alive on its link: a leader sends five a second. Two silent
# followers count as alive for this long after they met. Later a new link wins, since the old one
# may be that of a host that vanished.
ALIVE_S = 1.0
# After a network partition a kernel waits longer and longer between retransmissions. A new link is
# faster.
SILENCE_MAX_S = 3


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
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
        listener_tls: ssl.SSLContext | None = None,
        dialler_tls: ssl.SSLContext | None = None,
    ) -> None:
        """The TLS contexts admit brokers alone; `tern_remoting` checks the name.
        None: no encryption.
        """
        self._listener_tls, self._dialler_tls = listener_tls, dialler_tls
        self._me, self._members = me, members
        self._key, self._group_id, self._listen, self._rng = key, group_id, listen, rng
        self._handshake_timeout_s = handshake_timeout_s
        self._links: dict[str, Link] = {}
        # Time of the last message on each live link.
        self._heard_at: dict[str, float] = {}
        self._redialers: list[Redialer] = []
        self._refusals = Refusals()
        self._server: LinkServer | None = None
        self._transport: PeerListener | None = None

    async def start(self, transport: PeerListener) -> None:
        """Listen, and dial every member with a smaller name."""
        self._transport = transport
        self._server = self._make_server()
        await self._server.start()
        self._redialers = [self._dial(name) for name in self._members if name < self._me]

    @property
    def port(self) -> int:
        """The listening port: the configured one, or the kernel's choice for 0."""
        return self._members[self._me][1] if self._server is None else self._server.port

    def refusals(self) -> dict[str, int]:
        """Connections refused or closed for their peers' behaviour, by reason, dialled ones
        included.
        """
        return self._refusals.counts()

    def _make_server(self) -> LinkServer:
        return LinkServer(
            self._listen,
            self._members[self._me][1],
            key=self._key,
            name=self._me,
            group_id=self._group_id,
            on_frame=self._on_frame,
            on_ready=self._accepted,
            on_lost=self._on_lost,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
            connections_max=PEER_CONNECTIONS_MAX,
            handshake_timeout_s=self._handshake_timeout_s,
            silence_max_s=SILENCE_MAX_S,
            refusals=self._refusals,
            tls=self._listener_tls,
        )

    def _dial(self, name: str) -> Redialer:
        host, port = self._members[name]
        return Redialer(
            host,
            port,
            key=self._key,
            role="broker",
            name=self._me,
            group_id=self._group_id,
            on_frame=self._on_frame,
            on_up=partial(self._dialled, name),
            on_down=self._on_lost,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
            rng=self._rng,
            silence_max_s=SILENCE_MAX_S,
            refusals=self._refusals,
            tls=self._dialler_tls,
        )

    async def stop(self) -> None:
        """Close all links and the listener."""
        for redialer in self._redialers:
            redialer.close()
        if self._server is not None:
            await self._server.stop()

    def post(self, peer: str, parts: Parts) -> bool:
        """Send one Raft message to *peer*; False if there is no link."""
        link = self._links.get(peer)
        return link is not None and link.post(RAFT_CODE, parts)

    def buffered(self, peer: str) -> int:
        """Bytes that the kernel has not taken yet."""
        link = self._links.get(peer)
        return 0 if link is None else link.buffered_bytes

    def _accepted(self, link: Link) -> None:
        peer = link.peer.name
        if link.peer.role != "broker" or peer not in self._members or peer <= self._me:
            link.refuse(Refusal.STRANGER, "no member of this broker group that dials this node")
        elif self._is_alive(peer):
            link.refuse(Refusal.SECOND, "claims the name of a peer whose link is alive")
        else:
            self._use(link)

    def _is_alive(self, peer: str) -> bool:
        link = self._links.get(peer)
        return link is not None and not link.closed and time.monotonic() - self._heard_at[peer] < ALIVE_S

    def _dialled(self, name: str, link: Link) -> None:
        if (link.peer.role, link.peer.name) != ("broker", name):
            link.refuse(Refusal.STRANGER, "answers at the address of another member")
        else:
            self._use(link)

    def _use(self, link: Link) -> None:
        peer = link.peer.name
        old = self._links.get(peer)
        self._links[peer], self._heard_at[peer] = link, time.monotonic()
        if old is not None:
            old.close("a newer link of the same peer")
            self._bound.lost(peer)
        self._bound.connected(peer)

    def _on_lost(self, link: Link, error: Exception | None = None) -> None:
        peer = link.peer.name
        if self._links.get(peer) is link:
            del self._links[peer]
            self._bound.lost(peer)

    def _on_frame(self, link: Link, frame: Frame) -> None:
        peer = link.peer.name
        if self._links.get(peer) is not link or frame.code != RAFT_CODE or frame.flags != ONE_WAY:
            link.refuse(Refusal.MALFORMED, "not a Raft message of the live link")
            return
        self._heard_at[peer] = time.monotonic()
        try:
            self._bound.receive(peer, frame.body)
        except LinkBodyMalformed as error:
            link.refuse(Refusal.MALFORMED, error.detail)

    @property
    def _bound(self) -> PeerListener:
        assert self._transport is not None
        return self._transport
