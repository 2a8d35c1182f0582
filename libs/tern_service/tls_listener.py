"""Accepts TLS connections for uvicorn, which knows no limit of handshakes: here they have a deadline and a number.

asyncio's own server lets a peer that connects and says nothing sit in its handshake for 60 s, uncounted. Owner of the listening socket's reader,
and of every connection whose handshake is under way; then it is its protocol's, whose bounds are those of `connection.py`. Law: a stranger
costs no more than a counted refusal, and at the cap it is the oldest handshake that goes.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from tern_security.contexts import TlsRefusal
from tern_wire.limits import TLS_HANDSHAKE_MAX_MS, TLS_HANDSHAKES_MAX

logger = logging.getLogger(__name__)

# In one turn of the loop: a flood of newcomers must not starve those that are served.
ACCEPTS_PER_TURN = 16
# Descriptors come back when connections close; trying more often would only burn the loop.
ACCEPT_RETRY_S = 0.1
# What a closing connection gets for the other side's goodbye.
SHUTDOWN_MAX_S = 1.0
_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class TlsListener:
    """Listens from its making on. Looks like asyncio's server to uvicorn, which closes it. *listener*: bound, listening, not blocking."""

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        on_refusal: Callable[[TlsRefusal], None] = lambda _: None,
        handshakes_max: int = TLS_HANDSHAKES_MAX,
        handshake_max_ms: int = TLS_HANDSHAKE_MAX_MS,
    ) -> None:
        """*on_refusal*: hears of handshakes that are late or crowded out; the context counts the others itself."""
        self._listener, self._context, self._make_protocol = listener, context, make_protocol
        self._on_refusal, self._handshakes_max = on_refusal, handshakes_max
        self._handshake_max_s = handshake_max_ms / 1_000
        self._loop = asyncio.get_running_loop()
        # In order of arrival.
        self._shaking: dict[asyncio.Task[None], socket.socket] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._resume()

    @property
    def handshakes(self) -> int:
        """How many are under way."""
        return len(self._shaking)

    def close(self) -> None:
        """Accept no more, and give up handshakes that are under way. The socket stays its maker's. Safe to repeat."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        else:
            self._loop.remove_reader(self._listener.fileno())
        for sock in self._shaking.values():
            _hang_up(sock)

    async def wait_closed(self) -> None:
        """Until the last handshake is over."""
        if self._shaking:
            await asyncio.wait(list(self._shaking))

    def _resume(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    continue  # the peer gave up between connect and accept
                logger.warning("cannot accept, trying again", extra={"reason": error.strerror})
                self._loop.remove_reader(self._listener.fileno())
                self._retry = self._loop.call_later(ACCEPT_RETRY_S, self._resume)
                return
            if len(self._shaking) >= self._handshakes_max:
                oldest = next(iter(self._shaking))
                self._on_refusal(TlsRefusal.CROWDED)
                _hang_up(self._shaking.pop(oldest))
            sock.setblocking(False)
            task = self._loop.create_task(self._shake_hands(sock))
            self._shaking[task] = sock
            task.add_done_callback(lambda done: self._shaking.pop(done, None))

    async def _shake_hands(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                sock,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_max_s,
                ssl_shutdown_timeout=SHUTDOWN_MAX_S,
            )
        except OSError as error:
            # ssl.SSLError was counted where it was raised; the rest is a peer that was too slow, or went away.
            if isinstance(error, ConnectionAbortedError):
                self._on_refusal(TlsRefusal.LATE)
            sock.close()


def _hang_up(sock: socket.socket) -> None:
    """Its handshake fails at once. (Its transport cannot be reached before that is over.)"""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
