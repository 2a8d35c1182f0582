"""Pages of messages found by key, put together from what each broker group found: newest first, going on behind a cursor.

The cursor, as URL-safe base64 of MessagePack: {broker group: place of the last message that was shown, or null where none was yet}. A broker group
that has nothing older is not in it. A place names an entry of that group's key index, so going on costs nothing.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from tern_wire.errors import InvalidField, TernError
from tern_wire.link.codec import decode_msgpack, encode_msgpack

Message = dict[str, Any]
Place = list[int]
_PLACE_MAX = (1 << 63) - 1
CURSOR_LENGTH_MAX = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPage:
    """What one broker group found behind *after*: messages with their places, newest first, and where it would go on (None: nowhere)."""

    after: Place | None
    messages: list[tuple[Message, Place]]
    next: Place | None
    truncated: bool


def put_together(pages: dict[str, FoundPage], limit: int) -> tuple[list[Message], dict[str, Place | None]]:
    """At most *limit* messages of *pages* (by broker group), newest first, and the cursor behind them; {} when that is all."""
    taken = dict.fromkeys(pages, 0)
    shown: list[Message] = []
    while len(shown) < limit:
        newest = max(
            (name for name, page in pages.items() if taken[name] < len(page.messages)),
            key=lambda name: int(pages[name].messages[taken[name]][0]["stored_at"]),
            default=None,
        )
        if newest is None:
            break
        shown.append(pages[newest].messages[taken[newest]][0])
        taken[newest] += 1
    cursor: dict[str, Place | None] = {}
    for name, page in pages.items():
        if taken[name] < len(page.messages):
            cursor[name] = page.messages[taken[name] - 1][1] if taken[name] else page.after
        elif page.next is not None:
            cursor[name] = page.next
    return shown, cursor


def write_cursor(cursor: dict[str, Place | None]) -> str:
    """*cursor* as text, "" for {}."""
    return base64.urlsafe_b64encode(encode_msgpack(cursor)).rstrip(b"=").decode() if cursor else ""


def read_cursor(text: str) -> dict[str, Place | None]:
    """What was written; InvalidField for anything else."""
    try:
        if len(text) > CURSOR_LENGTH_MAX:
            raise ValueError(text[:20])
        found = decode_msgpack(base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, TernError):
        found = None
    if isinstance(found, dict) and found and all(_is_entry(name, place) for name, place in found.items()):
        return found
    raise InvalidField(reason="Use 'next_cursor' of the page before", pointer="query/cursor")


def _is_entry(name: Any, place: Any) -> bool:
    if not isinstance(name, str) or not (place is None or (isinstance(place, list) and len(place) == 2)):
        return False
    return place is None or all(type(number) is int and 0 <= number <= _PLACE_MAX for number in place)
