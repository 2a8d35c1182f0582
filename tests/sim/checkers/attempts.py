"""Attempts: a delivery that says it is another attempt than it is, one too many, or a retry before its time.

Exactly, for the leases of one message for one group, in their order: 1. The first one is attempt 1, and each is one more than the one
before it, or the same if that one was released; only leases that nobody heard of may lie between, and count. 2. None is above the group's
most. 3. After a nack that was answered, the next lease that was asked for later is granted not before the nack's delay is over, counted
from the group's time at which it can have been applied at the earliest. A commit or seek, and a redrive of what may have died, begin anew.
"""

from collections.abc import Iterator
from itertools import pairwise

from tern_wire.link.rows import NACK, RELEASE
from tests.sim.checkers.grants import Facts, Grant, Message, facts_of
from tests.sim.history.history import EndState, History, Violation


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(leased messages * receives of unknown outcome)."""
    facts = facts_of(history, end)
    return [
        Violation("attempts", f"{message}: {text}")
        for message, grants in facts.grants.items()
        for text in (*_counted(facts, message, grants), *_too_early(facts, message, grants))
    ]


def _counted(facts: Facts, message: Message, grants: list[Grant]) -> Iterator[str]:
    most = facts.max_attempts(message[0][0])
    first = grants[0]
    unseen = facts.unseen_between(message, None, first)
    if not 1 <= first.held.attempt <= 1 + unseen and not facts.is_moved(message[0], None, first.operation):
        yield f"its first lease is attempt {first.held.attempt}, with {unseen} unseen ones: {first.operation}"
    for grant in grants:
        if grant.held.attempt > most:
            yield f"attempt {grant.held.attempt} of {most}: {grant.operation}"
    for first, second in pairwise(grants):
        if (
            first.lease == second.lease
            or facts.is_moved(message[0], first.operation, second.operation)
            or facts.is_redriven(message, first, second)
        ):
            continue
        lowest = highest = first.held.attempt + 1
        for release in facts.settled_as(message, first.lease, RELEASE):
            if release.operation.began < second.operation.ended:
                lowest = first.held.attempt
                highest -= release.is_certain and release.operation.ended < second.operation.began
        highest += facts.unseen_between(message, first, second)
        if not lowest <= second.held.attempt <= highest:
            yield (
                f"attempt {second.held.attempt} after attempt {first.held.attempt}, where {lowest} to {highest} can be: "
                f"{first.operation} and {second.operation}"
            )


def _too_early(facts: Facts, message: Message, grants: list[Grant]) -> Iterator[str]:
    rules = facts.rules.get(message[0][0])
    for first, second in pairwise(grants):
        if facts.is_moved(message[0], first.operation, second.operation) or facts.is_redriven(message, first, second):
            continue
        if facts.settled_as(message, first.lease, RELEASE):
            continue
        for nack in facts.settled_as(message, first.lease, NACK):
            delay_ms = nack.row.invisible_ms
            if delay_ms < 0:
                delays_ms = rules.delays_ms if rules is not None else ()
                delay_ms = delays_ms[min(first.held.attempt, len(delays_ms)) - 1] if delays_ms else 0
            if not nack.is_certain or nack.operation.ended > second.operation.began:
                continue
            visible_ms = max(first.granted_ms, facts.time_before(nack.operation.began)) + delay_ms
            if second.granted_ms < visible_ms:
                yield f"not visible before {visible_ms} after {nack.operation}, granted at {second.granted_ms}: {second.operation}"
