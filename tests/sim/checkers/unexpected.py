"""Unexpected: a queue holds what nobody may have put there.

Exactly, for each message of each queue of each node at the end: its body is one that some send named, for that topic and queue (with a message
group, for any queue); not
every send of it was refused (`fail`, or a refusing verdict in an `ok`); and without an idempotency key it lies in one place only,
since no client repeats it. A send of unknown outcome may have stored its message once. (Messages of transactions and of batches: see transactions.py and publications.py, too.)
"""

from itertools import chain

from tern_wire.link.rows import REPLAYED, SCHEDULED, SCHEDULED_BEFORE, SENT
from tests.sim.history.history import EndState, History, Outcome, Send, Violation
from tests.sim.history.publication_values import StageChunk
from tests.sim.history.transaction_values import Begin

_STORED = frozenset({SENT, REPLAYED, SCHEDULED, SCHEDULED_BEFORE})


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(messages * nodes)."""
    # Name -> (topic, queue (-1: any), has a key); names of which at least one send may have been stored.
    known: dict[str, tuple[str, int, bool]] = {}
    possible: set[str] = set()
    for operation in history.operations:
        asked = operation.asked
        if isinstance(asked, Begin):
            for half in chain(*asked.transactions):
                known[half.name] = (half.topic, half.queue, bool(half.key))
                possible.add(half.name)
        if isinstance(asked, StageChunk):
            for message in asked.messages:
                known[message.name] = (asked.topic, message.queue, False)
                if operation.may_have_happened:
                    possible.add(message.name)
        if not isinstance(asked, Send):
            continue
        verdicts = operation.sent if operation.outcome is Outcome.OK else None
        for row, message in enumerate(asked.messages):
            known[message.name] = (asked.topic, -1 if message.message_group else message.queue, bool(message.key))
            if operation.may_have_happened and (verdicts is None or verdicts[row].status in _STORED):
                possible.add(message.name)
    found = []
    for node in end.nodes:
        places: dict[str, tuple[str, int, int]] = {}
        for (topic, queue), held in node.queues.items():
            for stored in held.messages:
                name, place = stored.body_name, (topic, queue, stored.offset)
                sent = known.get(name)
                at = f"{node.node} holds {name} at {topic}:{queue}:{stored.offset}"
                if sent is None:
                    found.append(Violation("unexpected", f"{at}, which nobody ever sent"))
                elif sent[0] != topic or sent[1] not in {-1, queue}:
                    found.append(Violation("unexpected", f"{at}, but it was sent to {sent[0]}:{sent[1]}"))
                elif name not in possible:
                    found.append(Violation("unexpected", f"{at}, but every send of it was refused"))
                elif not sent[2] and name in places:
                    found.append(Violation("unexpected", f"{at} and at {places[name]}: sent once, without a key"))
                places[name] = place
    return found
