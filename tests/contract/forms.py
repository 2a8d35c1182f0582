"""The API document as schemathesis reads it, and the forms that it does not know: MessagePack, and one JSON document a line."""

import base64
import copy
import json
from typing import Any

import msgspec
import schemathesis
from schemathesis import Case, DeserializationContext, Response, SerializationContext

from tern_wire.paths import EVENT_STREAM, JSONL, MSGPACK, NDJSON

Document = dict[str, Any]
_EVENT: Document = {
    "type": "object",
    "required": ["data", "id"],
    "properties": {
        "data": {"type": "string", "pattern": r"^\{.*\}$"},
        "event": {"enum": ["skipped", "end", "error", "message"]},
        "id": {"type": "string", "pattern": "^1-[A-Za-z0-9_-]+$"},
    },
}


def readable(document: Document) -> Document:
    """*document*, with the lines of NDJSON as a list, and server-sent events one by one: OpenAPI 3.1 has no word for them (3.2
    has itemSchema).
    """
    found = copy.deepcopy(document)
    for methods in found["paths"].values():
        for operation in methods.values():
            content = operation.get("requestBody", {}).get("content", {})
            for kind in {NDJSON, JSONL} & content.keys():
                lines = {"type": "array", "minItems": 1, "items": content[kind]["x-itemSchema"]}
                content[kind] = {"schema": lines}
            for answer in operation["responses"].values():
                if EVENT_STREAM in answer.get("content", {}):
                    # schemathesis reads server-sent events, and compares each of them.
                    answer["content"][EVENT_STREAM] = {"schema": _EVENT}
    return found


@schemathesis.serializer(NDJSON, JSONL)
def _write_lines(_: SerializationContext, value: Any) -> bytes:
    if not isinstance(value, list):
        return json.dumps(value).encode()
    return b"".join(json.dumps(line).encode() + b"\n" for line in value)


@schemathesis.serializer(MSGPACK)
def _write_packed(_: SerializationContext, value: Any) -> bytes:
    return msgspec.msgpack.encode(_packable(value))


def _packable(value: Any) -> Any:
    """*value* with what MessagePack has no room for as a text, and a body as bytes."""
    if isinstance(value, dict):
        return {
            str(name): item.encode("utf-8", "replace") if name == "body" and isinstance(item, str) else _packable(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_packable(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value


@schemathesis.deserializer(MSGPACK)
def _read_packed(_: DeserializationContext, response: Response) -> Any:
    return _shown(msgspec.msgpack.decode(response.content))


def _shown(value: Any) -> Any:
    """*value* as JSON Schema sees it: bytes are a text."""
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


@schemathesis.deserializer(NDJSON)
def _read_lines(_: DeserializationContext, response: Response) -> Any:
    text = response.content.decode()
    for line in text.splitlines():
        json.loads(line)
    return text


def curl(case: Case[Any]) -> str:
    """The request, to be tried again."""
    return str(case.as_curl_command())
