"""A producer's HTTP server for tests of the checker: it answers checks as it is told, keeps what it got, and can misbehave in every way.

A server of its own and not uvicorn: half of what it must do, no server would.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tern_wire.checks.answers import answer_signature
from tern_wire.paths import HEADER_CHECK_NONCE, HEADER_CHECK_SIGNATURE

# What producer groups of tests sign with.
SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The CloudEvent."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    def signature(self, body: bytes, secret: str = SECRET) -> list[str]:
        """The header line that signs *body* as the answer to this, none without a *secret* or when this is no check."""
        nonce = self.headers.get(HEADER_CHECK_NONCE.lower())
        if not secret or nonce is None:
            return []
        return [f"{HEADER_CHECK_SIGNATURE}: {answer_signature(secret, nonce, self.headers['webhook-id'], body)}"]


# Writes an answer, or does not; True: the connection stays.
Behaviour = Callable[[Asked, asyncio.StreamWriter], Awaitable[bool]]


def says(state: str, secret: str = SECRET) -> Behaviour:
    """200 with a verdict, signed with *secret*."""
    return answers(200, json.dumps({"state": state}).encode(), secret=secret)


def answers(status: int, body: bytes = b"", *head: str, secret: str = SECRET) -> Behaviour:
    """Any answer; *head*: more header lines. A check's is signed with *secret*, "" for not at all."""

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        lines = [f"HTTP/1.1 {status} Any", f"Content-Length: {len(body)}", *head, *asked.signature(body, secret)]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return True

    return behave


def sends(data: bytes, *, closes: bool = True, signed: bytes | None = None) -> Behaviour:
    """These very bytes; with *signed*, a body, its signature behind their first line."""

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        first, _, rest = data.partition(b"\r\n")
        head = [] if signed is None else [line.encode() for line in asked.signature(signed)]
        writer.write(b"\r\n".join((first, *head, rest)) if head else data)
        return not closes

    return behave


async def hangs(_: Asked, __: asyncio.StreamWriter) -> bool:
    """No answer, ever."""
    await asyncio.Event().wait()
    return False


class ScriptedProducer:
    """Listens on a free port of *host* from `start` to `stop`. `behaviour` may be changed at any time."""

    def __init__(self, behaviour: Behaviour, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.behaviour = behaviour
        self.asked: list[Asked] = []
        self.connections = self.under_way = self.most_under_way = 0
        self.port = 0
        self._host, self._tls = host, tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> "ScriptedProducer":
        """Listen."""
        self._server = await asyncio.start_server(self._serve, self._host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Close everything."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"{'https' if self._tls else 'http'}://{self._host}:{self.port}/checks?by=tern"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass  # the checker hung up, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head[:-4].split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(method, path, headers, body)
        self.asked.append(asked)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            stays = await self.behaviour(asked, writer)
            await writer.drain()
        finally:
            self.under_way -= 1
        return stays
