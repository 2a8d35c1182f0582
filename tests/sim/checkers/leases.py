"""Leases: two holders of one message at a time, in the group's logical time. A lease holds whoever leads, and whether its leader is
paused or deposed: only what the log says ends it.

Exactly: lease ids order the log, and a lease was granted at its deadline minus its invisible time. 1. An id belongs to one receive;
ids grow in real time, and the group's time never falls as they grow. 2. Of two leases of one message for one group, the later one is
granted not before the earlier one's end: its deadline, or what an extension can have made of it at the earliest. Unless the
earlier one was released, or a commit (a seek) forgot it: both may have happened before the later one was answered. 3. The later
one has a higher attempt. 4. A settle is not answered "lease over" while, as a later grant shows, the lease still ran
(messages that retention has dropped meanwhile are left out).
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tern_wire.rows import ACK, EXTEND, RELEASE, SETTLED
from tests.sim.history import (
    LATER,
    CommitOffsets,
    EndState,
    Held,
    History,
    Operation,
    Receive,
    Settle,
    Settling,
    Violation,
)

# Group, topic and queue; and an offset in it.
_Queue = tuple[str, str, int]
_Message = tuple[_Queue, int]


class _Grant(NamedTuple):
    lease: int
    granted_ms: int
    held: Held
    operation: Operation


class _Facts:
    """What the history says of leases."""

    def __init__(self, history: History, end: EndState) -> None:
        self.oldest = {place: held.min_offset for node in end.nodes for place, held in node.queues.items()}
        self.grants: dict[_Message, list[_Grant]] = {}
        self.all_grants: list[_Grant] = []
        # By message and lease.
        self.settles: dict[tuple[_Message, int], list[tuple[Operation, Settling, int]]] = {}
        self.seeks: dict[_Queue, list[Operation]] = {}
        for operation in history.operations:
            asked = operation.asked
            match asked:
                case Receive(group, topic, _, invisible_ms) if operation.is_ok:
                    for held in operation.held:
                        grant = _Grant(held.lease, held.deadline_ms - invisible_ms, held, operation)
                        self.grants.setdefault(((group, topic, held.queue), held.offset), []).append(grant)
                        self.all_grants.append(grant)
                case Settle(group, rows) if operation.may_have_happened:
                    for number, row in enumerate(rows):
                        key = (((group, row.topic, row.queue), row.offset), row.lease)
                        status = operation.statuses[number] if operation.is_ok else -1
                        self.settles.setdefault(key, []).append((operation, row, status))
                case CommitOffsets(group, topic, offsets, _) if operation.may_have_happened:
                    for queue, _ in offsets:
                        self.seeks.setdefault((group, topic, queue), []).append(operation)
        self.all_grants.sort(key=lambda grant: grant.operation.ended)
        self._ends = [grant.operation.ended for grant in self.all_grants]
        self._times: list[int] = []
        for grant in self.all_grants:
            self._times.append(max(grant.granted_ms, self._times[-1] if self._times else 0))

    def time_before(self, event: int) -> int:
        """The group's time is not below this when something that begins at *event* is applied."""
        at = bisect_right(self._ends, event)
        return self._times[at - 1] if at else 0

    def is_sought(self, queue: _Queue, first: Operation, last: Operation) -> bool:
        """Whether a commit may have forgotten a lease of *first* before *last* was answered."""
        return any(seek.began < last.ended and seek.over > first.began for seek in self.seeks.get(queue, ()))


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(leased messages * log)."""
    facts = _Facts(history, end)
    return [Violation("leases", text) for text in (*_ids(facts), *_holders(facts), *_dropped(facts))]


def _ids(facts: _Facts) -> Iterator[str]:
    owners: dict[int, _Grant] = {}
    for grant in facts.all_grants:
        other = owners.setdefault(grant.lease, grant)
        if other.operation is not grant.operation or other.held.deadline_ms != grant.held.deadline_ms:
            yield f"lease {grant.lease} was given twice: {other.operation} and {grant.operation}"
    by_id = sorted(owners.values(), key=lambda grant: grant.lease)
    for earlier, later in pairwise(by_id):
        if later.granted_ms < earlier.granted_ms:
            yield f"the group's time falls from {earlier.granted_ms} ({earlier.operation}) to {later.granted_ms} ({later.operation})"
    highest: _Grant | None = None
    ended = 0
    by_end = sorted(owners.values(), key=lambda grant: grant.operation.ended)
    for grant in sorted(owners.values(), key=lambda grant: grant.operation.began):
        while ended < len(by_end) and by_end[ended].operation.ended < grant.operation.began:
            if highest is None or by_end[ended].lease > highest.lease:
                highest = by_end[ended]
            ended += 1
        if highest is not None and grant.lease < highest.lease:
            yield f"lease {grant.lease} ({grant.operation}) comes after lease {highest.lease} ({highest.operation})"


def _may_have_settled(operation: Operation, status: int) -> bool:
    """Whether a row may have had its effect: a repeat is refused when an attempt before it has ended the lease."""
    return status in {SETTLED, -1} or operation.lost_attempts > 0


def _end_of(facts: _Facts, message: _Message, grant: _Grant) -> int:
    """The earliest group time at which the lease of *message* can end by itself."""
    end_ms = grant.held.deadline_ms
    possible = [end_ms]
    is_certain = True
    for operation, row, status in facts.settles.get((message, grant.lease), ()):
        if row.action != EXTEND or not _may_have_settled(operation, status):
            continue
        end_ms = max(grant.granted_ms, facts.time_before(operation.began)) + row.invisible_ms
        possible.append(end_ms)
        # An extension that may come at another time, or not at all, leaves all possibilities open.
        is_certain = is_certain and operation.over != LATER
    return end_ms if is_certain else min(possible)


def _holders(facts: _Facts) -> Iterator[str]:
    for message, grants in facts.grants.items():
        grants.sort(key=lambda grant: grant.lease)
        for first, second in pairwise(grants):
            if first.lease == second.lease:
                continue
            is_released = any(
                row.action == RELEASE and operation.began < second.operation.ended
                for operation, row, _ in facts.settles.get((message, first.lease), ())
            )
            if is_released or facts.is_sought(message[0], first.operation, second.operation):
                continue
            end_ms = _end_of(facts, message, first)
            if second.granted_ms < end_ms:
                yield (
                    f"{message} has two holders: until {end_ms} {first.operation}, from {second.granted_ms} {second.operation}"
                )
            if second.held.attempt <= first.held.attempt:
                yield f"{message} is attempt {second.held.attempt} again: {first.operation} and {second.operation}"


def _dropped(facts: _Facts) -> Iterator[str]:
    """Settles that were refused though the lease ran."""
    by_began = sorted(facts.all_grants, key=lambda grant: grant.operation.began)
    begins = [grant.operation.began for grant in by_began]
    # The lowest group time of all grants from each one on: the time of anything before them is not above it.
    lowest: list[_Grant] = []
    for grant in reversed(by_began):
        lowest.append(grant if not lowest or grant.granted_ms < lowest[-1].granted_ms else lowest[-1])
    lowest.reverse()
    for message, grants in facts.grants.items():
        for grant in grants:
            settles = facts.settles.get((message, grant.lease), ())
            refused = [operation for operation, _, status in settles if not _may_have_settled(operation, status)]
            is_ended = any(
                row.action in {ACK, RELEASE} and _may_have_settled(operation, status)
                for operation, row, status in settles
            )
            (_, topic, queue), offset = message
            if not refused or is_ended or offset < facts.oldest.get((topic, queue), 0):
                continue
            end_ms = _end_of(facts, message, grant)
            for operation in refused:
                later = bisect_right(begins, operation.ended)
                shown = lowest[later] if later < len(lowest) else None
                if (
                    shown is not None
                    and shown.granted_ms < end_ms
                    and not facts.is_sought(message[0], grant.operation, operation)
                ):
                    yield f"{operation} refuses {message} until {end_ms} of {grant.operation}, yet {shown.operation}"
