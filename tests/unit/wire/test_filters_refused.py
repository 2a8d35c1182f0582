"""Texts that are no filter: each is refused as `illegal-filter`, with the place where it went wrong, in time that grows with its length."""

import random
import sys
from types import FrameType
from typing import Any

import pytest

from tern_wire.errors import IllegalFilter
from tern_wire.filters import Filter, compile_accepted, compile_filter
from tern_wire.limits import (
    FILTER_ACCEPTED_SIZE_MAX_BYTES,
    FILTER_DEPTH_MAX,
    FILTER_NUMBER_LENGTH_MAX,
    FILTER_SIZE_MAX_BYTES,
    FILTER_TERMS_MAX,
    FILTER_TOKENS_MAX,
)
from tests.fuzz.naive_filters import Author
from tests.support.filtering import matches_properties


@pytest.mark.parametrize(
    ("sql", "position", "reason"),
    [
        ("", 0, "empty"),
        (" \t\n", 0, "empty"),
        ("a", 0, "alone is no condition"),
        ("b = 1 AND a", 10, "alone is no condition"),
        ("'x'", 0, "alone is no condition"),
        ("a and between 2 and 10", 0, "alone is no condition"),
        ("a =", 3, "was expected, not the end"),
        ("a = 1 AND", 9, "was expected, not the end"),
        ("a = 1 b = 2", 6, "join conditions"),
        ("a = 1 = 2", 6, "joined with AND"),
        ("(a = 1", 6, "')' was expected"),
        ("a = 1)", 5, "not expected here"),
        ("a = (b = 1)", 4, "a condition cannot be compared"),
        ("(a = 1) = TRUE", 0, "a condition cannot be compared"),
        ("a = NULL", 4, "IS NULL"),
        ("NULL", 0, "IS NULL"),
        ("a IS 5", 5, "NULL was expected"),
        ("'x' IS NULL", 0, "a property's name"),
        ("a NOT 5", 6, "behind NOT"),
        ("a = NOT b", 4, "before a whole condition"),
        ("a > 'x'", 4, "has no order"),
        ("a <= TRUE", 5, "has no order"),
        ("a BETWEEN 'b' AND 'c'", 10, "has no order"),
        ("a BETWEEN 10 AND 0", 10, "swap them"),
        ("a NOT BETWEEN 1 AND -1", 14, "swap them"),
        ("a BETWEEN 1 OR 2", 12, "AND between"),
        ("a IN ()", 6, "was expected"),
        ("a IN 'x'", 5, "'(' behind IN"),
        ("a IN ('x' 'y')", 10, "',' or ')'"),
        ("a IN (b)", 6, "a list of IN"),
        ("a IN (NULL)", 6, "IS NULL"),
        ("5 IN (5)", 0, "a property's name"),
        ("a CONTAINS 5", 11, "a text behind CONTAINS"),
        ("a CONTAINS ''", 11, "not empty"),
        ("1 = 'x'", 2, "never equal"),
        ("TRUE <> 0", 5, "never equal"),
        ("a = 'x", 4, "no closing quote"),
        ("a = 'x''", 4, "no closing quote"),
        ('a = "x"', 4, "single quotes"),
        ("a != 1", 2, "write <>"),
        ("a == 1", 3, "was expected"),
        ("a = 1 && b = 2", 6, "write AND"),
        ("a = 1 || b = 2", 6, "write OR"),
        ("a + 1 = 2", 2, "a comparison"),
        ("-a = 1", 1, "a number behind '-'"),
        ("a = --1", 4, "no comments"),
        ("a = 1 /* x */", 6, "no comments"),
        ("a.b = 1", 1, "no dots"),
        ("a = 5abc", 4, "begins like a number"),
        ("a = 1.2.3", 4, "begins like a number"),
        ("a = 1e", 4, "begins like a number"),
        ("a = 1.5L", 4, "may end in 'L'"),
        ("a = 9223372036854775808", 4, "is outside"),
        ("a = -9223372036854775809", 5, "is outside"),
        ("a = 1e309", 4, "larger than any number"),
        ("a = " + "1" * (FILTER_NUMBER_LENGTH_MAX + 1), 4, "at most 64"),
        ("a = '\x00'", 5, "control character"),
        ("a = \ud800", 4, "half a character"),
        ("ä = 1", 0, "does not belong"),
        ("a =\xa01", 3, "does not belong"),
        ("(a b) = 1", 3, "a comparison"),
        ("'x' 'y'", 4, "a comparison"),
        ("TRUE TRUE", 5, "join conditions"),
        ("a LIKE 'x'", 2, "a comparison"),
    ],
)
def test_sql_that_is_none_is_refused_with_its_place(sql: str, position: int, reason: str) -> None:
    """The first character of the word that does not fit, counted from 0, and what to do."""
    with pytest.raises(IllegalFilter) as refused:
        compile_filter(None, sql)
    assert (refused.value.fields["position"], refused.value.status) == (position, 400)
    assert reason in refused.value.fields["reason"]
    assert f"character {position} " in refused.value.detail


