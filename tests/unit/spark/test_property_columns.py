"""Property strings of a page as columns: equal to decode_properties of each string, whichever way a page goes."""

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tern_spark.property_columns import LIFTED, property_columns
from tern_wire.records.properties import decode_properties

text = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=12)
names = st.one_of(st.sampled_from([*LIFTED.values(), "origin", ""]), text)


def written(pairs: list[tuple[str, str]]) -> bytes:
    """The string of *pairs*, as a proxy writes it."""
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()


# Pages whose records all have the same names, as those of one producer.
uniform = st.lists(names, min_size=1, max_size=6).flatmap(
    lambda names: st.lists(
        st.lists(text, min_size=len(names), max_size=len(names)).map(
            lambda values: written(list(zip(names, values, strict=True)))
        ),
        max_size=8,
    )
)
mixed = st.lists(st.lists(st.tuples(names, text), max_size=6).map(written), max_size=8)
pieces = st.sampled_from([b"\x01", b"\x02", b"a", b"KEYS", b"\xff", b"\xc3", b"\xa9", "é".encode(), b"k\x01v\x02", b""])
any_bytes = st.lists(st.lists(pieces, max_size=8).map(b"".join), max_size=8)


def rows(raw: list[bytes]) -> list[dict[str, object]]:
    """The rows of the columns, each array checked whole."""
    columns = property_columns(pa.array(raw, pa.binary()))
    for column in columns.values():
        column.validate(full=True)
    columns = {name: column.to_pylist() for name, column in columns.items()}
    return [{name: column[at] for name, column in columns.items()} for at in range(len(raw))]


@settings(deadline=None, max_examples=300)
@given(st.one_of(uniform, mixed, any_bytes))
@example([])
@example([b"", b""])
@example([b"a\x01b\x02", b"", b"a\x01c\x02"])
@example([b"a\x01b\x02" * 2] * 3)  # twice in every record
@example([b"a\x01b\x02", b"a\x01b\x02" * 2])  # twice in one
@example([b"a\x01b", b"c\x02"])  # a pair over the edge
@example([b"a\x01\xc3", b"\xa9\x02"])  # a character over the edge
@example([b"a\x01b\x01c\x02"])  # a value with the separator of names
@example([b"ab\x01c\x02", b"ac\x01c\x02", b"a\x01cc\x02"])  # names of one size, and of another
def test_the_columns_equal_the_strings_decoded_one_by_one(raw: list[bytes]) -> None:
    """Property: each row has what decode_properties makes of its string, in that order."""
    for row, data in zip(rows(raw), raw, strict=True):
        decoded = decode_properties(data)
        assert [row[column] for column in LIFTED] == [decoded.pop(name, None) for name in LIFTED.values()]
        assert row["properties"] == list(decoded.items())


@pytest.mark.parametrize("names", [["UNIQ_KEY", "TAGS"], ["UNIQ_KEY", "TAGS", "TAGS"]])
def test_pages_of_one_producer_have_every_value_in_its_row(names: list[str]) -> None:
    """Thousands of records with the same names, also with one twice: of equal names the last one counts."""
    raw = [
        written([(name, f"{number}-{place}") for place, name in enumerate(names)] + [("n", str(number))])
        for number in range(3_000)
    ]
    for number, row in enumerate(rows(raw)):
        assert row == {
            "message_id": f"{number}-0",
            "keys": None,
            "tags": f"{number}-{len(names) - 1}",
            "properties": [("n", str(number))],
        }


def test_more_names_than_a_table_has_room_for() -> None:
    """Every record has a name of its own, and the last one a name twice."""
    raw = [written([(f"name-{number}", "v")]) for number in range(5_000)]
    assert rows(raw)[4_999]["properties"] == [("name-4999", "v")]
    assert rows([*raw, written([("b", "v"), ("b", "w")])])[5_000]["properties"] == [("b", "w")]
