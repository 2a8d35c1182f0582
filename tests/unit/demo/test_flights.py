"""The data set as messages and as pandas' table: nothing is lost or invented on the way into JSON."""

from collections import Counter

import orjson
import pandas as pd
import pytest

from tern_cli.demo.flights import (
    FLIGHTS_TOTAL,
    FlightMessages,
    carrier_names,
    cut,
    daily_table,
    delay_table,
    load_flights,
)
from tern_cli.demo.producing import BATCH_MESSAGES, plan_sends


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """All flights."""
    return load_flights()


def test_the_data_set_holds_every_flight_of_2013(frame: pd.DataFrame) -> None:
    """The number that the whole demo is checked against."""
    assert len(frame) == FLIGHTS_TOTAL
    assert len(load_flights(150)) == 150


def test_a_flight_becomes_a_message_with_tag_key_and_properties(frame: pd.DataFrame) -> None:
    """The first flight of the year: UA 1545 from Newark to Houston, two minutes late."""
    message = FlightMessages(frame.head(3), "run").message(0)
    body = orjson.loads(message.body)
    assert (message.tag, tuple(message.keys), dict(message.properties)) == (
        "UA",
        ("UA-1545",),
        {"origin": "EWR", "dest": "IAH"},
    )
    assert (message.idempotency_key, message.content_type) == ("run-0", "application/json")
    assert (body["dep_delay"], body["flight"], body["time_hour"]) == (2, 1545, "2013-01-01T10:00:00Z")
    assert list(body) == list(frame.columns)


def test_a_message_says_null_exactly_where_pandas_has_nothing(frame: pd.DataFrame) -> None:
    """Compare 400 flights, half of them cancelled, field by field; whole numbers stay whole."""
    cancelled = frame[frame["dep_delay"].isna()].head(200)
    some = pd.concat([cancelled, frame.head(200)])
    messages = FlightMessages(some, "run")
    assert len(messages) == 400
    for at, message in enumerate(messages.batch(0, 400)):
        flight, row = orjson.loads(message.body), some.iloc[at]
        for name, value in flight.items():
            if value is None:
                assert pd.isna(row[name]), (at, name)
            else:
                assert type(value) in {int, str}
                assert value == row[name], (at, name)


def test_idempotency_keys_name_run_and_flight_and_never_repeat(frame: pd.DataFrame) -> None:
    """Two runs share no key; within a run every flight has its own."""
    few = frame.head(50)
    keys = Counter(message.idempotency_key for run in ("a", "b") for message in FlightMessages(few, run).batch(0, 50))
    assert len(keys) == 100


def test_the_plan_sends_every_flight_once_and_enough_of_them_singly() -> None:
    """For many counts: batches and singles cover 0 to count without overlap; all flights give 20,000 singles."""
    for count in (100, 101, 3_999, 80_000, 80_001, FLIGHTS_TOTAL):
        plan = plan_sends(count)
        batched = [at for start, end in plan.batches for at in range(start, end)]
        assert [*batched, *plan.singles] == list(range(count))
        assert max(end - start for start, end in plan.batches) <= BATCH_MESSAGES
    assert len(plan_sends(FLIGHTS_TOTAL).singles) == 20_000


def test_cut_covers_a_range_without_empty_pieces() -> None:
    """Edges of the cutting."""
    assert cut(0, 10) == []
    assert cut(25, 10, start=5) == [(5, 15), (15, 25), (25, 30)]


def test_pandas_table_counts_cancelled_flights_and_leaves_them_out_of_means() -> None:
    """Three flights, one without a departure; and a month in which nothing departed."""
    frame = pd.DataFrame(
        {"carrier": ["UA", "UA", "UA", "AA"], "month": [1, 1, 1, 2], "dep_delay": [10.0, None, -4.0, None]}
    )
    assert delay_table(frame) == [
        {"carrier": "AA", "month": 2, "flights": 1, "departed": 0, "mean_delay_min": None, "median_delay_min": None},
        {"carrier": "UA", "month": 1, "flights": 3, "departed": 2, "mean_delay_min": 3.0, "median_delay_min": 3.0},
    ]


def test_every_carrier_of_the_flights_has_a_name(frame: pd.DataFrame) -> None:
    """The plot and the table label all rows."""
    names = carrier_names()
    assert set(frame["carrier"]) <= names.keys()
    assert names["UA"] == "United Air Lines"


def test_the_days_of_all_carriers_add_up_to_the_year_without_its_last_days(frame: pd.DataFrame) -> None:
    """Every flight but those of the last 60 days and of the latest one is in one day; minutes are whole, also on days when nothing departed."""
    days = daily_table(frame)
    closed = frame[(frame["month"] < 11)]
    assert sum(row["flights"] for row in days) == len(closed)
    assert sum(row["departed"] for row in days) == int(closed["dep_delay"].notna().sum())
    assert sum(row["minutes"] for row in days) == int(closed["dep_delay"].sum())
    assert {type(row[name]) for row in days for name in ("flights", "departed", "minutes")} == {int}
    assert (days[0]["date"], max(row["date"] for row in days)) == ("2013-01-01", "2013-10-31")
    assert daily_table(frame.head(500)) == []
