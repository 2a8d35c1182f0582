"""How far ahead a loop receives: one message at first, and never more than its handler does in a moment."""

import pytest

from tern_client.prefetch import RECEIVES_AHEAD, WORK_AHEAD_MAX_MS, WORK_AHEAD_MS, Pace, Prefetch
from tests.unit.client.calls.test_leases import received

COUNT_MAX = 32


def asked(handler_ms: float, receive_ms: int, rounds: int, pace: Pace | None = None) -> list[int]:
    """What a loop asks for in so many rounds over a full queue, by a handler that takes *handler_ms* a message."""
    pace = pace or Pace(COUNT_MAX)
    now_ms, counts = 0.0, []
    for _ in range(rounds):
        began_ms = now_ms
        counts.append(pace.ask(int(now_ms)))
        now_ms += receive_ms
        pace.received(counts[-1], int(began_ms), int(now_ms))
        now_ms += handler_ms * counts[-1]
    return counts


@pytest.mark.parametrize(
    ("handler_ms", "receive_ms", "counts"),
    [
        (0.0, 0, [1, 2, 4, 8, 16, 32, 32]),
        (0.05, 3, [1, 2, 4, 8, 16, 32, 32]),
        (10.0, 3, [1, 2, 4, 8, 10, 10, 10]),
        (60.0, 3, [1, 1, 1, 1, 1, 1, 1]),
        (5_000.0, 3, [1, 1, 1, 1, 1, 1, 1]),
        # A proxy that is 30 ms away: as many as make 30 ms small.
        (60.0, 30, [1, 2, 4, 8, 10, 10, 10]),
        # One that is very far, or a queue in which little comes: never more than a second's work.
        (60.0, 20_000, [1, 2, 4, 8, 16, 16, 16]),
    ],
)
def test_a_loop_asks_for_what_its_handler_does_in_a_moment(
    handler_ms: float, receive_ms: int, counts: list[int]
) -> None:
    """It doubles up to there."""
    assert asked(handler_ms, receive_ms, len(counts)) == counts


@pytest.mark.parametrize("receive_ms", [1, 3, 10, 50])
@pytest.mark.parametrize("handler_ms", [0.1, 1, 3, 10, 45, 100, 1_000])
def test_receives_cost_a_handler_little_more_than_with_full_batches(handler_ms: float, receive_ms: int) -> None:
    """A tenth of its time at most, of which a twentieth is what rounding down to whole messages costs."""
    count = asked(handler_ms, receive_ms, 12)[-1]
    rate = count / (receive_ms + count * handler_ms)
    full_rate = COUNT_MAX / (receive_ms + COUNT_MAX * handler_ms)
    assert rate >= 0.9 * full_rate
    assert count == 1 or count * handler_ms <= max(WORK_AHEAD_MS, min(RECEIVES_AHEAD * receive_ms, WORK_AHEAD_MAX_MS))


def test_a_handler_that_becomes_slow_gets_few_at_once_and_a_quick_one_doubles_again() -> None:
    """The last batch alone decides."""
    pace = Pace(COUNT_MAX)
    assert asked(0, 3, 6, pace)[-1] == COUNT_MAX
    assert asked(2_000, 3, 3, pace) == [COUNT_MAX, 1, 1]
    assert asked(0, 3, 3, Pace(COUNT_MAX)) == [1, 2, 4]


def test_a_wall_clock_that_is_set_measures_nothing_wrong_for_long() -> None:
    """Back: as if no time had passed; ahead: one message, and up again."""
    pace = Pace(COUNT_MAX)
    pace.received(pace.ask(10_000), 10_000, 10_000)
    assert pace.ask(1_000) == 2
    pace.received(2, 1_000, 1_000)
    assert pace.ask(9_000_000) == 1
    pace.received(1, 9_000_000, 9_000_001)
    assert pace.ask(9_000_002) == 2


def ids(prefetch: Prefetch) -> list[str]:
    """What it hands out."""
    taken = iter(lambda: prefetch.take(0), None)
    return [message.message_id for message in taken]


def test_the_first_suspect_is_handed_out_last_and_the_others_go_back() -> None:
    """Then they come again, one, two, four at a time, until something comes that is none."""
    prefetch = Prefetch(COUNT_MAX)
    for count in (1, 2, 4):
        assert prefetch.ask(0) == count
        assert prefetch.add(received(0, invisible_until=9, attempt=2), 0, 0) == []
    ids(prefetch)
    mixed = [
        *received(1, 2, invisible_until=9, attempt=3),
        *received(3, invisible_until=9, attempt=1),
        *received(4, invisible_until=9, attempt=7),
    ]
    assert [message.message_id for message in prefetch.add(mixed, 0, 0)] == ["m2", "m4"]
    assert ids(prefetch) == ["m3", "m1"]
    assert prefetch.ask(0) == 1
    assert prefetch.add(received(2, invisible_until=9, attempt=3), 0, 0) == []
    assert prefetch.ask(0) == 2
    assert prefetch.add(received(4, 5, invisible_until=9, attempt=4), 0, 0) == []
    assert ids(prefetch) == ["m2", "m4", "m5"]
    assert prefetch.add([], 0, 0) == []
    assert prefetch.add(received(6, invisible_until=9, attempt=1), 0, 0) == []
    assert [message.message_id for message in prefetch.add(mixed, 0, 0)] == ["m2", "m4"]


def test_where_nothing_can_be_given_back_suspects_are_like_all_others() -> None:
    """At a proxy of an earlier release."""
    prefetch = Prefetch(COUNT_MAX)
    assert prefetch.add(received(1, 2, invisible_until=9, attempt=3), 0, 0, may_return=False) == []
    assert ids(prefetch) == ["m1", "m2"]
