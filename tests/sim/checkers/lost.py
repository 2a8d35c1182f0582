"""Lost: a message that was acknowledged is not where its receipt says, on some node, at the end.

Exactly: for each row of an `ok` send with verdict SENT or REPLAYED, every node holds, at the queue and offset of the verdict, that
message's body and no other. Below a queue's oldest kept offset nothing is demanded. Unknown outcomes are never counted as lost.
"""

from tern_wire.link.rows import REPLAYED, SENT
from tests.sim.history.history import EndState, History, Send, Violation


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation, worst first is not promised; O(messages * nodes)."""
    found = []
    for node in end.nodes:
        held = {
            place: (queue.min_offset, {message.offset: message.body_name for message in queue.messages})
            for place, queue in node.queues.items()
        }
        for operation in history.operations:
            asked = operation.asked
            if not isinstance(asked, Send) or not operation.is_ok:
                continue
            for message, verdict in zip(asked.messages, operation.sent, strict=True):
                if verdict.status not in {SENT, REPLAYED}:
                    continue
                oldest, names = held.get((asked.topic, verdict.queue), (0, {}))
                if verdict.offset >= oldest and names.get(verdict.offset) != message.name:
                    there = names.get(verdict.offset, "nothing")
                    text = f"{node.node} has {there} at {asked.topic}:{verdict.queue}:{verdict.offset}, where {message.name} was acknowledged"
                    found.append(Violation("lost", f"{text}: {operation}"))
    return found
