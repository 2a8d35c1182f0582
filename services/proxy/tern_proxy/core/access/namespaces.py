"""Namespaces at the proxy's door: names of a request get theirs in front, answers lose it again. Pure.

    MQ-Namespace: shop
    POST /v1/topics/orders/messages  ->  topic shop%orders inside: cache, handles, brokers, stores, exports
    {"topic": "shop%orders", ...}    ->  {"topic": "orders", ...}

Law: inside, every name is a whole one; outside, none is. Names in paths are made whole here, at the door; those in bodies and queries
where they are read, by `whole_topic` and `whole_group`, which refuse a name with a `%` in it. So a client of one namespace (or of none)
cannot write the name of another one's topic, and what is sealed with a name (receipt and recall handles) or a namespace (ids of
transactions) is another one's elsewhere.

An answer is taken apart down to where names are, and no further: bodies, properties and numbers of messages stay the bytes that they were.
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
# Where a request's namespace is, in its ASGI scope.
SCOPE_KEY = "tern.namespace"
# The headers as the client sent them, which is what it has signed.
SCOPE_HEADERS = "tern.headers"
# Fields of documents that hold a name, a list of them or a map by them; and those that hold texts and paths of ours.
_NAMES = frozenset({"topic", "topics", "group", "groups", "producer_group", "subscriptions", "queues"})
_TEXTS = frozenset({"error", "links", "ask_again"})
# Whatever is in these is the user's own, or holds no name and need not be taken apart.
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
    """A request, of a hot route or of FastAPI."""

    @property
    def scope(self) -> MutableMapping[str, Any]:
        """Its ASGI scope."""
        ...


# Requests ---------------------------------------------------------------------------------------------------------
def namespace_in(request: HasScope) -> str:
    """The request's namespace; "" for none."""
    return str(request.scope.get(SCOPE_KEY, ""))


def whole_topic(request: HasScope, name: str) -> str:
    """The whole name of a topic that the request's body or query names; IllegalTopic, InvalidField."""
    return topic_in(namespace_in(request), name)


def whole_group(request: HasScope, name: str) -> str:
    """As whole_topic, of a consumer or producer group; IllegalGroup, InvalidField."""
    return group_in(namespace_in(request), name)


def read_namespace(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The request's namespace, None when it has none; InvalidField when it is none, or there are several."""
    found: str | None = None
    for name, value in headers:
        if name == HEADER:
            if found is not None:
                raise InvalidField(reason="A request has one namespace", pointer=f"header/{HEADER_NAMESPACE}")
            found = check_namespace(value.decode("latin-1"), f"header/{HEADER_NAMESPACE}")
    return found


def whole_path(path: str, namespace: str) -> str:
    """*path*, decoded, with the names of topics and groups in it made whole; IllegalTopic, IllegalGroup, InvalidField."""
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


# Answers ----------------------------------------------------------------------------------------------------------
def own_headers(headers: Iterable[tuple[bytes, bytes]]) -> _RawHeaders:
    """*headers* without namespaces."""
    found: _RawHeaders = []
    for name, value in headers:
        if name in {b"location", b"link"}:
            value = _PATH.sub(rb"\1", value)
        elif name == b"mq-topic":
            value = value.rpartition(SEPARATOR.encode())[2]
        found.append((name, value))
    return found


def is_document(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether an answer's body is a document of ours: no message's own body, no stored records (which keep whole names, as in RocketMQ)."""
    fields = dict(headers)
    return b"mq-topic" not in fields and _media(fields) in {JSON, PROBLEM, NDJSON, MSGPACK}


def own_body(headers: Iterable[tuple[bytes, bytes]], body: bytes, namespace: str) -> bytes:
    """The *body* of an answer that is a document, without the namespace in its names."""
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
    """Takes a document apart, in one form, and puts it together again. Immutable."""

    __slots__ = ("_decode", "_encode", "_list_marks", "_lists", "_map_marks", "_maps", "_prefix", "_prefix_bytes")

    def __init__(self, namespace: str, *, is_packed: bool) -> None:
        self._prefix = namespace + SEPARATOR
        # Nothing in it is ever escaped, in either form.
        self._prefix_bytes = self._prefix.encode()
        self._encode = msgspec.msgpack.encode if is_packed else msgspec.json.encode
        self._decode = msgspec.msgpack.decode if is_packed else msgspec.json.decode
        self._maps, self._lists = (_RAW_PACKED, _RAW_PACKEDS) if is_packed else (_RAW_JSON, _RAW_JSONS)
        # First bytes.
        self._map_marks: frozenset[int] = _PACKED_MAPS if is_packed else _JSON_MAPS
        self._list_marks: frozenset[int] = _PACKED_LISTS if is_packed else _JSON_LISTS

    def value(self, raw: bytes | msgspec.Raw) -> bytes | msgspec.Raw:
        """*raw* without the namespace where a name is."""
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
    """*value* with the namespace taken out of every text in it: sentences and paths of ours."""
    if isinstance(value, str):
        return value.replace(prefix, "").replace(prefix.replace(SEPARATOR, "%25"), "")
    if isinstance(value, dict):
        return {_own_texts(name, prefix): _own_texts(item, prefix) for name, item in value.items()}
    return [_own_texts(item, prefix) for item in value] if isinstance(value, list) else value
