"""Stale reads: a queue was shown shorter than somebody had already been told.

Exactly: the `max_offset` of a PULL or OFFSETS is above the offset of every message of that queue that was acknowledged, and not below
any `max_offset` that was answered, before it was invoked. (Committed offsets: see offsets.py.)
"""

from tern_wire.link.rows import REPLAYED, SENT
from tests.sim.history.history import EndState, History, Offsets, Operation, Pull, Send, Violation


def check(history: History, _end: EndState) -> list[Violation]:
    """Every stale read; O(operations * log operations)."""
    # (event, 0 for a beginning and 1 for an end, queue, end of the queue, operation)
    events: list[tuple[int, int, tuple[str, int], int, Operation]] = []
    for operation in history.operations:
        if not operation.is_ok:
            continue
        match operation.asked:
            case Send(topic, _):
                for verdict in operation.sent:
                    if verdict.status in {SENT, REPLAYED}:
                        events.append((operation.ended, 1, (topic, verdict.queue), verdict.offset + 1, operation))
                continue
            case Pull(topic, queue, _):
                seen = [((topic, queue), operation.pulled.max_offset)]
            case Offsets(topic):
                seen = [((topic, ends.queue), ends.max_offset) for ends in operation.ends]
            case _:
                continue
        for place, end in seen:
            events += [(operation.began, 0, place, end, operation), (operation.ended, 1, place, end, operation)]
    found = []
    floors: dict[tuple[str, int], tuple[int, Operation]] = {}
    for _, kind, place, end, operation in sorted(events, key=lambda event: event[:2]):
        floor = floors.get(place)
        if kind == 0:
            if floor is not None and end < floor[0]:
                found.append(
                    Violation(
                        "stale_reads", f"{place} ends at {end} in {operation}, at {floor[0]} before, in {floor[1]}"
                    )
                )
        elif floor is None or end > floor[0]:
            floors[place] = (end, operation)
    return found
