"""What the demo's stream has written, as it is read again."""

from tern_cli.demo.flights import OPEN_DAYS
from tern_jobs.flights.daily_delays import DISORDER_DAYS, DailyDelay, joined


def day(date: str, carrier: str = "UA") -> DailyDelay:
    """Figures of one day."""
    return DailyDelay(carrier=carrier, date=date, flights=3, departed=2, minutes=-4)


def test_days_are_in_the_order_of_carriers_and_dates() -> None:
    """From queues, they are in none."""
    found = joined([day("2013-01-02"), day("2013-01-05", "AA"), day("2013-01-01")])
    assert found.table == [day("2013-01-05", "AA"), day("2013-01-01"), day("2013-01-02")]
    assert found.repeated == 0


def test_messages_that_are_there_twice_are_counted() -> None:
    """The same day two times, and another three."""
    assert joined([day("2013-01-01"), day("2013-01-01"), *[day("2013-01-02")] * 3]).repeated == 3


def test_the_demo_compares_with_pandas_as_many_days_as_the_stream_closes() -> None:
    """Two packages that do not know each other have the same number."""
    assert OPEN_DAYS == DISORDER_DAYS
