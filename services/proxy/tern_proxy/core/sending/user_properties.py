"""Keys and properties that a producer gives a message, validated.

Only messages with one of these fields are processed here.
"""

from tern_proxy.core.sending.topic import is_printable
from tern_wire.errors import IllegalKey, IllegalProperty
from tern_wire.limits import (
    KEYS_MAX,
    PROPERTIES_MAX,
    PROPERTY_NAME_SIZE_MAX_BYTES,
    PROPERTY_VALUE_SIZE_MAX_BYTES,
)
from tern_wire.records.properties import RESERVED_PROPERTIES


def joined_keys(keys: list[str]) -> str:
    """Return *keys* as RocketMQ stores them, separated by spaces. Raise IllegalKey."""
    text = " ".join(keys)
    # Splitting returns the same list only if no key is empty or contains white space.
    if len(keys) > KEYS_MAX or text.split() != keys or not is_printable(text):
        raise IllegalKey(pointer="/keys")
    return text


def user_properties(properties: dict[str, str]) -> str:
    r"""Return *properties* as `k\x01v\x02...`. Raise IllegalProperty."""
    if len(properties) > PROPERTIES_MAX:
        raise IllegalProperty(reason=f"A message has at most {PROPERTIES_MAX} properties", pointer="/properties")
    text = ""
    for name, value in properties.items():
        reason = ""
        if not name or len(name.encode()) > PROPERTY_NAME_SIZE_MAX_BYTES:
            reason = f"A property's name has 1 to {PROPERTY_NAME_SIZE_MAX_BYTES} bytes"
        elif name in RESERVED_PROPERTIES:
            reason = f"{name} is a name that the broker gives a meaning"
        elif len(value.encode()) > PROPERTY_VALUE_SIZE_MAX_BYTES:
            reason = f"A property's value has at most {PROPERTY_VALUE_SIZE_MAX_BYTES} bytes"
        elif not is_printable(name) or not is_printable(value):
            reason = "Names and values of properties have no control characters"
        if reason:
            raise IllegalProperty(reason=reason, pointer=f"/properties/{name[:PROPERTY_NAME_SIZE_MAX_BYTES]}")
        text += f"{name}\x01{value}\x02"
    return text
