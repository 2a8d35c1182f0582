"""The demo's comparison: silent when everything agrees, and one clear sentence for each thing that does not."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from tern_cli.demo.verify import (
    RunFigures,
    count_differences,
    daily_differences,
    id_differences,
    table_differences,
)

GOOD = RunFigures(
    flights=1_000,
    sent=1_000,
    received=1_003,
    acked=1_000,
    redelivered=3,
    distinct_ids=1_000,
    range_rows=1_000,
    settled_rows=1_000,
    spark_rows=1_000,
)
TABLE: list[dict[str, Any]] = [
    {"carrier": "UA", "month": 1, "flights": 3, "departed": 2, "mean_delay_min": 3.0, "median_delay_min": 3.5},
    {"carrier": "AA", "month": 2, "flights": 1, "departed": 0, "mean_delay_min": None, "median_delay_min": None},
]


def test_agreeing_counts_give_no_sentence() -> None:
    """Redeliveries are no difference; a run without Spark has nothing to compare with it."""
    assert count_differences(GOOD) == []
    assert count_differences(replace(GOOD, spark_rows=None)) == []


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("sent", "messages sent and confirmed: 999"),
        ("acked", "messages received and acked: 999"),
        ("distinct_ids", "distinct message ids received: 999"),
        ("range_rows", "offsets written in the topic by this run: 999"),
        ("settled_rows", "offsets settled for the group: 999"),
        ("spark_rows", "rows read by Spark: 999"),
    ],
)
def test_each_count_that_is_off_is_named(field: str, says: str) -> None:
    """Lower one count by one: its sentence comes, with both numbers. (A missing id also breaks the sum of deliveries.)"""
    found = count_differences(replace(GOOD, **{field: 999}))
    assert found[0] == f"{says}, but there are 1,000 flights"
    assert len(found) == (2 if field == "distinct_ids" else 1)


def test_a_message_stored_twice_shows_although_everything_was_received() -> None:
    """More offsets than messages: an idempotency key failed."""
    assert count_differences(replace(GOOD, range_rows=1_001)) != []


def test_deliveries_must_add_up() -> None:
    """Received is distinct plus redelivered."""
    assert count_differences(replace(GOOD, received=1_004)) == [
        "deliveries do not add up: 1,004 received, 1,000 distinct and 3 redelivered"
    ]


def test_lost_and_strange_messages_are_told_apart() -> None:
    """Ids on one side only."""
    assert id_differences({"a", "b"}, {"b", "a"}) == []
    assert id_differences({"a", "b"}, {"b", "c"}) == [
        "confirmed but never received: 1 messages, such as a",
        "received but not sent by this run: 1 messages, such as c",
    ]


def test_equal_tables_give_no_sentence_in_any_order_of_rows() -> None:
    """Spark sorts differently, and the last bit of a mean may differ."""
    spark = deepcopy(TABLE)[::-1]
    spark[1]["mean_delay_min"] = 3.0000000000000004
    assert table_differences(spark, TABLE) == []


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("flights", 4, "flights is 4 in Spark, 3 in pandas"),
        ("departed", 3, "departed is 3 in Spark, 2 in pandas"),
        ("mean_delay_min", 3.001, "mean_delay_min is 3.001 in Spark, 3.0 in pandas"),
        ("median_delay_min", None, "median_delay_min is None in Spark, 3.5 in pandas"),
        ("carrier", "ZZ", "only in Spark's table"),
        ("month", 2, "missing in Spark's table"),
    ],
)
def test_each_kind_of_difference_between_the_tables_is_told(name: str, value: object, says: str) -> None:
    """Change one field of one row of Spark's table."""
    spark = deepcopy(TABLE)
    spark[0][name] = value
    assert any(says in sentence for sentence in table_differences(spark, TABLE))


def test_a_mean_where_pandas_has_none_is_a_difference() -> None:
    """NULL handled as 0 must not pass."""
    spark = deepcopy(TABLE)
    spark[1]["mean_delay_min"] = 0.0
    assert table_differences(spark, TABLE) == ["AA in month 2: mean_delay_min is 0.0 in Spark, None in pandas"]


def test_a_row_given_twice_is_a_difference() -> None:
    """A broken grouping could return a carrier and month twice with the same figures."""
    assert table_differences([*TABLE, TABLE[0]], TABLE) == ["Spark's table names a carrier and month twice"]


def test_many_differences_are_cut_to_a_readable_number() -> None:
    """Nobody reads 185 sentences."""
    found = table_differences([], [{**TABLE[0], "month": month} for month in range(1, 13)])
    assert len(found) == 6
    assert found[-1] == "and 7 more differences between the tables"


def test_the_stream_s_days_are_compared_with_pandas() -> None:
    """Silent when they agree in any order; a day that is off, missing or more, and repeated messages are told."""
    days = [
        {"carrier": "UA", "date": f"2013-01-{day:02d}", "flights": day, "departed": day, "minutes": -3}
        for day in range(1, 10)
    ]
    assert daily_differences(days[::-1], days, 0) == []
    assert daily_differences(days, days, 2) == ["2 messages of the stream of daily delays were written twice"]
    assert daily_differences([*days[:-1], {**days[-1], "minutes": -4}], days, 0)[0].startswith("UA on 2013-01-09: {")
    found = daily_differences([], days, 0)
    assert len(found) == 6
    assert found[-1] == "and 4 more days that differ"
