"""The worker's decisions without a loop: memory, pace, order, leases, outcomes, and metrics."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tern_client import BatchFailed, DeadLetter, Retry
from tern_client.worker.flow import Amount, FlowBudget
from tern_client.worker.health import answer
from tern_client.worker.lease_renewal import LeaseRenewal
from tern_client.worker.outcomes import ACK, BodyRefused, DeadlinePassed, Outcome, duration_ms, outcome_of
from tern_client.worker.pace import WorkerPace
from tern_client.worker.stats import Counters, WorkerStats, prometheus_text, snapshot
from tern_client.worker.waiting import InHand, Waiting
from tests.unit.client.deliveries import received

MIB = 1 << 20
# What no type checker would let through.
wrong_value: Any = 7
wrong_list: Any = []


# Memory ------------------------------------------------------------------------------------------
def test_no_subscription_takes_the_share_of_another() -> None:
    """The greedy one gets its own share and all that is common; the others keep theirs."""
    budget = FlowBudget(100, 100 * MIB, 2, 4 * MIB)
    budget.reserve(0, budget.room(0))
    assert budget.used(0) == Amount(75, 75 * MIB)
    assert budget.room(0) == Amount(0, 0)
    assert budget.room(1) == Amount(25, 25 * MIB)
    budget.reserve(1, Amount(25, 25 * MIB))
    assert budget.total == Amount(100, 100 * MIB)
    budget.give_back(0, Amount(10, 10 * MIB))
    assert budget.room(1) == budget.room(0) == Amount(10, 10 * MIB)


def test_the_limits_hold_whatever_is_asked_for_in_whatever_order() -> None:
    """Random reservations within room, and returns: never beyond the limits, and nobody's share is gone."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(50):
        count = chance.randrange(1, 6)
        budget = FlowBudget(chance.randrange(count, 200), chance.randrange(count * 4, 300) * MIB, count, 4 * MIB)
        limit = budget.room(0) if count == 1 else None
        held: list[tuple[int, Amount]] = []
        for _ in range(100):
            who = chance.randrange(count)
            if chance.random() < 0.6:
                room = budget.room(who)
                amount = Amount(chance.randint(0, room.messages), chance.randint(0, room.size_bytes))
                budget.reserve(who, amount)
                held.append((who, amount))
            elif held:
                budget.give_back(*held.pop(chance.randrange(len(held))))
            for other in range(count):
                used = budget.used(other)
                assert budget.room(other).size_bytes + used.size_bytes >= 4 * MIB
                assert budget.room(other).messages + used.messages >= 1
            assert limit is None or (budget.total.messages <= limit.messages)


def test_limits_without_room_for_one_receive_of_each_are_refused_with_what_they_need() -> None:
    """Eight subscriptions need 32 MiB."""
    with pytest.raises(
        ValueError, match="8 subscriptions need max_messages of at least 8 and max_bytes of at least 33"
    ):
        FlowBudget(1_000, 31 * MIB, 8, 4 * MIB)


# Pace --------------------------------------------------------------------------------------------
def test_a_subscription_begins_with_one_and_never_asks_beyond_its_places_and_the_work_of_a_moment() -> None:
    """1, 2, 4 ... free places; then what its handlers ended within 100 ms."""
    pace, asked = WorkerPace(), list[int]()
    for at_ms in range(5):
        asked.append(pace.ask(20, 0, at_ms))
        pace.received(asked[-1], at_ms, at_ms)
    assert asked == [1, 2, 4, 8, 16]
    assert pace.ask(20, 0, 5) == 20
    assert pace.ask(0, 0, 5) == 0
    pace.ended(12, 50)
    assert pace.ask(0, 0, 60) == 12
    assert pace.ask(0, 5, 60) == 7
    assert pace.ask(0, 7, 60) == 0  # more than half is here
    assert pace.ask(0, 0, 151) == 0  # its handlers have ended nothing since
    pace.begin_again()
    assert pace.ask(20, 0, 200) == 1


def test_where_the_proxy_is_far_the_moment_is_longer() -> None:
    """20 receives of 30 ms: 600 ms; never more than a second."""
    pace = WorkerPace()
    for _ in range(4):
        pace.received(4, 0, 30)
    pace.ended(9, 100)
    assert pace.ask(0, 0, 690) == 9
    assert pace.ask(0, 0, 701) == 0


# Order -------------------------------------------------------------------------------------------
def test_messages_of_a_message_group_are_taken_one_at_a_time_in_their_order() -> None:
    """Others pass them; those without a message group wait for nothing."""
    waiting = Waiting(is_ordered=True)
    held = [InHand(received(number, name), 1) for number, name in enumerate(["a", "a", "b", "", "a", ""])]
    assert waiting.add(held)
    first = [waiting.take() for _ in range(5)]
    assert first == [held[0], held[2], held[3], held[5], None]
    assert len(waiting) == 2
    waiting.done(held[0])
    assert [waiting.take(), waiting.take()] == [held[1], None]
    assert waiting.add([InHand(received(9, "a"), 1)])
    waiting.done(held[1])
    assert waiting.take() is held[4]
    assert [each.message.message_id for each in waiting.clear()] == ["m9"]
    waiting.done(held[4])
    assert not waiting.add([InHand(received(10, "a"), 1)])


