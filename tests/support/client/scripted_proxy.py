"""A proxy that answers what a test tells it: raw asyncio, real sockets. It keeps every request it got."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tern_wire.errors import TernError
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.paths import JSON, MSGPACK, PROBLEM


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it arrived; header names are lower case, repeated ones are joined by a newline."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The body, from MessagePack or JSON."""
        return decode_msgpack(self.body) if self.headers.get("content-type") == MSGPACK else json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What to answer. `hang_up` closes without a word; `silent` never answers; `chunks` sends the body in chunks."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": JSON})
    hang_up: bool = False
    silent: bool = False
    chunked: bool = False


def packed(document: Any, status: int = 200) -> Reply:
    """A MessagePack answer."""
    return Reply(status=status, body=encode_msgpack(document), headers={"Content-Type": MSGPACK})


def said(document: Any, status: int = 200, **headers: str) -> Reply:
    """A JSON answer."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, body=json.dumps(document).encode(), headers={"Content-Type": JSON, **fields})


def refused(error: TernError, **headers: str) -> Reply:
    """A problem document."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps(error.problem()).encode()
    return Reply(status=error.status, body=body, headers={"Content-Type": PROBLEM, **fields})


HANG_UP = Reply(hang_up=True)
SILENT = Reply(silent=True)
# A coroutine is a long poll: it is cancelled when its client hangs up.
Answer = Callable[[Asked], Reply | Awaitable[Reply]]


class ScriptedProxy:
    """Answers with the replies of *script* in order, then with *answer*. Owns its listener."""

    def __init__(self, *script: Reply, answer: Answer | None = None) -> None:
        self.script = list(script)
        self.answer = answer
        self.asked: list[Asked] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server
        self._server.close()
        self.drop_connections()
        await self._server.wait_closed()
        while self._writers:
            await asyncio.sleep(0)

    def drop_connections(self) -> None:
        """Cut every connection, idle ones too."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                asked = await _read(reader)
                self.asked.append(asked)
                found = self.script.pop(0) if self.script else self.answer(asked) if self.answer else Reply(status=500)
                reply = found if isinstance(found, Reply) else await _while_connected(found, reader)
                if reply.hang_up:
                    return
                if reply.silent:
                    await reader.read()
                    return
                writer.write(_bytes(reply))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()


async def _while_connected(poll: Awaitable[Reply], reader: asyncio.StreamReader) -> Reply:
    """The answer of *poll*; of a client that has gone, a hang-up."""
    waiting, gone = asyncio.ensure_future(poll), asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else HANG_UP
    finally:
        waiting.cancel()
        gone.cancel()
        await asyncio.wait({waiting, gone})


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        known = headers.get(name.lower())
        headers[name.lower()] = f"{known}\n{value.strip()}" if known else value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method=method, path=path, headers=headers, body=body)


def _bytes(reply: Reply) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in reply.headers.items())]
    if reply.chunked:
        middle = len(reply.body) // 2
        parts = [reply.body[:middle], reply.body[middle:], b""]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part or part is parts[-1])
        lines.append("Transfer-Encoding: chunked")
    else:
        body = reply.body
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def blocking_proxy(answer: Answer) -> Iterator[ScriptedProxy]:
    """A scripted proxy in a thread of its own, for commands that block."""
    made = ScriptedProxy(answer=answer)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result(10)
    try:
        yield made
    finally:
        asyncio.run_coroutine_threadsafe(made.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
