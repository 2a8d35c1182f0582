r"""Message filters: by tag, or by SQL over properties; compiled once and applied to whole pages.

    wanted = compile_filter(tags="paid || shipped", sql=None)  # or sql="price > 5"; or both None
    is_left = wanted.preselect(entries)                        # a page of a queue (QUEUE_ENTRIES)
    if not wanted.is_all:                                      # read only the records that are left
        is_match = wanted.matches(data, starts)                # data: bytes of the log
                                                               # starts: where each record begins,
                                                               # at most wanted.page_records a call

Law: `preselect` never drops a message that `matches` keeps, and `matches` depends on a record's
properties alone. Filters are values: pure, without a clock or a cache, and free to be shared.
Holders of subscriptions keep the Filter and compare subscriptions by `text`.

Tags. `*`, nothing or only blanks selects everything. `A || B` selects messages with one of these
tags, compared character by character. A queue entry holds only Java's hash of the tag (0: no tag),
so `preselect` may keep another tag with the same hash, such as "BB" for "Aa"; `matches` does not.

SQL. A condition over properties: = <> < <= > >=, [NOT] BETWEEN, [NOT] IN, IS [NOT] NULL, [NOT]
CONTAINS, STARTSWITH, ENDSWITH, AND, OR, NOT, parentheses, texts such as 'it''s', integers,
decimals, TRUE, FALSE. TAGS and KEYS are properties, too. A queue entry holds none of them, so
`preselect` keeps everything. Values and truth: see `tern_wire.sql.evaluation`; the grammar:
`tern_wire.sql.parser`.

Differences from RocketMQ, each where RocketMQ surprises its users:

- A text that is not a number makes one comparison unknown; in RocketMQ the whole filter fails.
- Any two numbers are compared by value; in RocketMQ `a > 3` never matches "3.5".
- A missing property is unknown in every comparison; in RocketMQ two missing properties are equal,
  and NOT CONTAINS over a missing property is true.
- NOT applies to the whole comparison behind it.
- IN takes numbers and truth values, too.
- Refused: a property alone and CONTAINS '' (never true in RocketMQ), text behind a complete
  expression (ignored in RocketMQ), comments, comparisons of conditions, and `*` beside other tags.

Cost on one core: `preselect` takes 1 to 10 ns an entry. `matches` takes 0.7 us a record for tags, 1
to 2 us for a plain SQL filter, and about 0.1 us for each further comparison (of at most
FILTER_TERMS_MAX); only CONTAINS in long values costs far more. `page_records` accounts for this.
Compiling takes 20 us, and up to 1 ms for the largest filters: compile once for each subscription,
or use a bounded cache of the caller.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tern_wire.array_thresholds import TAGS_ONE_BY_ONE_MAX
from tern_wire.errors import IllegalFilter
from tern_wire.limits import (
    FILTER_ACCEPTED_SIZE_MAX_BYTES,
    FILTER_PAGE_MAX_MS,
    FILTER_PAGE_RECORDS_MAX,
    FILTER_SIZE_MAX_BYTES,
    FILTER_TERMS_MAX,
    TAG_SIZE_MAX_BYTES,
)
from tern_wire.records.columns import property_bounds
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.layout import Bytes
from tern_wire.records.properties import READ_MAX_US, TAGS, PropertyReader
from tern_wire.sql.conditions import Literal
from tern_wire.sql.evaluation import Program
from tern_wire.sql.lexer import refuse, shown
from tern_wire.sql.parser import parse_sql

EVERYTHING = "*"
_SEPARATOR, _BLANKS = "||", " \t\r\n\f"

Mask = npt.NDArray[np.bool_]
# Predicate over the values of `names`; None: the property is missing.
_Holds = Callable[[list[str | None]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Compiled filter. It is one of three kinds: everything (*is_all*), tags (*is_tag*), or SQL.

    *text* is the canonical form: `*`, or `tags:A || B` sorted and without repeats, or `sql:` and
    the expression. Filters with the same text are equal. *tags* or *sql* is the argument of
    `compile_filter` and compiles to the same filter again; both are None for everything. For
    everything, `preselect` alone decides.

    *page_records* is the largest number of records for one call of `matches` between two turns of
    an event loop. Such a call takes at most FILTER_PAGE_MAX_MS, whatever the properties are.
    """

    text: str
    tags: str | None = field(default=None, compare=False)
    sql: str | None = field(default=None, compare=False)
    is_all: bool = field(default=False, compare=False)
    is_tag: bool = field(default=False, compare=False)
    page_records: int = field(default=FILTER_PAGE_RECORDS_MAX, compare=False)
    # Hashes of *tags*, ascending, int64; empty for other filters.
    _hashes: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64), compare=False, repr=False)
    _reader: PropertyReader = field(default_factory=lambda: PropertyReader(()), compare=False, repr=False)
    _holds: _Holds = field(default=lambda values: True, compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The properties that decide; none for everything."""
        return self._reader.names

    def holds(self, values: list[str | None]) -> bool:
        """Return whether a message with *values* of `names` matches. None: it has none."""
        return self._holds(values)

    def preselect(self, entries: npt.NDArray[np.void]) -> Mask:
        """Return a mask of the *entries* (dtype QUEUE_ENTRIES, shape (n,)) that may match by the
        hash of their tag.

        The mask is all true unless the filter is by tags.
        """
        if not self.is_tag:
            return np.ones(len(entries), np.bool_)
        tags = entries["tag"].astype(np.int64)
        if len(self._hashes) > TAGS_ONE_BY_ONE_MAX:
            at = np.searchsorted(self._hashes, tags)
            at[at == len(self._hashes)] = 0
            found: Mask = self._hashes[at] == tags
            return found
        found = tags == self._hashes[0]
        for value in self._hashes[1:]:
            found |= tags == value
        return found

    def matches(self, data: Bytes, starts: npt.NDArray[np.int64]) -> Mask:
        """Return a mask of the records at *starts* in *data* that match exactly. Only their
        properties are copied.

        Raise LinkBodyMalformed when there is no whole record at one of *starts*.
        """
        if self.is_all:
            return np.ones(len(starts), np.bool_)
        begins, ends = property_bounds(data, starts)
        values, holds = self._reader.values, self._holds
        found = [holds(values(data[begin:end])) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        return np.array(found, np.bool_)


def compile_filter(tags: str | None, sql: str | None) -> Filter:
    """Compile the filter of a subscription: *tags* such as `A || B`, or *sql*, or neither for
    everything.

    Raise IllegalFilter (400) with the position (characters, from 0) and the reason: both arguments
    are given, the text is longer than FILTER_SIZE_MAX_BYTES or has more than FILTER_TERMS_MAX
    terms, or it does not follow the module's docstring. A term is a tag as often as it is written,
    or a test of SQL: a comparison, BETWEEN, a search, IS NULL, or one value in the list of IN.
    """
    return _compiled(tags, sql, FILTER_SIZE_MAX_BYTES, FILTER_TERMS_MAX)


def compile_accepted(tags: str | None, sql: str | None) -> Filter:
    """Compile a filter that was accepted before: up to FILTER_ACCEPTED_SIZE_MAX_BYTES, any number
    of terms.

    The canonical text of every filter that `compile_filter` accepts is accepted here.
    """
    return _compiled(tags, sql, FILTER_ACCEPTED_SIZE_MAX_BYTES, None)


def _compiled(tags: str | None, sql: str | None, size_max_bytes: int, terms_max: int | None) -> Filter:
    if tags is not None and sql is not None:
        raise IllegalFilter(position=0, reason="a subscription has tags or SQL, not both; TAGS is a property in SQL")
    text = tags if sql is None else sql
    if text is None:
        return _everything()
    _must_be_short(text, size_max_bytes)
    return _by_tags(text, terms_max) if sql is None else _by_sql(text, terms_max)


def _must_be_short(text: str, size_max_bytes: int) -> None:
    # A character takes at least one byte, so a text that is far too long is not encoded first.
    if len(text) <= size_max_bytes:
        try:
            if len(text.encode()) <= size_max_bytes:
                return
        except UnicodeEncodeError as error:
            refuse(error.start, "half a character, which is no text")
    refuse(0, f"the filter is longer than {size_max_bytes} bytes; shorten it")


def _everything() -> Filter:
    return Filter(text=EVERYTHING, is_all=True)


def _by_tags(text: str, terms_max: int | None) -> Filter:
    # Each tag, and its position in the text.
    tags: dict[str, int] = {}
    at = terms = 0
    for part in text.split(_SEPARATOR):
        tag = part.strip(_BLANKS)
        begin = at + len(part) - len(part.lstrip(_BLANKS))
        at += len(part) + len(_SEPARATOR)
        if tag:
            terms += 1
            if terms_max is not None and terms > terms_max:
                refuse(begin, f"the filter has more than {terms_max} terms (tags); name fewer")
            _must_be_tag(tag, begin)
            tags.setdefault(tag, begin)
    if tags.keys() == {EVERYTHING} or not text.strip(_BLANKS):
        return _everything()
    if EVERYTHING in tags:
        refuse(tags[EVERYTHING], "'*' stands alone and means everything; remove it or the tags beside it")
    if not tags:
        refuse(0, "no tag stands beside '||'; write '*' for everything")
    wanted = frozenset(tags)
    return Filter(
        text="tags:" + f" {_SEPARATOR} ".join(sorted(wanted)),
        tags=text,
        is_tag=True,
        _hashes=np.array(sorted({tag_hash(tag) for tag in wanted}), np.int64),
        _reader=PropertyReader((TAGS,)),
        _holds=lambda values: values[0] in wanted,
    )


def _must_be_tag(tag: str, begin: int) -> None:
    """Raise IllegalFilter for a text that no message can have as its tag."""
    for at, character in enumerate(tag):
        if character == "|":
            refuse(begin + at, "tags are separated by '||' and hold no '|'")
        if character < " " or character == "\x7f":
            refuse(begin + at, f"{character!r} is a control character; no tag has one")
    if len(tag.encode()) > TAG_SIZE_MAX_BYTES:
        refuse(begin, f"{shown(tag)} is longer than the {TAG_SIZE_MAX_BYTES} bytes that a tag may have")


def _by_sql(text: str, terms_max: int | None) -> Filter:
    condition = parse_sql(text, terms_max)
    program = Program(condition)
    is_all = isinstance(condition, Literal) and condition.value is True
    return Filter(
        text=EVERYTHING if is_all else f"sql:{condition}",
        sql=None if is_all else text,
        is_all=is_all,
        page_records=FILTER_PAGE_RECORDS_MAX if is_all else _page_records(program),
        _reader=PropertyReader(program.names),
        _holds=program.holds,
    )


def _page_records(program: Program) -> int:
    fitting = int(FILTER_PAGE_MAX_MS * 1_000 / (READ_MAX_US + program.cost_max_us))
    return max(1, min(fitting, FILTER_PAGE_RECORDS_MAX))
