"""The transfers of the chaos runs from end to end, with real processes and databases, at a stand-in for the mesh."""

import asyncio
from pathlib import Path

import pytest

from tests.chaos.transfer import run
from tests.chaos.transfer.proof import differences
from tests.chaos.transfer.run import Transfers
from tests.support.mesh.transaction_stand_in import TransactionStandIn, transaction_stand_in

TRANSFERS = 150


async def nothing() -> None:
    """No harm but to the producers."""


def transfers(url: str, folder: Path) -> Transfers:
    """A small run at *url*, by pull."""
    return Transfers(folder / "transfers", [url], transfers=TRANSFERS, seed=11, by_callback=False)


def test_killed_producers_cost_no_cent(tmp_path: Path) -> None:
    """Both producers are killed once in the middle; checks end what they left; the proof holds."""
    stand_in = TransactionStandIn()
    with transaction_stand_in(stand_in) as url:
        made = transfers(url, tmp_path)
        books = asyncio.run(made.move(nothing))
    assert differences(books) == []
    assert made.crashes == {"debited": 2}
    assert len(books.debits) + books.refused == made.settled == TRANSFERS
    assert len(books.credits) == len(books.deliveries) == len(books.debits) == len(stand_in.visible)
    assert books.opening_cents == books.total_cents
    assert made.stats["checks"] > 0


def test_a_message_that_was_rolled_back_and_came_all_the_same_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own sentence."""
    monkeypatch.setattr(run, "PATIENCE_S", 1.0)
    with transaction_stand_in(TransactionStandIn(ghost=True)) as url:
        books = asyncio.run(transfers(url, tmp_path).move(nothing))
    assert any("rolled back, yet delivered: 1 messages" in sentence for sentence in differences(books))
