"""Attributes of topics and groups: names and values of people and tools, stored without
interpretation.
"""

import re
from typing import Any

from tern_wire.errors import InvalidField
from tern_wire.limits import ATTRIBUTE_VALUE_SIZE_MAX_BYTES, ATTRIBUTES_MAX, ATTRIBUTES_SIZE_MAX_BYTES

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_attributes(value: Any) -> dict[str, str | None]:
    """Return *value* as changes of attributes: texts are set, None removes.

    Raise InvalidField unless every name and value is legal.
    """
    if not isinstance(value, dict):
        raise InvalidField(reason="Attributes are names with texts", pointer="/attributes")
    if len(value) > ATTRIBUTES_MAX:
        raise InvalidField(reason=f"There are at most {ATTRIBUTES_MAX} attributes", pointer="/attributes")
    for name, text in value.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            reason = "An attribute's name has 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit"
            raise InvalidField(reason=reason, pointer=f"/attributes/{str(name)[:80]}")
        if text is not None and not _is_value(text):
            reason = (
                f"An attribute is a text of at most {ATTRIBUTE_VALUE_SIZE_MAX_BYTES} bytes without control characters"
            )
            raise InvalidField(reason=reason, pointer=f"/attributes/{name}")
    return dict(value)


def merged(before: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    """Return *before* with *changes*, in order of names; raise InvalidField when there would be too
    many.
    """
    after = {name: text for name, text in sorted({**before, **changes}.items()) if text is not None}
    size_bytes = sum(len(name) + len(text.encode()) for name, text in after.items())
    if len(after) > ATTRIBUTES_MAX or size_bytes > ATTRIBUTES_SIZE_MAX_BYTES:
        reason = f"All attributes together are at most {ATTRIBUTES_MAX} and {ATTRIBUTES_SIZE_MAX_BYTES} bytes"
        raise InvalidField(reason=reason, pointer="/attributes")
    return after


def _is_value(text: Any) -> bool:
    if not isinstance(text, str) or any(sign < " " or sign == "\x7f" for sign in text):
        return False
    try:
        return len(text.encode()) <= ATTRIBUTE_VALUE_SIZE_MAX_BYTES
    except UnicodeEncodeError:
        return False
