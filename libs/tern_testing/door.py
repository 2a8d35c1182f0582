"""The door of a TestMesh, by which requests of the SDK and of HTTP clients reach the proxy's code.

    SDK --MeshTransport--> Door --ASGI--> application of tern_proxy
    HTTP --tern_service---->

Law: a request that has begun runs to its end, whoever waits for it. A client that goes away is told
to the application as a closed connection, as the real server does.
"""

import asyncio
from collections import deque
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tern_client.transport.exchange import Request, Response
from tern_proxy.routes.table import ROUTES, RouteTable
from tern_service.problems import problem_reply
from tern_testing.faults import Fault, Faults
from tern_testing.virtual_loop import VirtualLoop
from tern_wire.errors import TernError


class ConnectionLost(Exception):
    """The fault that a test asked for: no answer comes."""


class Door:
    """Owner: the mesh, on *loop*. Counts the answers that it has given: time waits for who gets
    one.
    """

    def __init__(self, app: ASGIApp, loop: VirtualLoop) -> None:
        self._app, self._loop = app, loop
        self._table = RouteTable()
        self.faults = Faults(frozenset(route.id for route in ROUTES))
        # Requests so far, answers so far, and requests without an answer.
        self.begun = self.answered = self.under_way = 0
        # Requests whose clients have gone away.
        self._orphans: set[asyncio.Task[Response]] = set()

    async def answer(self, request: Request) -> Response:
        """The answer to one request of the SDK. ConnectionLost."""
        path, _, query = request.path.partition("?")
        fault = self._fault(request.method, path)
        self.begun += 1
        if fault is not None and (fault.error is not None or not fault.is_done):
            self._told()
            if fault.error is None:
                raise ConnectionLost
            return _refusal(fault.error, path)
        exchange = _Exchange(request, path, query)
        working = self._loop.create_task(self._handle(exchange))
        try:
            response = await asyncio.shield(working)
        except asyncio.CancelledError:
            exchange.hang_up()
            self._orphans.add(working)
            working.add_done_callback(self._orphans.discard)
            raise
        if fault is not None:
            raise ConnectionLost
        return response

    async def inside(self, request: Request) -> Response:
        """The answer to a question of the mesh itself: without faults, and not counted."""
        path, _, query = request.path.partition("?")
        self.under_way += 1
        try:
            return await _Exchange(request, path, query).run(self._app)
        finally:
            self.under_way -= 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request that came by HTTP. The mesh, not the server, starts the proxy."""
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        fault = self._fault(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if fault is not None:
            status, headers, body = problem_reply(fault.error or TernError(), instance=scope["path"])
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        # Time may creep while a request is handled, but not while its body is on its way.
        whole = await _whole(receive)
        self.begun += 1
        self.under_way += 1
        try:
            await self._app(scope, whole, send)
        finally:
            self._answered()

    async def _handle(self, exchange: "_Exchange") -> Response:
        self.under_way += 1
        try:
            return await exchange.run(self._app)
        finally:
            self._answered()

    def _answered(self) -> None:
        self.under_way -= 1
        self._told()

    def _told(self) -> None:
        self.answered += 1
        self._loop.hold()

    def _fault(self, method: str, path: str) -> Fault | None:
        found = self._table.find(method, path)
        return self.faults.meet(found[0].id if found is not None else "")


class _Exchange:
    """One request as ASGI sees it."""

    def __init__(self, request: Request, path: str, query: str) -> None:
        self._scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [
                *((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers),
                (b"host", b"mesh"),
                (b"content-length", b"%d" % len(request.body)),
            ],
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "server": ("mesh", 80),
            "client": ("127.0.0.1", 1),
            "root_path": "",
            "state": {},
        }
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._inbox.put_nowait({"type": "http.request", "body": request.body, "more_body": False})
        self._status, self._body = 0, bytearray()
        self._headers: dict[str, str] = {}

    async def run(self, app: ASGIApp) -> Response:
        """The application's answer."""
        await app(self._scope, self._inbox.get, self._send)
        return Response(self._status or 499, self._headers, bytes(self._body))

    def hang_up(self) -> None:
        """The client closes its connection."""
        self._inbox.put_nowait({"type": "http.disconnect"})

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
        else:
            self._body += message.get("body", b"")


async def _whole(receive: Receive) -> Receive:
    """Read a request's body; what an application gets to read then."""
    messages = deque([await receive()])
    while messages[-1].get("more_body", False):
        messages.append(await receive())

    async def again() -> Message:
        return messages.popleft() if messages else await receive()

    return again


def _refusal(error: TernError, path: str) -> Response:
    status, headers, body = problem_reply(error, instance=path)
    return Response(status, {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}, body)
