"""Headers and query strings of the hot routes: known names are parsed, unknown ones are refused by
name.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, urlencode

from tern_proxy.core.documents.sends import PackedMessage
from tern_proxy.core.sending.batches import PACKED, media_type
from tern_wire.errors import (
    IllegalDeliveryTime,
    IllegalIdempotencyKey,
    IllegalInvisibleTime,
    IllegalMessageGroup,
    IllegalWait,
    InvalidField,
    NotAcceptable,
    TernError,
    UnknownField,
    UnknownParameter,
)
from tern_wire.limits import INVISIBLE_MAX_MS, INVISIBLE_MIN_MS, WAIT_MAX_MS
from tern_wire.link.codec import read_json
from tern_wire.paths import (
    HEADER_CONTENT_ENCODING,
    HEADER_DELAY,
    HEADER_DELAY_LEVEL,
    HEADER_DELIVER_AT,
    HEADER_IDEMPOTENCY_KEY,
    HEADER_KEY,
    HEADER_MESSAGE_GROUP,
    HEADER_NAMESPACE,
    HEADER_PROPERTIES,
    HEADER_PROPERTY_PREFIX,
    HEADER_QUEUE,
    HEADER_REQUEST_ID,
    HEADER_TAG,
    JSON,
    MSGPACK,
    NDJSON,
    OCTETS,
    RECORDS,
)
from tern_wire.times import given_duration, parse_duration_ms, parse_time_ms

Headers = Iterable[tuple[bytes, bytes]]
Query = list[tuple[str, str]]
# A client's value and its pointer.
Given = tuple[str, str]

SEND_PARAMETERS = ("tag", "key", "queue", "message_group", "delay", "deliver_at", "delay_level", "idempotency_key")
_MQ_HEADERS = (
    HEADER_TAG,
    HEADER_KEY,
    HEADER_QUEUE,
    HEADER_MESSAGE_GROUP,
    HEADER_DELAY,
    HEADER_DELIVER_AT,
    HEADER_DELAY_LEVEL,
    HEADER_CONTENT_ENCODING,
    HEADER_PROPERTIES,
    HEADER_PROPERTY_PREFIX + "<name>",
    HEADER_IDEMPOTENCY_KEY,
    # Parsed before all routes: see core/access/namespaces.py.
    HEADER_NAMESPACE,
    HEADER_REQUEST_ID,
)
_TAG, _KEY, _QUEUE, _PROPERTIES, _PREFIX, _IDEMPOTENCY_KEY, _REQUEST_ID = (
    name.lower().encode()
    for name in (
        HEADER_TAG,
        HEADER_KEY,
        HEADER_QUEUE,
        HEADER_PROPERTIES,
        HEADER_PROPERTY_PREFIX,
        HEADER_IDEMPOTENCY_KEY,
        HEADER_REQUEST_ID,
    )
)
_CONTENT_ENCODING = HEADER_CONTENT_ENCODING.lower().encode()
# Header or query parameter -> field of the message, for delivery time and order.
_TIMING = {
    HEADER_MESSAGE_GROUP.lower().encode(): "message_group",
    HEADER_DELAY.lower().encode(): "delay",
    HEADER_DELIVER_AT.lower().encode(): "deliver_at",
    HEADER_DELAY_LEVEL.lower().encode(): "delay_level",
}
_TIMING_FIELDS = frozenset(_TIMING.values())
QUERY_FIELDS_MAX = 64
# The year 2286: later times are mistakes, such as microseconds.
TIME_MAX_MS = 9_999_999_999_999


def read_query(query_string: bytes, allowed: tuple[str, ...]) -> Query:
    """Return pairs of name and value in order.

    Raise UnknownParameter unless every name is in *allowed*.
    """
    if not query_string:
        return []
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError as error:  # UnicodeDecodeError is one
        reason = f"The query string is not percent-encoded UTF-8 of at most {QUERY_FIELDS_MAX} parameters"
        raise InvalidField(reason=reason, pointer="query") from error
    for name, _ in pairs:
        if name not in allowed:
            raise UnknownParameter(parameter=name[:80], allowed=", ".join(allowed) or "none")
    return pairs


def read_query_once(query_string: bytes, allowed: tuple[str, ...]) -> dict[str, str]:
    """Parse a query in which each name occurs at most once.

    Raise InvalidField otherwise, and errors of `read_query`.
    """
    pairs = read_query(query_string, allowed)
    fields = dict(pairs)
    if len(fields) != len(pairs):
        name = next(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))
        raise InvalidField(reason=f"The parameter '{name}' is given more than once", pointer=f"query/{name}")
    return fields


def read_send(headers: Headers, query_string: bytes, body: bytes) -> PackedMessage:
    """Return the message of a single send: *body* unchanged, metadata from headers and query.

    The query overrides headers. Raise UnknownField for an unknown MQ-* header and UnknownParameter
    for an unknown query parameter.
    """
    message = PackedMessage(body)
    for name, value in headers:
        if name == b"content-type":
            message.content_type = header_text(name, value)
        elif name.startswith(b"mq-"):
            _read_mq_header(message, name, value)
        elif name == _IDEMPOTENCY_KEY:
            if not value:
                raise IllegalIdempotencyKey(pointer=f"header/{HEADER_IDEMPOTENCY_KEY}")
            message.idempotency_key = header_text(name, value)
    keys: list[str] = []
    for parameter, text in read_query(query_string, SEND_PARAMETERS):
        if parameter == "key":
            keys.append(text)
        elif parameter == "tag":
            message.tag = text
        elif parameter == "queue":
            message.queue = text
        elif parameter in _TIMING_FIELDS:
            _read_timing(message, parameter, text, f"query/{parameter}")
        elif not text:
            raise IllegalIdempotencyKey(pointer="query/idempotency_key")
        else:
            message.idempotency_key = text
    if keys:
        message.keys = keys
    return message


def _read_mq_header(message: PackedMessage, name: bytes, value: bytes) -> None:
    text = header_text(name, value)
    if name == _TAG:
        message.tag = text
    elif name == _KEY:
        message.keys = [*message.keys, text]
    elif name == _QUEUE:
        message.queue = text
    elif name in _TIMING:
        _read_timing(message, _TIMING[name], text, f"header/{name.decode()}")
    elif name == _CONTENT_ENCODING:
        message.content_encoding = text
    elif name == _PROPERTIES:
        given: dict[str, str] = read_json(value, dict[str, str], f"header/{HEADER_PROPERTIES}")
        message.properties = message.properties | given
    elif name.startswith(_PREFIX):
        message.properties = message.properties | {name[len(_PREFIX) :].decode("latin-1"): text}
    elif name != _REQUEST_ID:
        shown = name.decode("latin-1")[:80]
        raise UnknownField(field=shown, pointer=f"header/{shown}", allowed=", ".join(_MQ_HEADERS))


def _read_timing(message: PackedMessage, field: str, text: str, pointer: str) -> None:
    if field == "message_group":
        if not text:
            raise IllegalMessageGroup(pointer=pointer)
        message.message_group = text
    elif field == "delay":
        message.delay = text
    elif field == "deliver_at":
        message.deliver_at = text
    elif text.isascii() and text.isdecimal() and len(text) <= 9:
        message.delay_level = int(text)
    else:
        raise IllegalDeliveryTime(reason=f"The delay level is '{text[:40]}'", pointer=pointer)


def header_text(name: bytes, value: bytes) -> str:
    """Return *value* as text. Raise InvalidField unless it is UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        shown = name.decode("latin-1")
        raise InvalidField(reason="A header is UTF-8 text", pointer=f"header/{shown}") from error


