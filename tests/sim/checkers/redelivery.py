"""Redelivery: a group was given a message again after its ack.

Exactly: an ack was answered SETTLED, and a receive of the same group that was invoked after that answer got the message; and no
commit to that offset or a lower one may have come in between.
"""

from tern_wire.rows import ACK, SETTLED
from tests.sim.history import CommitOffsets, EndState, History, Operation, Receive, Settle, Violation


def check(history: History, _end: EndState) -> list[Violation]:
    """Every violation; O(messages received)."""
    # The first good ack of (group, topic, queue, offset), and the commits of (group, topic, queue).
    acks: dict[tuple[str, str, int, int], Operation] = {}
    seeks: dict[tuple[str, str, int], list[tuple[int, Operation]]] = {}
    for operation in history.operations:
        match operation.asked:
            case Settle(group, rows) if operation.is_ok:
                for row, status in zip(rows, operation.statuses, strict=True):
                    if row.action == ACK and status == SETTLED:
                        key = (group, row.topic, row.queue, row.offset)
                        if key not in acks or operation.ended < acks[key].ended:
                            acks[key] = operation
            case CommitOffsets(group, topic, offsets, _) if operation.may_have_happened:
                for queue, offset in offsets:
                    seeks.setdefault((group, topic, queue), []).append((offset, operation))
    found = []
    for operation in history.operations:
        asked = operation.asked
        if not isinstance(asked, Receive) or not operation.is_ok:
            continue
        for held in operation.held:
            ack = acks.get((asked.group, asked.topic, held.queue, held.offset))
            if ack is None or ack.ended >= operation.began:
                continue
            is_sought = any(
                offset <= held.offset and seek.began < operation.ended and seek.over > ack.began
                for offset, seek in seeks.get((asked.group, asked.topic, held.queue), ())
            )
            if not is_sought:
                found.append(Violation("redelivery", f"{held} after its ack: {operation} after {ack}"))
    return found
