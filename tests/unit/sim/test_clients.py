"""The simulated clients, against a broker in memory whose connections are bad: they tell the truth, and the same truth each time."""

from itertools import count
from random import Random

import pytest

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.fifo import FifoDelivery
from tern_broker.core.delivery.lease import Lease
from tern_broker.core.sending.sending import SendApplier
from tests.sim.checkers.every import check_all
from tests.sim.clients.bodies import SIZE_MAX_BYTES, body_of, name_of
from tests.sim.clients.clients import Clients
from tests.sim.history.history import History, Outcome, Violation
from tests.unit.sim.memory_broker import MemoryBroker

OPERATIONS = 500


def run(seed: int, loss: float) -> tuple[History, list[Violation]]:
    """One run to its drained end: its history, and what the checkers say."""
    broker = MemoryBroker(Random(seed + 1), loss=loss)
    history, scheduler = broker.history, broker.scheduler
    clients = Clients(
        rng=Random(seed),
        history=history,
        ask=broker.ask,
        now_s=lambda: scheduler.now_s,
        call_later=scheduler.after,
        operations=OPERATIONS,
        brokers=broker.names,
        pace_s=8.0,
        is_at_rest=broker.is_at_rest,
    )
    clients.start()
    scheduler.run_until(scheduler.now_s + 60, lambda: not clients.is_open() and clients.is_idle())
    clients.stop()
    broker.loss = 0.0
    clients.drain()
    scheduler.run_until(scheduler.now_s + 20, clients.is_drained)
    return history, check_all(history, broker.end_state(is_drained=clients.is_drained()))


@pytest.mark.parametrize("seed", range(6))
def test_a_right_broker_is_never_convicted(seed: int) -> None:
    """Whatever of requests and replies is lost: unknown outcomes are not violations."""
    print(f"seed {seed}: pytest tests/unit/sim/test_clients.py -k 'convicted and {seed}'")
    history, violations = run(seed, loss=0.04 if seed % 2 else 0.0)
    assert violations == []
    assert len(history.operations) >= OPERATIONS
    outcomes = {operation.outcome for operation in history.operations}
    assert Outcome.OK in outcomes and Outcome.OPEN not in outcomes
    assert (Outcome.INFO in outcomes) == bool(seed % 2)


def test_the_same_seed_gives_the_same_history() -> None:
    """To the last byte; another seed gives another one."""
    assert run(3, 0.04)[0].hash() == run(3, 0.04)[0].hash() != run(4, 0.04)[0].hash()


def test_a_broker_that_forgets_leases_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that is not held: its messages are neither acked nor given again."""
    monkeypatch.setattr(Delivery, "_hold", lambda _self, lease: lease)
    assert {violation.checker for violation in run(0, 0.0)[1]} & {"leases", "offsets"}


def test_a_broker_that_forgets_acks_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tenth ack gives the message back instead."""
    acks = count(1)
    original = Delivery.settle

    def settle(self: Delivery, lease: Lease, mask: int) -> None:
        if isinstance(self, FifoDelivery) or (number := next(acks)) % 10:
            original(self, lease, mask)
        else:
            self.give_back(lease, mask, -number, lease.attempt)

    monkeypatch.setattr(Delivery, "settle", settle)
    assert "redelivery" in {violation.checker for violation in run(0, 0.0)[1]}


def test_a_broker_that_forgets_keys_is_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeats are stored again."""
    monkeypatch.setattr(SendApplier, "_find_repeats", lambda *_: {})
    assert "duplicates" in {violation.checker for violation in run(1, 0.0)[1]}


def test_a_body_is_known_by_every_byte_of_it() -> None:
    """Any change, cut or mix-up gives another name."""
    body = body_of("p3.17", 200)
    assert name_of(body) == "p3.17" and len(body) == 200
    assert name_of(body_of("p3.17", 3)) == "p3.17"  # its beginning is longer
    assert len(body_of("p0.1", SIZE_MAX_BYTES)) == SIZE_MAX_BYTES
    for at in range(len(body)):
        assert name_of(body[:at] + bytes((body[at] ^ 1,)) + body[at + 1 :]).startswith("?"), at
    for other in (body[:-1], body + b"x", body_of("p3.18", 200)[:100] + body[100:], b""):
        assert name_of(other).startswith("?")
