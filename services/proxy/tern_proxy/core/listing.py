"""Pages of lists: bounded and ordered, continued by a cursor.

A cursor names the last row that was returned, not a number of rows. So a creation or deletion
between two pages neither repeats nor skips a row.
"""

import base64
import binascii
import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tern_proxy.core.sending.parameters import number_of
from tern_wire.errors import InvalidField, TernError
from tern_wire.limits import LISTED_MAX
from tern_wire.link.codec import decode_msgpack, encode_msgpack

LISTED_DEFAULT = 100
PARAMETERS = ("limit", "cursor", "q", "sort")
PATTERN_LENGTH_MAX = 128
# Position of a row: its sort key and its name.
Place = tuple[Any, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Requested page: rows with *pattern* (lower case) in their name, by *sort* and then by name,
    at most *limit* behind *after*.
    """

    limit: int
    pattern: str
    sort: str
    descending: bool
    after: Place | None


def read_page(query: Mapping[str, str], sorts: Mapping[str, type]) -> Page:
    """Return the page that *query* requests. Raise InvalidField.

    *sorts*: the legal sort keys and their types; the first is the default.
    """
    sort = query.get("sort", next(iter(sorts)))
    descending, sort = sort.startswith("-"), sort.removeprefix("-")
    if sort not in sorts:
        shown = ", ".join(sorts)
        raise InvalidField(reason=f"'sort' is one of {shown}, with '-' in front to turn it round", pointer="query/sort")
    pattern = query.get("q", "")
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidField(reason=f"'q' has at most {PATTERN_LENGTH_MAX} characters", pointer="query/q")
    return Page(
        limit=number_of(query.get("limit", LISTED_DEFAULT), "limit", 1, LISTED_MAX),
        pattern=pattern.lower(),
        sort=sort,
        descending=descending,
        after=_read_cursor(query["cursor"], sorts[sort]) if query.get("cursor") else None,
    )


def take_page(places: Iterable[Place], page: Page) -> tuple[list[str], str]:
    """Return the names of the rows of *page*, from the positions of all rows, and the cursor of the
    next page.

    The cursor is "" after the last page.
    """
    after = page.after
    left = (place for place in places if after is None or (place < after if page.descending else place > after))
    choose: Callable[[int, Iterable[Place]], list[Place]] = heapq.nlargest if page.descending else heapq.nsmallest
    found = choose(page.limit + 1, left)
    shown = found[: page.limit]
    return [name for _, name in shown], write_cursor(shown[-1]) if len(found) > page.limit else ""


def write_cursor(place: Place) -> str:
    """Return the position of a row as opaque text."""
    return base64.urlsafe_b64encode(encode_msgpack(list(place))).rstrip(b"=").decode()


def _read_cursor(text: str, kind: type) -> Place:
    try:
        found = decode_msgpack(base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, TernError):
        found = None
    if isinstance(found, list) and len(found) == 2 and type(found[0]) is kind and type(found[1]) is str:
        return found[0], found[1]
    raise InvalidField(reason="Use 'next_cursor' of the page before, with the same 'sort'", pointer="query/cursor")
