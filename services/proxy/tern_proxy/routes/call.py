"""Request and answer types of ordinary routes' handlers.

    async def get_topic(call: Call, topic: str) -> TopicDescription: ...  200 with the document
    -> Answer(document, status=201, headers={...})                        another status, or headers
    -> Page(bytes)                                                        200, for a browser
    -> None                                                               204

The query and the form of the answer are validated before the handler runs, by the route's row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from fastapi import Request
from msgspec import Struct
from starlette.responses import Response

from tern_proxy.access.authorization import Admission, admission_of
from tern_proxy.core.access.namespaces import namespace_in, whole_group, whole_topic
from tern_proxy.core.sending.parameters import answer_kind, is_packed, read_query_once
from tern_proxy.exchange import encode, owner_of
from tern_proxy.proxy import Proxy
from tern_proxy.routes.route import Route
from tern_wire.errors import InvalidField, MessageTooLarge
from tern_wire.limits import JSON_NODES_MAX, KIB
from tern_wire.link.codec import read_json, read_msgpack
from tern_wire.paths import JSON

# 1,024 queues with offset and expected offset.
BODY_SIZE_MAX_BYTES = 128 * KIB
HTML = "text/html"
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Answer:
    """Document with a status or headers other than 200 alone."""

    document: Struct
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """Answer with status 200 that is not a document."""

    body: bytes
    kind: str = f"{HTML}; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


class Call:
    """One request. *query*: its parameters, each at most once, all known to the route.

    *rows*: all routes.
    """

    __slots__ = ("form", "proxy", "query", "request", "rows")

    def __init__(self, proxy: Proxy, request: Request, route: Route, rows: tuple[Route, ...]) -> None:
        """Raise NotAcceptable, UnknownParameter."""
        self.proxy, self.request, self.rows = proxy, request, rows
        # Content type of the answer, one of the route's.
        self.form = answer_kind(request.headers.get("accept", ""), route.forms) if route.forms else JSON
        self.query: dict[str, str] = read_query_once(request.scope["query_string"], route.known_query)

    def needed(self, name: str) -> str:
        """Return a required query parameter. Raise InvalidField."""
        value = self.query.get(name)
        if not value:
            raise InvalidField(reason=f"The parameter '{name}' is needed", pointer=f"query/{name}")
        return value

    async def read(
        self, kind: type[K], *, size_max_bytes: int = BODY_SIZE_MAX_BYTES, nodes_max: int = JSON_NODES_MAX
    ) -> K:
        """Return the body as *kind*; an empty one means all defaults. *nodes_max*: values of JSON.

        Raise MessageTooLarge, MalformedBody, UnknownField, DocumentTooComplex.
        """
        pieces: list[bytes] = []
        size = 0
        async for piece in self.request.stream():
            size += len(piece)
            if size > size_max_bytes:
                raise MessageTooLarge(actual=size, limit=size_max_bytes)
            pieces.append(piece)
        body = b"".join(pieces)
        packed = is_packed(self.header("content-type"))
        return read_msgpack(body, kind) if packed and body else read_json(body or b"{}", kind, nodes_max=nodes_max)

    def header(self, name: str) -> str:
        """Return a header of the request, or ""."""
        return self.request.headers.get(name, "")

    @property
    def admission(self) -> Admission:
        """Admission of the caller."""
        return admission_of(self.request)

    @property
    def owner(self) -> str:
        """Owner of the request's share of rooms."""
        return owner_of(self.request.scope)

    @property
    def namespace(self) -> str:
        """Namespace of the request; "" for none."""
        return namespace_in(self.request)

    def topic(self, name: str) -> str:
        """Return the full name of a topic in the body or the query.

        Raise IllegalTopic, InvalidField.
        """
        return whole_topic(self.request, name)

    def group(self, name: str) -> str:
        """Return the full name of a consumer or producer group. IllegalGroup, InvalidField."""
        return whole_group(self.request, name)

    def respond(self, answer: Struct | Answer | Page | None) -> Response:
        """Return the FastAPI response of a handler's answer."""
        if answer is None:
            return Response(status_code=204)
        if isinstance(answer, Page):
            return Response(answer.body, 200, answer.headers, answer.kind)
        if not isinstance(answer, Answer):
            answer = Answer(answer)
        return Response(encode(answer.document, self.form), answer.status, answer.headers, self.form)
