"""A producer that answers checks at once, on asyncio streams in the process of the bench.

It counts its callbacks.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from loadtest.bench.http_load import HttpError, MessageReader
from tern_wire.checks.answers import answer_signature
from tern_wire.paths import HEADER_CHECK_NONCE, HEADER_CHECK_SIGNATURE

# The secret that its producer groups must have: answers are signed with it.
CHECK_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"  # noqa: S105 - of a bench
_ANSWER = b'{"state": "commit"}'
_REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%s: %s\r\ncontent-length: %d\r\n\r\n%s"


def _reply(head: bytes) -> bytes:
    """Return the answer "commit" to the callback with *head*."""
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    headers = {name.strip().lower().decode(): value.strip().decode() for name, _, value in lines}
    nonce, transaction_id = headers[HEADER_CHECK_NONCE.lower()], headers["webhook-id"]
    signature = answer_signature(CHECK_SECRET, nonce, transaction_id, _ANSWER)
    return _REPLY % (HEADER_CHECK_SIGNATURE.encode(), signature.encode(), len(_ANSWER), _ANSWER)


class Answering:
    """`count` callbacks so far; `first_s` and `last_s` are their monotonic times."""

    def __init__(self) -> None:
        self.count = 0
        self.first_s = self.last_s = 0.0
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Yield the URL of a server that runs for the length of a block."""
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/checks"
        finally:
            server.close()

    def asked(self, count: int) -> None:
        """Count *count* callbacks."""
        self.last_s = time.monotonic()
        self.first_s = self.first_s or self.last_s
        self.count += count
        self._changed.set()

    async def until(self, count: int, within_s: float) -> None:
        """Wait for *count* callbacks; TimeoutError."""
        async with asyncio.timeout(within_s):
            while self.count < count:
                self._changed.clear()
                await self._changed.wait()


class _Connection(asyncio.Protocol):
    def __init__(self, answering: Answering) -> None:
        self._answering, self._reader = answering, MessageReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not derive from asyncio's

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        try:
            asked = self._reader.feed(data)
        except HttpError:
            self._transport.close()
            return
        if asked:
            self._answering.asked(len(asked))
            self._transport.write(b"".join(_reply(head) for head, _ in asked))
