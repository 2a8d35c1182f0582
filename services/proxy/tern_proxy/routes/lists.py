"""Lists page by page, filtered by the principal's rights: their parameters and logic."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from tern_proxy.access.authorization import Admission
from tern_proxy.core.listing import LISTED_DEFAULT, PATTERN_LENGTH_MAX, Page, take_page, write_cursor
from tern_proxy.routes.route import MOMENT, Schema, in_header, in_query, number
from tern_wire.limits import LISTED_MAX

# A row of a list, from broker groups.
Row = Any
# Requests a page: returns rows by name from all broker groups, each group's first ones behind
# `after`, and whether one has more.
Ask = Callable[[Page], Awaitable[tuple[dict[str, Row], bool]]]

LIMIT = number("limit", 1, LISTED_MAX, LISTED_DEFAULT, "Rows on a page.")
PATTERN = in_query("q", {"type": "string", "maxLength": PATTERN_LENGTH_MAX}, "A part of the name, case-insensitive.")
CREATE_ONLY = in_header("If-None-Match", {"const": "*"}, "Only if it does not exist (412 otherwise).")


def moment(name: str, text: str) -> Schema:
    """Return a query parameter that is a time."""
    return in_query(name, MOMENT, text)


def continued(**keywords: Any) -> Schema:
    """Return the parameter `cursor` of a list whose cursors have the schema *keywords*."""
    return in_query("cursor", {"type": "string", **keywords}, "`next_cursor` of the previous page.")


def sorted_by(*names: str) -> Schema:
    """Return the parameter `sort` of a list that can be sorted by *names*; the first is the
    default.
    """
    words = [sign + name for name in names for sign in ("", "-")]
    return in_query("sort", {"enum": words, "default": names[0]}, "`-` reverses the order.")


CURSOR = continued()
LIST = (LIMIT, CURSOR, PATTERN)


async def take_visible(page: Page, ask: Ask, admission: Admission, kind: str) -> tuple[list[tuple[str, Row]], str]:
    """Return names and rows of *page*, and the next page's cursor ("" after the last one).

    Requests are repeated until the page is full or there are no more rows.
    """
    found: list[tuple[str, Row]] = []
    asked = page
    while True:
        rows, has_more = await ask(asked)
        names, cursor = take_page(((name, name) for name in rows), asked)
        found += [(name, rows[name]) for name in names if admission.sees(kind, name)]
        has_more = bool(cursor) or (has_more and bool(names))
        if not has_more or len(found) >= page.limit:
            break
        asked = replace(asked, after=(names[-1], names[-1]))
    shown = found[: page.limit]
    is_last = not has_more and len(found) <= page.limit
    return shown, "" if is_last else write_cursor((shown[-1][0], shown[-1][0]))