def split_own(
    headers: Headers, query_string: bytes, own: Mapping[str, str], allowed: tuple[str, ...]
) -> tuple[dict[str, Given], list[tuple[bytes, bytes]], bytes]:
    """Split off the parameters in *own* (parameter -> header).

    Return their values by parameter, and the headers and the query without them. Raise
    UnknownParameter for a name outside *allowed*.
    """
    given: dict[str, Given] = {}
    by_header = {header.lower().encode(): (name, header) for name, header in own.items()}
    rest: list[tuple[bytes, bytes]] = []
    for header, value in headers:
        if header not in by_header:
            rest.append((header, value))
            continue
        name, shown = by_header[header]
        if name in given:
            raise InvalidField(reason=f"The header {shown} is given more than once", pointer=f"header/{shown}")
        given[name] = (value.decode("latin-1"), f"header/{shown}")
    left: list[tuple[str, str]] = []
    of_query: dict[str, Given] = {}
    for name, text in read_query(query_string, allowed):
        if name not in own:
            left.append((name, text))
        elif name in of_query:
            raise InvalidField(reason=f"The parameter '{name}' is given more than once", pointer=f"query/{name}")
        else:
            of_query[name] = (text, f"query/{name}")
    return given | of_query, rest, urlencode(left).encode()


