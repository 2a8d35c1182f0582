"""A broker in memory whose clocks run, for tests of the checker: producer groups, open
transactions, and what the broker's real state says of their checks.

    checker --LinkServer--> MemoryBroker --> state machine <-- begin, add_group: commands of a test
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from tern_broker.core.applied import Applied
from tern_broker.core.transactions.views import describe_transaction
from tern_wire.limits import CHECK_AFTER_MIN_MS
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode
from tern_wire.transactions import END_ROWS, STATES
from tests.support.broker.contents import begin_transactions, producer_groups
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.checker.scripted_producer import SECRET

SETTINGS = {
    "check_secret": SECRET,
    "check_after_ms": CHECK_AFTER_MIN_MS,
    "check_interval_ms": CHECK_AFTER_MIN_MS,
    "timeout_ms": 2_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunTransaction:
    """One transaction, read from the state of *broker* at each access."""

    broker: "CheckedBroker"
    number: int
    producer_group_id: int

    @property
    def state(self) -> str:
        """One of STATES."""
        return str(self._described["state"])

    @property
    def attempts(self) -> int:
        """Number of its checks."""
        return int(self._described["attempts"])

    @property
    def checks(self) -> list[tuple[int, str, str]]:
        """(attempt, checker, answer) of each finished check; the broker drops them at the end of
        the transaction.
        """
        return [(attempt, checker, answer) for attempt, _, checker, answer, _ in self._described["checks"]]

    @property
    def claims(self) -> list[tuple[int, str]]:
        """(attempt, checker) of each claim."""
        return self.broker.claimed[self.number]

    @property
    def ends(self) -> list[tuple[int, int, int]]:
        """(outcome, by, claim) of each END_TRANSACTIONS row that was served for it."""
        return [
            (outcome, by, claim)
            for code, head, raw in self.broker.requests
            if code == RequestCode.END_TRANSACTIONS
            for number, claim, _, outcome, by, _ in np.frombuffer(raw, END_ROWS, head["rows"]).tolist()
            if number == self.number
        ]

    @property
    def _described(self) -> dict[str, Any]:
        state = self.broker.engine.state
        return describe_transaction(state.transactions, state.names, self.number, self.producer_group_id)


class CheckedBroker(MemoryBroker):
    """One node of one broker group. Time passes for it as for the checker."""

    def __init__(self, key: bytes, **settings: Any) -> None:
        super().__init__(key, follows_loop=True, **settings)
        # (attempt, checker) of each claim, by the transaction's number.
        self.claimed: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        self.engine.on_applied.append(self._note_claims)

    def add_group(self, name: str, url: str, **settings: Any) -> None:
        """Create or alter a producer group that is called at *url*; SETTINGS are its defaults."""
        change = {"producer_group": name, "create": True, "check_url": url, **SETTINGS, **settings}
        self.propose(CommandKind.ALTER_PRODUCER_GROUP, change)

    def begin(self, producer_group: str, *bodies: bytes) -> BegunTransaction:
        """Begin a transaction of messages *bodies*, by default of one."""
        (begun,) = self._begin(producer_group, [bodies or (b"hello",)])
        return begun

    def begin_many(self, producer_group: str, count: int) -> list[BegunTransaction]:
        """Begin *count* transactions of one message in one entry, so that all are due at once."""
        return self._begin(producer_group, [(b"hello",)] * count)

    def states(self) -> dict[str, int]:
        """Numbers of transactions by state, as the producer groups count them."""
        groups = producer_groups(self).values()
        counts = {state: sum(getattr(group, state.replace("-", "_")) for group in groups) for state in STATES}
        return {state: count for state, count in counts.items() if count}

    @property
    def claim_heads(self) -> list[dict[str, Any]]:
        """The heads of all CLAIM_CHECKS that were served."""
        return [head for code, head in self.heads if code == RequestCode.CLAIM_CHECKS]

    def _begin(self, producer_group: str, transactions: list[tuple[bytes, ...]]) -> list[BegunTransaction]:
        if "orders" not in self.topics:
            self.create_topic("orders", 1)
        group_id = producer_groups(self)[producer_group].producer_group_id
        numbers = begin_transactions(self, "orders", producer_group, transactions)
        return [BegunTransaction(broker=self, number=number, producer_group_id=group_id) for number in numbers]

    def _note_claims(self, applied: Applied) -> None:
        transactions = self.engine.state.transactions
        for verdict in applied.verdicts:
            for number, _, attempt in verdict.get("checks", ()) if isinstance(verdict, dict) else ():
                slot = transactions.table.slots.get(number)
                # Without a slot, the same entry has ended the transaction.
                checker = "" if slot is None else transactions.texts.text(transactions.table.get("checker", slot))
                self.claimed[number].append((attempt, checker))
