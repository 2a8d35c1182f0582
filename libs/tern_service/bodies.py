"""Request bodies as dataclasses: bounded on arrival, unknown fields refused."""

from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
import orjson
from starlette.requests import Request

from tern_wire.errors import MessageTooLarge, UnknownField
from tern_wire.limits import JSON_NODES_MAX
from tern_wire.link.codec import read_json

T = TypeVar("T")


async def read_body(request: Request, kind: type[T], *, size_max_bytes: int, nodes_max: int = JSON_NODES_MAX) -> T:
    """Read the JSON body of *request* as a *kind*, at most *size_max_bytes* long.
    MessageTooLarge as soon as it is longer; MalformedBody, InvalidField or UnknownField with a JSON
    pointer.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > size_max_bytes:
        raise MessageTooLarge(actual=int(declared), limit=size_max_bytes)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > size_max_bytes:
            raise MessageTooLarge(actual=len(body), limit=size_max_bytes)
    return read_strict(bytes(body), kind, nodes_max=nodes_max)


def read_strict(data: bytes, kind: type[T], *, nodes_max: int = JSON_NODES_MAX) -> T:
    """Decode *data* as tern_wire's read_json does; an unknown field is an UnknownField.
    At most *nodes_max* values.
    """
    value = read_json(data, kind, nodes_max=nodes_max)
    # msgspec can forbid unknown fields only in its own Structs; accepted data is well-formed JSON.
    try:
        _decoder_of_known(cast(Any, kind)).decode(data)
    except msgspec.ValidationError:
        _refuse_unknown(orjson.loads(data), kind, "")
    return value


@lru_cache(maxsize=64)
def _decoder_of_known(kind: Any) -> "msgspec.json.Decoder[Any]":
    """A decoder that accepts only the fields of *kind*, with any values.
    A registration may have 20,000 topics, too many for a loop in Python.
    """
    return msgspec.json.Decoder(_known(kind))


def _known(kind: Any) -> Any:
    if isinstance(kind, type) and is_dataclass(kind):
        names = [(each.name, _known(_hints(kind)[each.name]), None) for each in fields(kind)]
        return msgspec.defstruct(kind.__name__, names, forbid_unknown_fields=True)
    if get_origin(kind) is dict:
        return dict[str, _known(get_args(kind)[1])]  # type: ignore[misc]  # made at run time
    if get_origin(kind) in {list, tuple}:
        return list[_known(get_args(kind)[0])]  # type: ignore[misc]
    return Any


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _refuse_unknown(document: Any, kind: Any, at: str) -> None:
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(document, dict):
        known = {each.name for each in fields(kind)}
        for name, value in document.items():
            pointer = f"{at}/{_escape(name)}"
            if name not in known:
                raise UnknownField(field=name, pointer=pointer)
            _refuse_unknown(value, _hints(kind)[name], pointer)
    elif get_origin(kind) is dict and isinstance(document, dict):
        for name, value in document.items():
            _refuse_unknown(value, get_args(kind)[1], f"{at}/{_escape(name)}")
    elif get_origin(kind) in {list, tuple} and isinstance(document, list):
        for number, value in enumerate(document):
            _refuse_unknown(value, get_args(kind)[0], f"{at}/{number}")


def _escape(name: str) -> str:
    """A member's name in a JSON pointer (Reference: RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