def test_without_order_they_come_as_they_came() -> None:
    """And nothing is held back."""
    waiting = Waiting(is_ordered=False)
    held = [InHand(received(number, "a"), 1) for number in range(3)]
    assert not waiting.add(held)
    assert [waiting.take() for _ in range(4)] == [*held, None]


# Leases ------------------------------------------------------------------------------------------
def test_a_lease_is_extended_when_a_third_of_it_is_over_and_its_neighbours_go_along() -> None:
    """Those that are due within a sixth more; none before the first is due."""
    renewal = LeaseRenewal()
    renewal.add("a", 60_000, 0)
    renewal.add("b", 60_000, 8_000)
    renewal.add("c", 60_000, 19_000)
    assert renewal.next_due_ms == 20_000
    assert renewal.due(19_999, 10) == []
    assert renewal.due(20_000, 10) == [("a", 60_000), ("b", 60_000)]
    assert renewal.due(20_000, 1) == [("a", 60_000)]
    renewal.extended("a", 20_000)
    renewal.failed("b", 20_000)
    assert renewal.next_due_ms == 25_000
    assert renewal.lasts("a", 79_999)
    assert not renewal.lasts("a", 80_000)
    assert not renewal.lasts("b", 68_000)
    for handle in "abc":
        renewal.remove(handle)
    assert renewal.next_due_ms is None
    assert not len(renewal)
    assert not renewal.lasts("a", 0)


def test_a_lease_that_a_wrong_clock_puts_into_the_past_is_extended_at_once() -> None:
    """To the default; from then on its length is known."""
    renewal = LeaseRenewal()
    renewal.add("a", -5_000, 100)
    assert renewal.lasts("a", 200)
    assert renewal.due(100, 10) == [("a", 60_000)]


# Outcomes ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "error, outcome",
    [
        (None, ACK),
        (ZeroDivisionError(), Outcome("nack", 7)),
        (DeadlinePassed(), Outcome("nack", 7)),
        (Retry(), Outcome("nack", None)),
        (Retry(0), Outcome("nack", 0)),
        (DeadLetter("x" * 2_000), Outcome("dead_letter", reason="x" * 1_024)),
        (DeadLetter("\u00e4" * 1_000), Outcome("dead_letter", reason="\u00e4" * 512)),
        (BodyRefused("no json"), Outcome("dead_letter", reason="no json")),
    ],
    ids=repr,
)
def test_each_error_means_one_thing(error: BaseException | None, outcome: Outcome) -> None:
    """As the module's table says."""
    assert outcome_of(error, 7) == outcome


@pytest.mark.parametrize(
    "wrong, said",
    [
        (lambda: Retry("soon"), "after: 'soon' is not a duration"),
        (lambda: Retry(True), "after is a bool; give a duration such as '30s'"),
        (lambda: Retry("13h"), "after is 13h; use 0 ms to 43200000 ms"),
        (lambda: Retry(timedelta(seconds=-1)), "after: -1000 is negative"),
        (lambda: DeadLetter(wrong_value), "reason is a int; give a text"),
        (lambda: BatchFailed({received(1): wrong_value}), "errors holds a int; give an exception"),
        (lambda: duration_ms(wrong_list, "deadline"), "deadline is a list"),
    ],
)
def test_a_wrong_value_is_named_with_its_argument(wrong: Callable[[], object], said: str) -> None:
    """And with what to give."""
    with pytest.raises((TypeError, ValueError)) as caught:
        wrong()
    assert said in str(caught.value)


# Metrics -----------------------------------------------------------------------------------------
def test_metrics_are_prometheus_text_with_a_row_for_each_subscription() -> None:
    """Counters end with _total, label values are escaped."""
    rows = (
        snapshot("t", 'g"1', Counters(received=3, handler_ms=1_500), in_flight_bytes=9),
        snapshot("u", "", Counters()),
    )
    lines = prometheus_text(WorkerStats(state="running", subscriptions=rows)).splitlines()
    assert 'ternmq_worker_received_total{topic="t",group="g\\"1"} 3' in lines
    assert 'ternmq_worker_handler_seconds_total{topic="t",group="g\\"1"} 1.500000' in lines
    assert 'ternmq_worker_in_flight_bytes{topic="t",group="g\\"1"} 9' in lines
    assert lines[-1] == "ternmq_worker_up 1"
    assert len([line for line in lines if line.startswith("# TYPE")]) == 14


@pytest.mark.parametrize(
    "method, path, stats, status, text",
    [
        ("GET", "/health", WorkerStats(state="running"), 200, "ok"),
        ("GET", "/health?x=1", WorkerStats(state="running", problem="t/g: no leader"), 503, "t/g: no leader"),
        ("GET", "/health", WorkerStats(state="stopping"), 503, "the worker is stopping"),
        ("GET", "/", WorkerStats(state="running"), 404, "/metrics"),
        ("POST", "/health", WorkerStats(state="running"), 405, "use GET"),
    ],
)
def test_health_says_whether_it_receives_and_why_not(
    method: str, path: str, stats: WorkerStats, status: int, text: str
) -> None:
    """In the status, and in words."""
    head, _, body = answer(method, path, stats).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert text in body.decode()
