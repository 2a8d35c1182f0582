"""Repeats: a receive that is asked again with its attempt id gets something else than it holds.

Exactly, of two receives of one attempt, one after the other, both answered: while a message of the first one's leases is held, as the group's
time that a later grant shows says for sure (not acked, released, nacked or rejected; no commit or seek; its lease, with what extensions can
have made of it at the earliest, not over), the second one has it under the same lease, and has no other lease. What was acked before it
was asked is not in it: see redelivery.py. That one lease is given to no other receive: see leases.py.
"""

from collections.abc import Iterator
from itertools import pairwise

from tern_wire.link.rows import ACK, NACK, RELEASE
from tests.sim.checkers.grants import Facts, Grant, facts_of
from tests.sim.checkers.leases import end_of
from tests.sim.history.history import REJECT, EndState, History, Operation, Violation


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(messages of repeated receives)."""
    facts = facts_of(history, end)
    return [
        Violation("repeats", text)
        for operations in facts.attempts.values()
        for first, second in pairwise(sorted(operations, key=lambda operation: operation.began))
        if first.ended < second.began
        for text in _changed(facts, first, second)
    ]


def _changed(facts: Facts, first: Operation, second: Operation) -> Iterator[str]:
    leases = {held.lease for held in first.held}
    got = {(held.queue, held.offset, held.lease) for held in second.held}
    anew = [held for held in second.held if held.lease not in leases]
    granted_ms = min((held.deadline_ms - second.asked.invisible_ms for held in anew), default=None)  # type: ignore[union-attr]
    shown = facts.shown_after(second.ended)
    known_ms = granted_ms if granted_ms is not None else shown.granted_ms if shown is not None else None
    for held in first.held if known_ms is not None else ():
        queue = (first.asked.group, first.asked.topic, held.queue)  # type: ignore[union-attr]
        message = (queue, held.offset)
        grant = _grant_of(facts, message, held.lease)
        if (
            grant is None
            or facts.settled_as(message, held.lease, ACK, RELEASE, NACK, REJECT)
            or facts.is_moved(queue, grant.operation, second)
            or known_ms is None
            or end_of(facts, message, grant) <= known_ms
        ):
            continue
        if anew:
            yield f"{second} gets {anew[0]} while it holds {held} of {first}"
        elif (held.queue, held.offset, held.lease) not in got:
            yield f"{second} does not get {held}, which it holds since {first}"


def _grant_of(facts: Facts, message: tuple[tuple[str, str, int], int], lease: int) -> Grant | None:
    return next((grant for grant in facts.grants.get(message, ()) if grant.lease == lease), None)
