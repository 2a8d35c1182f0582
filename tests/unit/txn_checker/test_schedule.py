"""Who is called next: fairness between hosts, bounds, and what is given back, on a clock that the test turns."""

from collections import Counter

from tern_txn_checker.core.answers import BUSY, CIRCUIT_OPEN
from tern_txn_checker.core.circuit import FAILURES_MAX, OPEN_FIRST_MS
from tern_txn_checker.core.schedule import HOST_KEPT_MS, Check, Claim, Schedule, Started
from tern_wire.checks.urls import CheckUrl


def check(host: str, number: int = 0, *, start_by_ms: int = 10_000) -> Check:
    """A check of *host*."""
    return Check(
        claim=Claim(broker_group="broker-a", number=number, claim=number, producer_group_id=1, until_ms=20_000),
        transaction_id=f"t{number}",
        url=CheckUrl(scheme="http", host=host, port=80, path="/"),
        secret="whsec_",
        body=b"{}",
        timeout_ms=1_000,
        start_by_ms=start_by_ms,
    )


def schedule(calls_max: int = 64, per_host_max: int = 4, waiting_max: int = 1_000) -> Schedule:
    """An empty one."""
    return Schedule(calls_max=calls_max, per_host_max=per_host_max, waiting_max=waiting_max)


def start_all(made: Schedule, now_ms: int = 0) -> list[Started]:
    """Everything that can begin now; what is given back is not expected."""
    found: list[Started] = []
    while (one := made.start(now_ms)) is not None:
        assert isinstance(one, Started)
        found.append(one)
    return found


def end(made: Schedule, started: Started, *, is_alive: bool = True, now_ms: int = 0) -> list[tuple[Check, str]]:
    """*started* is over."""
    return made.end(started, is_alive=is_alive, text="commit" if is_alive else "timeout", now_ms=now_ms, chance=1.0)


def test_a_host_gets_four_calls_at_a_time_in_the_order_of_its_checks() -> None:
    """The fifth begins when the first ends."""
    made = schedule()
    for number in range(6):
        assert made.offer(check("a", number), 0) == ""
    started = start_all(made)
    assert [one.check.claim.number for one in started] == [0, 1, 2, 3]
    end(made, started[2])
    assert [one.check.claim.number for one in start_all(made)] == [4]
    assert (made.waiting, made.under_way) == (1, 4)


def test_hosts_take_turns() -> None:
    """A hundred checks of one before three of another: these do not wait for them."""
    made = schedule(calls_max=8, per_host_max=2)
    for number in range(100):
        made.offer(check("many", number), 0)
    for number in range(3):
        made.offer(check("few", number), 0)
    first = start_all(made)
    assert Counter(one.check.url.host for one in first) == {"many": 2, "few": 2}
    for one in first:
        end(made, one)
    assert Counter(one.check.url.host for one in start_all(made)) == {"many": 2, "few": 1}


def test_a_host_that_hangs_delays_nobody_else() -> None:
    """Its calls never end and its queue is full; another host's thousand checks all go through, two at a time."""
    made = schedule()
    given_back = [made.offer(check("hung", number), 0) for number in range(2_000)]
    assert given_back.count(BUSY) == 2_000 - made.waiting
    hung = start_all(made)
    assert len(hung) == 4
    done = 0
    for number in range(1_000):
        assert made.offer(check("well", number), 0) == ""
        for one in start_all(made):
            assert one.check.url.host == "well"
            end(made, one)
            done += 1
    assert done == 1_000


def test_however_many_hosts_hang_a_newcomer_finds_room_and_a_call() -> None:
    """Thirty hung hosts with endless checks each; the next host still gets what it needs."""
    made = schedule(calls_max=64)
    for number in range(200):
        for host in range(30):
            made.offer(check(f"hung-{host}", number), 0)
    hung = start_all(made)
    assert made.under_way < 64, "hosts that hang may not take all calls"
    for number in range(200):
        for host in range(30):
            made.offer(check(f"hung-{host}", number), 0)
    assert [made.offer(check("new", number), 0) for number in range(20)] == [""] * 20
    assert {one.check.url.host for one in start_all(made)} == {"new"}
    assert len({one.check.url.host for one in hung}) == 30


def test_more_than_half_of_all_calls_are_one_a_host() -> None:
    """Four each for the first, one each from then on, and never more than all."""
    made = schedule(calls_max=8)
    for host in range(20):
        for number in range(4):
            made.offer(check(f"h{host}", number), 0)
    counts = Counter(one.check.url.host for one in start_all(made))
    assert sum(counts.values()) == 8
    assert sorted(counts.values()) == [1] * 8