@pytest.mark.parametrize(
    ("tags", "position", "reason"),
    [
        ("||", 0, "no tag"),
        (" || || ", 0, "no tag"),
        ("A | B", 2, "separated by '||'"),
        ("A ||| B", 4, "separated by '||'"),
        ("A || *", 5, "stands alone"),
        ("a*b || *", 7, "stands alone"),
        ("A || B\x01", 6, "control character"),
        ("A\tB", 1, "control character"),
        ("A || " + "é" * 128, 5, "longer than the 255 bytes"),
        ("A\udfff", 1, "half a character"),
    ],
)
def test_tags_that_no_message_can_have_are_refused_with_their_place(tags: str, position: int, reason: str) -> None:
    """A subscription to them would wait for ever."""
    with pytest.raises(IllegalFilter) as refused:
        compile_filter(tags, None)
    assert refused.value.fields["position"] == position
    assert reason in refused.value.fields["reason"]


def test_tags_and_sql_exclude_each_other() -> None:
    """What both together would mean has no obvious answer."""
    for tags in ("A", "*", ""):
        with pytest.raises(IllegalFilter, match="not both"):
            compile_filter(tags, "a = 1")


def test_every_limit_lets_the_largest_filter_in_and_refuses_the_next() -> None:
    """Length in bytes, terms, depth; each with the place where it was passed."""
    name = "é" * 100
    text = f"a = '{name}'"
    largest = text[:-1] + "x" * (FILTER_SIZE_MAX_BYTES - len(text.encode())) + "'"
    assert len(largest.encode()) == FILTER_SIZE_MAX_BYTES
    assert matches_properties(compile_filter(None, largest), {"a": largest[5:-1]})
    deepest = "(" * FILTER_DEPTH_MAX + "a NOT IN ('x')" + ")" * FILTER_DEPTH_MAX
    assert compile_filter(None, deepest).text == "sql:a NOT IN ('x')"
    for test in ("a NOT IN ('x')", "a IS NOT NULL", "a NOT BETWEEN 1 AND 2", "a NOT CONTAINS 'x'"):
        nested = "NOT (" * (FILTER_DEPTH_MAX // 2) + f"b = 1 AND {test}" + ")" * (FILTER_DEPTH_MAX // 2)
        assert compile_filter(None, nested).text == f"sql:b = 1 AND {test}"
        nested = "NOT (b = 1 AND " * (FILTER_DEPTH_MAX // 2) + test + ")" * (FILTER_DEPTH_MAX // 2)
        canonical = compile_filter(None, nested).text
        assert compile_filter(None, canonical.removeprefix("sql:")).text == canonical, "as deep as what was given"
    assert compile_filter(None, "NOT " * FILTER_DEPTH_MAX + "a = 1").text == "sql:a = 1"
    for sql, position in (
        (largest + " ", 0),
        (f"({deepest})", FILTER_DEPTH_MAX),
        ("NOT " * FILTER_DEPTH_MAX + "(a = 1)", 4 * FILTER_DEPTH_MAX),
        ("(" * FILTER_SIZE_MAX_BYTES, FILTER_DEPTH_MAX),
    ):
        with pytest.raises(IllegalFilter) as refused:
            compile_filter(None, sql)
        assert refused.value.fields["position"] == position, sql[:40]
    with pytest.raises(IllegalFilter, match="longer than 1024 bytes"):
        compile_filter("A || " * FILTER_SIZE_MAX_BYTES, None)


@pytest.mark.parametrize(
    ("head", "joint", "term", "tail", "properties"),
    [
        ("", "||", "A", "", {"TAGS": "A"}),
        ("", "OR ", "a=1 ", "", {"a": "1"}),
        ("", "AND ", "(b=1) ", "", {"b": "1"}),
        ("a IN (", ",", "1", ")", {"a": "1"}),
        ("NOT a NOT IN (", ",", "'x'", ")", {"a": "x"}),
        ("", "OR ", "a IS NULL ", "", {}),
        ("c CONTAINS'x'", "OR ", "c<1 ", "", {"c": "0"}),
        ("a='x'AND a NOT IN('y','z')", "OR ", "b<2 ", "", {"b": "1"}),
        ("", "OR ", "NOT b<2 ", "", {"b": "2"}),
        ("b BETWEEN 1 AND 2 ", "AND ", "b>0 ", "", {"b": "1"}),
    ],
)
def test_a_term_is_a_tag_a_test_or_a_value_of_a_list(
    head: str, joint: str, term: str, tail: str, properties: dict[str, str]
) -> None:
    """As many as there may be are taken; the next is refused where it begins, and the error names the limit and what counts."""
    # What stands in front: two values and a comparison, or one BETWEEN or CONTAINS, which is one term.
    left = FILTER_TERMS_MAX - {"a='x'": 3, "b BET": 1, "c CON": 1}.get(head[:5], 0)
    between = joint if left < FILTER_TERMS_MAX else ""

    def compiled(count: int) -> Filter:
        text = head + between + joint.join([term] * count) + tail
        return compile_filter(text, None) if joint == "||" else compile_filter(None, text)

    assert matches_properties(compiled(left), properties)
    with pytest.raises(IllegalFilter, match="more than 64 terms") as refused:
        compiled(left + 1)
    begin = len(head + between + (term + joint) * left)
    assert refused.value.fields["position"] in range(begin, begin + 5)


def test_what_was_let_in_is_read_whatever_the_limits_are_now() -> None:
    """A broker compiles filters of earlier builds' proxies and members, up to what it can bear."""
    tags = " || ".join(f"tag-{number:03}" for number in range(500))
    assert matches_properties(compile_accepted(tags, None), {"TAGS": "tag-499"})
    sql = " OR ".join(["a = 1"] * (FILTER_TOKENS_MAX // 4))
    assert matches_properties(compile_accepted(None, sql), {"a": "1"})
    too_many = "a IN (" + ",".join(["1"] * (FILTER_TOKENS_MAX // 2 - 1)) + ")"
    for text, position, reason in (
        (too_many, len(too_many) - 1, "more than 1024 words and signs"),
        ("a = '" + "x" * FILTER_ACCEPTED_SIZE_MAX_BYTES + "'", 0, "longer than 8192 bytes"),
    ):
        with pytest.raises(IllegalFilter, match=reason) as refused:
            compile_accepted(None, text)
        assert refused.value.fields["position"] == position


def test_the_canonical_text_of_whatever_is_let_in_is_read_by_a_broker() -> None:
    """It is longer than what was given, and means the same. Dense texts, and written ones by seed."""
    rng = random.Random(64)
    author = Author(rng)
    sqls = [
        "NOT(" + "OR ".join(["a IS NULL "] * FILTER_TERMS_MAX) + ")",
        "NOT(" + "AND ".join(["a IN(1)"] * FILTER_TERMS_MAX) + ")",
        "a IN(" + ",".join(f"{digit}e{power}" for digit in range(1, 9) for power in (14, 15, 98, 99)) + ")",
        "OR ".join(f"a<{digit}e15 " for digit in range(FILTER_TERMS_MAX)),
        "(" * FILTER_DEPTH_MAX + "a=.1" + ")" * FILTER_DEPTH_MAX,
    ]
    taken = 0
    for sql in [*sqls, *(author.written(author.tree()) for _ in range(2_000))]:
        try:
            found = compile_filter(None, sql)
        except IllegalFilter:
            assert sql not in sqls
            continue
        taken += 1
        text = found.text.removeprefix("sql:")
        assert len(text) < 4 * FILTER_SIZE_MAX_BYTES
        assert found.is_all or compile_accepted(None, text).text == found.text
    assert taken > 1_000
    tags = compile_filter("||".join(f"{number:014}" for number in range(FILTER_TERMS_MAX)), None)
    assert compile_accepted(tags.text.removeprefix("tags:"), None) == tags


def steps(sql: str) -> int:
    """How many calls it takes to compile or refuse *sql*."""
    count = 0

    def profile(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(profile)
    try:
        compile_accepted(None, sql)
    except IllegalFilter:
        count += 1
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    ("head", "part", "tail"),
    [
        ("a = 1", " OR a = 1", ""),
        ("a = 1", " AND (b = 1 OR c = 1)", ""),
        ("a IN (1", ", 'x'", ")"),
        ("a IN (1", ", 'x'", ""),
        ("a = '", "''", "'"),
        ("a = '", "''", "x"),
        ("a = 1", " AND NOT a = 1", " AND"),
        ("a = 1", "          ", "1"),
        ("a = ", "1", "x"),
    ],
)
def test_compiling_takes_time_that_grows_with_the_text(head: str, part: str, tail: str) -> None:
    """Twice the text, no more than twice the calls, whether it is a filter or not."""
    once, twice = (steps(head + part * count + tail) for count in (50, 100))
    assert twice <= 2.1 * once


def test_an_error_shows_little_of_a_long_text() -> None:
    """What strangers write does not fill logs and answers."""
    for sql in ("a = 1 " + "b" * 4_000, "b" * 4_000, "a " + "'" + "x" * 4_000 + "'", "a = " + "1" * 4_000):
        with pytest.raises(IllegalFilter) as refused:
            compile_filter(None, sql)
        assert len(refused.value.detail) < 400
