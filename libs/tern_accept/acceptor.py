"""Accepts the connections of one listening socket.

Owner of its reader in the loop, not of the socket. The accept loop is ours: at EMFILE asyncio
reports an error for each try, and uvloop can close its listener for good. Here a lack of
descriptors costs the oldest stranger its connection, and a pause.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

from tern_accept.strangers import Strangers

# Per turn of the loop, so that a flood of connections cannot starve those that are served.
ACCEPTS_PER_TURN = 16
# Descriptors come back when connections close; more frequent tries would only burn the loop.
ACCEPT_RETRY_S = 0.1
_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Made by a port when it listens. *listener*: bound, listening, not blocking.
    *on_accept* receives each connection, not blocking, and enters it among *strangers* or closes
    it. *on_lack* receives the error when none could be accepted.
    """

    def __init__(
        self,
        listener: socket.socket,
        strangers: Strangers[Any],
        on_accept: Callable[[socket.socket], None],
        *,
        on_lack: Callable[[OSError], None],
    ) -> None:
        self._listener, self._strangers, self._on_accept, self._on_lack = listener, strangers, on_accept, on_lack
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._resume()

    def close(self) -> None:
        """Stop accepting, before the socket is closed. Safe to repeat."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        else:
            self._loop.remove_reader(self._listener.fileno())

    def _resume(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _pause(self, wait_s: float) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._retry = self._loop.call_later(wait_s, self._resume)

    def _accept(self) -> None:
        strangers = self._strangers
        for _ in range(ACCEPTS_PER_TURN):
            wait_s = strangers.wait_s()
            if wait_s:
                self._pause(wait_s)
                return
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    continue  # the peer gave up between connect and accept; the next one may be fine
                self._on_lack(error)
                strangers.close_oldest()
                self._pause(ACCEPT_RETRY_S)
                return
            sock.setblocking(False)
            makes_room = strangers.is_full()
            self._on_accept(sock)
            if makes_room or self._is_closed:
                return  # a closed connection returns its descriptor in the loop's next turn
