"""The proof of the transfers under harm: silent when every promise was kept, and one clear sentence for each that was not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.transfer.proof import Books, Debit, Delivery, differences


def debit(transfer: int, debtor: int, cents: int) -> Debit:
    """Transfer *transfer* to account 1 of bank B, in its first attempt."""
    return Debit(attempt=f"{transfer}-a", creditor=1, amount_cents=cents, debtor=debtor)


GOOD = Books(
    transfers=4,
    refused=1,
    opening_a=1_000,
    balances_a={0: 870, 1: 950},
    balances_b={0: 0, 1: 180},
    debits={1: debit(1, 0, 100), 2: debit(2, 0, 30), 4: debit(4, 1, 50)},
    credits={1: debit(1, -1, 100), 2: debit(2, -1, 30), 4: debit(4, -1, 50)},
    deliveries=(
        Delivery(message_id="m1", transfer=1, attempt="1-a"),
        Delivery(message_id="m2", transfer=2, attempt="2-a", deliveries=3),
        Delivery(message_id="m4", transfer=4, attempt="4-a"),
    ),
    topic_messages=3,
    settled_messages=3,
    open=0,
    expired=0,
    committed=3,
)


def test_books_that_agree_give_no_sentence() -> None:
    """A message that came three times is one message; a refused transfer is none."""
    assert differences(GOOD) == []
    assert (GOOD.opening_cents, GOOD.total_cents) == (2_000, 2_000)


def lost(books: Books) -> Books:
    """Transfer 2 was debited, its message never came."""
    return replace(
        books,
        deliveries=books.deliveries[::2],
        credits={number: credit for number, credit in books.credits.items() if number != 2},
        balances_b={0: 0, 1: 150},
        topic_messages=2,
        settled_messages=2,
        committed=2,
    )


def doubled(books: Books) -> Books:
    """Transfer 2 came as two messages; bank B credited once, by its number, so no money is wrong."""
    twin = Delivery(message_id="m5", transfer=2, attempt="2-a")
    return replace(books, deliveries=(*books.deliveries, twin), topic_messages=4, settled_messages=4)


def credited_twice(books: Books) -> Books:
    """Bank B credited transfer 2 for both of its messages."""
    return replace(doubled(books), balances_b={0: 0, 1: 210})


def rolled_back_yet_delivered(books: Books) -> Books:
    """Transfer 3, which was refused, came all the same and was credited."""
    ghost = Delivery(message_id="m3", transfer=3, attempt="3-a")
    credits = {**books.credits, 3: Debit(attempt="3-a", creditor=0, amount_cents=70)}
    return replace(
        books,
        deliveries=(*books.deliveries, ghost),
        credits=credits,
        balances_b={0: 70, 1: 180},
        topic_messages=4,
        settled_messages=4,
        committed=4,
    )


def earlier_attempt_delivered(books: Books) -> Books:
    """An attempt of transfer 2 that rolled back came beside the one that was debited: bank B's number keeps the money right."""
    ghost = Delivery(message_id="m0", transfer=2, attempt="2-z")
    return replace(books, deliveries=(*books.deliveries, ghost), topic_messages=4, settled_messages=4, committed=4)


@pytest.mark.parametrize(
    ("break_it", "sentences"),
    [
        (
            lost,
            [
                "money: 30 cents were lost",
                "lost: 1 transfers were debited and never delivered, such as 2",
                "not credited: 1 transfers that were debited, such as 2",
            ],
        ),
        (doubled, ["doubled: 1 transfers were delivered as several messages, such as 2"]),
        (
            credited_twice,
            [
                "money: 30 cents were made",
                "bank B: 1 accounts do not hold what their credits sum up to, such as 1",
                "doubled: 1 transfers were delivered as several messages, such as 2",
            ],
        ),
        (
            rolled_back_yet_delivered,
            [
                "money: 70 cents were made",
                "rolled back, yet delivered: 1 messages, such as of transfer 3",
                "credited, but never debited: 1 transfers, such as 3",
            ],
        ),
        (earlier_attempt_delivered, ["rolled back, yet delivered: 1 messages, such as of transfer 2"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_lost_doubled_or_rolled_back_transfer_fails_the_proof(
    break_it: Callable[[Books], Books], sentences: list[str]
) -> None:
    """By its own sentence; the broker's counts, which differ as well, come behind."""
    found = differences(break_it(GOOD))
    assert [sentence for sentence in found if "broker's count" not in sentence] == sentences
    assert any("messages in the topic" in sentence for sentence in found)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("balances_a", {0: 871, 1: 949}, "bank A: 2 accounts do not hold what their debits leave, such as 0, 1"),
        ("balances_b", {0: 1, 1: 179}, "bank B: 2 accounts do not hold what their credits sum up to, such as 0, 1"),
        ("refused", 0, "3 debited and 0 refused are not the 4 transfers ordered"),
        ("topic_messages", 4, "messages in the topic, by the broker's count: 4, but 3 were debited"),
        ("settled_messages", 2, "messages settled for the group, by the broker's count: 2, but 3 were debited"),
        ("committed", 2, "transactions committed, by the broker's count: 2, but 3 were debited"),
        ("open", 1, "1 transactions are still open, 0 expired"),
        ("expired", 2, "0 transactions are still open, 2 expired"),
    ],
)
def test_each_number_that_is_off_alone_is_named(field: str, value: object, says: str) -> None:
    """One thing changed, one sentence."""
    assert differences(replace(GOOD, **{field: value})) == [says]  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"attempt": "2-z"}, {"creditor": 0}, {"amount_cents": 31}])
def test_a_credit_that_is_not_its_debit_is_named(change: dict[str, object]) -> None:
    """Another attempt, account or amount, even if all sums were right."""
    credits = {**GOOD.credits, 2: replace(GOOD.credits[2], **change)}  # type: ignore[arg-type]
    assert "credited otherwise than debited: 1 transfers, such as 2" in differences(replace(GOOD, credits=credits))
