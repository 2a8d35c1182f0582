"""HTTP for a chaos run: one connection, every request under a deadline, opened again after whatever went wrong."""

import asyncio
import json
from typing import Any

from loadtest.bench.http_load import HttpConnection, HttpError

# What nobody answers in this time counts as not answered; the outcome is unknown.
DEADLINE_S = 10.0
NO_ANSWER = 0


class Client:
    """One address. Owner: one task, which awaits each reply before it asks again."""

    __slots__ = ("_connection", "host", "port")

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._connection: HttpConnection | None = None

    async def ask(
        self, method: str, path: str, headers: bytes = b"", body: bytes = b"", *, within_s: float = DEADLINE_S
    ) -> tuple[int, bytes]:
        """Status and body; status 0 when nobody answered in time or the connection ended: the outcome is unknown."""
        try:
            async with asyncio.timeout(within_s):
                if self._connection is None or self._connection.closed:
                    self._connection = await HttpConnection.open(self.host, self.port)
                return await self._connection.request(method, path, headers, body)
        except (OSError, HttpError, TimeoutError) as error:
            self.close()
            return NO_ANSWER, repr(error).encode()

    async def ask_json(
        self, method: str, path: str, document: Any = None, *, within_s: float = DEADLINE_S
    ) -> tuple[int, Any]:
        """As ask, with documents; {} for an answer that is none."""
        body = b"" if document is None else json.dumps(document).encode()
        status, answer = await self.ask(method, path, b"content-type: application/json\r\n", body, within_s=within_s)
        try:
            return status, json.loads(answer)
        except ValueError:
            return status, {}

    def close(self) -> None:
        """The next request opens a new connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


async def pause(seconds: float) -> None:
    """Let so much time go by while the load runs: the length of a fault, not a guess how long something takes."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left_s := until - loop.time()) > 0:
        await asyncio.sleep(min(left_s, 0.05))
