"""What filters deliver: tables of SQL and of tags, records as they lie in the log, and agreement with a naive evaluation by seed."""

import numpy as np
import pytest

from tern_wire.errors import LinkBodyMalformed
from tern_wire.filters import compile_filter
from tern_wire.limits import FILTER_PAGE_RECORDS_MAX, FILTER_TERMS_MAX
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.columns import record_starts
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.properties import encode_properties
from tern_wire.records.read import decode_record
from tern_wire.records.write import encode_record
from tests.fuzz.sql_filters import run
from tests.support.filtering import matches_properties

ORDER = {
    "TAGS": "paid",
    "KEYS": "k-1 k-2",
    "price": "9.50",
    "count": "3",
    "region": "eu",
    "rush": "True",
    "note": "it's ''",
}


@pytest.mark.parametrize("seed", range(1, 6))
def test_filters_agree_with_a_naive_evaluation_and_bear_hostile_texts(seed: int) -> None:
    """On decoded properties and on records, for SQL and tags; a text becomes a filter or is refused with its place."""
    report = run(1_500, seed)
    assert 0.1 < report.wanted / report.agreed < 0.9, "cases that all say the same show nothing"
    assert sum(report.kinds.values()) == 1_000


@pytest.mark.parametrize(
    "sql",
    [
        "price = 9.5",
        "price = 95e-1 AND 9 < price AND 10 >= price",
        "count = 3 and COUNT is null and count = 3.0 AND count < 3.5",
        "price BETWEEN 9.5 AND 9.5 AND price NOT BETWEEN 9.6 AND 10",
        "5 BETWEEN count AND price",
        "count < price",
        "region = 'eu' AND region <> 'EU' AND 'eu' = region",
        "region IN ('us', 'eu') AND region NOT IN ('us', 'ap')",
        "count IN (1, 2, 3) AND count NOT IN (4, '3.0')",
        "price IN (9.5) AND price NOT IN ('9.5')",
        "TAGS = 'paid' AND KEYS CONTAINS 'k-2'",
        "rush = TRUE AND rush <> FALSE AND region = FALSE AND rush IN (TRUE)",
        "note = 'it''s ''''' AND note ENDSWITH ''''''",
        "region STARTSWITH 'e' AND region NOT STARTSWITH 'u' AND region ENDSWITH 'u' AND region NOT CONTAINS 'x'",
        "nothing IS NULL AND region IS NOT NULL AND NOT nothing IS NOT NULL",
        "nothing = 1 OR region = 'eu'",
        "region > 5 OR region = 'eu'",
        "NOT (region = 'eu' AND price > 100)",
        "NOT region = 'us'",
        "NOT NOT region = 'eu'",
        "region = 'us' AND region = 'ap' OR region = 'eu'",
        "TRUE",
        "NOT FALSE AND 1 = 1 AND 'a' <> 'b' AND 2 > 1",
        "(((region))) = ('eu')",
        "rush IN (TRUE, 1) AND count IN (TRUE, 1, 3) AND count NOT IN (1, TRUE)",
        " AND ".join(["NOT (NOT ((region = 'eu')))"] * 20),
        "price>+5 AND price>-5 AND price > - 5",
        "count = 3L AND count = 003",
    ],
)
def test_this_order_is_delivered(sql: str) -> None:
    """Values are texts, compared as numbers with numbers, as truth values with those, and else by their characters."""
    assert matches_properties(compile_filter(None, sql), ORDER)


@pytest.mark.parametrize(
    "condition",
    [
        "nothing = 1",
        "nothing = 'x'",
        "nothing = TRUE",
        "nothing = other",
        "nothing < 5",
        "nothing IN ('x')",
        "nothing BETWEEN 1 AND 2",
        "nothing CONTAINS 'x'",
        "nothing STARTSWITH 'x'",
        "region < 5",
        "region = 5",
        "region IN (1, 2)",
        "region BETWEEN 1 AND 2",
        "region < price",
        "nothing = 1 AND region = 'eu'",
        "nothing = 1 OR region = 'us'",
    ],
)
def test_what_is_unknown_is_not_delivered_and_neither_is_its_opposite(condition: str) -> None:
    """A missing property, or a text that is no number where one is needed, is neither equal nor different."""
    assert not matches_properties(compile_filter(None, condition), ORDER)
    assert not matches_properties(compile_filter(None, f"NOT ({condition})"), ORDER)


