"""Redelivery: a group was given a message again after its ack.

Exactly: an ack was answered SETTLED, and a receive of the same group that was invoked after that answer got the message; and no
commit or seek to that offset or a lower one may have come in between. Nor a redrive, if the message may have died: an ack that comes too late
for a dead letter is SETTLED, too.
"""

from tern_wire.link.rows import ACK, SETTLED
from tests.sim.checkers.grants import facts_of
from tests.sim.history.history import EndState, History, Operation, Receive, Settle, Violation


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(messages received)."""
    # The first good ack of (group, topic, queue, offset).
    acks: dict[tuple[str, str, int, int], Operation] = {}
    facts = facts_of(history, end)
    for operation in history.operations:
        match operation.asked:
            case Settle(group, rows) if operation.is_ok:
                for row, status in zip(rows, operation.statuses, strict=True):
                    if row.action == ACK and status == SETTLED:
                        key = (group, row.topic, row.queue, row.offset)
                        if key not in acks or operation.ended < acks[key].ended:
                            acks[key] = operation
    found = []
    for operation in history.operations:
        asked = operation.asked
        if not isinstance(asked, Receive) or not operation.is_ok:
            continue
        for held in operation.held:
            ack = acks.get((asked.group, asked.topic, held.queue, held.offset))
            if ack is None or ack.ended >= operation.began:
                continue
            queue = (asked.group, asked.topic, held.queue)
            is_sought = any(
                moved.lowest <= held.offset
                and moved.operation.began < operation.ended
                and moved.operation.over > ack.began
                for moved in facts.movements.get(queue, ())
            )
            grants = facts.grants[queue, held.offset]
            is_redriven = any(
                facts.is_redriven((queue, held.offset), grant, grants[-1])
                for grant in grants
                if grant.operation.began < operation.began
            ) and any(redrive.began < operation.ended for redrive in facts.redrives[asked.group])
            if not is_sought and not is_redriven:
                found.append(Violation("redelivery", f"{held} after its ack: {operation} after {ack}"))
    return found
