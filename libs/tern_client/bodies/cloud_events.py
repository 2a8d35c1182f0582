"""CloudEvents 1.0 as bodies, in both modes.

    binary       attributes in properties `CE_type`, `CE_source`, ...; `datacontenttype` is the
                 content type; the body is the data
    structured   the body is one JSON document with attributes and data; its content type is
                 application/cloudevents+json

Properties are written as RocketMQ's binding has them, with `_`: a filter in SQL has no names with
`-`. Read are `ce-` and `ce_` too, in any case, as the bindings of HTTP and Kafka write them.

Reference: CloudEvents 1.0.2, JSON event format 1.0.2, RocketMQ's transport binding.
"""

import os
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec

from tern_client.bodies.content_types import JSON, TEXT, is_json
from tern_client.bodies.json_values import encode_json
from tern_client.bodies.mismatch import mismatch
from tern_wire.errors import InvalidField

Data = TypeVar("Data")
# Reads data by its content type.
ReadData = Callable[[bytes, str], Any]
PREFIX = "CE_"
_VERSION = "1.0"
_BYTES = (bytes, bytearray, memoryview)
_TEXTS = ("id", "source", "type", "subject", "dataschema", "datacontenttype")
_OWN = frozenset({"specversion", "time", "data", "data_base64", *_TEXTS})
_PROPERTY = re.compile(r"ce[-_](?P<name>[a-z0-9]+)", re.IGNORECASE | re.ASCII)
_EXTENSION = re.compile(r"[a-z0-9]{1,64}", re.ASCII)
_document = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _new_id() -> str:
    return os.urandom(16).hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvent(Generic[Data]):
    """One event of CloudEvents 1.0. As a body it is sent in binary mode; a producer with
    `serializer="cloudevents"` sends it in structured mode. Both are read by `decode`.

    - `type` and `source` are required; `id` is random unless it is given.
    - `data`: bytes are sent as they are, text as `text/plain`, all else as JSON, unless
      `datacontenttype` says that text is JSON.
    - `time`: a naive datetime is local time. `extensions`: names are lower-case letters and digits;
      in binary mode their values come back as texts.

    `CloudEvent[Order]` is the type of an event whose data is an Order. InvalidField.

    Example:

        from tern_client import BlockingConsumer, BlockingProducer, CloudEvent

        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", CloudEvent(type="order.paid", source="/shop", data={"id": 17}))
        with BlockingConsumer("http://127.0.0.1:8080", "orders", "billing") as consumer:
            for message in consumer.until_idle():
                event = message.decode(CloudEvent)
                print(event.type, event.data)  # -> order.paid {'id': 17}
                consumer.ack(message)
    """

    type: str
    source: str
    id: str = field(default_factory=_new_id)
    data: Data | None = None
    subject: str = ""
    time: datetime | None = None
    datacontenttype: str = ""
    dataschema: str = ""
    extensions: Mapping[str, str | int | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _TEXTS:
            value = getattr(self, name)
            if not isinstance(value, str) or (not value and name in {"id", "source", "type"}):
                raise InvalidField(reason=f"An event's {name} is a text that is not empty", pointer=f"/{name}")
        if self.time is not None and not isinstance(self.time, datetime):
            raise InvalidField(reason="An event's time is a datetime", pointer="/time")
        for name, given in self.extensions.items():
            if name in _OWN or _EXTENSION.fullmatch(name) is None:
                raise InvalidField(reason="An extension's name is 1 to 64 of a-z and 0-9", pointer=f"/{name[:80]}")
            if not isinstance(given, str | int):
                raise InvalidField(reason="An extension is a text, an integer or a boolean", pointer=f"/{name}")


# Writing ----------------------------------------------------------------------------------------
def binary_parts(event: CloudEvent[Any]) -> tuple[bytes, str, dict[str, str]]:
    """Return body, content type and properties of *event* in binary mode."""
    body, content_type = _data_of(event)
    attributes = {**_attributes(event), **event.extensions}
    properties = {f"{PREFIX}{name}": _text(value) for name, value in attributes.items()}
    return body, content_type, properties


def structured_body(event: CloudEvent[Any]) -> bytes:
    """Return *event* as one JSON document."""
    document: dict[str, Any] = {**_attributes(event), **event.extensions}
    body, content_type = _data_of(event)
    if content_type:
        document["datacontenttype"] = content_type
    if isinstance(event.data, _BYTES):
        document["data_base64"] = body
    elif is_json(content_type):
        document["data"] = msgspec.Raw(body)
    elif event.data is not None:
        document["data"] = event.data
    return msgspec.json.encode(document)


def _attributes(event: CloudEvent[Any]) -> dict[str, str]:
    """Return the attributes that are set, but for `datacontenttype`."""
    found = {"specversion": _VERSION, "id": event.id, "source": event.source, "type": event.type}
    if event.subject:
        found["subject"] = event.subject
    if event.dataschema:
        found["dataschema"] = event.dataschema
    if event.time is not None:
        found["time"] = event.time.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return found


def _data_of(event: CloudEvent[Any]) -> tuple[bytes, str]:
    """Return the data as bytes, with its content type."""
    data, content_type = event.data, event.datacontenttype
    if data is None:
        return b"", content_type
    if isinstance(data, _BYTES):
        return bytes(data), content_type
    if isinstance(data, str) and not is_json(content_type):
        return data.encode(), content_type or TEXT
    if content_type and not is_json(content_type):
        kind = type(data).__name__
        raise TypeError(f"data is a {kind}, and datacontenttype is '{content_type[:80]}': give bytes or a str")
    return encode_json(data, "data"), content_type or JSON


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Reading ----------------------------------------------------------------------------------------
def attributes_in(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of an event in binary mode; {} when *properties* are not of one."""
    found = {match["name"].lower(): value for name, value in properties.items() if (match := _PROPERTY.fullmatch(name))}
    return found if "specversion" in found else {}


def read_binary(
    body: bytes, content_type: str, attributes: Mapping[str, str], read_data: ReadData, message_id: str
) -> CloudEvent[Any]:
    """Return the event whose *attributes* were in properties; BodyMismatch."""
    content_type = content_type or attributes.get("datacontenttype", "")
    data = read_data(body, content_type) if body else None
    return _event({**attributes, "datacontenttype": content_type}, data, message_id)


def read_structured(body: bytes, read_data: ReadData, message_id: str) -> CloudEvent[Any]:
    """Return the event in the JSON document *body*; BodyMismatch."""
    attributes, data = open_structured(body, message_id)
    content_type = attributes.get("datacontenttype", "")
    return _event(attributes, None if data is None else read_data(data, content_type), message_id)


def open_structured(body: bytes, message_id: str) -> tuple[dict[str, Any], bytes | None]:
    """Return the attributes in the JSON document *body*, and the bytes of its data (None: it has
    none). Data without a content type is JSON, which `datacontenttype` says then.
    """
    try:
        found = _document(body)
        data, packed = found.pop("data", None), found.pop("data_base64", None)
        values = {name: msgspec.json.decode(value) for name, value in found.items()}
        attributes = {name: value for name, value in values.items() if value is not None}
        if not isinstance(attributes.get("datacontenttype", ""), str):
            raise ValueError("its datacontenttype is no text")
        if packed is not None:
            return attributes, b64decode(msgspec.json.decode(packed, type=str), validate=True)
        if data is None:
            return attributes, None
        if is_json(attributes.setdefault("datacontenttype", JSON)):
            return attributes, bytes(data)
        value = msgspec.json.decode(data)
        return attributes, value.encode() if isinstance(value, str) else bytes(data)
    except (ValueError, RecursionError) as error:
        raise mismatch(CloudEvent, f"it is not a CloudEvent: {error}", "", message_id) from error


def _event(attributes: Mapping[str, Any], data: Any, message_id: str) -> CloudEvent[Any]:
    if attributes.get("specversion") != _VERSION:
        reason = f"its version is {attributes.get('specversion')!r}, not '{_VERSION}'"
        raise mismatch(CloudEvent, reason, "$.specversion", message_id)
    try:
        return CloudEvent(
            **{name: attributes.get(name, "") for name in _TEXTS},
            data=data,
            time=_moment(attributes.get("time")),
            extensions={name: value for name, value in attributes.items() if name not in _OWN},
        )
    except InvalidField as error:
        path = "$" + str(error.fields["pointer"]).replace("/", ".")
        raise mismatch(CloudEvent, str(error.fields["reason"]), path, message_id) from error


def _moment(text: Any) -> Any:
    """Return the time that *text* says; *text* itself when it says none, which an event refuses."""
    try:
        return datetime.fromisoformat(text.upper()) if isinstance(text, str) else text
    except ValueError:
        return text
