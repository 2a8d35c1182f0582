"""Pydantic's models and dataclasses as bodies.

Law: this module never imports pydantic. Whoever defines a model has imported it, so it is taken
from the modules that are loaded.
"""

import sys
from functools import lru_cache
from typing import Any, get_args

from tern_client.bodies.mismatch import BodyMismatch, mismatch

# Types whose adapters are kept; a program has as many as it has models.
_ADAPTERS_MAX = 256


def is_model(kind: object) -> bool:
    """Whether *kind* is a model or a dataclass of pydantic 2."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_serializer__") and "pydantic" in sys.modules


def has_model(annotation: object) -> bool:
    """Whether *annotation* is a model, or names one in its arguments: `list[Order]`."""
    return is_model(annotation) or any(map(has_model, get_args(annotation)))


def encoded(value: object) -> bytes:
    """Return the JSON of a model's instance, by the rules of its class."""
    kind: Any = type(value)
    if hasattr(kind, "model_dump_json"):
        text: str = kind.model_dump_json(value)
        return text.encode()
    found: bytes = _adapter(kind).dump_json(value)
    return found


def plain(value: object) -> object:
    """Return a model's instance as values of JSON, for a place within another value."""
    kind: Any = type(value)
    return _adapter(kind).dump_python(value, mode="json")


def decoded(annotation: Any, body: bytes) -> object:
    """Return the value of type *annotation* in the JSON *body*; BodyMismatch."""
    try:
        return _adapter(annotation).validate_json(body)
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        raise _mismatch(annotation, error) from error


def _mismatch(annotation: object, error: Any) -> BodyMismatch:
    first, *others = error.errors(include_url=False, include_context=False, include_input=False)
    path = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in first["loc"])
    more = f", and {len(others)} more" if others else ""
    return mismatch(annotation, f"{first['msg']}{more}", f"${path}" if path else "")


@lru_cache(_ADAPTERS_MAX)
def _adapter(annotation: Any) -> Any:
    return sys.modules["pydantic"].TypeAdapter(annotation)
