"""Duplicates: an idempotency key did not do what it is for.

Exactly: a key's message lies at one offset at most; all receipts (SENT and REPLAYED) of a key name that offset; once a send of it was
acknowledged, later ones are REPLAYED (of a message that waits or waited for its time: SCHEDULED and SCHEDULED_BEFORE, its timer being its offset); a replay names the message id of the send that was stored (or none, when retention has dropped the
message by the end); no repeat with the same body is called KEY_REUSED. The promise holds for IDEMPOTENCY_WINDOW_MS of the group's time: a key whose copies were stored further
apart than that is left out.
"""

from dataclasses import dataclass, field

from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tern_wire.link.rows import KEY_REUSED, REPLAYED, SCHEDULED, SCHEDULED_BEFORE, SENT
from tests.sim.clients.bodies import message_id
from tests.sim.history.history import EndState, History, Operation, Send, Sent, Stored, Violation

_FIRST, _AGAIN = frozenset({SENT, SCHEDULED}), frozenset({REPLAYED, SCHEDULED_BEFORE})


@dataclass(slots=True)
class _Key:
    """What is known of one key: receipts in order of their ends, copies on one node, and the ids that its sends gave it."""

    receipts: list[tuple[Operation, int, Sent]] = field(default_factory=list)
    copies: list[tuple[str, int, Stored]] = field(default_factory=list)


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(messages * nodes)."""
    keys: dict[tuple[str, str], _Key] = {}
    by_name: dict[str, _Key] = {}
    found = []
    for operation in history.operations:
        asked = operation.asked
        if not isinstance(asked, Send):
            continue
        for row, message in enumerate(asked.messages):
            if not message.key:
                continue
            key = by_name[message.name] = keys.setdefault((asked.topic, message.key), _Key())
            if operation.is_ok:
                verdict = operation.sent[row]
                if verdict.status in _FIRST | _AGAIN:
                    key.receipts.append((operation, row, verdict))
                elif verdict.status == KEY_REUSED:
                    found.append(Violation("duplicates", f"a repeat is called another message: {operation}"))
    for node in end.nodes:
        for key in by_name.values():
            key.copies.clear()
        for (topic, queue), held in node.queues.items():
            for stored in held.messages:
                if stored.body_name in by_name:
                    by_name[stored.body_name].copies.append((topic, queue, stored))
        found += [Violation("duplicates", text) for key in by_name.values() for text in _copies(key, node.node)]
    oldest = {place: held.min_offset for node in end.nodes for place, held in node.queues.items()}
    for (topic, _), key in keys.items():
        found += [Violation("duplicates", text) for text in _receipts(key, topic, oldest)]
    return found


def _is_past_window(key: _Key) -> bool:
    times = [stored.stored_ms for _, _, stored in key.copies]
    return len(times) > 1 and max(times) - min(times) >= IDEMPOTENCY_WINDOW_MS


def _waits(verdict: Sent) -> bool:
    return verdict.status in {SCHEDULED, SCHEDULED_BEFORE}


def _unread(verdict: Sent, message_id: str) -> tuple[str, ...]:
    """Ids that a replay may name: none, too, where a timer's record may have been moved by retention."""
    return (message_id, "") if _waits(verdict) else (message_id,)


def _copies(key: _Key, node: str) -> list[str]:
    if len(key.copies) > 1 and not _is_past_window(key):
        return [f"{node} holds one key's message at {key.copies}"]
    if len(key.copies) == 1:
        stored = key.copies[0][2]
        return [
            f"{node} stored message {stored.message_id}, but its replay names another first one: {operation}"
            for operation, _, verdict in key.receipts
            if verdict.status in _AGAIN and verdict.first_id not in _unread(verdict, stored.message_id)
        ]
    return []


def _receipts(key: _Key, topic: str, oldest: dict[tuple[str, int], int]) -> list[str]:
    if not key.receipts or _is_past_window(key):
        return []
    found = []
    first, row, verdict = min(key.receipts, key=lambda receipt: receipt[0].ended)
    for operation, other_row, other in key.receipts:
        if (other.queue, other.offset) != (verdict.queue, verdict.offset) or _waits(other) != _waits(verdict):
            found.append(f"two receipts of one key differ: {first} and {operation}")
        elif other.status in _FIRST and operation.began > first.ended:
            found.append(f"stored again: {operation}, after {first}")
        elif not other.first_id and (_waits(other) or other.offset < oldest.get((topic, other.queue), 0)):
            continue
        elif other.status in _AGAIN and verdict.status in _FIRST and other.first_id != message_id(first.number, row):
            found.append(f"row {other_row} of {operation} names another first message than {first}")
    return found
