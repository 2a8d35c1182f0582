"""Namespace adapter: requests with MQ-Namespace continue with full names, and answers get the
client's names back.

`hot.py` applies it in front of all routes, so that no route can omit it.
"""

from collections.abc import Coroutine
from typing import Any

from starlette.types import Message, Scope, Send

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
from tern_proxy.exchange import STREAM_KEY, Reply


def inside(scope: Scope, send: Send) -> tuple[Scope, Send]:
    """Return the scope and the channel of answers for the application: with full names, and for
    the client's names.

    Both are unchanged without a namespace. Raise InvalidField, IllegalTopic, IllegalGroup.
    """
    scope, namespace = scope_inside(scope)
    return scope, _Departing(send, namespace).send if namespace else send


def scope_inside(scope: Scope) -> tuple[Scope, str]:
    """Return the scope with full names and the namespace; the same scope and "" without one.

    Raise InvalidField, IllegalTopic, IllegalGroup.
    """
    namespace = read_namespace(scope["headers"]) or ""
    path = whole_path(scope["path"], namespace)
    if not namespace:
        return scope, ""
    # The header is consumed here: readers of message headers do not accept it.
    headers = [field for field in scope["headers"] if field[0] != HEADER]
    return {**scope, "path": path, "headers": headers, SCOPE_KEY: namespace, SCOPE_HEADERS: scope["headers"]}, namespace


async def reply_outside(answering: Coroutine[Any, Any, Reply], namespace: str) -> Reply:
    """Return the reply of *answering* with the client's names."""
    status, headers, body = await answering
    headers = own_headers(headers)
    if is_document(headers):
        body = own_body(headers, bytes(body), namespace)
        headers = [field for field in headers if field[0] != b"content-length"]
        if status not in {204, 304}:
            headers.append((b"content-length", b"%d" % len(body)))
    return status, headers, body


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
            # The lines of a stream have the client's names already.
            if is_document(message["headers"]) and STREAM_KEY not in message:
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
