"""Convergence: when faults are over, all nodes become equal, and clients get everything.

Exactly: at the end every node has the same last entry, has applied all of its log and knows it to be committed, and reads the same
messages from every queue, every group's dead letters and every transaction that is open; every operation has ended; the drain came to its end;
and at least one send was acknowledged, since a run in which nothing happens shows nothing. The caller waits for this, within its bound,
before it takes the end state.
"""

from tests.sim.history.history import EndState, History, Outcome, Send, Violation

# Of operations without an answer, so many are named.
NAMED_MAX = 5


def check(history: History, end: EndState) -> list[Violation]:
    """Every difference to the first node."""
    found = []
    for node in end.nodes:
        last = node.log[-1].index if node.log else 0
        if not last == node.applied == node.commit:
            found.append(f"{node.node} has {last} entries, commit {node.commit}, applied {node.applied}")
    first, *others = end.nodes
    for node in others:
        if node.applied != first.applied:
            found.append(f"{node.node} is at {node.applied}, {first.node} at {first.applied}")
        for place in sorted(first.queues.keys() | node.queues.keys()):
            if node.queues.get(place) != first.queues.get(place):
                found.append(f"{node.node} and {first.node} hold other messages in {place}")
        for group in sorted(first.graves.keys() | node.graves.keys()):
            if node.graves.get(group) != first.graves.get(group):
                found.append(f"{node.node} and {first.node} hold other dead letters of {group}")
        for number in sorted(first.transactions.keys() | node.transactions.keys()):
            if node.transactions.get(number) != first.transactions.get(number):
                found.append(f"{node.node} and {first.node} know other things of transaction {number}")
    unanswered = [operation for operation in history.operations if operation.outcome is Outcome.OPEN]
    if unanswered:
        found.append(f"{len(unanswered)} operations never ended: {', '.join(map(str, unanswered[:NAMED_MAX]))}")
    if not end.is_drained:
        found.append("clients could not read everything to its end")
    if not any(operation.is_ok and isinstance(operation.asked, Send) for operation in history.operations):
        found.append("no send was ever acknowledged")
    return [Violation("convergence", text) for text in found]
