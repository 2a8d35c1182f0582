"""Leases: two holders of one message at a time, in the group's logical time. A lease holds whoever leads, and whether its leader is
paused or deposed: only what the log says ends it.

Exactly: lease ids order the log, and a lease was granted at its deadline minus its invisible time. 1. An id belongs to one receive;
ids grow in real time, and the group's time never falls as they grow. 2. Of two leases of one message for one group, the later one is
granted not before the earlier one's end: its deadline, or what an extension can have made of it at the earliest. Unless the
earlier one was released, nacked or rejected, or a commit or seek forgot it: these may have happened before the later one was answered.
3. A settle is not answered "lease over" while, as a later grant shows, the lease still ran (messages that retention has dropped
meanwhile are left out). How attempts count: attempts.py.
"""

from collections.abc import Iterator
from itertools import pairwise

from tern_wire.link.rows import ACK, EXTEND, NACK, RELEASE
from tests.sim.checkers.grants import Facts, Grant, Message, facts_of
from tests.sim.history.history import LATER, REJECT, EndState, History, Violation


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(leased messages * log)."""
    facts = facts_of(history, end)
    return [Violation("leases", text) for text in (*_ids(facts), *_holders(facts), *_dropped(facts))]


def _ids(facts: Facts) -> Iterator[str]:
    owners: dict[int, Grant] = {}
    for grant in facts.all_grants:
        other = owners.setdefault(grant.lease, grant)
        if other.operation is not grant.operation or other.held.deadline_ms != grant.held.deadline_ms:
            yield f"lease {grant.lease} was given twice: {other.operation} and {grant.operation}"
    by_id = sorted(owners.values(), key=lambda grant: grant.lease)
    for earlier, later in pairwise(by_id):
        if later.granted_ms < earlier.granted_ms:
            yield f"the group's time falls from {earlier.granted_ms} ({earlier.operation}) to {later.granted_ms} ({later.operation})"
    highest: Grant | None = None
    ended = 0
    by_end = sorted(owners.values(), key=lambda grant: grant.operation.ended)
    for grant in sorted(owners.values(), key=lambda grant: grant.operation.began):
        while ended < len(by_end) and by_end[ended].operation.ended < grant.operation.began:
            if highest is None or by_end[ended].lease > highest.lease:
                highest = by_end[ended]
            ended += 1
        if highest is not None and grant.lease < highest.lease:
            yield f"lease {grant.lease} ({grant.operation}) comes after lease {highest.lease} ({highest.operation})"


def end_of(facts: Facts, message: Message, grant: Grant) -> int:
    """The earliest group time at which the lease of *message* can end by itself."""
    end_ms = grant.held.deadline_ms
    possible = [end_ms]
    is_certain = True
    for settled in facts.settled_as(message, grant.lease, EXTEND):
        end_ms = max(grant.granted_ms, facts.time_before(settled.operation.began)) + settled.row.invisible_ms
        possible.append(end_ms)
        # An extension that may come at another time, or not at all, leaves all possibilities open.
        is_certain = is_certain and settled.operation.over != LATER
    return end_ms if is_certain else min(possible)


def _holders(facts: Facts) -> Iterator[str]:
    for message, grants in facts.grants.items():
        for first, second in pairwise(grants):
            if (
                first.lease == second.lease
                or facts.is_over(message, first, second.operation, RELEASE, NACK, REJECT)
                or facts.is_moved(message[0], first.operation, second.operation)
            ):
                continue
            end_ms = end_of(facts, message, first)
            if second.granted_ms < end_ms:
                yield (
                    f"{message} has two holders: until {end_ms} {first.operation}, from {second.granted_ms} {second.operation}"
                )


def _dropped(facts: Facts) -> Iterator[str]:
    """Settles that were refused though the lease ran."""
    for message, grants in facts.grants.items():
        for grant in grants:
            settles = facts.settles.get((message, grant.lease), ())
            refused = [settled.operation for settled in settles if not settled.may_have_settled]
            (_, topic, queue), offset = message
            if (
                not refused
                or facts.settled_as(message, grant.lease, ACK, RELEASE, NACK, REJECT)
                or offset < facts.oldest.get((topic, queue), 0)
            ):
                continue
            end_ms = end_of(facts, message, grant)
            for operation in refused:
                shown = facts.shown_after(operation.ended)
                if (
                    shown is not None
                    and shown.granted_ms < end_ms
                    and not facts.is_moved(message[0], grant.operation, operation)
                ):
                    yield f"{operation} refuses {message} until {end_ms} of {grant.operation}, yet {shown.operation}"
