"""Frames written to one link in a turn of the loop, sent together at its end. Owner: that link."""

import asyncio
from collections.abc import Callable

from tern_remoting.frames import Buffer
from tern_remoting.link_limits import JOIN_SIZE_MAX_BYTES


class Outbox:
    """Buffers for the transport, set by `open`.
    *flushed*: called when the transport has received them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, flushed: Callable[[], None]) -> None:
        self._loop, self._flushed = loop, flushed
        self._transport: asyncio.Transport | None = None
        self._is_tls = False
        self._out: list[Buffer] = []
        self._size_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._size_bytes + (0 if self._transport is None else self._transport.get_write_buffer_size())

    def open(self, transport: asyncio.Transport, *, is_tls: bool) -> None:
        """Set the transport."""
        self._transport, self._is_tls = transport, is_tls

    def write(self, buffers: list[Buffer], size_bytes: int) -> None:
        """Queue *buffers* for the end of this turn; they must not change until then."""
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out += buffers
        self._size_bytes += size_bytes

    def flush(self) -> None:
        """Send the queued buffers now."""
        if self._send():
            self._flushed()

    def flush_early(self) -> None:
        """Send them before the end of the turn. *flushed* is called in the next one: the caller is
        in the middle of something, and reads that begin then must not see it half done.
        """
        if self._send():
            self._loop.call_soon(self._flushed)

    def _send(self) -> bool:
        out, size_bytes = self._out, self._size_bytes
        if not out or self._transport is None:
            return False
        self.clear()
        # Each buffer of a vector would become a TLS record of its own, however small.
        if size_bytes <= JOIN_SIZE_MAX_BYTES or self._is_tls:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        return True

    def clear(self) -> None:
        """Drop the queued buffers."""
        self._out = []
        self._size_bytes = 0
