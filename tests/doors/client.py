"""Where the clients of a run of doors find the mesh, and one connection of theirs: raw HTTP/1.1, so that a thousand cost little."""

import asyncio
import ssl
from dataclasses import dataclass

LINE_LIMIT_BYTES = 1 << 23
PATIENCE_S = 45.0
# An answer that says when to come again.
LATER = "later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A proxy. *cafile* "": in the clear; *key*: who asks, "" for nobody. *queue* is where the large messages of *backlog* are."""

    port: int
    cafile: str = ""
    key: str = ""
    backlog: str = ""
    queue: str = ""

    def context(self) -> ssl.SSLContext | None:
        """What a connection trusts."""
        return ssl.create_default_context(cafile=self.cafile) if self.cafile else None

    def head(self, method: str, path: str, size_bytes: int, more: str = "") -> bytes:
        """The head of a request whose body has so many bytes."""
        who = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{who}{more}Content-Length: {size_bytes}\r\n\r\n".encode()


class Connection:
    """One request at a time. Dials when it must, and again after whatever broke it."""

    def __init__(self, door: Door, context: ssl.SSLContext | None) -> None:
        self._door, self._context = door, context
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection, made if there is none. OSError."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(
                "127.0.0.1", self._door.port, ssl=self._context, limit=LINE_LIMIT_BYTES
            )
        return self._streams

    async def ask(self, method: str, path: str, body: bytes = b"", more: str = "") -> tuple[int, bytes]:
        """Status and body of the answer. OSError, TimeoutError and asyncio.IncompleteReadError when there is none."""
        reader, writer = await self.open()
        try:
            writer.write(self._door.head(method, path, len(body), more) + body)
            async with asyncio.timeout(PATIENCE_S):
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0
                )
                answer = await reader.readexactly(length)
            if b"connection: close" in head:
                self.close()
            return int(head.split(b" ", 2)[1]), answer
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """The next request dials."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def kind_of(status: int, answer: bytes) -> str:
    """How an answer counts: by its status, or LATER if it says when to come again."""
    return LATER if status in {429, 503} and b"retry_after_ms" in answer else str(status)