@pytest.mark.parametrize(
    ("text", "literal", "is_equal"),
    [
        ("9007199254740993", "9007199254740993", True),
        ("9007199254740993", "9007199254740992", False),
        ("-9007199254740993", "-9007199254740992", False),
        ("-9223372036854775808", "-9223372036854775808", True),
        ("99999999999999999999", "1e20", False),
        ("100000000000000000000", "1e20", True),
        ("1e2", "100", True),
        ("0.1", ".1", True),
        ("-0", "0", True),
        ("+5", "5.", True),
        *((text, "5", False) for text in ("5 ", " 5", "0x5", "5L", "\u0665", "5_0", "", ".", "e", "5,0", "nan", "+-5")),
        ("0" * 63 + "5", "5", True),
        ("0" * 64 + "5", "5", False),
    ],
)
def test_numbers_are_compared_by_value(text: str, literal: str, is_equal: bool) -> None:
    """Integers exactly, decimals as doubles; what Python, but no message queue, takes for a number is none."""
    assert matches_properties(compile_filter(None, f"n = {literal}"), {"n": text}) is is_equal


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = 1  and\tb='x'", "(a = 01) AND ((b = 'x'))"),
        ("not a in ('x','y','x')", "a NOT IN ('x', 'y')"),
        ("NOT a IS NULL", "a is not null"),
        ("a = 1 AND (b = 2 AND c = 3)", "a = 1 AND b = 2 AND c = 3"),
        ("NOT NOT a <> 5.", "a <> 5.0"),
        ("NOT (a BETWEEN 1 AND 2)", "a NOT BETWEEN 1 AND 2"),
    ],
)
def test_filters_that_ask_for_the_same_in_other_letters_are_equal(one: str, other: str) -> None:
    """A subscription is compared by its canonical text."""
    assert compile_filter(None, one) == compile_filter(None, other)
    assert compile_filter(None, one).text == compile_filter(None, other).text


def test_filters_that_ask_for_something_else_are_not_equal() -> None:
    """A tag may look like SQL, a name is another one in other letters, and 1 is not TRUE."""
    sqls = (
        "a = 1",
        "A = 1",
        "a = '1'",
        "a IN (1)",
        "a IN (TRUE)",
        "a = 1 AND (b = 2 OR c = 3)",
        "a = 1 AND b = 2 OR c = 3",
    )
    texts = {compile_filter(None, sql).text for sql in sqls} | {compile_filter("a = 1", None).text}
    assert len(texts) == len(sqls) + 1


def test_a_filter_is_made_again_from_what_it_was_made_of() -> None:
    """State keeps the texts, not the compiled filter."""
    for tags, sql in ((None, None), (" * ", None), ("B||A", None), (None, "a=1"), (None, "true")):
        made = compile_filter(tags, sql)
        assert compile_filter(made.tags, made.sql) == made


# Tags ----------------------------------------------------------------------------------------------------------------
def entries_of(*tags: str) -> np.ndarray:
    """A page of a queue whose messages have these *tags* (empty: none)."""
    entries = np.zeros(len(tags), QUEUE_ENTRIES)
    entries["tag"] = [tag_hash(tag) for tag in tags]
    return entries


@pytest.mark.parametrize("tags", [None, "", "*", "  ", " *\n", "* || *"])
def test_everything_is_decided_by_the_queue_alone(tags: str | None) -> None:
    """Who wants all need not read a record to know."""
    wanted = compile_filter(tags, None)
    assert (wanted.text, wanted.is_all, wanted.is_tag) == ("*", True, False)
    assert wanted.preselect(entries_of("a", "", "b")).all()
    assert matches_properties(wanted, {})


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("A", {"A"}),
        ("A||B", {"A", "B"}),
        (" A  ||\tB || A ||", {"A", "B"}),
        ("a b || é", {"a b", "é"}),
        ("Aa", {"Aa"}),
        ("BBBB || AaBB", {"BBBB", "AaBB"}),
        (" || ".join(f"t{number}" for number in range(40)), {f"t{number}" for number in range(40)}),
    ],
)
def test_tags_are_preselected_by_hash_and_decided_by_their_characters(expression: str, wanted: set[str]) -> None:
    """Tags of the same hash never mix: the queue leaves both, the record decides."""
    found = compile_filter(expression, None)
    assert (found.is_tag, found.is_all) == (True, False)
    tags = ["", "A", "B", "C", "a b", "é", "Aa", "BB", "AaAa", "BBBB", "AaBB", "t7", "t39", "t40"]
    hashes = {tag_hash(tag) for tag in wanted}
    assert found.preselect(entries_of(*tags)).tolist() == [tag_hash(tag) in hashes for tag in tags]
    records = [
        encode_record(b"t", 0, b"x", encode_properties([("TAGS", tag)] if tag else []), born_ms=0) for tag in tags
    ]
    data = memoryview(b"".join(records))
    assert found.matches(data, record_starts(data)).tolist() == [tag in wanted for tag in tags]
    assert [matches_properties(found, {"TAGS": tag}) for tag in tags] == [tag in wanted for tag in tags]


def test_sql_preselects_nothing_away() -> None:
    """The queue does not know properties."""
    assert compile_filter(None, "TAGS = 'a'").preselect(entries_of("a", "b")).all()


