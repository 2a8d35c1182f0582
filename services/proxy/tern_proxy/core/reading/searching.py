"""Pages of messages found by key, merged from all broker groups: newest first, with a cursor.

The cursor, as URL-safe base64 of MessagePack: {broker group: place of the last returned message, or
null for none yet}. A broker group without older messages is absent. A place names an entry of that
group's key index, so continuing costs nothing.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, UnsetType

from tern_proxy.core.documents.messages import ReadMessage
from tern_proxy.core.documents.queries import FoundMessage, GroupTrace, MessageTrace
from tern_wire.errors import InvalidField, TernError
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.link.queries import TracedGroup

Place = list[int]
_PLACE_MAX = (1 << 63) - 1
CURSOR_LENGTH_MAX = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPage:
    """The result of one broker group behind *after*.

    Messages with their places, newest first, and the next place (None: the end).
    """

    after: Place | None
    messages: list[tuple[FoundMessage, Place]]
    next: Place | None
    truncated: bool


def found_message(message: ReadMessage) -> FoundMessage:
    """Return *message* in the form of a search."""
    fields = {name: getattr(message, name) for name in FoundMessage.__struct_fields__}
    return FoundMessage(**fields | {"offset": _visible_offset(message)})


def message_trace(message: ReadMessage, visible_ms: int, groups: list[GroupTrace]) -> MessageTrace:
    """Return the trace of *message*.

    *visible_ms*: the time since which it is visible, 0 when unknown.
    """
    own = set(MessageTrace.__struct_fields__) - {"visible_at", "groups", "offset"}
    trace = MessageTrace(
        **{name: getattr(message, name) for name in own}, offset=_visible_offset(message), groups=groups
    )
    if visible_ms:
        trace.visible_at = visible_ms
    return trace


def _visible_offset(message: ReadMessage) -> int | UnsetType:
    return message.offset if message.offset >= 0 else UNSET


def group_trace(traced: TracedGroup) -> GroupTrace:
    """Return the trace of a message in one group; fields without meaning are omitted."""
    return GroupTrace(
        group=traced.group,
        state=traced.state,
        attempts=UNSET if traced.attempts is None else traced.attempts,
        until=UNSET if traced.until_ms is None else traced.until_ms,
        cause=traced.cause or UNSET,
        reason=traced.reason or UNSET,
        dead_letter_offset=UNSET if traced.dead_letter_offset is None else traced.dead_letter_offset,
    )


def put_together(pages: dict[str, FoundPage], limit: int) -> tuple[list[FoundMessage], dict[str, Place | None]]:
    """Return at most *limit* messages of *pages* (by broker group), newest first, and the cursor.

    The cursor is behind them; {} at the end.
    """
    taken = dict.fromkeys(pages, 0)
    shown: list[FoundMessage] = []
    while len(shown) < limit:
        newest = max(
            (name for name, page in pages.items() if taken[name] < len(page.messages)),
            key=lambda name: pages[name].messages[taken[name]][0].stored_at,
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
    """Return *cursor* as text, "" for {}."""
    return base64.urlsafe_b64encode(encode_msgpack(cursor)).rstrip(b"=").decode() if cursor else ""


def read_cursor(text: str) -> dict[str, Place | None]:
    """Return the cursor of a text. Raise InvalidField for other texts."""
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
