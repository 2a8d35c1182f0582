"""What a producer makes of a body that is not bytes.

    auto          str -> text/plain; CloudEvent -> binary mode; dict, list, tuple, dataclass,
                  msgspec Struct, pydantic model -> application/json
    json          every value -> application/json
    cloudevents   CloudEvent -> structured mode, and nothing else
    bytes         nothing but bytes
    a function    takes the value, returns an EncodedBody

Law: bytes are sent as they are, whatever the serializer. So the usual send asks one question.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Literal

from tern_client.bodies.arguments import what_came
from tern_client.bodies.cloud_events import CloudEvent, binary_parts, structured_body
from tern_client.bodies.content_types import CLOUD_EVENT, JSON, TEXT
from tern_client.bodies.json_values import encode_json
from tern_client.bodies.pydantic_models import is_model

_ALLOWED = (
    "bytes, str, dict, list, tuple, a dataclass, a msgspec Struct, a pydantic model or a CloudEvent "
    "(or give the producer a serializer)"
)


@dataclass(frozen=True, slots=True)
class EncodedBody:
    """What a serializer makes of a value: the bytes to send, and what describes them.

    A content type that the caller of `send` gives takes the place of this one; properties are added
    to those of the message.

    Example:

        from tern_client import BlockingConsumer, BlockingProducer, EncodedBody


        def as_csv(row: object) -> EncodedBody:
            assert isinstance(row, tuple)
            return EncodedBody(",".join(map(str, row)).encode(), "text/csv")


        with BlockingProducer("http://127.0.0.1:8080", serializer=as_csv) as producer:
            producer.send("orders", (17, "paid"))
        with BlockingConsumer("http://127.0.0.1:8080", "orders", "billing") as consumer:
            for message in consumer.until_idle():
                print(message.content_type, message.decode())  # -> text/csv 17,paid
                consumer.ack(message)
    """

    body: bytes
    content_type: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


Encode = Callable[[object], EncodedBody]
Serializer = Literal["auto", "json", "cloudevents", "bytes"] | Encode


def encoder_of(serializer: Serializer) -> Encode:
    """Return the function that *serializer* names; TypeError for another name."""
    if callable(serializer):
        return serializer
    found = _ENCODERS.get(serializer) if isinstance(serializer, str) else None
    if found is None:
        known = ", ".join(map(repr, _ENCODERS))
        raise TypeError(f"serializer is {serializer!r}; allowed are {known} or a function that returns an EncodedBody")
    return found


def encode_auto(body: object) -> EncodedBody:
    """Return *body* by its type; TypeError for types that nothing says how to write."""
    if isinstance(body, str):
        try:
            return EncodedBody(body.encode(), TEXT)
        except UnicodeEncodeError as error:
            raise ValueError(f"body cannot be written as UTF-8: {error}") from error
    if isinstance(body, CloudEvent):
        return EncodedBody(*binary_parts(body))
    if isinstance(body, bytes | bytearray | memoryview):
        return EncodedBody(bytes(body))
    kind = type(body)
    # A Struct has no base in common with others that could be imported cheaper.
    has_fields = is_dataclass(body) or hasattr(kind, "__struct_fields__") or is_model(kind)
    if isinstance(body, dict | list | tuple) or (has_fields and not isinstance(body, type)):
        return EncodedBody(encode_json(body, "body"), JSON)
    raise TypeError(f"body is {what_came(body)}; allowed are {_ALLOWED}")


def _encode_json(body: object) -> EncodedBody:
    return EncodedBody(encode_json(body, "body"), JSON)


def _encode_event(body: object) -> EncodedBody:
    if not isinstance(body, CloudEvent):
        raise TypeError(f"body is {what_came(body)}; serializer='cloudevents' takes a CloudEvent or bytes")
    return EncodedBody(structured_body(body), CLOUD_EVENT)


def _refuse(body: object) -> EncodedBody:
    raise TypeError(f"body is {what_came(body)}; serializer='bytes' takes bytes")


_ENCODERS: dict[str, Encode] = {
    "auto": encode_auto,
    "json": _encode_json,
    "cloudevents": _encode_event,
    "bytes": _refuse,
}
