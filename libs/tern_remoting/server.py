"""The listening side: greets and counts links. Owner of the listening socket and accepted links.

Until its greeting is over a link belongs to a stranger. Strangers are few (`tern_accept`) and
counted apart from members, whose number is checked before a new connection costs a buffer.
"""

import asyncio
import contextlib
import errno
import logging
import secrets
import socket
import ssl

from tern_accept import OURS, Acceptor, Descriptors, Strangers
from tern_remoting.errors import PortInUse
from tern_remoting.handshake import HANDSHAKE_TIMEOUT_S, NONCE_SIZE_BYTES, TLS_TIMEOUT_S, Identity, ServerHandshake
from tern_remoting.link import Link, OnFrame, OnLost, OnReady
from tern_remoting.link_limits import CLOSE_GRACE_S
from tern_remoting.refusals import Refusal, Refusals
from tern_remoting.sockets import SILENCE_MAX_S
from tern_wire.limits import CONNECTIONS_MAX, STRANGERS_MAX

log = logging.getLogger(__name__)

# The kernel's queue of connections before accept; Linux cuts it to net.core.somaxconn.
BACKLOG = 1_024


class LinkServer:
    """Serves links on one address. *port* 0 lets the kernel choose; `port` has it after `start`.
    Peers must have *key* (32 bytes) and, if *group_id* is not empty, the same group id. *option*
    names the operator's setting for a port in use. *tls* None: no encryption; its handshake has
    *tls_timeout_s*, and the greeting its own time after that.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        key: bytes,
        name: str,
        group_id: str,
        on_frame: OnFrame,
        on_ready: OnReady | None = None,
        on_lost: OnLost | None = None,
        frame_size_max_bytes: int,
        connections_max: int = CONNECTIONS_MAX,
        strangers_max: int = STRANGERS_MAX,
        descriptors: Descriptors = OURS,
        role: str = "broker",
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
        option: str = "--port",
        silence_max_s: int = SILENCE_MAX_S,
        refusals: Refusals | None = None,
        tls: ssl.SSLContext | None = None,
        tls_timeout_s: float = TLS_TIMEOUT_S,
    ) -> None:
        """*connections_max*: of greeted peers; *strangers_max*: of all others at a time."""
        self._tls, self._tls_timeout_s = tls, tls_timeout_s
        self._host, self._port, self._option = host, port, option
        self._identity = Identity(key=key, role=role, name=name, group_id=group_id)
        self._frame = on_frame
        self._ready = on_ready
        self._lost = on_lost
        self._frame_size_max_bytes = frame_size_max_bytes
        self._connections_max = connections_max
        self._handshake_timeout_s = handshake_timeout_s
        self._silence_max_s = silence_max_s
        self._refusals = refusals or Refusals()
        self._socket: socket.socket | None = None
        self._acceptor: Acceptor | None = None
        self._strangers: Strangers[Link] = Strangers(self._crowd_out, most=strangers_max, descriptors=descriptors)
        self._members_count = 0
        # Every accepted connection in order of arrival, and the task that watches it.
        self._links: dict[Link, asyncio.Task[None]] = {}
        # Sockets with a TLS handshake under way: such a link has no transport to close yet.
        self._shaking: dict[Link, socket.socket] = {}

    @property
    def port(self) -> int:
        """The listening port."""
        return self._port

    @property
    def links(self) -> tuple[Link, ...]:
        """Open links that have passed the handshake."""
        return tuple(link for link in self._links if link.ready and not link.closed)

    def flush(self) -> None:
        """Send what was written to the links in this turn of the loop now, not at its end."""
        for link in self._links:
            link.flush()

    def refusals(self) -> dict[str, int]:
        """Connections refused or closed for their peers' behaviour, by reason."""
        return self._refusals.counts()

    async def start(self) -> None:
        """Listen. Raises PortInUse, or another OSError that names the address."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            self._socket = socket.create_server((self._host, self._port), family=family, backlog=BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(self._host, self._port, self._option) from error
            raise OSError(error.errno, f"cannot listen on {self._host}:{self._port}: {error.strerror}") from error
        self._socket.setblocking(False)
        self._port = self._socket.getsockname()[1]
        self._acceptor = Acceptor(self._socket, self._strangers, self._accept, on_lack=self._lack)

    async def stop(self) -> None:
        """Stop listening and close every link; returns when all are gone, within the closing
        grace.
        """
        if self._acceptor is not None and self._socket is not None:
            self._acceptor.close()
            self._socket.close()
            self._socket = None
        tasks = list(self._links.values())
        for link in list(self._links):
            if link.ready:
                link.close("the server stops")
            else:
                link.abort("the server stops")
                self._end_handshake(link)
        if tasks:
            await asyncio.wait(tasks)

    def _lack(self, error: OSError) -> None:
        if self._refusals.add(Refusal.DESCRIPTORS):
            log.warning("cannot accept, trying again", extra={"port": self._port, "reason": error.strerror})

    def _accept(self, sock: socket.socket) -> None:
        if self._members_count >= self._connections_max:
            sock.close()
            if self._refusals.add(Refusal.CROWDED):
                log.warning("refused a link", extra={"port": self._port, "reason": "too many connections"})
            return
        link = self._make_link()
        self._strangers.enter(link)
        self._links[link] = asyncio.get_running_loop().create_task(self._serve(link, sock))

    def _crowd_out(self, link: Link) -> None:
        """Close a stranger's link: strangers must not displace members or files."""
        link.refuse(Refusal.CROWDED, "too many connections")
        self._end_handshake(link)

    def _greeted(self, link: Link) -> None:
        self._strangers.leave(link)
        self._members_count += 1
        if self._ready is not None:
            self._ready(link)

    def _make_link(self) -> Link:
        return Link(
            ServerHandshake(self._identity, secrets.token_bytes(NONCE_SIZE_BYTES)),
            on_frame=self._frame,
            on_ready=self._greeted,
            on_lost=self._lost or _nothing,
            frame_size_max_bytes=self._frame_size_max_bytes,
            handshake_timeout_s=self._handshake_timeout_s,
            silence_max_s=self._silence_max_s,
            refusals=self._refusals,
        )

    async def _serve(self, link: Link, sock: socket.socket) -> None:
        """Watch one connection until it is gone."""
        try:
            await self._connect(link, sock)
        except OSError as error:
            self._not_connected(link, error)
            sock.close()
        else:
            await link.gone()
            if not link.ready and link.error is None and self._socket is not None:
                self._refusals.add(Refusal.UNFINISHED)
        finally:
            del self._links[link]
            self._strangers.leave(link)
            self._members_count -= link.ready

    async def _connect(self, link: Link, sock: socket.socket) -> None:
        """Pass *sock* to *link*, after a TLS handshake if configured.
        OSError, ssl.SSLError included.
        """
        loop = asyncio.get_running_loop()
        if self._tls is None:
            await loop.connect_accepted_socket(lambda: link, sock)
            return
        if link.closed:  # it had to make room before its first turn
            raise ConnectionResetError("closed before its TLS handshake")
        self._shaking[link] = sock
        try:
            await loop.connect_accepted_socket(
                lambda: link,
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=self._tls_timeout_s,
                ssl_shutdown_timeout=CLOSE_GRACE_S,
            )
        finally:
            del self._shaking[link]
        if not link.connected:
            raise ConnectionResetError("closed in its TLS handshake")

    def _not_connected(self, link: Link, error: OSError) -> None:
        facts = {"port": self._port, "reason": str(error)}
        if self._tls is None:
            log.info("a connection was gone at once", extra=facts)
        elif not link.closed:  # otherwise it was counted when it was closed
            late = Refusal.LATE if isinstance(error, ConnectionAbortedError) else Refusal.UNFINISHED
            if self._refusals.add(Refusal.TLS if isinstance(error, ssl.SSLError) else late):
                log.warning("refused a link in its TLS handshake", extra=facts)

    def _end_handshake(self, link: Link) -> None:
        sock = self._shaking.get(link)
        if sock is not None:
            with contextlib.suppress(OSError):  # the peer was faster
                sock.shutdown(socket.SHUT_RDWR)


def _nothing(link: Link, error: Exception | None = None) -> None:
    """Ignore the event."""
