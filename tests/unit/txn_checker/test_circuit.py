"""The circuit of a host and the pauses that grow: tables of moments."""

import pytest

from tern_txn_checker.core.backoff import pause_ms
from tern_txn_checker.core.circuit import CLOSED, FAILURES_MAX, HALF_OPEN, OPEN, OPEN_FIRST_MS, OPEN_LONGEST_MS, Circuit


def opened(now_ms: int = 0) -> Circuit:
    """A circuit that has just opened."""
    circuit = Circuit()
    for at in range(FAILURES_MAX):
        assert circuit.state(now_ms) == CLOSED
        assert circuit.fail(now_ms, is_probe=circuit.start(), chance=1.0) is (at == FAILURES_MAX - 1)
    return circuit


def test_it_opens_after_five_failures_in_a_row_and_not_before() -> None:
    """An answer in between begins the count again."""
    circuit = Circuit()
    for _ in range(3):
        for _ in range(FAILURES_MAX - 1):
            assert not circuit.fail(0, is_probe=circuit.start(), chance=1.0)
        circuit.succeed()
    assert circuit.state(0) == CLOSED
    assert opened().state(0) == OPEN


def test_an_open_circuit_lets_nothing_through_and_a_half_open_one_a_single_call() -> None:
    """Until that call has ended."""
    circuit = opened()
    assert not circuit.may_start(OPEN_FIRST_MS - 1)
    assert (circuit.state(OPEN_FIRST_MS), circuit.may_start(OPEN_FIRST_MS)) == (HALF_OPEN, True)
    assert circuit.start()
    assert not circuit.may_start(OPEN_FIRST_MS)
    circuit.succeed()
    assert (circuit.state(OPEN_FIRST_MS), circuit.may_start(OPEN_FIRST_MS)) == (CLOSED, True)


def test_each_failed_try_doubles_the_pause_up_to_its_limit() -> None:
    """And an answer makes it short again."""
    circuit, now_ms, pauses = opened(), 0, []
    for _ in range(8):
        pauses.append(circuit.open_until_ms - now_ms)
        now_ms = circuit.open_until_ms
        assert circuit.fail(now_ms, is_probe=circuit.start(), chance=1.0)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, OPEN_LONGEST_MS, OPEN_LONGEST_MS, OPEN_LONGEST_MS]
    circuit.succeed()
    assert opened(now_ms).open_until_ms == now_ms + OPEN_FIRST_MS


def test_what_was_under_way_when_it_opened_prolongs_nothing_and_may_close_it() -> None:
    """Three calls fail after the fifth: one outage, counted once. One of them is answered: the host lives."""
    circuit = opened()
    until_ms = circuit.open_until_ms
    for now_ms in (10, 20, until_ms + 5):
        assert not circuit.fail(now_ms, is_probe=False, chance=1.0)
    assert circuit.open_until_ms == until_ms
    circuit.succeed()
    assert circuit.state(30) == CLOSED


def test_a_try_that_we_gave_up_ourselves_lets_the_next_one_through() -> None:
    """It said nothing of the host."""
    circuit = opened()
    is_probe = circuit.start()
    circuit.abandon(is_probe=is_probe)
    assert circuit.may_start(circuit.open_until_ms)


@pytest.mark.parametrize(
    ("failures", "chance", "expected"),
    [(1, 1.0, 100), (1, 0.0, 50), (2, 1.0, 200), (5, 0.5, 1_200), (6, 1.0, 3_200), (9, 1.0, 5_000), (10_000, 0.0, 2_500), (0, 1.0, 100)],
)  # fmt: skip
def test_a_pause_grows_with_failures_and_is_spread_by_chance(failures: int, chance: float, expected: int) -> None:
    """From half of it to all."""
    assert pause_ms(failures, first_ms=100, longest_ms=5_000, chance=chance) == expected
