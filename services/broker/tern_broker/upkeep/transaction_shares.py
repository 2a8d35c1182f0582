"""One namespace's share of the transactions that a broker group can hold open, so that no tenant
blocks others.

Unanswered transactions stay until an operator resolves them: without a share, twenty producer
groups of one tenant fill the table for good. The leader checks the share before it proposes. Apply
checks the totals alone, and refuses rows that the leader marks as rows of an unknown producer
group.
"""

from collections import Counter
from collections.abc import Callable

import numpy as np

from tern_broker.config import BrokerConfig
from tern_broker.core.machine import StateMachine
from tern_broker.core.transactions.open_transactions import FREE, MESSAGES
from tern_wire.limits import HALF_MESSAGES_MAX, TRANSACTIONS_MAX
from tern_wire.names import namespace_of

# Counting takes 30 ms when the table is full, and is needed only when it has more than one share.
COUNTED_EVERY_S = 1.0


class TransactionShares:
    """Of one node. Owner: the core loop. *monotonic*: seconds."""

    def __init__(self, config: BrokerConfig, state: Callable[[], StateMachine], monotonic: Callable[[], float]) -> None:
        self._config, self._state, self._monotonic = config, state, monotonic
        self._full: frozenset[str] = frozenset()
        self._counted_s = -COUNTED_EVERY_S

    def full(self, producer_groups: list[str]) -> frozenset[int]:
        """Return the places of those of *producer_groups* that may begin no transaction.

        Their namespace has used up its share of transactions or messages.
        """
        table, percent = self._state().transactions.table, self._config.namespace_share_percent
        limits = TRANSACTIONS_MAX * percent // 100, HALF_MESSAGES_MAX * percent // 100
        if percent >= 100 or (len(table) < limits[0] and table.message_count < limits[1]):
            return frozenset()
        now_s = self._monotonic()
        if now_s - self._counted_s >= COUNTED_EVERY_S:
            self._counted_s, self._full = now_s, self._count(*limits)
        return frozenset(number for number, name in enumerate(producer_groups) if namespace_of(name) in self._full)

    def _count(self, transactions_max: int, messages_max: int) -> frozenset[str]:
        """Return the namespaces that have reached or exceeded a limit."""
        table, names = self._state().transactions.table, self._state().producers.by_id
        slots = np.flatnonzero(table.columns["phase"] != FREE)
        ids = table.columns["group"][slots]
        sizes = np.array([len(table.messages[slot]) for slot in slots.tolist()], np.int64) // MESSAGES.itemsize
        transactions: Counter[str] = Counter()
        messages: Counter[str] = Counter()
        for group_id in np.unique(ids).tolist():
            # A producer group with open transactions cannot be deleted.
            namespace, is_its = namespace_of(names[group_id].name), ids == group_id
            transactions[namespace] += int(is_its.sum())
            messages[namespace] += int(sizes[is_its].sum())
        return frozenset(
            each for each in transactions if transactions[each] >= transactions_max or messages[each] >= messages_max
        )
