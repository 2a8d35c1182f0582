"""Verification of a demo run. Pure: figures and tables in, sentences about differences out.

Law: sent = acked = distinct message ids = rows read by Spark = number of flights, Spark's table
equals pandas', and what Spark's stream wrote are pandas' days, each message once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose

from tern_cli.demo.flights import DailyRow, DelayRow

# Means are quotients of the same whole numbers, so only the last bits may differ.
_TOLERANCE = 1e-9
_SHOWN_MAX = 5
_COUNTS = ("flights", "departed")
_MINUTES = ("mean_delay_min", "median_delay_min")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Counts of one run. `received` counts deliveries, `acked` messages.
    `spark_rows` is None without Spark. `range_rows` and `settled_rows` are the broker's own counts:
    offsets added to the topic, and settled for the group.
    """

    flights: int
    sent: int
    received: int
    acked: int
    redelivered: int
    distinct_ids: int
    range_rows: int
    settled_rows: int
    spark_rows: int | None


def count_differences(figures: RunFigures) -> list[str]:
    """Return a sentence for each count that differs from the number of flights."""
    wanted = figures.flights
    counts = {
        "messages sent and confirmed": figures.sent,
        "offsets written in the topic by this run": figures.range_rows,
        "messages received and acked": figures.acked,
        "offsets settled for the group": figures.settled_rows,
        "distinct message ids received": figures.distinct_ids,
    }
    if figures.spark_rows is not None:
        counts["rows read by Spark"] = figures.spark_rows
    found = [
        f"{what}: {count:,}, but there are {wanted:,} flights" for what, count in counts.items() if count != wanted
    ]
    if figures.received != figures.distinct_ids + figures.redelivered:
        found.append(
            f"deliveries do not add up: {figures.received:,} received, "
            f"{figures.distinct_ids:,} distinct and {figures.redelivered:,} redelivered"
        )
    return found


def id_differences(sent_ids: set[str], received_ids: set[str]) -> list[str]:
    """Return sentences about confirmed messages not received, and received ones not sent."""
    found: list[str] = []
    if lost := sent_ids - received_ids:
        found.append(f"confirmed but never received: {len(lost):,} messages, such as {_some(lost)}")
    if strange := received_ids - sent_ids:
        found.append(f"received but not sent by this run: {len(strange):,} messages, such as {_some(strange)}")
    return found


def table_differences(spark: Sequence[DelayRow], pandas: Sequence[DelayRow]) -> list[str]:
    """Return a sentence for each cell in which Spark's table differs from pandas'.
    The order of rows does not matter.
    """
    found: list[str] = []
    ours, theirs = _by_cell(spark), _by_cell(pandas)
    if len(ours) != len(spark):
        found.append("Spark's table names a carrier and month twice")
    for cell in sorted(theirs.keys() | ours.keys()):
        where = f"{cell[0]} in month {cell[1]}"
        if cell not in ours:
            found.append(f"{where}: missing in Spark's table")
        elif cell not in theirs:
            found.append(f"{where}: only in Spark's table")
        else:
            found += [
                f"{where}: {name} is {ours[cell].get(name)} in Spark, {theirs[cell][name]} in pandas"
                for name in (*_COUNTS, *_MINUTES)
                if not _same(ours[cell].get(name), theirs[cell][name])
            ]
    if len(found) > _SHOWN_MAX:
        found[_SHOWN_MAX:] = [f"and {len(found) - _SHOWN_MAX} more differences between the tables"]
    return found


def daily_differences(stream: Sequence[DailyRow], pandas: Sequence[DailyRow], repeated: int) -> list[str]:
    """Return a sentence for each carrier and day in which the stream differs from pandas, and one
    about *repeated* messages.
    """
    found = []
    if repeated:
        found.append(f"{repeated:,} messages of the stream of daily delays were written twice")
    ours, theirs = ({(row["carrier"], row["date"]): row for row in table} for table in (stream, pandas))
    different = sorted(place for place in ours.keys() | theirs.keys() if ours.get(place) != theirs.get(place))
    for carrier, date in different[:_SHOWN_MAX]:
        place = carrier, date
        found.append(f"{carrier} on {date}: {ours.get(place)} in the stream, {theirs.get(place)} in pandas")
    if len(different) > _SHOWN_MAX:
        found.append(f"and {len(different) - _SHOWN_MAX} more days that differ")
    return found


def _by_cell(table: Sequence[DelayRow]) -> Mapping[tuple[str, int], DelayRow]:
    return {(row["carrier"], row["month"]): row for row in table}


def _same(ours: float | None, theirs: float | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return isclose(ours, theirs, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _some(ids: set[str]) -> str:
    return ", ".join(sorted(ids)[:3])
