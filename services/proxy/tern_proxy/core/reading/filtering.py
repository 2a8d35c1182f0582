"""The filter of a receive, from its document or query, validated and in the form of the broker."""

from functools import lru_cache

from msgspec import UNSET

from tern_proxy.core.documents.receives import MessageFilter
from tern_wire.errors import InvalidField
from tern_wire.filters import compile_filter

# Consumers repeat the same filter in every receive.
_compiled = lru_cache(maxsize=1_024)(compile_filter)


def read_filter(document: MessageFilter | None, query: dict[str, str]) -> tuple[str | None, str | None]:
    """Return `tags` and `sql` for the broker.

    Both are None without a filter, so that the group's subscription applies. A query parameter
    overrides the document. A filter for everything (`*`) overrides the group's subscription, too.
    Raise IllegalFilter.
    """
    tags, sql = query.get("tags"), query.get("sql")
    if tags is None and sql is None and document is not None:
        if isinstance(document.tags, list):
            if any("||" in tag or not tag.strip() for tag in document.tags):
                raise InvalidField(reason="Each item of 'tags' is one tag", pointer="/filter/tags")
            tags = " || ".join(document.tags)
        elif document.tags is not UNSET:
            tags = document.tags
        sql = None if document.sql is UNSET else document.sql
    if tags is None and sql is None:
        return None, None
    wanted = _compiled(tags, sql)
    return "*" if wanted.is_all else wanted.tags, wanted.sql
