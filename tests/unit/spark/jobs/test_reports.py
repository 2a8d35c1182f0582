"""What `lag`, `dlq` and `transactions` compute from the answers of the admin API."""

import pytest

from tern_cli.views.dead_letter_view import read_list
from tern_client.transactions.models import Transaction
from tern_jobs.dlq_job import redrive_lines
from tern_jobs.reports.lags import GroupLag, QueueLag, Sample, TopicLag, trends
from tern_jobs.reports.letters import Letter, LetterFilter, causes, read_letter
from tern_jobs.transactions_job import group_rows


def sample(at_ms: int, **queues: tuple[int, int]) -> Sample:
    """Group billing in topic orders: (max_offset, lag) by queue."""
    found = [
        QueueLag(name, max_offset=max_offset, lag=lag, lag_ms=lag, committed=max_offset - lag)
        for name, (max_offset, lag) in queues.items()
    ]
    lag = sum(queue.lag for queue in found)
    return Sample(at_ms, [GroupLag("billing", lag, lag, 0, [TopicLag("orders", found)])])


def test_a_group_that_is_faster_than_its_producers_drains_at_that_rate() -> None:
    """In 10 s 100 came and 200 went: the 400 left take 40 s."""
    (row,) = trends([sample(0, a=(1_000, 500)), sample(10_000, a=(1_100, 400))])
    assert (row.lag, row.in_per_s, row.out_per_s, row.drain_s, row.hottest) == (400, 10.0, 20.0, 40.0, "a")


@pytest.mark.parametrize("lag", [500, 600])
def test_a_group_that_is_not_faster_never_drains(lag: int) -> None:
    """As fast as the producers, or slower."""
    (row,) = trends([sample(0, a=(1_000, 500)), sample(10_000, a=(1_100, lag))])
    assert row.drain_s is None


def test_skew_and_the_hottest_queue() -> None:
    """All of the lag in one of four queues: 4.0. The hottest is where most comes in; a new queue was empty before."""
    before = sample(0, a=(10, 0), b=(10, 10), c=(10, 0))
    (row,) = trends([before, sample(1_000, a=(12, 0), b=(10, 40), c=(10, 0), d=(3, 0))])
    assert (row.queues, row.skew, row.hottest, row.idle_queues) == (4, 4.0, "d", 2)


def test_one_sample_has_no_rates() -> None:
    """The hottest queue is that with the most lag; without lag there is none, and nothing to drain."""
    (row,) = trends([sample(0, a=(10, 3), b=(10, 5))])
    assert (row.in_per_s, row.drain_s, row.hottest) == (None, None, "b")
    (row,) = trends([sample(0, a=(10, 0), b=(10, 0))])
    assert (row.drain_s, row.skew, row.hottest) == (0.0, 1.0, "")


def letter(number: int, **changes: object) -> Letter:
    """Dead letter *number* of group billing, as it is read."""
    death = {
        "offset": f"broker-a:{number}",
        "origin": {"topic": "orders", "queue": "broker-a:0", "offset": number},
        "attempts": 3,
        "cause": "rejected",
        "reason": "no such shop",
        "dead_at": number * 1_000,
        **changes,
    }
    return read_letter("billing", {"dlq": death, "body": b"order \xff\n%d" % number})


def test_letters_are_summed_by_cause_origin_and_reason() -> None:
    """The most first; first and last death; the begin of one body in printable characters."""
    letters = [letter(1), letter(5, attempts=9), letter(3), letter(4, cause="expired", reason="")]
    first, second = causes(letters)
    assert (first.letters, first.first_dead, first.last_dead) == (3, "1970-01-01T00:00:01Z", "1970-01-01T00:00:05Z")
    assert (first.attempts_max, first.sample) == (9, "order \ufffd 1")
    assert (second.cause, second.letters) == ("expired", 1)


def test_the_filter_takes_what_all_its_fields_allow() -> None:
    """Cause, origin, a part of the reason, and the time."""
    wanted = LetterFilter(cause="rejected", topic="orders", reason="such", since_ms=2_000)
    assert wanted.takes(letter(2))
    refused = [letter(1), letter(2, cause="nacked"), letter(2, reason="other")]
    assert not any(wanted.takes(each) for each in refused)


def test_the_redrive_list_names_every_letter_once() -> None:
    """`ternmq dlq redrive --file` reads it as it is."""
    lines = redrive_lines([letter(number) for number in range(600)])
    found = read_list([line.encode() for line in lines], "letters.ndjson")
    assert found == {"billing": [f"broker-a:{number}" for number in range(600)]}


def test_transactions_are_counted_by_producer_group() -> None:
    """Open for 5 s of 10: slow. Expired first."""
    found = [
        Transaction(transaction_id=f"t{at}", producer_group=group, state=state, begun_at=at, attempts=at % 7)
        for at, group, state in [(1_000, "shop", "open"), (9_000, "shop", "open"), (2_000, "bank", "expired")]
    ]
    bank, shop = group_rows(found, now_ms=10_000, slow_ms=5_000)
    assert (bank.producer_group, bank.expired, bank.open, bank.slow) == ("bank", 1, 0, 0)
    assert (shop.open, shop.slow, shop.oldest_id, shop.oldest_begun) == (2, 1, "t1000", "1970-01-01T00:00:01Z")
