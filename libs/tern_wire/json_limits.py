"""Checks of JSON documents beyond their types: unique members, 64-bit integers, depth and size.

msgspec decodes a document into a type in one pass of C. It keeps the last of two members with one
name, accepts integers of any size, and accepts any number of empty objects. Two readers that keep
different members allow a document to pass a check and then mean something else. Each check first
asks a question that costs next to nothing and may answer "perhaps"; only then the document is read
again, slowly and exactly. Used by codec.py for every body, and by the proxy for JSON inside
messages. Reference: RFC 8259 4 and 6, RFC 7493 (I-JSON).
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from tern_wire.errors import DocumentTooComplex, InvalidField
from tern_wire.limits import JSON_DEPTH_MAX, JSON_INTEGER_MAX, JSON_INTEGER_MIN

# Every integer beyond 64 bits has at least this many digits; `_AS_DIGITS` maps each digit to a 0.
_LONG_NUMBER = b"0" * 19
_AS_DIGITS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_BRACKETS = b"[]{}"
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
# An escaped colon (`\u003a`), which no count of colons includes.
_ESCAPED_COLON = re.compile(rb"\\u003[aA]")
_BACKSLASH = 0x5C
_DIGITS_MAX = 20


@dataclass(frozen=True, slots=True)
class Facts:
    """The checks that a type needs: a list of texts can hold neither integers nor depth.

    Types with raw JSON are messages. Their only integers are delivery times, whose own range is
    narrower. These documents are large and are not searched for digits.
    """

    has_integers: bool
    has_raw: bool
    is_open: bool


@lru_cache(maxsize=64)
def facts_of(kind: Any) -> Facts:
    """Return the facts of the type *kind*, as msgspec decodes it."""
    names = set(_types_in(msgspec.inspect.type_info(kind)))
    has_raw = "RawType" in names
    return Facts(bool(names & {"IntType", "FloatType", "AnyType"}) and not has_raw, has_raw, "AnyType" in names)


def _types_in(info: Any) -> list[str]:
    found = [type(info).__name__]
    for name in ("fields", "types", "item_types"):
        for inner in getattr(info, name, ()):
            found += _types_in(getattr(inner, "type", inner))
    # `type` is the inner type of a type with annotations for the API document.
    for name in ("item_type", "key_type", "value_type", "type"):
        inner = getattr(info, name, None)
        found += [] if inner is None else _types_in(inner)
    return found


def check_nodes(data: bytes, nodes_max: int, at: str = "") -> None:
    """Raise DocumentTooComplex when *data* has more than *nodes_max* values and names.

    *data* need not be JSON: the check comes before parsing.
    """
    if len(data) > 2 * nodes_max and _marks(data) >= nodes_max and _marks(_STRING.sub(b'""', data)) >= nodes_max:
        raise DocumentTooComplex(limit=nodes_max, unit="values", pointer=at or "/")


def _marks(data: bytes) -> int:
    """Count commas, colons and opening brackets: one for each value except the first."""
    return sum(map(data.count, (b",", b":", b"[", b"{")))


def check_depth(data: bytes, at: str = "") -> None:
    """Raise DocumentTooComplex when *data*, which is JSON, is nested deeper than JSON_DEPTH_MAX."""
    if len(data) <= 2 * JSON_DEPTH_MAX or len(data.translate(None, _NOT_BRACKETS)) <= 2 * JSON_DEPTH_MAX:
        return
    depth = 0
    for bracket in _STRING.sub(b"", data).translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > JSON_DEPTH_MAX:
            raise DocumentTooComplex(limit=JSON_DEPTH_MAX, unit="levels", pointer=at or "/")


def check_members(data: bytes, value: Any, facts: Facts, at: str = "") -> None:
    """Check *data*, JSON that was decoded as *value* of a type with these *facts*.

    Raise InvalidField when a member is given twice or an integer has more than 64 bits,
    DocumentTooComplex when the nesting is too deep. The JSON inside a message is not checked,
    because it is transported and not read.
    """
    if facts.is_open:
        check_depth(data, at)
    has_long_number = facts.has_integers and _LONG_NUMBER in data.translate(_AS_DIGITS)
    if has_long_number or _may_repeat(data, value, facts):
        _read_exactly(data, facts, at)


def _may_repeat(data: bytes, value: Any, facts: Facts) -> bool:
    if len(data.split(b":", 2)) <= 2:
        return False  # at most one member
    # A dropped member takes its colon with it. (When defaults are written out, the encoded document
    # has fewer colons, too.)
    again = msgspec.json.encode(value) if facts.has_raw else orjson.dumps(orjson.loads(data))
    if _colons(again) != _colons(data):
        return True
    return data.find(_BACKSLASH) >= 0 and _ESCAPED_COLON.search(data) is not None


def _colons(data: bytes) -> int:
    return data.count(b":")


class _Trouble:
    """Marks a refused value in a document."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _read_exactly(data: bytes, facts: Facts, at: str) -> None:
    skipped = "json" if facts.has_raw else None

    def members(pairs: list[tuple[str, Any]]) -> _Trouble | None:
        seen: set[str] = set()
        for name, value in pairs:
            if name in seen:
                return _Trouble(f"The member '{name[:80]}' is given more than once")
            seen.add(name)
            trouble = _trouble_in(value)
            if trouble is not None and name != skipped:
                return trouble
        return None

    def integer(digits: str) -> _Trouble | None:
        if len(digits) <= _DIGITS_MAX and JSON_INTEGER_MIN <= int(digits) <= JSON_INTEGER_MAX:
            return None
        return _Trouble(f"The integer {digits[:24]} has more than 64 bits")

    try:
        found = json.loads(data.decode(), object_pairs_hook=members, parse_int=integer)
    except RecursionError as error:
        raise DocumentTooComplex(limit=JSON_DEPTH_MAX, unit="levels", pointer=at or "/") from error
    trouble = _trouble_in(found)
    if trouble is not None:
        raise InvalidField(reason=trouble.reason, pointer=at or "/")


def _trouble_in(value: Any) -> _Trouble | None:
    """Return the first refused value in *value*, whose objects were checked before.

    Lists are searched at any depth.
    """
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, _Trouble):
            return value
        if isinstance(value, list):
            waiting += reversed(value)
    return None
