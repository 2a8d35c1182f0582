"""Namespaces: prefixes added to the names in a request, and removed from its answer. Pure.

    MQ-Namespace: shop
    POST /v1/topics/orders/messages  ->  inside: shop%orders in cache, handles, brokers, stores
    {"topic": "shop%orders", ...}    ->  {"topic": "orders", ...}

Law: inside, every name is a full name; outside, none is. Names in paths become full names in the
namespace adapter; names in bodies and queries where they are parsed, by `whole_topic` and
`whole_group`, which refuse a name with a `%`. So a client of one namespace (or of none) cannot
write the name of another namespace's topic. Handles sealed with a name (receipts, recalls) and ids
sealed with a namespace (transactions) are invalid in another namespace.

An answer is decoded down to its names, and no further: bodies, properties and numbers of messages
keep their bytes.
"""

import re
from collections.abc import Iterable, MutableMapping
from typing import Any, Protocol

import msgspec
import orjson

from tern_wire.errors import InvalidField
from tern_wire.names import SEPARATOR, check_namespace, group_in, topic_in
from tern_wire.paths import HEADER_NAMESPACE, JSON, MSGPACK, NDJSON, PROBLEM

HEADER = HEADER_NAMESPACE.lower().encode()
# Key of a request's namespace in its ASGI scope.
SCOPE_KEY = "tern.namespace"
# Key of the headers as sent by the client, which a signature covers.
SCOPE_HEADERS = "tern.headers"
# Fields of documents that hold a name, a list of names or a map by names; and fields that hold our
# texts and paths.
_NAMES = frozenset({"topic", "topics", "group", "groups", "producer_group", "subscriptions", "queues", "query"})
_TEXTS = frozenset({"error", "links", "ask_again"})
# Fields that belong to the user, or that hold no name and need no decoding.
_OPAQUE = frozenset({"properties", "attributes", "json", "body", "offsets", "locks", "queue_data"})
_PATH = re.compile(rb"((?:topics|groups|producer-groups)/)[^/?%]+%(?:25)?")
_RAW_JSON = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_RAW_JSONS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_RAW_PACKED = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_RAW_PACKEDS = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_JSON_MAPS, _JSON_LISTS = frozenset(b"{"), frozenset(b"[")
_PACKED_MAPS, _PACKED_LISTS = frozenset({*range(0x80, 0x90), 0xDE, 0xDF}), frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
_RawHeaders = list[tuple[bytes, bytes]]


class HasScope(Protocol):
    """A request of a hot route or of FastAPI."""

    @property
    def scope(self) -> MutableMapping[str, Any]:
        """The ASGI scope."""
        ...


# Requests -----------------------------------------------------------------------------------------
def namespace_in(request: HasScope) -> str:
    """Return the request's namespace; "" for none."""
    return str(request.scope.get(SCOPE_KEY, ""))


def whole_topic(request: HasScope, name: str) -> str:
    """Return the full name of a topic in the request's body or query.

    Raise IllegalTopic, InvalidField.
    """
    return topic_in(namespace_in(request), name)


def whole_group(request: HasScope, name: str) -> str:
    """Return the full name of a consumer or producer group in the body or query.

    Raise IllegalGroup, InvalidField.
    """
    return group_in(namespace_in(request), name)


