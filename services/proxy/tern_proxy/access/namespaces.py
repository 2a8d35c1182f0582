"""Namespace adapter: requests with MQ-Namespace continue with full names, and answers get the
client's names back.

It precedes all routes, so that no route can omit it. A request without a namespace passes
unchanged, unless its path contains a `%`.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tern_proxy.core.access.namespaces import (
    HEADER,
    SCOPE_HEADERS,
    SCOPE_KEY,
    is_document,
    own_body,
    own_headers,
    read_namespace,
    whole_path,
)
from tern_proxy.counters import Counters
from tern_service.problems import refuse
from tern_wire.errors import TernError
from tern_wire.names import SEPARATOR


class NamespaceDoor:
    """ASGI application in front of *app*. Stateless."""

    def __init__(self, app: ASGIApp, counters: Counters) -> None:
        self.app, self._counters = app, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        for name, _ in scope["headers"]:
            if name == HEADER:
                break
        else:
            if SEPARATOR not in scope["path"]:
                await self.app(scope, receive, send)
                return
        try:
            namespace = read_namespace(scope["headers"]) or ""
            path = whole_path(scope["path"], namespace)
        except TernError as error:
            status = await refuse(error, scope, send)
            self._counters.count_request("admin", status, 0.0)
            return
        if not namespace:
            await self.app(scope, receive, send)
            return
        # The header is consumed here: readers of message headers do not accept it.
        headers = [field for field in scope["headers"] if field[0] != HEADER]
        inside = {**scope, "path": path, "headers": headers, SCOPE_KEY: namespace, SCOPE_HEADERS: scope["headers"]}
        await self.app(inside, receive, _Departing(send, namespace).send)


class _Departing:
    """One answer on its way to the client.

    A document is buffered until it is complete; other bodies pass in chunks.
    """

    def __init__(self, send: Send, namespace: str) -> None:
        self._send, self._namespace = send, namespace
        self._start: Message | None = None
        self._pieces: list[bytes] = []

    async def send(self, message: Message) -> None:
        """Forward *message*, or buffer it."""
        if message["type"] == "http.response.start":
            message = {**message, "headers": own_headers(message["headers"])}
            if is_document(message["headers"]):
                self._start = message
                return
        elif message["type"] == "http.response.body" and self._start is not None:
            self._pieces.append(message.get("body", b""))
            if message.get("more_body", False):
                return
            start, self._start = self._start, None
            body = own_body(start["headers"], b"".join(self._pieces), self._namespace)
            headers = [field for field in start["headers"] if field[0] != b"content-length"]
            await self._send({**start, "headers": [*headers, (b"content-length", b"%d" % len(body))]})
            message = {"type": "http.response.body", "body": body}
        await self._send(message)
