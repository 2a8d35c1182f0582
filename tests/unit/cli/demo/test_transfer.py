"""`ternmq demo transfer`: its banks, its sums, and the whole command with real databases at a stand-in for the mesh."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tern_cli.app import app
from tern_cli.demo import transfer
from tern_cli.demo.transfer import (
    ACCOUNTS,
    BANK_A,
    BANK_B,
    START_CENTS,
    credit,
    debit,
    differences,
    is_debited,
    open_bank,
    plan_transfers,
)
from tests.support.mesh.transaction_stand_in import TransactionStandIn, transaction_stand_in

RUNNER = CliRunner()
GOOD = {
    "transfers": 4,
    "opening_cents": 2_000,
    "debited": 3,
    "refused": 1,
    "credited": 3,
    "credited_as_debited": 3,
    "moved_cents": 180,
    "closing_cents": 2_000,
    "messages": 3,
    "acked": 3,
    "checks": 2,
    "transactions_committed": 3,
    "transactions_rolled_back": 1,
    "transactions_open": 0,
    "transactions_expired": 0,
}


def ordered(transfer: int, cents: int = 100) -> dict[str, int]:
    """A transfer of *cents* from account 7 to account 9."""
    return {"transfer": transfer, "debtor": 7, "creditor": 9, "cents": cents}


def held_by(bank: Any, account: int) -> tuple[int, int]:
    """Cents of *account*, and of all accounts."""
    ((cents, total),) = bank.execute(
        "SELECT (SELECT cents FROM accounts WHERE account = ?), SUM(cents) FROM accounts", (account,)
    )
    return cents, total


def test_a_debit_is_recorded_with_its_transaction_and_refused_without_money(tmp_path: Path) -> None:
    """Several in one commit; money leaves the account once."""
    bank = open_bank(tmp_path / "a.db", BANK_A, START_CENTS)
    batch = {"tx-1": ordered(1), "tx-2": ordered(2, START_CENTS), "tx-3": ordered(3, 50)}
    assert debit(bank, batch) == {"tx-1": True, "tx-2": False, "tx-3": True}
    assert held_by(bank, 7) == (START_CENTS - 150, ACCOUNTS * START_CENTS - 150)
    assert [is_debited(bank, number) for number in batch] == [True, False, True]


def test_what_was_answered_for_stays_so(tmp_path: Path) -> None:
    """A check before the debit denies it for good; the transfer may be debited by another transaction."""
    bank = open_bank(tmp_path / "a.db", BANK_A, START_CENTS)
    assert not is_debited(bank, "tx-1")
    assert debit(bank, {"tx-1": ordered(1)}) == {"tx-1": None}
    assert held_by(bank, 7)[0] == START_CENTS
    assert debit(bank, {"tx-2": ordered(1)}) == {"tx-2": True}
    for _ in range(2):
        assert is_debited(bank, "tx-2")
        assert not is_debited(bank, "tx-1")


def test_a_transfer_is_never_debited_twice(tmp_path: Path) -> None:
    """A second transaction for it fails, and takes nothing with it that was in its commit."""
    bank = open_bank(tmp_path / "a.db", BANK_A, START_CENTS)
    debit(bank, {"tx-1": ordered(1)})
    with pytest.raises(Exception, match="UNIQUE"):
        debit(bank, {"tx-2": ordered(2), "tx-other": ordered(1)})
    assert held_by(bank, 7)[0] == START_CENTS - 100
    assert not is_debited(bank, "tx-2")


def test_bank_b_credits_a_transfer_once_however_often_it_comes(tmp_path: Path) -> None:
    """In one batch and in the next."""
    bank = open_bank(tmp_path / "b.db", BANK_B, 0)
    credit(bank, [ordered(5), ordered(5)])
    credit(bank, [ordered(5), ordered(6, 20)])
    assert held_by(bank, 9) == (120, 120)


def test_a_seed_decides_the_transfers() -> None:
    """The same again for the same seed; some ask for more than all accounts have."""
    plan = plan_transfers(7, 1_000)
    assert plan == plan_transfers(7, 1_000) != plan_transfers(8, 1_000)
    assert [one["transfer"] for one in plan] == list(range(1, 1_001))
    assert 10 <= sum(one["cents"] > ACCOUNTS * START_CENTS for one in plan) <= 60
    assert all(one["cents"] > 0 for one in plan)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("closing_cents", 1_970, "closing cents: 1,970, not 2,000"),
        ("refused", 0, "refused: 0, not 1"),
        ("credited", 2, "credited: 2, not 3"),
        ("credited_as_debited", 2, "credited as debited: 2, not 3"),
        ("messages", 4, "messages: 4, not 3"),
        ("acked", 2, "acked: 2, not 3"),
        ("transactions_committed", 2, "transactions committed: 2, not 3"),
        ("transactions_open", 1, "transactions open: 1, not 0"),
        ("transactions_expired", 2, "transactions expired: 2, not 0"),
    ],
)
def test_each_sum_that_is_off_is_named(field: str, value: int, says: str) -> None:
    """One thing changed, one line; nothing changed, none."""
    assert differences(GOOD) == []
    assert differences({**GOOD, field: value}) == [says]


def words(url: str, folder: Path, *more: str) -> list[str]:
    """A small run at *url*, by pull."""
    return [
        *("demo", "transfer", "--transfers", "150", "--seed", "11", "--checks", "pull"),
        *("--endpoint", url, "--data-dir", str(folder), *more),
    ]


def test_money_moves_and_the_sums_are_told_in_json(tmp_path: Path) -> None:
    """Checks end what was left open; the same document is in the folder of the run."""
    stand_in = TransactionStandIn()
    with transaction_stand_in(stand_in) as url:
        done = RUNNER.invoke(app, words(url, tmp_path, "-o", "json"))
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["proved"], result["differences"]) == (True, [])
    assert result["debited"] + result["refused"] == 150
    assert result["credited"] == result["messages"] == result["debited"] == len(stand_in.visible)
    assert result["opening_cents"] == result["closing_cents"] == ACCOUNTS * START_CENTS
    assert result["checks"] >= 2
    (folder,) = (tmp_path / "demo").iterdir()
    assert json.loads((folder / "transfer.json").read_text()) == result


def test_money_moves_and_the_sums_are_shown(tmp_path: Path) -> None:
    """A table, what it shows, and where the banks are."""
    with transaction_stand_in(TransactionStandIn()) as url:
        done = RUNNER.invoke(app, words(url, tmp_path))
    assert done.exit_code == 0, done.output
    assert "closing cents" in done.stdout
    assert "Not a cent is lost or made" in done.stdout
    assert "ternmq tx stats bank-a-" in done.stdout


def test_a_message_that_was_rolled_back_and_came_all_the_same_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1, the sums that are off, and where the banks are."""
    monkeypatch.setattr(transfer, "PATIENCE_S", 1.0)
    with transaction_stand_in(TransactionStandIn(ghost=True)) as url:
        done = RUNNER.invoke(app, words(url, tmp_path))
    assert done.exit_code == 1, done.output
    assert "The money does not add up" in done.stderr
    assert "closing cents" in done.stderr
    assert "Seed 11" in done.stderr
    assert "Not a cent" not in done.stdout