# Records -------------------------------------------------------------------------------------------------------------
def test_only_the_records_asked_for_are_decided() -> None:
    """In the order of the starts; names inside bodies, topics, longer names and values are not the property."""
    pairs = [
        [("price", "5")],
        [("xprice", "5")],
        [("price2", "5"), ("price", "")],
        [("note", "price\x01 5"), ("a", "b")],
        [("price", "4"), ("price", "5")],
        [],
    ]
    bodies = b"\x02price\x015\x02"
    records = [encode_record(b"price", 0, bodies, encode_properties(one), born_ms=0) for one in pairs]
    data = memoryview(b"??" + b"".join(records))
    starts = record_starts(data[2:]) + 2
    found = compile_filter(None, "price = 5")
    assert found.matches(data, starts).tolist() == [True, False, False, False, True, False]
    assert found.matches(data, starts[[4, 1]]).tolist() == [True, False]
    assert found.matches(data, starts[:0]).tolist() == []


@pytest.mark.parametrize("value", [b"\xe6\x97", b"\xff", b"eu\xe6", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"e\x01u"])
def test_bytes_that_are_no_text_are_decided_as_their_decoded_properties_are(value: bytes) -> None:
    """A record of another writer is replaced and split in the same way, whether all of it is decoded or one property."""
    record = encode_record(b"t", 0, b"", b"\xe6\x97\x02a\x01" + value + b"\x02b\x01\x97\x02\xff\x01c", born_ms=0)
    properties = decode_record(record).properties
    written = properties["a"].replace("\x01", "")
    for sql in (
        f"a = '{written}'",
        f"a CONTAINS '{written[0]}'",
        f"a = '{written}\ufffd'",
        "b = '\ufffd'",
        "a IS NULL",
    ):
        found = compile_filter(None, sql)
        assert found.matches(memoryview(record), np.zeros(1, np.int64)).tolist() == [
            matches_properties(found, properties)
        ]
    assert compile_filter(None, "b = '\ufffd'").matches(memoryview(record), np.zeros(1, np.int64)).all()


def test_many_properties_are_decided_like_few() -> None:
    """A filter over more names than are searched one by one."""
    properties = {f"p{number}": str(number) for number in range(30)}
    record = encode_record(b"t", 0, b"", encode_properties(properties.items()), born_ms=0)
    for count in (1, 6, 7, 30):
        sql = " AND ".join(f"p{number} = {number}" for number in range(count))
        for text, is_match in ((sql, True), (f"{sql} AND p31 = 31", False), (f"{sql} AND p0 = 1", False)):
            assert compile_filter(None, text).matches(memoryview(record), np.zeros(1, np.int64)).tolist() == [is_match]


def test_long_properties_are_decided_like_short_ones() -> None:
    """Beyond some size all of them are decoded: the values must not depend on it."""
    for size in (10, 2_000, 2_100, 8_000):
        pairs = [("a", "1"), ("z", "x" * size), ("a", "2"), ("b", "é")]
        data = memoryview(encode_record(b"t", 0, b"", encode_properties(pairs), born_ms=0))
        for sql, is_match in (("a = 2 AND b = 'é'", True), ("a = 1", False), ("z ENDSWITH 'x' AND c IS NULL", True)):
            assert compile_filter(None, sql).matches(data, np.zeros(1, np.int64)).tolist() == [is_match]


def test_the_dearer_a_filter_the_shorter_its_pages() -> None:
    """A page's time is bounded by its number of records, which are never none."""
    many = FILTER_TERMS_MAX
    sqls = ("a = 1", " OR ".join(["a = 1"] * many), "a CONTAINS 'x'", " OR ".join(["a CONTAINS 'x'"] * (many - 20)))
    pages = [compile_filter(None, sql).page_records for sql in sqls]
    assert pages == sorted(pages, reverse=True)
    assert len(set(pages)) == len(pages)
    assert pages[0] >= 256 and pages[-1] >= 1
    assert compile_filter("a", None).page_records == compile_filter(None, None).page_records == FILTER_PAGE_RECORDS_MAX


def test_a_place_without_a_whole_record_is_refused() -> None:
    """Bytes beside the records are never read as properties."""
    record = encode_record(b"orders", 0, b"body", b"a\x01b\x02", born_ms=0)
    data = memoryview(record * 2)
    found = compile_filter(None, "a = 'b'")
    for start in (-1, 1, len(record) + 1, len(data), len(data) - 1, 10**12):
        with pytest.raises(LinkBodyMalformed):
            found.matches(data, np.array([0, start], np.int64))
    for cut in (0, 50, len(record) - 1):
        with pytest.raises(LinkBodyMalformed):
            found.matches(data[:cut], np.zeros(1, np.int64))
    for at, byte in ((4, 0xFF), (84, 0xFF), (87, 0xFF), (HEAD_TOPIC_SIZE_AT, 0xFF)):
        bent = bytearray(record)
        bent[at] = byte
        with pytest.raises(LinkBodyMalformed):
            found.matches(memoryview(bent), np.zeros(1, np.int64))


# Behind the head's 88 bytes and a body of 4.
HEAD_TOPIC_SIZE_AT = 92
