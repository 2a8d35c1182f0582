"""An answer's head waits for its body, so that both leave in one call of the kernel and one packet, and the client wakes once.

uvicorn writes them one after the other, and uvloop passes each write on at once: a quarter of the proxy's CPU time was in these two calls.

     write(head with a length) -> held          write(body) -> head and body     flush: the answer is over (HEAD has no body)
Over TLS an answer goes in pieces: OpenSSL keeps a buffer of the largest piece that it has ever encrypted for each connection, until that is closed, so a
thousand readers that took one page each held as many pages.

     write(any other head) ---------------------------------> as it is: of a stream nobody knows when its first bytes come
"""

from collections.abc import Callable
from typing import Protocol

_HEAD, _LENGTH = b"HTTP/1.1 ", b"\r\ncontent-length: "
# Four TLS records.
PIECE_SIZE_BYTES = 64 * 1024


class Writing(Protocol):
    """What is needed of a transport."""

    def write(self, data: bytes) -> None:
        """Send *data*, now or as soon as the client takes it."""

    def close(self) -> None:
        """Send what was written, then close."""

    def is_closing(self) -> bool:
        """Whether nothing more is sent."""


class HeadWithBody:
    """What the answers of one connection are written to. Owner: the connection's event loop."""

    __slots__ = ("_close", "_held", "_in_pieces", "_transport")

    def __init__(self, transport: Writing, close: Callable[[], None] | None = None, *, in_pieces: bool = False) -> None:
        """*close*: instead of the transport's, which it calls in the end. *in_pieces*: it encrypts what is written."""
        self._transport, self._close, self._in_pieces = transport, close or transport.close, in_pieces
        self._held = b""

    def write(self, data: bytes) -> None:
        """As a transport's, but that a head with a length waits for the next write, `flush` or `close`."""
        if self._held:
            data = self._held + data
            self._held = b""
        # A piece of a body that looks like a head waits no longer than until its answer is over.
        elif data.startswith(_HEAD) and _LENGTH in data:
            self._held = data
            return
        try:
            if self._in_pieces and len(data) > PIECE_SIZE_BYTES:
                for at in range(0, len(data), PIECE_SIZE_BYTES):
                    self._transport.write(data[at : at + PIECE_SIZE_BYTES])
            else:
                self._transport.write(data)
        except RuntimeError:
            # uvloop says so of a connection that was aborted, or lost, before its end has been told: nobody is there to write to.
            if not self._transport.is_closing():
                raise

    def flush(self) -> None:
        """An answer is over: what is held goes."""
        if self._held:
            held, self._held = self._held, b""
            if not self._transport.is_closing():
                self._transport.write(held)

    def close(self) -> None:
        """As a transport's."""
        self.flush()
        self._close()

    def is_closing(self) -> bool:
        """As a transport's."""
        return self._transport.is_closing()
