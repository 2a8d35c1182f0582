"""An httpx transport to an application that takes requests whole, as a connection of the server does: what is not
taken goes through ASGI."""

import asyncio
from typing import Any, cast

import httpx
from starlette.types import Scope

from tern_service.connections.table import ConnectionTable
from tern_service.connections.whole_exchange import Connection, WholeExchange


class _Answers:
    """The output of one exchange."""

    def __init__(self) -> None:
        self.written: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def write_both(self, head: bytes, body: bytes | memoryview) -> None:
        """The whole answer."""
        self.written.set_result(head + bytes(body))

    def close(self) -> None:
        """The head has said it."""


class LoneConnection:
    """A connection of one request. `answers` None: its client is gone."""

    def __init__(self) -> None:
        self.tasks: set[Any] = set()
        self.answers: _Answers | None = _Answers()
        self.default_headers: list[tuple[bytes, bytes]] = []
        self.loop = asyncio.get_running_loop()
        self.written = self.answers.written

    def on_response_complete(self) -> None:
        """There is no next request."""


class WholeTransport(httpx.AsyncBaseTransport):
    """*app*: as `build_app` makes it."""

    def __init__(self, app: Any, client: tuple[str, int] = ("127.0.0.1", 123)) -> None:
        self._app, self._client = app, client
        self._asgi = httpx.ASGITransport(app=app, client=client)
        # Requests that were answered without ASGI.
        self.taken = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """httpx calls this."""
        body = await request.aread()
        raw_path, _, query = request.url.raw_path.partition(b"?")
        if request.method == "POST" and self._app.may_take(request.url.raw_path):
            connection = LoneConnection()
            exchange = WholeExchange(
                cast(Connection, connection), ConnectionTable(), self._scope(request, raw_path, query), keep_alive=True
            )
            exchange.body = body
            if exchange.begin(self._app):
                self.taken += 1
                try:
                    return _response(await connection.written)
                finally:  # also when the client goes away
                    connection.answers = None
        return await self._asgi.handle_async_request(request)

    def _scope(self, request: httpx.Request, raw_path: bytes, query: bytes) -> Scope:
        return {
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": raw_path,
            "query_string": query,
            "server": (request.url.host, request.url.port),
            "client": self._client,
            "root_path": "",
        }


def _response(answer: bytes) -> httpx.Response:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *fields = head.split(b"\r\n")
    headers = [(name, value) for name, _, value in (field.partition(b": ") for field in fields)]
    return httpx.Response(int(status.split(b" ")[1]), headers=headers, content=body)
