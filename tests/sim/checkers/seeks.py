"""Seeks: a group was moved to another place than was asked for, or did not get what lies behind it.

Exactly, for each queue of a seek that was answered: 1. Earliest is not behind the oldest message that is kept at the end; latest is
not before the end that anybody was told before, and not behind the end. A shift is that far from where the group was, or as far as the queue goes. A
time: the message there was stored at that time or later, the one before it earlier (if they are kept). 2. After the last move of a group in a queue
that was answered, with no other one that may have come later, every message from there on was leased to somebody who heard of it, or is a
dead letter. (How committed offsets move: offsets.py.)
"""

from collections.abc import Iterator

from tern_wire.link.rows import REPLAYED, SENT
from tests.sim.checkers.grants import Facts, Queue, facts_of
from tests.sim.history.history import EndState, History, Operation, Seek, Send, Sought, Stored, Violation


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(seeks * sends + messages)."""
    queues = {
        place: (held.min_offset, {stored.offset: stored for stored in held.messages})
        for place, held in end.nodes[0].queues.items()
    }
    found: list[str] = []
    facts = facts_of(history, end)
    for operation in history.operations:
        asked = operation.asked
        if isinstance(asked, Seek) and operation.is_ok:
            for sought in operation.sought:
                least, messages = queues[asked.topic, sought.queue]
                told = _told_end(history, operation, (asked.topic, sought.queue)) if asked.to != "time" else 0
                wrong = _misplaced(asked, sought, least, messages, told)
                if wrong:
                    found.append(f"{sought} is {wrong}: {operation}")
    graves = end.nodes[0].graves
    dead = {
        (group, letter.topic, letter.queue, letter.origin)
        for group, grave in graves.items()
        for letter in grave.letters
    }
    for queue in facts.movements:
        least, messages = queues.get(queue[1:], (0, {}))
        found += _forgotten(facts, queue, [offset for offset in messages if (*queue, offset) not in dead])
    return [Violation("seeks", text) for text in found]


def _told_end(history: History, seek: Operation, place: tuple[str, int]) -> int:
    """The queue's end that was acknowledged before *seek* began."""
    ends = [0]
    for operation in history.operations:
        asked = operation.asked
        if isinstance(asked, Send) and asked.topic == place[0] and operation.is_ok and operation.ended < seek.began:
            ends += [
                verdict.offset + 1
                for verdict in operation.sent
                if verdict.status in {SENT, REPLAYED} and verdict.queue == place[1]
            ]
    return max(ends)


def _misplaced(asked: Seek, sought: Sought, least: int, messages: dict[int, Stored], told: int) -> str:
    """What is wrong with where it went; *least*: the oldest offset kept, *told*: the end that was known."""
    end = max(messages, default=least - 1) + 1
    _, before, after = sought
    if asked.to == "earliest" and after > least:
        return f"behind the oldest message, {least}"
    if asked.to == "latest" and not told <= after <= end:
        return f"not at the end, {told} to {end}"
    if asked.to == "shift" and before >= 0:
        wanted = before + asked.number
        is_cut = (after > wanted and after <= least) or (after < wanted and told <= after <= end)
        if after != wanted and not is_cut:
            return f"not {asked.number} messages away"
    if asked.to == "time":
        if after in messages and messages[after].stored_ms < asked.number:
            return f"before that time, at {messages[after].stored_ms}"
        if after - 1 in messages and messages[after - 1].stored_ms >= asked.number:
            return f"behind {messages[after - 1].stored_ms}"
    return ""


def _forgotten(facts: Facts, queue: Queue, offsets: list[int]) -> Iterator[str]:
    moved = facts.movements[queue]
    last = max(moved, key=lambda movement: movement.operation.began)
    operation = last.operation
    if not operation.is_ok or operation.lost_attempts:
        return
    if any(other is not last and other.operation.over > operation.began for other in moved):
        return
    for offset in offsets:
        if offset >= last.lowest:
            grants = facts.grants.get((queue, offset), ())
            if not any(grant.operation.ended > operation.began for grant in grants):
                yield f"{queue} was moved to {last.lowest}, yet nobody got {offset}: {operation}"
                return
