"""Values as JSON and back: one engine in both directions, so that what was encoded is decoded.

    dict, list, tuple, str, numbers, bool, None    JSON
    dataclass, msgspec Struct, attrs, TypedDict    objects
    datetime, date, time, timedelta, UUID, Enum    texts (enumerations: their values)
    Decimal, bytes, set                            text, Base64, array
    pydantic models                                as their class says

NaN and infinity become null, since JSON has neither.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tern_client.bodies import pydantic_models
from tern_client.bodies.arguments import what_came
from tern_client.bodies.mismatch import BodyMismatch, mismatch, type_name

_PLACE = re.compile(r" - at `(?P<path>[^`]*)`$")


def encode_json(value: object, argument: str) -> bytes:
    """Return *value* as JSON. TypeError or ValueError that names *argument* when it has no JSON."""
    try:
        if pydantic_models.is_model(type(value)):
            return pydantic_models.encoded(value)
        return msgspec.json.encode(value, enc_hook=_plain)
    except RecursionError as error:
        raise ValueError(f"{argument} is nested too deeply for JSON, or contains itself") from error
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{argument} cannot be written as JSON: {error}") from error
    except TypeError as error:
        raise TypeError(f"{argument} is {what_came(value)} that cannot be written as JSON: {error}") from error


def _plain(value: object) -> object:
    if pydantic_models.is_model(type(value)):
        return pydantic_models.plain(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"it contains {what_came(value)}")


def json_decoder(annotation: Any) -> Callable[[bytes], Any]:
    """Return the decoder of JSON for *annotation*, which raises BodyMismatch. TypeError for a type
    that JSON cannot fill.
    """
    if pydantic_models.has_model(annotation):
        return lambda body: pydantic_models.decoded(annotation, body)
    try:
        decode = msgspec.json.Decoder(annotation, dec_hook=_made).decode
    except (TypeError, NameError) as error:
        raise TypeError(f"{type_name(annotation)} cannot be the type of a body: {error}") from error
    if isinstance(msgspec.inspect.type_info(annotation), msgspec.inspect.CustomType):
        raise _no_type(annotation)

    def decoded(body: bytes) -> Any:
        try:
            return decode(body)
        except msgspec.DecodeError as error:
            raise _mismatch(annotation, error) from error
        except UnicodeDecodeError as error:
            raise mismatch(annotation, "it is not UTF-8") from error
        except RecursionError as error:
            raise mismatch(annotation, "it is nested too deeply") from error
        except NotImplementedError as error:
            raise TypeError(str(error)) from error

    return decoded


class _ModelMismatch(ValueError):
    """A model in the middle of a body does not fit; *path* begins at the model."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(reason)
        self.path = path


def _mismatch(annotation: object, error: msgspec.DecodeError) -> BodyMismatch:
    text = str(error)
    place = _PLACE.search(text)
    path = place["path"] if place else ""
    if isinstance(error.__cause__, _ModelMismatch):
        path += error.__cause__.path.removeprefix("$")
    return mismatch(annotation, text[: place.start()] if place else text, path)


def _made(kind: Any, value: object) -> object:
    """Return *value* as the foreign type *kind* in the middle of a body."""
    if pydantic_models.is_model(kind):
        try:
            return pydantic_models.decoded(kind, msgspec.json.encode(value))
        except BodyMismatch as error:
            # msgspec adds where it is to a ValueError.
            raise _ModelMismatch(str(error.fields["reason"]), str(error.fields["path"])) from error
    # Not a TypeError, which msgspec would take for a fault of the body.
    raise NotImplementedError(str(_no_type(kind)))


def _no_type(kind: object) -> TypeError:
    return TypeError(
        f"{type_name(kind)} cannot be the type of a body: use a dataclass, a msgspec Struct, a pydantic model, "
        "or types of JSON"
    )
