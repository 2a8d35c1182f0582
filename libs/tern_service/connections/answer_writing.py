"""Head and body of an answer in one write: one system call, one packet, one wake-up of the client.

uvicorn writes them one after the other, and uvloop passes each write on at once: these two calls
took a quarter of the proxy's CPU time.
 write(head with a length) -> held          write(body) -> head and body
                                            flush: the answer is over (HEAD has no body)
 write(any other head) ---> unchanged: the time of a stream's first bytes is unknown
A large body stays as it is, bytes or a view, and leaves with its head in one vector: a copy of a
page of 4 MiB costs as much as its system call.
Over TLS an answer is written in pieces: OpenSSL keeps a buffer of the largest piece that it has
ever encrypted on each connection until that is closed, so a thousand readers of one page each held
as many pages.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

_HEAD, _LENGTH = b"HTTP/1.1 ", b"\r\ncontent-length: "
# Four TLS records.
PIECE_SIZE_BYTES = 64 * 1024
# Up to this size one joined write is cheaper than a vector.
JOIN_SIZE_MAX_BYTES = 64 * 1024
Data = bytes | memoryview


class Writing(Protocol):
    """The methods used of a transport."""

    def write(self, data: Data) -> None:
        """Send *data*, now or as soon as the client takes it."""

    def writelines(self, parts: Sequence[Data]) -> None:
        """Send *parts*, as `write` does; they must not change any more."""

    def close(self) -> None:
        """Send everything written, then close."""

    def is_closing(self) -> bool:
        """Whether nothing more is sent."""


class HeadWithBody:
    """The output of one connection's answers. Owner: the connection's event loop."""

    __slots__ = ("_close", "_held", "_in_pieces", "_transport")

    def __init__(self, transport: Writing, close: Callable[[], None] | None = None, *, in_pieces: bool = False) -> None:
        """*close*: called instead of the transport's. *in_pieces*: the transport encrypts."""
        self._transport, self._close, self._in_pieces = transport, close or transport.close, in_pieces
        self._held = b""

    def write(self, data: Data) -> None:
        """Write *data*; a head with a length waits for the next write, `flush` or `close`.

        A view must not change any more.
        """
        head, self._held = self._held, b""
        # A piece of a body that looks like a head waits until its answer is over at the latest.
        if not head and isinstance(data, bytes) and data.startswith(_HEAD) and _LENGTH in data:
            self._held = data
            return
        self.write_both(head, data)

    def write_both(self, head: bytes, data: Data) -> None:
        """Write *head* (may be empty) and *data*, now."""
        try:
            if len(data) <= JOIN_SIZE_MAX_BYTES:
                self._transport.write(head + data if head else data)
            elif self._in_pieces:
                self._write_pieces(head, memoryview(data))
            elif head:
                self._transport.writelines((head, data))
            else:
                self._transport.write(data)
        except RuntimeError:
            # Raised by uvloop for an aborted or lost connection before connection_lost: there is no
            # client.
            if not self._transport.is_closing():
                raise

    def _write_pieces(self, head: bytes, data: memoryview) -> None:
        first = max(0, PIECE_SIZE_BYTES - len(head))
        self._transport.write(head + data[:first])
        for at in range(first, len(data), PIECE_SIZE_BYTES):
            self._transport.write(data[at : at + PIECE_SIZE_BYTES])

    def flush(self) -> None:
        """Write a held head: the answer is over."""
        if self._held:
            held, self._held = self._held, b""
            if not self._transport.is_closing():
                self._transport.write(held)

    def close(self) -> None:
        """Flush, then close."""
        self.flush()
        self._close()

    def is_closing(self) -> bool:
        """Forward to the transport."""
        return self._transport.is_closing()