def test_what_cannot_begin_in_time_is_given_back() -> None:
    """At once if it is too late already, else when its time has come, wherever it waits."""
    made = schedule(per_host_max=1)
    assert made.offer(check("a", start_by_ms=99), 100) == BUSY
    for number, start_by_ms in enumerate((1_000, 500, 2_000, 300)):
        assert made.offer(check("a", number, start_by_ms=start_by_ms), 0) == ""
    (first,) = start_all(made)
    assert [(one.claim.number, why) for one, why in made.look(400)] == [(3, BUSY)]
    assert [(one.claim.number, why) for one, why in made.look(600)] == [(1, BUSY)]
    end(made, first, now_ms=700)
    (third,) = start_all(made, 700)
    assert third.check.claim.number == 2
    assert (made.waiting, made.under_way) == (0, 1)


def test_a_late_check_at_the_head_of_a_queue_does_not_stop_it() -> None:
    """It is given back by `start` itself, and the next one begins."""
    made = schedule(per_host_max=1)
    made.offer(check("a", 1, start_by_ms=500), 0)
    made.offer(check("a", 2, start_by_ms=5_000), 0)
    found = [made.start(1_000), made.start(1_000), made.start(1_000)]
    assert isinstance(found[0], tuple)
    assert found[0][1] == BUSY
    assert isinstance(found[1], Started)
    assert found[1].check.claim.number == 2
    assert found[2] is None


def test_an_opening_circuit_gives_back_what_cannot_wait_for_it_and_keeps_the_rest() -> None:
    """Then one call tries the host, and its answer lets all others through."""
    made = schedule(per_host_max=FAILURES_MAX)
    for number in range(FAILURES_MAX):
        made.offer(check("a", number), 0)
    started = start_all(made)
    made.offer(check("a", 50, start_by_ms=OPEN_FIRST_MS - 1), 0)
    made.offer(check("a", 51, start_by_ms=OPEN_FIRST_MS), 0)
    made.offer(check("a", 52), 0)
    given_back = [lost for one in started for lost in end(made, one, is_alive=False)]
    assert [(one.claim.number, why) for one, why in given_back] == [(50, CIRCUIT_OPEN)]
    assert made.offer(check("a", 53, start_by_ms=OPEN_FIRST_MS - 1), 10) == CIRCUIT_OPEN
    assert start_all(made, OPEN_FIRST_MS - 1) == []
    made.look(OPEN_FIRST_MS)
    (probe,) = start_all(made, OPEN_FIRST_MS)
    assert (probe.is_probe, probe.check.claim.number) == (True, 51)
    assert next(made.hosts(OPEN_FIRST_MS)).circuit == "half-open"
    end(made, probe, now_ms=OPEN_FIRST_MS)
    assert [one.check.claim.number for one in start_all(made, OPEN_FIRST_MS)] == [52]


def test_a_failed_try_opens_the_circuit_again_for_longer() -> None:
    """What waits then is given back if it cannot wait so long."""
    made = schedule(per_host_max=FAILURES_MAX)
    for number in range(FAILURES_MAX):
        made.offer(check("a", number), 0)
    for one in start_all(made):
        end(made, one, is_alive=False)
    made.offer(check("a", 6, start_by_ms=1_500), 0)
    made.offer(check("a", 7, start_by_ms=2_500), 0)
    made.look(1_000)
    (probe,) = start_all(made, 1_000)
    assert probe.check.claim.number == 6
    assert [(one.claim.number, why) for one, why in end(made, probe, is_alive=False, now_ms=1_000)] == [
        (7, CIRCUIT_OPEN)
    ]


def test_a_try_that_was_abandoned_is_followed_by_another() -> None:
    """The host is not left waiting for a call that nobody makes any more."""
    made = schedule(per_host_max=FAILURES_MAX)
    for number in range(FAILURES_MAX):
        made.offer(check("a", number), 0)
    for one in start_all(made):
        end(made, one, is_alive=False)
    for number in (8, 9):
        made.offer(check("a", number), 1_000)
    (probe,) = start_all(made, 1_000)
    made.abandon(probe)
    assert [one.check.claim.number for one in start_all(made, 1_000)] == [9]


def test_claims_pause_for_hosts_that_are_quick_and_not_for_slow_ones() -> None:
    """What waits for a quick one is done in a moment; a slow or hung one would stop everybody."""
    made = schedule()
    for host in ("quick", "slow", "hung"):
        for number in range(104):
            made.offer(check(host, number), 0)
    started = start_all(made)
    assert made.quick_backlog(0) == 300, "nothing is known yet"
    for one in started:
        if one.check.url.host != "hung":
            end(made, one, now_ms=2 if one.check.url.host == "quick" else 500)
    assert made.quick_backlog(500) == 100
    start_all(made, 500)
    assert made.quick_backlog(500) == 96


def test_a_host_that_nobody_needs_is_forgotten_in_the_end() -> None:
    """Not while something waits or is under way."""
    made = schedule()
    made.offer(check("a"), 0)
    (one,) = start_all(made)
    made.look(HOST_KEPT_MS + 1)
    assert [host.host for host in made.hosts(0)] == ["a"]
    end(made, one)
    made.look(HOST_KEPT_MS + 1)
    assert list(made.hosts(0)) == []
