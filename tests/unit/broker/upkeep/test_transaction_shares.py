"""One namespace fills its share of the table of open transactions, and others go on beginning theirs."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tern_broker.upkeep import transaction_shares
from tern_wire.link.rows import NO_PRODUCER_GROUP, PREPARED, TOO_MANY_OPEN
from tern_wire.transactions import ROLLBACK
from tests.support.broker.transaction_broker import TransactionBroker

OURS, THEIRS, NOBODYS = "shop%p", "bank%p", "p"
AT_ONCE = transaction_shares.COUNTED_EVERY_S * 1_000


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[TransactionBroker]:
    """Room for 10 transactions and 40 messages, so that a share is 6 and 24."""
    monkeypatch.setattr(transaction_shares, "TRANSACTIONS_MAX", 10)
    monkeypatch.setattr(transaction_shares, "HALF_MESSAGES_MAX", 40)
    node = TransactionBroker()
    for name in (OURS, THEIRS, NOBODYS):
        node.producer_group(name)
    yield node
    assert not node.broker.failures


def begin(node: TransactionBroker, group: str, messages: int = 1) -> int:
    """One more, a second after the last; its status."""
    node.pass_time(int(AT_ONCE))
    (*statuses,), _, _ = node.begin(*[b"x"] * messages, group=group)
    assert len(set(statuses)) == 1
    return statuses[0]


def test_a_namespace_ends_at_its_share_of_transactions_and_others_begin(node: TransactionBroker) -> None:
    """Of names without a namespace, too; what has ended makes room."""
    assert [begin(node, OURS) for _ in range(8)] == [PREPARED] * 6 + [TOO_MANY_OPEN] * 2
    assert [begin(node, THEIRS), begin(node, NOBODYS), begin(node, OURS)] == [PREPARED, PREPARED, TOO_MANY_OPEN]
    group_id = node.producer_group(OURS)
    numbers = [n for n, slot in node.broker.state.transactions.table.slots.items()]
    node.end(group_id, numbers[0], outcome=ROLLBACK)
    assert [begin(node, OURS), begin(node, OURS)] == [PREPARED, TOO_MANY_OPEN]


def test_few_transactions_with_many_messages_end_at_a_share_of_messages(node: TransactionBroker) -> None:
    """All messages of a transaction that is refused are refused."""
    assert [begin(node, OURS, 13) for _ in range(3)] == [PREPARED, PREPARED, TOO_MANY_OPEN]
    assert begin(node, THEIRS, 2) == PREPARED


def test_one_request_carries_those_who_may_and_those_who_may_not(node: TransactionBroker) -> None:
    """A lane of a proxy has both; a producer group that is not there is told as such."""
    for _ in range(6):
        begin(node, OURS)
    assert begin(node, "nobody") == NO_PRODUCER_GROUP
    assert begin(node, "shop%nobody") == TOO_MANY_OPEN


def test_what_is_one_tenants_alone_may_have_no_share(node: TransactionBroker) -> None:
    """100 %: the totals alone count."""
    shares = node.subjects[2]._shares  # type: ignore[attr-defined]
    shares._config = replace(shares._config, namespace_share_percent=100)
    assert [begin(node, OURS) for _ in range(8)] == [PREPARED] * 8


def test_counting_waits_a_second(node: TransactionBroker) -> None:
    """The table is looked through at most once a second, however many begin."""
    shares = node.subjects[2]._shares  # type: ignore[attr-defined]
    counts: list[int] = []
    count = shares._count

    def counted(*limits: int) -> frozenset[str]:
        counts.append(1)
        found: frozenset[str] = count(*limits)
        return found

    shares._count = counted
    for _ in range(5):
        begin(node, OURS)
    assert not counts
    for _ in range(10):
        node.begin(b"x", group=THEIRS)
    assert len(counts) == 1
