"""Arguments of the wrong type, named: which argument, what came, what is allowed.

Values of the right type that are not allowed (a delay of 400 days) are refused by the proxy, with
its own errors.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

_KEYS = "a list or tuple of str"
_TEXTS = ("tag", "content_type", "queue", "message_group")


def check_fields(message: Any) -> None:
    """Raise TypeError for a field of an outgoing *message* whose type is wrong; its body is left to
    a serializer.
    """
    for name in _TEXTS:
        check_text(name, getattr(message, name))
    check_keys(message.keys)
    check_properties(message.properties)
    if message.delay is not None:
        check_duration("delay", message.delay)
    if message.deliver_at is not None:
        check_time("deliver_at", message.deliver_at)
    if message.delay_level is not None:
        check_integer("delay_level", message.delay_level, "an int from 1 to 18")


def check_text(name: str, value: object) -> None:
    """Raise TypeError unless *value* is a str."""
    if not isinstance(value, str):
        raise _wrong(name, value, "a str")


def check_keys(keys: object) -> None:
    """Raise TypeError unless *keys* is a sequence of texts, and not one text."""
    if isinstance(keys, str):
        raise _wrong("keys", keys, f"{_KEYS}, such as [{keys[:40]!r}]")
    if isinstance(keys, bytes | bytearray | Mapping) or not isinstance(keys, Sequence):
        raise _wrong("keys", keys, _KEYS)
    for at, key in enumerate(keys):
        if not isinstance(key, str):
            raise _wrong(f"keys[{at}]", key, "a str")


def check_properties(properties: object) -> None:
    """Raise TypeError unless *properties* maps texts to texts."""
    if not isinstance(properties, Mapping):
        raise _wrong("properties", properties, "a dict of str to str")
    for name, value in properties.items():
        if not isinstance(name, str):
            raise _wrong("a name in properties", name, "a str")
        if not isinstance(value, str):
            raise _wrong(f"properties[{name[:80]!r}]", value, "a str")


def check_duration(name: str, value: object) -> None:
    """Raise TypeError unless *value* is a duration in one of its three forms."""
    if isinstance(value, bool) or not isinstance(value, str | int | timedelta):
        raise _wrong(name, value, 'a text such as "30s", an int of milliseconds or a timedelta')


def check_time(name: str, value: object) -> None:
    """Raise TypeError unless *value* is a point in time in one of its three forms."""
    if isinstance(value, bool) or not isinstance(value, str | int | datetime):
        raise _wrong(name, value, "a datetime, an int of milliseconds since 1970 or a text of RFC 3339")


def check_integer(name: str, value: object, allowed: str) -> None:
    """Raise TypeError unless *value* is an int; *allowed* says in which unit."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, value, allowed)


def what_came(value: object) -> str:
    """Return *value* by its type, as a sentence needs it: `an int`, `None`, `the class Order`."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _wrong(name: str, value: object, allowed: str) -> TypeError:
    return TypeError(f"{name} is {what_came(value)}; allowed is {allowed}")