# Durations and numbers ----------------------------------------------------------------------------
def wait_of(value: str | int) -> int:
    """Return the milliseconds of a `wait`. Raise IllegalWait unless 0 to WAIT_MAX_MS."""
    return _duration(value, 0, WAIT_MAX_MS, IllegalWait)


def invisible_of(value: str | int) -> int:
    """Return the milliseconds of an `invisible` time.

    Raise IllegalInvisibleTime unless INVISIBLE_MIN_MS to INVISIBLE_MAX_MS.
    """
    return _duration(value, INVISIBLE_MIN_MS, INVISIBLE_MAX_MS, IllegalInvisibleTime)


def _duration(value: str | int, least_ms: int, most_ms: int, error: type[TernError]) -> int:
    try:
        duration_ms = parse_duration_ms(value)
    except ValueError as reason:
        raise error(actual=given_duration(value)) from reason
    if not least_ms <= duration_ms <= most_ms:
        raise error(actual=given_duration(value))
    return duration_ms


def number_of(text: str | int, name: str, least: int, most: int, at: str = "query/") -> int:
    """Return a whole number in *least*..*most*. Raise InvalidField otherwise."""
    digits = str(text)
    if not (digits.isascii() and digits.removeprefix("-").isdecimal() and len(digits) <= 19):
        raise InvalidField(reason=f"'{name}' is '{digits[:40]}'; it is a whole number", pointer=f"{at}{name}")
    number = int(digits)
    if not least <= number <= most:
        raise InvalidField(reason=f"'{name}' is {number}; use {least} to {most}", pointer=f"{at}{name}")
    return number


def time_of(value: str | int, pointer: str) -> int:
    """Return the milliseconds since 1970 of a time (`parse_time_ms`), up to TIME_MAX_MS.

    Raise InvalidField at *pointer* otherwise.
    """
    try:
        time_ms = parse_time_ms(value)
    except ValueError as error:
        raise InvalidField(reason=f"{error}; use ms since 1970, or 2026-01-31T12:00:00Z", pointer=pointer) from error
    if time_ms > TIME_MAX_MS:
        raise InvalidField(reason=f"{time_ms} is behind the year 2286: times are in ms since 1970", pointer=pointer)
    return time_ms


# Content types ------------------------------------------------------------------------------------
_ALIASES = {**dict.fromkeys(PACKED, MSGPACK), "application/jsonl": NDJSON, "application/ndjson": NDJSON}
_WILDCARDS = frozenset({"*/*", "application/*"})
BASIC = (JSON, MSGPACK)
RECEIVED = (JSON, NDJSON, MSGPACK, OCTETS)
PULLED = (JSON, NDJSON, MSGPACK, RECORDS)


@lru_cache(maxsize=256)
def _choose(accept: str, supported: tuple[str, ...]) -> str:
    best, best_q = "", 0.0
    for item in accept.split(","):
        kind, _, rest = item.partition(";")
        kind = kind.strip().lower()
        chosen = supported[0] if kind in _WILDCARDS else _ALIASES.get(kind, kind)
        if chosen not in supported:
            continue
        q = 1.0
        for parameter in rest.split(";"):
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "q":
                try:
                    q = float(value)
                except ValueError:
                    q = 0.0
        if q > best_q:
            best, best_q = chosen, q
    return best


def answer_kind(accept: str, supported: tuple[str, ...]) -> str:
    """Return the type among *supported* that an Accept header prefers; the first if it is "".

    Raise NotAcceptable when none matches. Reference: RFC 9110 12.5.1, quality values included.
    """
    if not accept or accept == "*/*":
        return supported[0]
    chosen = _choose(accept[:400], supported)
    if not chosen:
        raise NotAcceptable(accept=accept[:80], supported=", ".join(supported))
    return chosen


def is_packed(content_type: str) -> bool:
    """Return whether a request body is MessagePack.

    Every other body is parsed as JSON, because curl -d declares a form.
    """
    return media_type(content_type) in PACKED
