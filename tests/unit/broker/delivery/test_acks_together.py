"""Acks of adjacent messages are applied together, and decide what they decide one by one."""

import random

import pytest

from tern_broker.core import saving
from tern_broker.core.delivery import settles
from tern_wire.link.rows import ACK, LEASE_OVER, LEASE_UNKNOWN, SETTLED
from tests.support.broker.entries import Log

SEEDS = 60


def played(seed: int) -> tuple[list[bytes], list[bytes]]:
    """Random acks of random leases: whole, in parts, in another order, twice, too late, of nobody.

    Return all verdicts, and the saved state.
    """
    rng = random.Random(seed)
    log = Log()
    topic, group = log.create()
    verdicts: list[bytes] = []
    held: list[tuple[int, int, int, int, int, int, int]] = []
    for now_ms in range(2, 1_800, 90):
        log.send(now_ms, *((topic, number % 2, b"x", b"") for number in range(rng.randrange(40))))
        for pick, lease, _ in log.receive(now_ms + 1, messages_max=rng.randrange(1, 33), first_queue=rng.randrange(2)):
            held += [(group, topic, pick.row[2], ACK, int(offset), lease, 0) for offset in pick.offsets]
        begin = rng.randrange(len(held) + 1)
        chosen = held[begin : begin + rng.randrange(1, 60)]
        if rng.random() < 0.3:
            rng.shuffle(chosen)
        if rng.random() < 0.3:
            chosen += chosen[:3]
        if rng.random() < 0.2:
            chosen.insert(
                rng.randrange(len(chosen) + 1), (group + rng.randrange(2), topic, rng.randrange(3), ACK, 5, 9, 0)
            )
        if chosen:
            verdicts.append(log.settle(now_ms + 2, *chosen))
    return verdicts, saving.encode(saving.take(log.state))


def test_both_ways_decide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts and states are equal, and the acks do come in runs."""
    told: set[int] = set()
    for seed in range(SEEDS):
        monkeypatch.setattr(settles, "ACKS_TOGETHER_MIN", 1 << 30)
        one_by_one = played(seed)
        monkeypatch.setattr(settles, "ACKS_TOGETHER_MIN", 1)
        assert played(seed) == one_by_one, f"seed {seed}"
        told.update(*one_by_one[0])
    assert told == {SETTLED, LEASE_OVER, LEASE_UNKNOWN}


def test_a_whole_receive_is_acked_without_a_row_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual acks leave nothing to be decided one by one."""
    log = Log()
    topic, group = log.create()
    log.send(2, *((topic, 0, b"x", b"") for _ in range(64)))
    leased = [*log.receive(3), *log.receive(4)]
    left: list[list[int]] = []
    take_runs = settles.Settles._take_runs

    def noted(self: settles.Settles, *arguments: object) -> list[int]:
        left.append(take_runs(self, *arguments))  # type: ignore[arg-type]
        return left[-1]

    monkeypatch.setattr(settles.Settles, "_take_runs", noted)
    assert set(log.ack_all(5, leased)) == {SETTLED}
    assert left == [[]]
    assert log.state.leasing.deliveries[group, topic][0].committed() == 64  # type: ignore[union-attr]


def test_a_run_that_reaches_beyond_its_lease_is_told_row_by_row() -> None:
    """The messages of the lease are settled, those behind it are not."""
    log = Log()
    topic, group = log.create()
    log.send(2, *((topic, 0, b"x", b"") for _ in range(20)))
    lease = log.receive(3, messages_max=10)[0][1]
    verdict = log.settle(4, *((group, topic, 0, ACK, offset, lease, 0) for offset in range(20)))
    assert list(verdict) == [SETTLED] * 10 + [LEASE_OVER] * 10
    assert set(log.settle(5, *((99, topic, 0, ACK, offset, lease, 0) for offset in range(9)))) == {LEASE_UNKNOWN}
