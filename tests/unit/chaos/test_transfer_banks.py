"""The parts of the transfers under harm: both banks, gathered commits, planned crashes."""

import asyncio
import json
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.transfer.bank_a import BankA, DebitOutcome, DebitRequest
from tests.chaos.transfer.bank_b import BankB
from tests.chaos.transfer.errand import Errand
from tests.chaos.transfer.orders import (
    ACCOUNTS,
    START_CENTS,
    Crash,
    CrashStage,
    Order,
    crashes_of,
    plan_crash,
    plan_orders,
    share_of,
)
from tests.chaos.transfer.paying import Death, DebitDesk


def request(transfer: int, cents: int = 100, *, by: str = "", debtor: int = 7) -> DebitRequest:
    """A transfer of *cents* by transaction *by* (its number by default)."""
    order = Order(transfer=transfer, debtor=debtor, creditor=9, amount_cents=cents)
    return DebitRequest(order=order, attempt=f"{transfer}-a", transaction_id=by or f"tx-{transfer}")


def bank_a(folder: Path) -> BankA:
    """A new bank A."""
    bank = BankA(folder / "a.db")
    bank.make()
    return bank


def test_a_debit_is_recorded_with_its_transaction_and_refused_without_money(tmp_path: Path) -> None:
    """One commit for several; another process sees them at once, and money leaves the account once."""
    bank = bank_a(tmp_path)
    outcomes = bank.debit([request(1), request(2, START_CENTS), request(3, 50)])
    assert outcomes == [DebitOutcome.DEBITED, DebitOutcome.REFUSED, DebitOutcome.DEBITED]
    other = BankA(tmp_path / "a.db")
    assert (other.counts(), other.settled()) == ((2, 1), {1, 2, 3})
    assert other.debits() == [(1, "1-a", 7, 9, 100), (3, "3-a", 7, 9, 50)]
    assert other.balances()[7] == START_CENTS - 150
    assert sum(other.balances().values()) == ACCOUNTS * START_CENTS - 150
    other.close()
    bank.close()


def test_what_was_answered_for_stays_so(tmp_path: Path) -> None:
    """A check before the debit denies it for good; after it, the answer is what the books say. That is the same for ever."""
    bank = bank_a(tmp_path)
    assert not bank.is_debited("tx-1")
    assert bank.debit([request(1)]) == [DebitOutcome.DENIED]
    assert (bank.counts(), bank.balances()[7]) == ((0, 0), START_CENTS)
    assert bank.debit([request(1, by="tx-1b"), request(2, START_CENTS)]) == [DebitOutcome.DEBITED, DebitOutcome.REFUSED]
    for _ in range(2):
        assert bank.is_debited("tx-1b")
        assert not bank.is_debited("tx-1")
        assert not bank.is_debited("tx-2")
    bank.close()


def test_a_transfer_is_never_debited_twice(tmp_path: Path) -> None:
    """A second transaction for it breaks, and takes nothing with it that was in its commit."""
    bank = bank_a(tmp_path)
    bank.debit([request(1)])
    with pytest.raises(Exception, match="UNIQUE"):
        bank.debit([request(2), request(1, by="tx-other")])
    assert (bank.counts(), bank.balances()[7]) == ((1, 0), START_CENTS - 100)
    bank.close()


def test_bank_b_credits_a_transfer_once_however_often_it_comes(tmp_path: Path) -> None:
    """The same message again, another message of the same transfer: counted, not credited."""
    bank = BankB(tmp_path / "b.db")
    bank.make()
    body = json.dumps({"transfer": 5, "attempt": "5-a", "creditor": 9, "amount_cents": 100}).encode()
    bank.credit([("m1", body), ("m1", body)])
    bank.credit([("m1", body), ("m2", body)])
    assert bank.count() == 1
    assert bank.credits() == [(5, "5-a", 9, 100)]
    assert sorted(bank.messages()) == [("m1", 5, "5-a", 3), ("m2", 5, "5-a", 1)]
    assert (bank.balances()[9], sum(bank.balances().values())) == (100, 100)
    bank.close()


