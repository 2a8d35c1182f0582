"""Views of transactions for operators and proxies: one, or a page of those that have not ended.
Pure; changes nothing.
"""

from typing import Any

import numpy as np

from tern_broker.core.topics import Names
from tern_broker.core.transactions.ends import Transactions
from tern_broker.core.transactions.open_transactions import CLAIMED, DUE, NOTES, PARKED, read_messages
from tern_wire.errors import TransactionUnknown
from tern_wire.link.checks import ClaimedCheck, ClaimedMessage
from tern_wire.names import is_of
from tern_wire.transactions import BY_TEXTS, EXPIRED, OPEN, OUTCOME_STATES

# Messages of each transaction in a page: 1,000 transactions with all their messages would take many
# frames.
MESSAGES_SHOWN_MAX = 16


def describe_transaction(
    transactions: Transactions, names: Names, number: int, producer_group_id: int
) -> dict[str, Any]:
    """Return the transaction, open or ended; raise TransactionUnknown."""
    slot = transactions.table.slots.get(number)
    if slot is not None and transactions.table.get("group", slot) == producer_group_id:
        return _open(transactions, names, slot, len(transactions.table.messages[slot]))
    found = transactions.outcomes.find(number)
    if found is None or found["group"] != producer_group_id:
        raise TransactionUnknown()
    group = transactions.producers.by_id.get(producer_group_id)
    return {
        "number": number,
        "producer_group": group.name if group is not None else "",
        "producer_group_id": producer_group_id,
        "state": OUTCOME_STATES[found["how"] >> 4],
        "begun_ms": found["begun_ms"],
        "check_at_ms": 0,
        "attempts": found["attempts"],
        "ended_ms": found["ended_ms"],
        "by": BY_TEXTS[found["how"] & 15],
        "reason": transactions.reasons.text(found["reason"]),
        "message_count": found["messages"],
        "messages": [[_name(names, found["topic"]), found["queue"], found["size"], found["offset"]]],
        "checks": [],
    }


def list_transactions(
    transactions: Transactions,
    names: Names,
    *,
    namespace: str,
    producer_group_id: int,
    state: str,
    begun_before_ms: int,
    after: int,
    limit: int,
) -> dict[str, Any]:
    """Return at most *limit* transactions that have not ended, of *namespace*'s producer groups, by
    number after *after*.

    *namespace* "": groups without one. 0 and "" stand for all producer groups and both states.
    """
    table = transactions.table
    slots = table.used()
    columns = {name: table.columns[name][slots] for name in ("number", "begun_ms", "group", "phase")}
    is_wanted = (columns["number"] > after) & (columns["begun_ms"] <= begun_before_ms)
    if producer_group_id:
        is_wanted &= columns["group"] == producer_group_id
    else:
        ids = [
            group.producer_group_id for name, group in transactions.producers.by_name.items() if is_of(namespace, name)
        ]
        is_wanted &= np.isin(columns["group"], ids)
    if state:
        is_wanted &= (columns["phase"] == PARKED) == (state == EXPIRED)
    chosen = slots[is_wanted][: limit + 1].tolist()
    shown = [_open(transactions, names, slot, MESSAGES_SHOWN_MAX) for slot in chosen[:limit]]
    return {"transactions": shown, "more": len(chosen) > limit}


def claimed_checks(
    transactions: Transactions, names: Names, claimed: list[list[int]]
) -> tuple[list[ClaimedCheck], Any]:
    """Return the claimed checks, and the places of all their messages (MESSAGES). Claims that are
    no longer valid are left out.
    """
    table = transactions.table
    told, parts = [], []
    for number, claim, attempt in claimed:
        slot = table.slots.get(number)
        if slot is None or table.get("claim", slot) != claim:
            continue
        parts.append(table.messages[slot])
        group = transactions.producers.by_id[table.get("group", slot)]
        shown = [ClaimedMessage(name, queue, size) for name, queue, size, _ in _messages(names, table.messages[slot])]
        identity = (number, claim, attempt, group.name, group.producer_group_id)
        told.append(ClaimedCheck(*identity, table.get("begun_ms", slot), table.get("at_ms", slot), shown))
    return told, read_messages(b"".join(parts))


def _open(transactions: Transactions, names: Names, slot: int, shown_max: int) -> dict[str, Any]:
    table = transactions.table
    group = transactions.producers.by_id[table.get("group", slot)]
    phase, at_ms = table.get("phase", slot), table.get("at_ms", slot)
    messages = _messages(names, table.messages[slot])
    text = transactions.texts.text
    return {
        "number": table.get("number", slot),
        "producer_group": group.name,
        "producer_group_id": group.producer_group_id,
        "state": EXPIRED if phase == PARKED else OPEN,
        "begun_ms": table.get("begun_ms", slot),
        # For a claimed check: when it was due or began.
        "check_at_ms": {PARKED: 0, CLAIMED: table.get("claimed_ms", slot), DUE: at_ms}.get(phase, at_ms),
        "attempts": table.get("attempts", slot),
        "ended_ms": 0,
        "by": "",
        "reason": "",
        "message_count": len(messages),
        "messages": messages[:shown_max],
        "checks": [
            [attempt, asked_ms, text(checker), text(answer), latency_ms]
            for asked_ms, checker, answer, latency_ms, attempt, _ in np.frombuffer(table.notes[slot], NOTES).tolist()
        ],
    }


def _messages(names: Names, data: bytes) -> list[list[Any]]:
    return [[_name(names, topic), queue, size, -1] for _, _, size, topic, queue, _ in read_messages(data).tolist()]


def _name(names: Names, topic_id: int) -> str:
    """Return the topic's name; "" for a deleted topic."""
    topic = names.topics_by_id.get(topic_id)
    return topic.name if topic is not None else ""
