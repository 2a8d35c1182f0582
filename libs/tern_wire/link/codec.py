"""JSON (orjson writes, msgspec reads) and MessagePack (msgspec); decoding errors become TernErrors
with a pointer.
"""

import re
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec
import orjson

from tern_wire.errors import DocumentTooComplex, InvalidField, MalformedBody, TernError, UnknownField
from tern_wire.json_limits import check_members, check_nodes, facts_of
from tern_wire.limits import JSON_DEPTH_MAX, JSON_NODES_MAX

T = TypeVar("T")

_pack = msgspec.msgpack.Encoder()
_unpack = msgspec.msgpack.Decoder()

encode_json = orjson.dumps
encode_msgpack = _pack.encode


def decode_msgpack(data: bytes | memoryview) -> Any:
    """Decode any MessagePack value. Raise MalformedBody for other bytes."""
    try:
        return _unpack.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBody(reason=str(error), pointer="") from error


@lru_cache(maxsize=64)
def _json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@lru_cache(maxsize=64)
def _msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def read_json(data: bytes, kind: type[T], at: str = "", *, nodes_max: int = JSON_NODES_MAX) -> T:
    """Decode *data* as *kind*.

    Raise MalformedBody, UnknownField or InvalidField with a JSON pointer below *at* otherwise.
    *nodes_max*: raise DocumentTooComplex for more values than this. 0: the document comes from a
    service of the mesh, and only its type is checked.
    """
    if nodes_max:
        check_nodes(data, nodes_max, at)
    try:
        value: T = _json_decoder(cast(Any, kind)).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _explain(error, at, data) from error
    if nodes_max:
        check_members(data, value, facts_of(cast(Any, kind)), at)
    return value


def read_msgpack(data: bytes, kind: type[T], at: str = "") -> T:
    """Decode MessagePack *data* as *kind*, with the errors of `read_json`."""
    try:
        value: T = _msgpack_decoder(cast(Any, kind)).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _explain(error, at) from error
    return value


_AT = re.compile(r" - at `(?:key in )?(\$[^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
# msgspec's messages for a text with half of a surrogate pair, and a pattern for the escape that
# stands alone. Reference: RFC 8259 8.2.
_MAY_BE_HALF = ("Input data was truncated", "JSON is malformed: invalid utf-16 surrogate pair")
_HALF = re.compile(
    rb"(?<!\\)(?:\\\\)*(\\u[Dd][89AaBb][0-9A-Fa-f]{2}(?!\\u[Dd][C-Fc-f])|(?<!\\u[Dd][89AaBb][0-9A-Fa-f]{2})\\u[Dd][C-Fc-f][0-9A-Fa-f]{2})"
)


def _explain(error: Exception, at: str, document: bytes = b"") -> TernError:
    """Convert an error of msgspec to a TernError.

    msgspec writes `... - at `$.messages[3].delay``; RFC 9457 needs the pointer /messages/3/delay.
    *document* is the decoded text if it is JSON.
    """
    if isinstance(error, RecursionError):
        return DocumentTooComplex(limit=JSON_DEPTH_MAX, unit="levels", pointer=at or "/")
    text = str(error)
    place = _AT.search(text)
    steps = _STEP.findall(place[1]) if place else []
    pointer = at + "".join(f"/{name or number}" for name, number in steps)
    reason = text[: place.start()] if place else text
    if not isinstance(error, msgspec.ValidationError):
        half = _HALF.search(document) if reason.startswith(_MAY_BE_HALF) else None
        if half:
            reason = f"A text has the escape {half[1].decode()}, half of a surrogate pair, which is no character"
        return MalformedBody(reason=reason, pointer=pointer or "/")
    unknown = _UNKNOWN.search(reason)
    if unknown:
        return UnknownField(field=unknown[1], pointer=f"{pointer}/{unknown[1]}")
    return InvalidField(reason=reason, pointer=pointer or "/")