class SlowBank:
    """Notes the size of each commit; the first waits for *gate*. One commit fails when it holds *poison*."""

    def __init__(self, poison: int = -1) -> None:
        self.gate, self.poison = threading.Event(), poison
        self.commits: list[int] = []

    def debit(self, requests: list[DebitRequest]) -> list[DebitOutcome]:
        """All are debited."""
        self.gate.wait(10)
        self.commits.append(len(requests))
        if any(one.order.transfer == self.poison for one in requests):
            raise OSError("the disk is gone")
        return [DebitOutcome.DEBITED for _ in requests]


async def test_local_transactions_share_commits_and_each_hears_of_its_own() -> None:
    """What comes while one is written goes with the next; a commit that fails is everybody's error, and the next one works."""
    bank = SlowBank(poison=3)
    desk = DebitDesk(bank)  # type: ignore[arg-type]
    first = asyncio.create_task(desk.debit(request(1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [asyncio.create_task(desk.debit(request(number))) for number in (2, 3, 4)]
    await asyncio.sleep(0)
    bank.gate.set()
    assert await first is DebitOutcome.DEBITED
    assert [type(error) for error in await asyncio.gather(*others, return_exceptions=True)] == [OSError] * 3
    assert await desk.debit(request(5)) is DebitOutcome.DEBITED
    assert bank.commits == [1, 3, 1]


def test_a_seed_decides_the_transfers() -> None:
    """The same again for the same seed; every transfer has one producer; some ask for more than anybody has."""
    orders = plan_orders(7, 1_000)
    assert orders == plan_orders(7, 1_000)
    assert orders != plan_orders(8, 1_000)
    shares = [share_of(orders, share, 3) for share in range(3)]
    assert sorted(order.transfer for share in shares for order in share) == list(range(1, 1_001))
    hopeless = sum(order.amount_cents > ACCOUNTS * START_CENTS for order in orders.values())
    assert 10 <= hopeless <= 60
    assert all(order.amount_cents > 0 for order in orders.values())


@pytest.mark.parametrize("seed", range(20))
def test_every_planned_crash_happens_before_the_work_is_done(seed: int) -> None:
    """Lives follow each other; all crashes fit in, wherever they fall, and the last life has none."""
    rng, left, stages = random.Random(seed), 5_000, Counter[CrashStage]()
    wanted = crashes_left = crashes_of(left)
    while crash := plan_crash(rng, left, crashes_left):
        assert 1 <= crash.at <= left
        left -= crash.at
        crashes_left -= 1
        stages[crash.stage] += 1
    assert stages.total() == wanted == 4
    assert set(stages) == set(CrashStage)
    assert left > 0
    assert crashes_of(10) == 1
    only = plan_crash(rng, 10, 1)
    assert only
    assert only.stage is CrashStage.DEBITED
    assert plan_crash(rng, 0, 1) is None


def test_a_producer_dies_at_the_transfer_that_was_chosen() -> None:
    """Not before, not again later, and never without a crash."""
    death = Death(Crash(at=3, stage=CrashStage.DEBITED))
    assert [death.begun() for _ in range(5)] == [None, None, CrashStage.DEBITED, None, None]
    assert Death(None).begun() is None


def test_an_errand_survives_its_way_to_the_process() -> None:
    """With and without a crash."""
    errand = Errand(endpoints=["http://a:1"], topic="t", group="g", bank="a.db", seed=4, transfers=9, share=1, shares=2)
    assert Errand.read(errand.text()) == errand
    dying = Errand(
        endpoints=["http://a:1"], topic="t", group="g", bank="a.db", crash=Crash(at=2, stage=CrashStage.BEGUN)
    )
    assert Errand.read(dying.text()) == dying
