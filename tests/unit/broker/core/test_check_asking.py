"""Checks that nobody asks for, and how long a claim lasts: a group without a check URL has to ask, one with a URL waits for a checker."""

from typing import Any

from tern_broker.core import saving
from tern_broker.core.transactions.views import describe_transaction
from tern_wire.transactions import EXPIRED_BEFORE
from tests.support.broker.half_messages import TransactionLog


def described(log: TransactionLog, number: int) -> dict[str, Any]:
    """What the state says of a transaction."""
    return describe_transaction(log.state.transactions, log.state.names, number, log.p)


def test_a_transaction_that_nobody_polls_for_expires_as_if_it_had_been_asked_in_vain() -> None:
    """Each interval in which a check was due and nobody asked is an attempt; then it is parked, whatever a late client says."""
    log = TransactionLog(check_after_ms=100, check_interval_ms=500, max_checks=3)
    number = log.begin_one(1_000)
    assert log.state.is_due(1_100)
    log.apply(1_100)
    for attempts, now_ms in enumerate((1_600, 2_100, 2_600)):
        assert (described(log, number)["state"], described(log, number)["attempts"]) == ("open", attempts)
        assert not log.state.is_due(now_ms - 1)
        assert log.state.is_due(now_ms)
        log.apply(now_ms)
    found = described(log, number)
    assert (found["state"], found["attempts"]) == ("expired", 3)
    assert found["checks"] == [
        [attempt, at_ms, "", "not-asked", 0] for attempt, at_ms in ((1, 1_100), (2, 1_600), (3, 2_100))
    ]
    stats = log.state.producers.by_id[log.p].describe()["stats"]
    assert (stats["open"], stats["expired"], stats["checks"]) == (0, 1, 0)
    assert log.end(2_700, number)["status"].tolist() == [EXPIRED_BEFORE]
    assert not log.state.is_due(1 << 40)


def test_whoever_asks_gets_everybody_more_time() -> None:
    """A poller that takes one at a time: the others wait for their turn; once it is gone, one interval later they count."""
    log = TransactionLog(check_after_ms=100, check_interval_ms=500, max_checks=1)
    numbers = [log.begin_one(1_000) for _ in range(4)]
    for at, now_ms in enumerate((1_100, 1_590, 2_080)):
        assert log.claim(now_ms, count=1, claim_ms=10_000) == [[numbers[at], at + 1, 1]]
        assert described(log, numbers[3])["attempts"] == 0
    log.apply(2_579)
    assert described(log, numbers[3])["state"] == "open"
    log.apply(2_580)
    assert described(log, numbers[3])["state"] == "expired"
    assert described(log, numbers[0])["state"] == "open", "claimed for ten seconds"


def test_a_claim_that_nobody_takes_over_is_lost_an_interval_later() -> None:
    """The poller died with it, and nobody else came: it is the same attempt, and it counts once."""
    log = TransactionLog(check_after_ms=100, check_interval_ms=500)
    number = log.begin_one(1_000)
    log.claim(1_100, checker="one", claim_ms=50)
    log.apply(1_150)
    log.apply(1_650)
    found = described(log, number)
    assert (found["attempts"], found["checks"]) == (1, [[1, 1_100, "one", "lost", 0]])
    assert log.claim(1_650) == [[number, 2, 2]]


def test_a_group_with_a_url_waits_for_a_checker_however_long() -> None:
    """That none runs is not the producer's doing; once it has no URL any more, its clients have to ask; with one again, they need not."""
    log = TransactionLog(check_after_ms=100, check_interval_ms=500, max_checks=1, check_url="http://a/c")
    first = log.begin_one(1_000)
    log.apply(1_100)
    assert not log.state.is_due(1 << 40)
    log.apply(9_000)
    log.producer_group("p", check_url="")
    log.producer_group("p", max_checks=2)
    assert log.state.is_due(9_500)
    log.producer_group("p", check_url="http://b/c")
    assert not log.state.is_due(1 << 40)
    log.state = saving.load(b"".join(saving.encode(saving.take(log.state))))
    assert not log.state.is_due(1 << 40)
    log.producer_group("p", check_url="")
    log.state = saving.load(b"".join(saving.encode(saving.take(log.state))))
    log.apply(9_500)
    assert described(log, first)["attempts"] == 1


def test_a_claim_lasts_as_long_as_the_call_may_take() -> None:
    """Beside what the checker asks for, which is its time to come to it; a client that asks itself gets what it asks for."""
    log = TransactionLog(check_after_ms=100, check_url="http://a/c", timeout_ms=30_000)
    called, pulled = log.begin_one(1_000), log.begin_one(1_000, group=log.producer_group("q", check_after_ms=100))
    log.claim(1_100, "", claim_ms=5_000)
    log.claim(1_100, "q", claim_ms=5_000)
    table = log.state.transactions.table
    ends = [table.get("at_ms", table.slots[number]) for number in (called, pulled)]
    assert ends == [1_100 + 35_000, 1_100 + 5_000]
