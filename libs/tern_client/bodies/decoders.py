"""What a consumer gets from a body: the value of a type that it asks for, or of the type that the
content type names.

    bytes, str                         the body; its text (of a JSON text: the text that it says)
    CloudEvent, CloudEvent[Order]      the event, in either mode
    Any, or none given                 by content type: JSON, text, CloudEvent; else bytes
    all else                           JSON that fits the type (of an event in structured mode:
                                       its data)

Law: what does not fit is a BodyMismatch, whatever a body holds. A TypeError says that the type
itself can never be read.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args, get_origin, overload

from tern_client.bodies.cloud_events import CloudEvent, attributes_in, open_structured, read_binary, read_structured
from tern_client.bodies.content_types import CLOUD_EVENT, is_json, is_text, media_type
from tern_client.bodies.json_values import json_decoder
from tern_client.bodies.mismatch import BodyMismatch, mismatch
from tern_wire.errors import TernError

T = TypeVar("T")
_NO_PROPERTIES: Mapping[str, str] = {}
# Types whose decoders are kept; a program has as many as it has handlers.
_DECODERS_MAX = 256
# Reads one representation: body and content type.
_Read = Callable[[bytes, str], Any]


class Decoder(Protocol):
    """A decoder of bodies. Properties are needed for CloudEvents in binary mode; the id is for the
    text of an error.
    """

    def __call__(
        self, body: bytes, content_type: str, properties: Mapping[str, str] = ..., message_id: str = ...
    ) -> Any: ...


def decoder_for(annotation: Any = Any) -> Decoder:
    """Return the decoder for *annotation*, the type that a caller expects; it raises BodyMismatch.

    TypeError for a type that no body can fill, such as a class without fields, or a name that was
    not resolved (`typing.get_type_hints` resolves).
    """
    if isinstance(annotation, str):
        raise TypeError(f"the type of a body is given as the text {annotation[:80]!r}: resolve it first")
    try:
        hash(annotation)
    except TypeError:  # such as Annotated with a list
        return _decoder(annotation)
    return _kept_decoder(annotation)


def _decoder(annotation: Any) -> Decoder:
    if annotation is CloudEvent or get_origin(annotation) is CloudEvent:
        (data_type,) = get_args(annotation) or (Any,)
        return partial(_read_event, annotation, _reader(data_type))
    return partial(_read_body, annotation, _reader(annotation))


_kept_decoder = lru_cache(_DECODERS_MAX)(_decoder)


def _read_body(
    annotation: Any,
    read: _Read,
    body: bytes,
    content_type: str,
    properties: Mapping[str, str] = _NO_PROPERTIES,
    message_id: str = "",
) -> Any:
    try:
        if _is_untyped(annotation):
            if media_type(content_type) == CLOUD_EVENT:
                return read_structured(body, read, message_id)
            if attributes := attributes_in(properties):
                return read_binary(body, content_type, attributes, read, message_id)
        elif media_type(content_type) == CLOUD_EVENT and annotation not in {bytes, str}:
            attributes, data = open_structured(body, message_id)
            return read(data or b"", attributes.get("datacontenttype", ""))
        return read(body, content_type)
    except BodyMismatch as error:
        raise _with_id(error, annotation, message_id) from error.__cause__


def _read_event(
    annotation: Any,
    read: _Read,
    body: bytes,
    content_type: str,
    properties: Mapping[str, str] = _NO_PROPERTIES,
    message_id: str = "",
) -> CloudEvent[Any]:
    try:
        if media_type(content_type) == CLOUD_EVENT:
            return read_structured(body, read, message_id)
        if attributes := attributes_in(properties):
            return read_binary(body, content_type, attributes, read, message_id)
    except BodyMismatch as error:
        raise _with_id(error, annotation, message_id) from error.__cause__
    reason = f"its content type is not {CLOUD_EVENT}, and no property is CE_specversion"
    raise mismatch(annotation, reason, "", message_id)


def _with_id(error: BodyMismatch, annotation: Any, message_id: str) -> BodyMismatch:
    return mismatch(annotation, str(error.fields["reason"]), str(error.fields["path"]), message_id)


# One representation ------------------------------------------------------------------------------
def _is_untyped(annotation: Any) -> bool:
    return annotation is Any or annotation is object or annotation is inspect.Parameter.empty


def _reader(annotation: Any) -> _Read:
    if annotation is bytes:
        return lambda body, _: body
    if annotation is str:
        return _read_text
    if _is_untyped(annotation):
        return _read_fitting
    decode = json_decoder(annotation)
    return lambda body, _: decode(body)


_decode_text, _decode_any = json_decoder(str), json_decoder(Any)


def _read_text(body: bytes, content_type: str) -> str:
    if is_json(content_type) and body.lstrip()[:1] == b'"':
        text: str = _decode_text(body)
        return text
    return _text_of(body, str)


def _read_fitting(body: bytes, content_type: str) -> Any:
    if is_json(content_type):
        return _decode_any(body)
    return _text_of(body, str) if is_text(content_type) else body


def _text_of(body: bytes, kind: type) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise mismatch(kind, "it is not UTF-8") from error


class TypedBody:
    """The body of a message as a value. Base of the messages that consumers get."""

    __slots__ = ()

    # Set by the subclass.
    body: bytes
    content_type: str
    properties: Mapping[str, str]
    message_id: str
    # How the producer compressed the body, which is plain here; and why it has none.
    content_encoding: str
    refused: TernError | None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise why there is no body, in a message that has none."""
            if name == "body" and self.refused is not None:
                # Without the traces of earlier reads, which would pile up.
                raise self.refused.with_traceback(None)
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __repr__(self) -> str:
        names = [each.name for each in fields(self) if each.name != "refused"]  # type: ignore[arg-type]
        shown = [f"{name}={getattr(self, name)!r}" for name in names if name != "body" or self.refused is None]
        return f"{type(self).__name__}({', '.join(shown)})"

    @overload
    def decode(self) -> Any:
        """By content type."""

    @overload
    def decode(self, kind: type[T]) -> T:
        """A class."""

    @overload
    def decode(self, kind: Any) -> Any:
        """Another type, such as a union."""

    def decode(self, kind: Any = Any) -> Any:
        """Return the body as a value of type *kind*: a dataclass, a msgspec Struct, a pydantic
        model, types of JSON, `str`, `bytes`, or CloudEvent. Without *kind*, the content type
        decides.

        BodyMismatch: the body does not fit, or cannot be decompressed; reading `body` raises the
        latter, too. TypeError: no body can be of that type.
        """
        return decoder_for(kind)(self.body, self.content_type, self.properties, self.message_id)
