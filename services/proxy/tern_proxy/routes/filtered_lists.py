"""Lists that broker groups keep, page by page, with those rows only that the principal may see: a cursor never names another one."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from tern_proxy.access.authorization import Admission
from tern_proxy.core.listing import Page, take_page, write_cursor

Row = Any
# Of a page: rows by name as the broker groups tell them together, each its first behind `after`; and whether one of them has more.
Ask = Callable[[Page], Awaitable[tuple[dict[str, Row], bool]]]


async def take_visible(page: Page, ask: Ask, admission: Admission, kind: str) -> tuple[list[tuple[str, Row]], str]:
    """Names and rows of *page*, and the next page's cursor ("" for the last one). Asks on until the page is full or there is no more."""
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
