"""Send order: messages lie in their queue in another order than that in which they were accepted.

Exactly: if a send was acknowledged before another one was invoked (by whatever client), each message of the first one lies before
each message of the second one in the queue that they share. Within one send, messages of one queue lie in the order of its rows.
Sends that overlapped in time have no order. A message that was sent before under the same key counts from its first send on.
"""

from tern_wire.link.rows import REPLAYED, SENT
from tests.sim.history.history import EndState, History, Operation, Send, Violation


def check(history: History, _end: EndState) -> list[Violation]:
    """Every message that lies too early; O(messages * log messages)."""
    found: list[Violation] = []
    # (event, 0 for a beginning and 1 for an end, queue, offset, operation)
    events: list[tuple[int, int, tuple[str, int], int, Operation]] = []
    first_began: dict[str, int] = {}
    for operation in history.operations:
        asked = operation.asked
        if not isinstance(asked, Send):
            continue
        for message in asked.messages:
            first_began.setdefault(message.name, operation.began)
        if not operation.is_ok:
            continue
        last: dict[int, int] = {}
        for message, verdict in zip(asked.messages, operation.sent, strict=True):
            if verdict.status not in {SENT, REPLAYED}:
                continue
            place = (asked.topic, verdict.queue)
            events.append((first_began[message.name], 0, place, verdict.offset, operation))
            events.append((operation.ended, 1, place, verdict.offset, operation))
            if verdict.status == SENT:
                if verdict.offset <= last.get(verdict.queue, -1):
                    found.append(Violation("send_order", f"rows of one send lie in another order: {operation}"))
                last[verdict.queue] = verdict.offset
    # The highest offset acknowledged so far, a queue.
    floors: dict[tuple[str, int], tuple[int, Operation]] = {}
    for _, kind, place, offset, operation in sorted(events, key=lambda event: event[:2]):
        floor = floors.get(place)
        if kind == 0:
            if floor is not None and offset <= floor[0] and floor[1] is not operation:
                found.append(
                    Violation("send_order", f"{operation} lies at {offset}, before an earlier one: {floor[1]}")
                )
        elif floor is None or offset > floor[0]:
            floors[place] = (offset, operation)
    return found
