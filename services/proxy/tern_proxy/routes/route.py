"""One row for each operation of the HTTP API: path, handler, what it asks of the caller, what it takes and gives, and how it is described.

    ROUTES = (
        Route("PUT", topic_path("{topic}"), put_topic, id="putTopic", asks=("CREATE topic {topic}", ...), is_admin=True,
              takes=takes(TopicSettings, settings={"queues": 8}), gives={201: gives(TopicDeclared(...), "It is new.")},
              errors=(*DECLARED, TopicReserved)),
    )

From the rows come the one matcher (`table.py`), the guard's requirements, the registration of handlers, the query parameters that a route knows,
and the API document (`openapi/`). A path that has no row is answered 404, so a route that nobody has declared is closed.
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

# A part of the API document: JSON Schema, or an object of OpenAPI.
Schema: TypeAlias = dict[str, Any]
REF = "#/components/schemas/{name}"
# (proxy, Call, **names) -> what `call.py` says; of a hot route (Proxy, HotRequest, *names) -> Reply.
Handler: TypeAlias = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """A request's body. *content* by content type; *kinds*: the documents in it, for their schemas."""

    content: Mapping[str, Schema]
    kinds: tuple[type[Struct], ...] = ()
    is_needed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gives:
    """One answer of a route. *content* by content type, none for an answer without a body; *kinds* as of Takes; *headers* by name."""

    text: str
    content: Mapping[str, Schema] = field(default_factory=dict)
    kinds: tuple[type[Struct], ...] = ()
    headers: tuple[str, ...] = ()
    links: Mapping[str, Schema] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Route:
    """One operation.

    *hot*: the name that its metrics have; such a route is served in front of FastAPI (`hot.py`). *handler* None: `tern_service` serves it.
    *asks*: requirements as `core/access/requirements.py` writes them; *is_admin*, *is_anonymous*: as Rule has them. *summary*, *about*: for the
    document; without *about* the handler's docstring. *query* (with its question mark) and *bodies* (content type and text) make the curl
    examples, one a body.
    """

    method: str
    path: str
    handler: Handler | None
    id: str = field(kw_only=True)
    tag: str = field(kw_only=True)
    summary: str = field(kw_only=True)
    about: str = field(kw_only=True, default="")
    hot: str = field(kw_only=True, default="")
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
    # What the guard asks for, which segments of the path are names, and the query parameters that there are.
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
        )
        object.__setattr__(self, "rule", rule)
        segments = enumerate(self.path.split("/"))
        object.__setattr__(self, "holes", tuple(place for place, segment in segments if segment.startswith("{")))
        known = tuple(each["name"] for each in self.parameters if each["in"] == "query")
        object.__setattr__(self, "known_query", known)

    @property
    def description(self) -> str:
        """For the document."""
        return self.about or inspect.getdoc(self.handler) or ""

    @property
    def failures(self) -> Errors:
        """All errors that it may be answered with: its own, and those before its handler is asked."""
        return (*self.errors, *before_handlers(self.rule))

    @property
    def forms(self) -> tuple[str, ...]:
        """The content types that its answers have, the default first; none where no answer has a body."""
        return tuple(dict.fromkeys(kind for each in self.gives.values() for kind in each.content))

    @property
    def kinds(self) -> tuple[type[Struct], ...]:
        """The documents that it takes and gives."""
        taken = self.takes.kinds if self.takes is not None else ()
        return (*taken, *(kind for each in self.gives.values() for kind in each.kinds))


# A time in a query: ms since 1970, or RFC 3339.
MOMENT: Schema = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}]}


# What rows are made of --------------------------------------------------------------------------------------------
def ref(kind: type[Struct] | str) -> Schema:
    """A reference to the schema of *kind*."""
    return {"$ref": REF.format(name=kind if isinstance(kind, str) else kind.__name__)}


def in_query(name: str, schema: Schema, text: str, **more: Any) -> Schema:
    """A query parameter."""
    return {"name": name, "in": "query", "description": text, "schema": schema, **more}


def in_header(name: str, schema: Schema, text: str) -> Schema:
    """A header of the request."""
    return {"name": name, "in": "header", "description": text, "schema": schema}


def number(name: str, least: int, most: int, default: int | None, text: str) -> Schema:
    """A query parameter that is a whole number in *least*..*most*."""
    bounds: Schema = {"type": "integer", "minimum": least, "maximum": most}
    return in_query(name, bounds if default is None else {**bounds, "default": default}, text)


def takes(kind: type[Struct], *, is_needed: bool = False, **examples: Any) -> Takes:
    """A body that is a *kind* in JSON or MessagePack, with *examples* by name."""
    media = {"schema": ref(kind), "examples": {name: {"value": value} for name, value in examples.items()}}
    return Takes(content={JSON: media, MSGPACK: media}, kinds=(kind,), is_needed=is_needed)


def gives(example: Struct, text: str, *headers: str, kinds: tuple[str, ...] = (JSON, MSGPACK)) -> Gives:
    """An answer that is a document of *example*'s type, with the *headers*; *kinds*: its content types."""
    media = {"schema": ref(type(example)), "example": plain(example)}
    return Gives(text=text, content=dict.fromkeys(kinds, media), kinds=(type(example),), headers=headers)


def plain(example: Struct) -> Any:
    """A document as the API document shows it."""
    return msgspec.to_builtins(example)
