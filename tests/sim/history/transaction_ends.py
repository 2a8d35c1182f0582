"""What a node's state says of transactions at the end of a run: those that have not ended, with their records, and how the others ended."""

from collections.abc import Iterator

import numpy as np

from tern_broker.core.transactions.open_transactions import read_messages
from tern_broker.core.transactions.outcomes import OUTCOMES
from tern_broker.core.transactions.views import describe_transaction
from tern_broker.engine import Engine
from tests.sim.clients.bodies import read_records
from tests.sim.clients.transaction_exchange import read_description
from tests.sim.history.transaction_values import TransactionEnd


def transactions_of(engine: Engine) -> Iterator[tuple[int, TransactionEnd]]:
    """By number."""
    transactions, names = engine.state.transactions, engine.state.names
    table = transactions.table
    groups = {number: table.get("group", slot) for number, slot in table.slots.items()}
    for block in transactions.outcomes.pack():
        rows = np.frombuffer(block, OUTCOMES)
        groups |= dict(zip(rows["number"].tolist(), rows["group"].tolist(), strict=True))
    for number, group_id in groups.items():
        described = read_description(describe_transaction(transactions, names, number, group_id))
        bodies: tuple[str, ...] = ()
        if number in table.slots:
            messages = read_messages(table.messages[table.slots[number]])
            where, sizes = (messages[name].astype(np.int64) for name in ("position", "size"))
            bodies = tuple(stored.body_name for stored in read_records(engine.store.log.read_records(where, sizes)))
        yield number, TransactionEnd(described, bodies)
