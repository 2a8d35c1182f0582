"""`python -m tests.fuzz.sql_filters --cases 50000 --seed 1`: filters against a naive evaluation, and hostile texts at their parser.

A case of agreement is one condition and one message: the product decides on the decoded properties and on the record, and so does the naive
evaluation of the tree that the text was written from. A hostile case is one text: a filter or IllegalFilter with a place inside
the text comes out, and nothing else. The seed and the number of the case say what happened; the same seed does it again.
"""

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from tern_wire.errors import IllegalFilter
from tern_wire.filters import Filter, compile_accepted, compile_filter
from tern_wire.limits import (
    FILTER_ACCEPTED_SIZE_MAX_BYTES,
    FILTER_DEPTH_MAX,
    FILTER_SIZE_MAX_BYTES,
    FILTER_TERMS_MAX,
    FILTER_TOKENS_MAX,
)
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.columns import record_starts
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.properties import encode_properties
from tern_wire.records.read import decode_record
from tern_wire.records.write import encode_record
from tests.fuzz.naive_filters import NAMES, SIGNS, TEXTS, Author, says
from tests.support.filtering import matches_properties

MESSAGES_PER_FILTER = 4
# Several of each hash: "Aa" and "BB" have the same.
_TAGS = ("Aa", "BB", "AaAa", "BBBB", "AaBB", "C", "paid", "é", "日本", "a b", "x*", "nan")
_WORDS = (
    *("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "CONTAINS", "STARTSWITH", "ENDSWITH", "like"),
    *(
        *SIGNS,
        "(",
        ")",
        ",",
        "+",
        "-",
        "''",
        "'x'",
        "'",
        "1",
        "1.5",
        "1e5",
        "a",
        "b",
        "9" * 30,
        "1e999",
        "==",
        "!=",
        "||",
    ),
)
_ODD = (
    "\x00",
    "\x1f",
    "\x7f",
    "\ud800",
    "\udfff",
    "\u2028",
    "\ufeff",
    "İ",
    "\u017f",
    "\uff11",
    "\u2019",
    "\xa0",
    '"',
    "`",
    "\\",
    "--",
    "/*",
)


@dataclass(slots=True)
class Report:
    """What a run did: cases, how often a message was wanted, what became of hostile texts, the slowest one to compile (us)."""

    agreed: int = 0
    wanted: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    slowest_us: float = 0.0


# Agreement -----------------------------------------------------------------------------------------------------------
def record_of(properties: dict[str, str], rng: random.Random) -> bytes:
    """A record that has these *properties*, and around them what could be taken for one of them."""
    pairs = list(properties.items())
    rng.shuffle(pairs)
    noise = [("other", "price\x01 3"), ("xprice", "3"), ("pric", "e"), ("z", "a"), ("UNIQ_KEY", "01AB")]
    pairs[rng.randrange(len(pairs) + 1) :] += rng.sample(noise, rng.randrange(4))
    if pairs and rng.random() < 0.2:
        # Of equal names the last one counts.
        pairs.insert(0, (pairs[-1][0], rng.choice(TEXTS)))
    encoded = encode_properties(pairs)
    encoded = encoded[:-1] if rng.random() < 0.5 else encoded + rng.choice((b"", b"\x02", b"price", b"\x02TAGS"))
    return encode_record(
        rng.choice((b"orders", b"t", b"x" * 127)), 0, rng.randbytes(rng.randrange(40)), encoded, born_ms=0
    )


def agree_on_sql(cases: int, rng: random.Random, report: Report) -> None:
    """So many cases of SQL; AssertionError for the first in which the product and the naive evaluation differ."""
    author = Author(rng)
    for _ in range(0, cases, MESSAGES_PER_FILTER):
        tree = author.tree()
        sql = author.written(tree)
        found = compile_filter(None, sql)
        again = canonical(found)
        assert again.text == found.text, (sql, found.text, again.text)
        messages = [author.properties() for _ in range(MESSAGES_PER_FILTER)]
        expected = [says(tree, properties) is True for properties in messages]
        for properties, wanted in zip(messages, expected, strict=True):
            assert matches_properties(found, properties) is wanted, (sql, properties)
            assert matches_properties(again, properties) is wanted, (found.text, properties)
        _must_agree(found, messages, expected, rng)
        report.agreed += len(messages)
        report.wanted += sum(expected)


def agree_on_tags(cases: int, rng: random.Random, report: Report) -> None:
    """The same with tags, whose messages also have an entry in a queue."""
    for _ in range(0, cases, MESSAGES_PER_FILTER):
        tags = rng.sample(_TAGS, rng.randrange(1, len(_TAGS)))
        found = compile_filter(rng.choice(("||", " || ", "\t|| ")).join(tags), None)
        messages = [
            {"TAGS": rng.choice(_TAGS)} if rng.random() < 0.9 else {"a": "Aa"} for _ in range(MESSAGES_PER_FILTER)
        ]
        expected = [properties.get("TAGS") in tags for properties in messages]
        entries = np.zeros(len(messages), QUEUE_ENTRIES)
        entries["tag"] = [tag_hash(properties.get("TAGS", "")) for properties in messages]
        left = found.preselect(entries)
        assert not (np.array(expected) & ~left).any(), (found.text, messages)
        assert left.tolist() == [tag_hash(one.get("TAGS", "")) in {tag_hash(tag) for tag in tags} for one in messages]
        _must_agree(found, messages, expected, rng)
        report.agreed += len(messages)
        report.wanted += sum(expected)


def _must_agree(found: Filter, messages: list[dict[str, str]], expected: list[bool], rng: random.Random) -> None:
    records = [record_of(properties, rng) for properties in messages]
    data = memoryview(rng.randbytes(rng.randrange(9)) + b"".join(records))
    begin = len(data) - sum(map(len, records))
    starts = record_starts(data[begin:]) + begin
    assert found.matches(data, starts).tolist() == expected, (
        found.text,
        messages,
        [bytes(record) for record in records],
    )
    for record, wanted in zip(records, expected, strict=True):
        assert matches_properties(found, decode_record(record).properties) is wanted, (found.text, record)


# Hostile texts -------------------------------------------------------------------------------------------------------
def hostile_text(rng: random.Random) -> tuple[str, str]:
    """What kind of text, and the text."""
    author = Author(rng)
    kind = rng.choice(("bytes", "soup", "bent", "deep", "number", "quotes", "long", "odd"))
    if kind == "bytes":
        return kind, rng.randbytes(rng.randrange(200)).decode(rng.choice(("latin-1", "utf-8", "utf-16-le")), "replace")
    if kind == "soup":
        return kind, rng.choice(("", " ")).join(rng.choices(_WORDS, k=rng.randrange(1, 60)))
    if kind == "deep":
        levels = rng.choice((FILTER_DEPTH_MAX - 1, FILTER_DEPTH_MAX, FILTER_DEPTH_MAX + 1, 900, 5_000))
        opening, closing = rng.choice((("(", ")"), ("NOT ", ""), ("NOT(", ")"), ("((a=1)AND ", ")"), ("a=(", ")")))
        return kind, opening * levels + "a = 1" + closing * rng.choice((levels, levels - 1, levels + 1))
    if kind == "number":
        digits = "".join(rng.choices("0123456789", k=rng.choice((1, 18, 19, 20, 63, 64, 65, 8_000))))
        return (
            kind,
            f"a > {rng.choice(('', '-', '+', '.', '0x'))}{digits}{rng.choice(('', '.', 'L', 'e9', 'e' + digits, '.' + digits))}",
        )
    if kind == "quotes":
        return kind, "a = " + "".join(rng.choices(("'", "''", "x", " ", "\\'"), k=rng.randrange(1, 2_000)))
    if kind == "long":
        part = rng.choice((" OR a = 1", " AND NOT a IN ('x', 2)", " OR (a = 1)", " ", ", 1", " || B", "x"))
        sizes = (
            FILTER_TERMS_MAX - 1,
            FILTER_TERMS_MAX,
            FILTER_SIZE_MAX_BYTES // len(part),
            FILTER_TOKENS_MAX // 4,
            20_000,
        )
        return kind, "a = 1" + part * rng.choice(sizes)
    text = author.written(author.tree())
    for _ in range(rng.randrange(1, 4)):
        at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        pieces = _ODD if kind == "odd" else (*_WORDS, *NAMES, text[at:end], "")
        text = text[:at] + rng.choice(pieces) + text[at if rng.random() < 0.5 else min(end, at + 4) :]
    return kind, text


def canonical(found: Filter) -> Filter:
    """*found* again, from its canonical text, or, where that is too long, from what was given."""
    kind, _, text = found.text.partition(":")
    if len(text.encode()) > FILTER_ACCEPTED_SIZE_MAX_BYTES:
        return compile_accepted(found.tags, found.sql)
    return compile_accepted(*{"*": (None, None), "tags": (text, None), "sql": (None, text)}[kind])


def survive(cases: int, rng: random.Random, report: Report) -> None:
    """So many hostile texts, each as tags and as SQL; AssertionError, or whatever broke, for the first that is not borne."""
    properties = Author(rng).properties()
    for _ in range(cases):
        kind, text = hostile_text(rng)
        for is_sql in (True, False):
            # As a proxy reads it, and as a broker does, which bears longer ones.
            compiled = rng.choice((compile_filter, compile_accepted))
            began = time.perf_counter()
            try:
                found = compiled(None, text) if is_sql else compiled(text, None)
            except IllegalFilter as error:
                position = error.fields["position"]
                assert 0 <= position <= len(text), (text, position)
                assert isinstance(error.fields["reason"], str) and len(error.detail) < 500, (text, error.detail)
                report.kinds[f"{kind} refused"] += 1
            else:
                again = canonical(found)
                assert again.text == found.text, (text, found.text, again.text)
                assert matches_properties(found, properties) is matches_properties(again, properties), text
                report.kinds[f"{kind} taken"] += 1
            report.slowest_us = max(report.slowest_us, (time.perf_counter() - began) * 1e6)


def run(cases: int, seed: int) -> Report:
    """Two thirds of *cases* about agreement on SQL, and as many as the rest about tags and about hostile texts, each."""
    rng, report = random.Random(seed), Report()
    try:
        agree_on_sql(cases * 2 // 3, rng, report)
        agree_on_tags(cases // 3, rng, report)
        survive(cases // 3, rng, report)
    except BaseException as failure:
        failure.add_note(f"again: python -m tests.fuzz.sql_filters --cases {cases} --seed {seed}; case {report.agreed}")
        raise
    return report


def main() -> int:
    """Print what was decided and what was refused."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.sql_filters", description=__doc__)
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began_s = time.monotonic()
    report = run(options.cases, options.seed)
    print(
        f"{report.agreed:,} cases of seed {options.seed} agree, {report.wanted:,} of them wanted, in {time.monotonic() - began_s:.1f} s"
    )
    print(f"hostile texts: {dict(sorted(report.kinds.items()))}; the slowest took {report.slowest_us:,.0f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
