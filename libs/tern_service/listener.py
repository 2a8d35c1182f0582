"""Accepts connections for uvicorn and limits strangers, with TLS and without.

A connection is a stranger until its TLS handshake is over and its first head is complete. asyncio's
own server leaves a silent peer in its handshake for 60 s, uncounted. Owner of every connection
until it has a transport; then its protocol is, with the limits of `connections/connection.py`. Law:
a stranger costs at most a counted refusal, and at the cap the oldest stranger is closed.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from tern_accept import OURS, Acceptor, Descriptors, Strangers
from tern_security.contexts import TlsRefusal
from tern_service.connections.bounds import Bounds

logger = logging.getLogger(__name__)

# Time for the other side's closing message.
SHUTDOWN_MAX_S = 1.0


# Makes a protocol, given the callback for its peer's first head.
MakeProtocol: TypeAlias = Callable[[Callable[[], None]], asyncio.Protocol]


class Listener:
    """Listens from construction on; uvicorn closes it like asyncio's server.
    *listener*: a ready socket. It is bound, listening, not blocking.
    """

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: MakeProtocol,
        *,
        context: ssl.SSLContext | None = None,
        on_refusal: Callable[[TlsRefusal], None] = lambda _: None,
        bounds: Bounds | None = None,
        descriptors: Descriptors = OURS,
    ) -> None:
        """*make_protocol* receives the callback for a complete head or the end.
        *context* None: plain HTTP. *on_refusal* receives late handshakes and displaced strangers;
        the context counts the others itself.
        """
        bounds = bounds or Bounds()
        self._context, self._make_protocol, self._on_refusal = context, make_protocol, on_refusal
        self._handshake_max_s = bounds.handshake_max_ms / 1_000
        self._loop = asyncio.get_running_loop()
        self._strangers: Strangers[socket.socket] = Strangers(
            self._crowd_out,
            most=bounds.strangers_max,
            descriptors=descriptors,
        )
        # Connections without a transport yet.
        self._connecting: dict[asyncio.Task[None], socket.socket] = {}
        self._acceptor = Acceptor(listener, self._strangers, self._accept, on_lack=self._lack)

    @property
    def strangers(self) -> int:
        """Number of strangers."""
        return len(self._strangers)

    def close(self) -> None:
        """Stop accepting and end handshakes under way. The maker closes the socket.
        Safe to repeat.
        """
        self._acceptor.close()
        for sock in self._connecting.values():
            _hang_up(sock)

    async def wait_closed(self) -> None:
        """Wait until the last handshake is over."""
        if self._connecting:
            await asyncio.wait(list(self._connecting))

    def _accept(self, sock: socket.socket) -> None:
        self._strangers.enter(sock)
        task = self._loop.create_task(self._connect(sock))
        self._connecting[task] = sock
        task.add_done_callback(lambda done: self._connecting.pop(done, None))

    def _lack(self, error: OSError) -> None:
        logger.warning("cannot accept, trying again", extra={"reason": error.strerror})

    def _crowd_out(self, sock: socket.socket) -> None:
        self._on_refusal(TlsRefusal.CROWDED)
        _hang_up(sock)

    async def _connect(self, sock: socket.socket) -> None:
        """Pass *sock* to a protocol, after a TLS handshake if configured."""
        make = partial(self._make_protocol, partial(self._strangers.leave, sock))
        is_given = False
        try:
            if self._context is None:
                await self._loop.connect_accepted_socket(make, sock)
            else:
                await self._loop.connect_accepted_socket(
                    make,
                    sock,
                    ssl=self._context,
                    ssl_handshake_timeout=self._handshake_max_s,
                    ssl_shutdown_timeout=SHUTDOWN_MAX_S,
                )
            is_given = True
        except OSError as error:
            # ssl.SSLError was counted where it was raised; the rest is a peer that was too slow, or
            # left.
            if isinstance(error, ConnectionAbortedError):
                self._on_refusal(TlsRefusal.LATE)
        finally:
            if not is_given:
                self._strangers.leave(sock)
                sock.close()


def _hang_up(sock: socket.socket) -> None:
    """Shut the socket down: its handshake fails at once, or its transport reads an end.
    A transport is not accessible before the handshake is over.
    """
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
