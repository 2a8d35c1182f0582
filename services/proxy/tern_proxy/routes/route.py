"""Rows of the HTTP API, one for each operation: path, handler, requirements, body, answers, errors,
description.

    ROUTES = (
        Route("PUT", topic_path("{topic}"), put_topic, id="putTopic",
              asks=("CREATE topic {topic}", ...), is_admin=True,
              takes=takes(TopicSettings, settings={"queues": 8}),
              gives={201: gives(TopicDeclared(...), "It is new.")},
              errors=(*DECLARED, TopicReserved)),
    )

The rows are the source of the one matcher (`table.py`), the guard's requirements, the registration
of handlers, the query parameters of each route, and the API document (`openapi/`). A path without a
row is answered 404, so an undeclared route is closed.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from tern_proxy.core.access.requirements import Requirement, Rule
from tern_proxy.routes.failures import Errors, before_handlers
from tern_wire.paths import JSON, MSGPACK

# Part of the API document: JSON Schema, or an object of OpenAPI.
Schema: TypeAlias = dict[str, Any]
REF = "#/components/schemas/{name}"
# (proxy, Call, **names) -> an answer of `call.py`; for a hot route (Proxy, HotRequest, *names) ->
# Reply.
Handler: TypeAlias = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """Request body. *content* by content type; *kinds*: its document types, for their schemas."""

    content: Mapping[str, Schema]
    kinds: tuple[type[Struct], ...] = ()
    is_needed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gives:
    """One answer of a route.

    *content* by content type, empty without a body; *kinds* as in Takes; *headers* by name.
    """

    text: str
    content: Mapping[str, Schema] = field(default_factory=dict)
    kinds: tuple[type[Struct], ...] = ()
    headers: tuple[str, ...] = ()
    links: Mapping[str, Schema] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Route:
    """One operation.

    *hot*: the name in its metrics; such a route is served in front of FastAPI (`hot.py`).
    *is_brief*: a hot route whose handler reads the body and then waits for brokers alone, so that a
    request that came whole needs no ASGI. *is_stream*: a hot route whose answer lasts as long as
    its client listens; its handler gives the request a `stream`. *handler* None: `tern_service`
    serves it. *asks*: requirements in the form of `core/access/requirements.py`. *is_admin*,
    *is_anonymous*: as in Rule. *summary*, *about*: for the document; without *about* the handler's
    docstring is used. *query* (with its question mark) and *bodies* (content type and text) are for
    the curl examples, one a body.
    """

    method: str
    path: str
    handler: Handler | None
    id: str = field(kw_only=True)
    tag: str = field(kw_only=True)
    summary: str = field(kw_only=True)
    about: str = field(kw_only=True, default="")
    hot: str = field(kw_only=True, default="")
    is_brief: bool = field(kw_only=True, default=False)
    is_stream: bool = field(kw_only=True, default=False)
    asks: tuple[str, ...] = field(kw_only=True, default=())
    is_admin: bool = field(kw_only=True, default=False)
    is_anonymous: bool = field(kw_only=True, default=False)
    parameters: tuple[Schema, ...] = field(kw_only=True, default=())
    takes: Takes | None = field(kw_only=True, default=None)
    gives: Mapping[int, Gives] = field(kw_only=True)
    errors: Errors = field(kw_only=True, default=())
    query: str = field(kw_only=True, default="")
    bodies: tuple[tuple[str, str], ...] = field(kw_only=True, default=())
    extensions: Mapping[str, Any] = field(kw_only=True, default_factory=dict)
    # Requirements of the guard, path segments that are names, and known query parameters.
    rule: Rule = field(init=False)
    holes: tuple[int, ...] = field(init=False)
    known_query: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        requirements = tuple(map(Requirement.parse, self.asks))
        rule = Rule(
            method=self.method,
            path=self.path,
            requirements=requirements,
            is_admin=self.is_admin,
            is_anonymous=self.is_anonymous,
            is_stream=self.is_stream,
        )
        object.__setattr__(self, "rule", rule)
        segments = enumerate(self.path.split("/"))
        object.__setattr__(self, "holes", tuple(place for place, segment in segments if segment.startswith("{")))
        known = tuple(each["name"] for each in self.parameters if each["in"] == "query")
        object.__setattr__(self, "known_query", known)

    @property
    def description(self) -> str:
        """Description for the document."""
        return self.about or inspect.getdoc(self.handler) or ""

    @property
    def failures(self) -> Errors:
        """All errors of the route: its own, and those before its handler."""
        return (*self.errors, *before_handlers(self.rule))

    @property
    def forms(self) -> tuple[str, ...]:
        """Content types of its answers, the default first; empty where no answer has a body."""
        return tuple(dict.fromkeys(kind for each in self.gives.values() for kind in each.content))

    @property
    def kinds(self) -> tuple[type[Struct], ...]:
        """Document types of its body and answers."""
        taken = self.takes.kinds if self.takes is not None else ()
        return (*taken, *(kind for each in self.gives.values() for kind in each.kinds))


# Time in a query: ms since 1970, or RFC 3339.
MOMENT: Schema = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}]}


# Parts of rows ------------------------------------------------------------------------------------
def ref(kind: type[Struct] | str) -> Schema:
    """Return a reference to the schema of *kind*."""
    return {"$ref": REF.format(name=kind if isinstance(kind, str) else kind.__name__)}


def in_query(name: str, schema: Schema, text: str, **more: Any) -> Schema:
    """Return a query parameter."""
    return {"name": name, "in": "query", "description": text, "schema": schema, **more}


def in_header(name: str, schema: Schema, text: str) -> Schema:
    """Return a request header."""
    return {"name": name, "in": "header", "description": text, "schema": schema}


def number(name: str, least: int, most: int, default: int | None, text: str) -> Schema:
    """Return a query parameter that is a whole number in *least*..*most*."""
    bounds: Schema = {"type": "integer", "minimum": least, "maximum": most}
    return in_query(name, bounds if default is None else {**bounds, "default": default}, text)


def takes(kind: type[Struct], *, is_needed: bool = False, **examples: Any) -> Takes:
    """Return a body of type *kind* in JSON or MessagePack, with *examples* by name."""
    media = {"schema": ref(kind), "examples": {name: {"value": value} for name, value in examples.items()}}
    return Takes(content={JSON: media, MSGPACK: media}, kinds=(kind,), is_needed=is_needed)


def gives(example: Struct, text: str, *headers: str, kinds: tuple[str, ...] = (JSON, MSGPACK)) -> Gives:
    """Return an answer with a document of *example*'s type and *headers*; *kinds*: its content
    types.
    """
    media = {"schema": ref(type(example)), "example": plain(example)}
    return Gives(text=text, content=dict.fromkeys(kinds, media), kinds=(type(example),), headers=headers)


def plain(example: Struct) -> Any:
    """Return an example in the form of the API document."""
    return msgspec.to_builtins(example)
