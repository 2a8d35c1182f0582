"""The dialling side: one link on demand, or one that is kept alive."""

import asyncio
import logging
import random
import secrets
import socket
import ssl
from collections.abc import Callable

from tern_remoting.credit import Room
from tern_remoting.errors import LinkError, LinkTimeout
from tern_remoting.handshake import HANDSHAKE_TIMEOUT_S, NONCE_SIZE_BYTES, TLS_TIMEOUT_S, ClientHandshake, Identity
from tern_remoting.link import Link, OnFrame, OnLost, OnReady
from tern_remoting.link_limits import BUFFERED_SIZE_MAX_BYTES, CLOSE_GRACE_S, IN_FLIGHT_MAX
from tern_remoting.refusals import Refusals
from tern_remoting.sockets import SILENCE_MAX_S
from tern_tasks import keep_running

log = logging.getLogger(__name__)

# A restarted broker is back within a second and may lead soon after: a longer pause would lengthen
# the gap, and a refused connection costs little (four to eight a second while a peer is away).
BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 0.25
# After a link of this age the next back-off starts from the shortest again.
SETTLED_S = 1.0


async def dial(
    host: str,
    port: int,
    *,
    key: bytes,
    role: str,
    name: str,
    group_id: str,
    on_frame: OnFrame,
    on_ready: OnReady | None = None,
    on_lost: OnLost | None = None,
    frame_size_max_bytes: int,
    timeout_s: float = HANDSHAKE_TIMEOUT_S,
    in_flight_max: int = IN_FLIGHT_MAX,
    buffered_size_max_bytes: int = BUFFERED_SIZE_MAX_BYTES,
    silence_max_s: int = SILENCE_MAX_S,
    refusals: Refusals | None = None,
    tls: ssl.SSLContext | None = None,
    room: Callable[[], Room] | None = None,
) -> Link:
    """Open a ready link to *host*:*port*. *tls* None: no encryption.
    *timeout_s* covers connecting and greeting together. A TLS handshake between them has
    TLS_TIMEOUT_S of its own, so a network that drops packets is noticed as soon as without TLS.
    Raises OSError (refused, or ssl.SSLError), LinkTimeout, HandshakeRefused, and ValueError for an
    identity that a HELLO cannot hold.
    """
    identity = Identity(key=key, role=role, name=name, group_id=group_id)
    link = Link(
        ClientHandshake(identity, secrets.token_bytes(NONCE_SIZE_BYTES)),
        on_frame=on_frame,
        on_ready=on_ready or _nothing,
        on_lost=on_lost or _nothing,
        frame_size_max_bytes=frame_size_max_bytes,
        handshake_timeout_s=timeout_s,
        in_flight_max=in_flight_max,
        buffered_size_max_bytes=buffered_size_max_bytes,
        silence_max_s=silence_max_s,
        refusals=refusals,
        room=room,
    )
    try:
        if tls is None:
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().create_connection(lambda: link, host, port)
                await link.greeted()
        else:
            await _connect_by_tls(link, host, port, tls, timeout_s)
    except TimeoutError as error:
        if link.ready and not link.closed:
            # A stalled loop saw readiness and timeout in one turn: requests may already be under
            # way on the link.
            return link
        link.abort("not ready in time")
        raise LinkTimeout(f"no link to {host}:{port} within {timeout_s:g} s") from error
    except BaseException:
        link.abort("dialling was given up")
        raise
    return link


async def _connect_by_tls(link: Link, host: str, port: int, tls: ssl.SSLContext, timeout_s: float) -> None:
    """Connect and greet as `dial` does. TimeoutError, OSError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        sock = await _connected_socket(host, port)
    try:
        async with asyncio.timeout(TLS_TIMEOUT_S):
            await loop.create_connection(
                lambda: link,
                sock=sock,
                ssl=tls,
                server_hostname=host,
                ssl_handshake_timeout=TLS_TIMEOUT_S,
                ssl_shutdown_timeout=CLOSE_GRACE_S,
            )
    except BaseException:
        sock.close()
        raise
    async with asyncio.timeout(timeout_s):
        await link.greeted()


async def _connected_socket(host: str, port: int) -> socket.socket:
    """Connect to the first address of *host* that accepts; the OSError of the last one."""
    loop = asyncio.get_running_loop()
    failure = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure


class Redialer:
    """Keeps one link to one address alive until `close`.
    Owner of that link and of the dialling task. Must be made in a running loop. *on_up* and
    *on_down* are `on_ready` and `on_lost` of each link, so they run before its first and after its
    last frame. *rng* spreads the attempts of many dialers.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        key: bytes,
        role: str,
        name: str,
        group_id: str,
        on_frame: OnFrame,
        on_up: OnReady | None = None,
        on_down: OnLost | None = None,
        frame_size_max_bytes: int,
        rng: random.Random,
        timeout_s: float = HANDSHAKE_TIMEOUT_S,
        silence_max_s: int = SILENCE_MAX_S,
        refusals: Refusals | None = None,
        tls: ssl.SSLContext | None = None,
        room: Callable[[], Room] | None = None,
    ) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._identity = Identity(key=key, role=role, name=name, group_id=group_id)
        self._on_frame, self._on_up, self._on_down = on_frame, on_up, on_down
        self._frame_size_max_bytes = frame_size_max_bytes
        self._rng = rng
        self._timeout_s = timeout_s
        self._silence_max_s, self._refusals, self._room = silence_max_s, refusals, room
        self._link: Link | None = None
        self._task = keep_running("redial", self._keep)

    @property
    def link(self) -> Link | None:
        """The live link, None while there is none."""
        return None if self._link is None or self._link.closed else self._link

    def close(self) -> None:
        """Stop dialling and close the link. Safe to repeat."""
        self._task.cancel()
        if self._link is not None:
            self._link.close("no longer needed")

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        backoff_s = BACKOFF_MIN_S
        failure = ""
        while True:
            try:
                link = await self._dial()
            except (OSError, LinkError) as error:
                # Once per cause, not once per attempt: a broker may be away for an hour.
                if str(error) != failure:
                    failure = str(error)
                    log.info("cannot reach a peer", extra={"address": self._address, "reason": failure})
            else:
                failure = ""
                since = loop.time()
                await link.gone()
                if loop.time() - since >= SETTLED_S:
                    backoff_s = BACKOFF_MIN_S
            await asyncio.sleep(backoff_s * self._rng.uniform(0.5, 1.0))
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    async def _dial(self) -> Link:
        return await dial(
            self._host,
            self._port,
            key=self._identity.key,
            role=self._identity.role,
            name=self._identity.name,
            group_id=self._identity.group_id,
            on_frame=self._on_frame,
            on_ready=self._up,
            on_lost=self._down,
            frame_size_max_bytes=self._frame_size_max_bytes,
            timeout_s=self._timeout_s,
            silence_max_s=self._silence_max_s,
            refusals=self._refusals,
            tls=self._tls,
            room=self._room,
        )

    @property
    def _address(self) -> str:
        return f"{self._host}:{self._port}"

    def _up(self, link: Link) -> None:
        self._link = link
        if self._on_up is not None:
            self._on_up(link)

    def _down(self, link: Link, error: Exception | None) -> None:
        if self._link is link:
            self._link = None
        if self._on_down is not None:
            self._on_down(link, error)


def _nothing(link: Link, error: Exception | None = None) -> None:
    """Ignore the event."""
