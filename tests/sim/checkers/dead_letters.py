"""Dead letters: a message that died is not among its group's dead letters exactly once, or is delivered afterwards, or did not die.

Exactly, on every node at the end, for each group: 1. No message lies there twice. 2. Each one is the message that lies at its origin (if that is
kept); if it was rejected, somebody may have rejected it, in that attempt; else it had used up all attempts, neither fewer nor more. 3. It was
not acked: an ack that was answered well, as a later grant shows before it was buried, was wrong. 4. It was never leased after it was buried. 5. A
message whose rejection was answered, and that nobody can have acked, is there; and so is one whose last attempt nobody can have acked or released.
6. Who browses at the end sees as many, and no others.

Not demanded: what retention has dropped, there or in its queue; and of what may have been redriven, or moved over by a seek, 3 to 5.
"""

from collections.abc import Iterator

from tern_wire.dead_letters import REJECTED
from tern_wire.link.rows import ACK, RELEASE
from tests.sim.checkers.grants import Facts, Grant, Message, facts_of
from tests.sim.history.history import (
    LATER,
    REJECT,
    Browse,
    Browsed,
    EndState,
    GraveEnd,
    History,
    Letter,
    Receive,
    Settle,
    Violation,
)


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(leased messages + dead letters * nodes)."""
    facts = facts_of(history, end)
    found: list[str] = []
    for node in end.nodes:
        for group, grave in node.graves.items():
            found += [f"{group} on {node.node}: {text}" for text in _twice(grave)]
    first = end.nodes[0]
    names = {
        (topic, queue, stored.offset): stored.body_name
        for (topic, queue), held in first.queues.items()
        for stored in held.messages
    }
    for group, grave in first.graves.items():
        for letter in grave.letters:
            message = ((group, letter.topic, letter.queue), letter.origin)
            found += [f"{group} has {letter}: {text}" for text in _wrong(facts, names, message, letter)]
    found += _missing(facts, first.graves)
    found += _browsed(history, first.graves)
    return [Violation("dead_letters", text) for text in found]


def _twice(grave: GraveEnd) -> Iterator[str]:
    known: dict[tuple[str, int, int], Letter] = {}
    for letter in grave.letters:
        other = known.setdefault((letter.topic, letter.queue, letter.origin), letter)
        if other is not letter:
            yield f"buried twice: {other} and {letter}"


def _wrong(facts: Facts, names: dict[tuple[str, int, int], str], message: Message, letter: Letter) -> Iterator[str]:
    grants = facts.grants.get(message, [])
    most = facts.max_attempts(message[0][0])
    there = names.get((letter.topic, letter.queue, letter.origin), letter.body_name)
    if there != letter.body_name:
        yield f"there lies {there}"
    if letter.cause == REJECTED:
        attempts = {grant.held.attempt for grant in grants if facts.settled_as(message, grant.lease, REJECT)}
        if letter.attempts not in attempts:
            yield f"nobody rejected it in that attempt, but in {sorted(attempts)}"
    elif letter.attempts != most:
        yield f"it has {most} attempts"
    if facts.redrives.get(message[0][0]):
        return
    for grant in grants:
        if facts.is_moved(message[0], None, grant.operation):
            continue
        if grant.granted_ms > letter.died_ms:
            yield f"delivered afterwards: {grant.operation}"
        for ack in facts.settled_as(message, grant.lease, ACK):
            shown = facts.shown_after(ack.operation.ended)
            if ack.is_certain and shown is not None and shown.granted_ms < letter.died_ms:
                yield f"acked before: {ack.operation}, as {shown.operation} shows"


def _missing(facts: Facts, graves: dict[str, GraveEnd]) -> Iterator[str]:
    there = {
        ((group, letter.topic, letter.queue), letter.origin)
        for group, grave in graves.items()
        for letter in grave.letters
    }
    for message, grants in facts.grants.items():
        (group, topic, queue), offset = message
        grave = graves.get(group)
        if message in there or facts.redrives.get(group) or offset < facts.oldest.get((topic, queue), 0):
            continue
        if (grave is not None and grave.min_offset > 0) or facts.movements.get(message[0]):
            continue
        if any(facts.settled_as(message, grant.lease, ACK) for grant in grants):
            continue
        why = _death(facts, message, grants)
        if why:
            yield f"{group} has no dead letter of {message}, {why}"


def _death(facts: Facts, message: Message, grants: list[Grant]) -> str:
    for grant in grants:
        for settled in facts.settled_as(message, grant.lease, REJECT):
            if settled.is_certain:
                return f"which was rejected: {settled.operation}"
    last = grants[-1]
    is_last = last.held.attempt >= facts.max_attempts(message[0][0])
    if is_last and not facts.settled_as(message, last.lease, RELEASE):
        return f"whose last attempt nobody acked: {last.operation}"
    return ""


def _browsed(history: History, graves: dict[str, GraveEnd]) -> Iterator[str]:
    """What was seen when everything had come to rest: after the last receive and settle of the group."""
    rest: dict[str, int] = {}
    for operation in history.operations:
        if isinstance(operation.asked, Receive | Settle):
            rest[operation.asked.group] = operation.ended
    for operation in history.operations:
        asked = operation.asked
        if not isinstance(asked, Browse) or not operation.is_ok or operation.began < rest.get(asked.group, 0):
            continue
        grave = graves.get(asked.group, GraveEnd(0, ()))
        answer: Browsed = operation.browsed
        # Retention may have dropped some since.
        seen = [letter for letter in answer.letters if letter.offset >= grave.min_offset]
        end = answer.next_offset if answer.next_offset >= 0 else LATER
        wanted = [letter for letter in grave.letters if asked.offset <= letter.offset < end]
        is_counted = answer.total >= len(grave.letters) and (answer.total == len(grave.letters) or grave.min_offset > 0)
        if seen != wanted or not is_counted:
            yield f"{asked.group} has {grave}, {operation} says otherwise"