def read_namespace(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the request's namespace; None if it has none.

    Raise InvalidField for an illegal one, or for several.
    """
    found: str | None = None
    for name, value in headers:
        if name == HEADER:
            if found is not None:
                raise InvalidField(reason="A request has one namespace", pointer=f"header/{HEADER_NAMESPACE}")
            found = check_namespace(value.decode("latin-1"), f"header/{HEADER_NAMESPACE}")
    return found


def whole_path(path: str, namespace: str) -> str:
    """Return *path*, decoded, with full names of topics and groups.

    Raise IllegalTopic, IllegalGroup, InvalidField.
    """
    parts = path.split("/")
    if len(parts) < 4 or parts[1] != "v1":
        return path
    if parts[2] == "topics":
        parts[3] = topic_in(namespace, parts[3]) if namespace or SEPARATOR in parts[3] else parts[3]
        at = 5 if parts[4:5] == ["groups"] and len(parts) > 5 else 0
    else:
        at = 3 if parts[2] in {"groups", "producer-groups"} else 0
    if at and (namespace or SEPARATOR in parts[at]):
        parts[at] = group_in(namespace, parts[at])
    return "/".join(parts)


# Answers ------------------------------------------------------------------------------------------
def own_headers(headers: Iterable[tuple[bytes, bytes]]) -> _RawHeaders:
    """Return *headers* without namespaces."""
    found: _RawHeaders = []
    for name, value in headers:
        if name in {b"location", b"link"}:
            value = _PATH.sub(rb"\1", value)
        elif name == b"mq-topic":
            value = value.rpartition(SEPARATOR.encode())[2]
        found.append((name, value))
    return found


def is_document(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether an answer's body is a document of ours.

    A message's own body and stored records are not; records keep full names, as in RocketMQ.
    """
    fields = dict(headers)
    return b"mq-topic" not in fields and _media(fields) in {JSON, PROBLEM, NDJSON, MSGPACK}


def own_body(headers: Iterable[tuple[bytes, bytes]], body: bytes, namespace: str) -> bytes:
    """Return the *body* of an answer that is a document, without the namespace in its names."""
    kind = _media(dict(headers))
    if not body:
        return body
    if kind == PROBLEM:
        return orjson.dumps(_own_texts(orjson.loads(body), namespace + SEPARATOR))
    stripped = _Stripped(namespace, is_packed=kind == MSGPACK)
    if kind == NDJSON:
        return b"".join(bytes(stripped.value(line)) + b"\n" for line in body.splitlines())
    return bytes(stripped.value(body if kind == MSGPACK else body.lstrip()))


def _media(fields: dict[bytes, bytes]) -> str:
    return fields.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")


class _Stripped:
    """Removes a namespace from documents of one encoding. Immutable."""

    __slots__ = ("_decode", "_encode", "_list_marks", "_lists", "_map_marks", "_maps", "_prefix", "_prefix_bytes")

    def __init__(self, namespace: str, *, is_packed: bool) -> None:
        self._prefix = namespace + SEPARATOR
        # It contains no character that either encoding escapes.
        self._prefix_bytes = self._prefix.encode()
        self._encode = msgspec.msgpack.encode if is_packed else msgspec.json.encode
        self._decode = msgspec.msgpack.decode if is_packed else msgspec.json.decode
        self._maps, self._lists = (_RAW_PACKED, _RAW_PACKEDS) if is_packed else (_RAW_JSON, _RAW_JSONS)
        # First bytes.
        self._map_marks: frozenset[int] = _PACKED_MAPS if is_packed else _JSON_MAPS
        self._list_marks: frozenset[int] = _PACKED_LISTS if is_packed else _JSON_LISTS

    def value(self, raw: bytes | msgspec.Raw) -> bytes | msgspec.Raw:
        """Return *raw* without the namespace in its names."""
        first = memoryview(raw)[0]
        if first in self._map_marks:
            document = self._maps(raw)
            for name, item in document.items():
                if name not in _OPAQUE:
                    document[name] = self._field(name, item)
            return self._encode(document)
        if first in self._list_marks and self._prefix_bytes in bytes(raw):
            return self._encode([_raw(self.value(row)) for row in self._lists(raw)])
        return raw

    def _field(self, name: str, raw: msgspec.Raw) -> msgspec.Raw:
        if name in _TEXTS:
            return msgspec.Raw(self._encode(_own_texts(self._decode(raw), self._prefix)))
        if name not in _NAMES:
            return _raw(self.value(raw))
        first = memoryview(raw)[0]
        if first in self._map_marks:
            by_name = self._maps(raw)
            own = {key.removeprefix(self._prefix): _raw(self.value(item)) for key, item in by_name.items()}
            return msgspec.Raw(self._encode(own))
        if first not in self._list_marks:
            return msgspec.Raw(self._encode(_own_name(self._decode(raw), self._prefix)))
        rows = self._lists(raw)
        return msgspec.Raw(
            self._encode(
                [
                    _raw(self.value(row))
                    if memoryview(row)[0] in self._map_marks
                    else _own_name(self._decode(row), self._prefix)
                    for row in rows
                ]
            )
        )


def _raw(data: bytes | msgspec.Raw) -> msgspec.Raw:
    return data if isinstance(data, msgspec.Raw) else msgspec.Raw(data)


def _own_name(value: Any, prefix: str) -> Any:
    return value.removeprefix(prefix) if isinstance(value, str) else value


def _own_texts(value: Any, prefix: str) -> Any:
    """Return *value* without the namespace in any of its texts (our sentences and paths)."""
    if isinstance(value, str):
        return value.replace(prefix, "").replace(prefix.replace(SEPARATOR, "%25"), "")
    if isinstance(value, dict):
        return {_own_texts(name, prefix): _own_texts(item, prefix) for name, item in value.items()}
    return [_own_texts(item, prefix) for item in value] if isinstance(value, list) else value
