"""What the history says of leases, for all checkers that ask: who was granted what, how it was settled, what may have moved a group, and
what group time it was at the least.

A lease was granted at its deadline minus its invisible time. What an operation of unknown outcome may have done, it may have done.
"""

from bisect import bisect_right
from dataclasses import replace
from typing import NamedTuple

from tern_wire.errors import StorageDamaged
from tern_wire.limits import ATTEMPTS_DEFAULT
from tern_wire.link.rows import ACK, NACK, RELEASE, SETTLED
from tests.sim.history.history import (
    LATER,
    REJECT,
    CommitOffsets,
    Create,
    EndState,
    Held,
    History,
    Operation,
    Receive,
    Redrive,
    Seek,
    Settle,
    Settling,
)

# Group, topic and queue; and an offset in it.
Queue = tuple[str, str, int]
Message = tuple[Queue, int]


class Grant(NamedTuple):
    """One message of one lease."""

    lease: int
    granted_ms: int
    held: Held
    operation: Operation


class Settlement(NamedTuple):
    """One row of a settle that may have happened; *status* is -1 when nobody knows it."""

    operation: Operation
    row: Settling
    status: int

    @property
    def may_have_settled(self) -> bool:
        """Whether it may have had its effect: a repeat is refused when an attempt before it has ended the lease."""
        return self.status in {SETTLED, -1} or self.operation.lost_attempts > 0

    @property
    def is_certain(self) -> bool:
        """Whether it was done, once, before its operation ended."""
        return self.status == SETTLED and not self.operation.lost_attempts


class Movement(NamedTuple):
    """A group was, or may have been, moved to an offset between these two."""

    lowest: int
    highest: int
    operation: Operation


class Rules(NamedTuple):
    """What a group was declared with."""

    max_attempts: int
    delays_ms: tuple[int, ...]


class Facts:
    """Of one history; use `facts_of`."""

    def __init__(self, history: History, end: EndState) -> None:
        self.oldest = {place: held.min_offset for node in end.nodes for place, held in node.queues.items()}
        self.grants: dict[Message, list[Grant]] = {}
        self.all_grants: list[Grant] = []
        self.settles: dict[tuple[Message, int], list[Settlement]] = {}
        self.movements = movements(history, end)
        self.redrives: dict[str, list[Operation]] = {}
        self.rules: dict[str, Rules] = {}
        # (group, topic, attempt) -> the receives of that attempt that were answered, as they were asked.
        self.attempts: dict[tuple[str, str, str], list[Operation]] = {}
        # As above -> the first one whose answer nobody heard.
        self.unheard: dict[tuple[str, str, str], Operation] = {}
        # (group, topic) -> receives that may have leased what nobody saw.
        self.unseen: dict[tuple[str, str], list[Operation]] = {}
        for operation in history.operations:
            asked = operation.asked
            match asked:
                case Receive(group, topic, _, invisible_ms, attempt) if operation.is_ok:
                    if operation.lost_attempts:
                        self.unseen.setdefault((group, topic), []).append(operation)
                    repeated = self.attempts.setdefault((group, topic, attempt), []) if attempt else []
                    known = {held.lease for other in repeated for held in other.held}
                    repeated.append(operation)
                    # What is told for the first time may have been leased for one of the attempt that nobody heard the answer of.
                    unheard = self.unheard.get((group, topic, attempt))
                    granting = operation if unheard is None else replace(operation, began=unheard.began)
                    for held in operation.held:
                        if held.lease in known:
                            continue  # the same lease, told once more: see repeats.py
                        grant = Grant(held.lease, held.deadline_ms - invisible_ms, held, granting)
                        self.grants.setdefault(((group, topic, held.queue), held.offset), []).append(grant)
                        self.all_grants.append(grant)
                case Receive(group, topic, _, _, attempt):
                    if attempt and operation.may_have_happened:
                        self.unheard.setdefault((group, topic, attempt), operation)
                    if operation.may_have_happened or operation.error == StorageDamaged.code:
                        self.unseen.setdefault((group, topic), []).append(operation)
                case Settle(group, rows) if operation.may_have_happened:
                    for number, row in enumerate(rows):
                        key = (((group, row.topic, row.queue), row.offset), row.lease)
                        status = operation.statuses[number] if operation.is_ok else -1
                        self.settles.setdefault(key, []).append(Settlement(operation, row, status))
                case Redrive(group, _, False) if operation.may_have_happened:
                    self.redrives.setdefault(group, []).append(operation)
                case Create("group", group, _, settings):
                    said = dict(settings)
                    delays_ms = tuple(said.get("retry", {}).get("delays_ms", ()))
                    self.rules[group] = Rules(said.get("max_attempts", ATTEMPTS_DEFAULT), delays_ms)
        for grants in self.grants.values():
            grants.sort(key=lambda grant: grant.lease)
        self.all_grants.sort(key=lambda grant: grant.operation.ended)
        self._ends = [grant.operation.ended for grant in self.all_grants]
        self._times: list[int] = []
        for grant in self.all_grants:
            self._times.append(max(grant.granted_ms, self._times[-1] if self._times else 0))
        by_began = sorted(self.all_grants, key=lambda grant: grant.operation.began)
        self._begins = [grant.operation.began for grant in by_began]
        # The lowest group time of all grants from each one on: the time of anything before them is not above it.
        self._lowest: list[Grant] = []
        for grant in reversed(by_began):
            is_lower = not self._lowest or grant.granted_ms < self._lowest[-1].granted_ms
            self._lowest.append(grant if is_lower else self._lowest[-1])
        self._lowest.reverse()

    # Time ------------------------------------------------------------------------------------------------------
    def time_before(self, event: int) -> int:
        """The group's time is not below this when something that begins at *event* is applied."""
        at = bisect_right(self._ends, event)
        return self._times[at - 1] if at else 0

    def shown_after(self, event: int) -> Grant | None:
        """The grant that shows best how late it was, at the latest, when what had ended by *event* was applied; None if none does."""
        later = bisect_right(self._begins, event)
        return self._lowest[later] if later < len(self._lowest) else None

    # What may have happened between ----------------------------------------------------------------------------
    def is_moved(self, queue: Queue, first: Operation | None, last: Operation) -> bool:
        """Whether a commit or seek may have forgotten what *first* leased (None: anything) before *last* was answered."""
        began = first.began if first is not None else 0
        return any(
            moved.operation.began < last.ended and moved.operation.over > began
            for moved in self.movements.get(queue, ())
        )

    def unseen_between(self, message: Message, first: Grant | None, last: Grant) -> int:
        """How often at most the message may have been leased by somebody who was not heard, after *first* and before *last*."""
        (group, topic, _), _ = message
        receives = [other for other in self.unseen.get((group, topic), ()) if other.began < last.operation.ended]
        if not receives or first is None:
            return len(receives)
        shortest_ms = min(other.asked.invisible_ms for other in receives if isinstance(other.asked, Receive))
        return min(len(receives), max(0, last.granted_ms - first.granted_ms) // shortest_ms)

    def max_attempts(self, group: str) -> int:
        """How often the group tries."""
        return self.rules[group].max_attempts if group in self.rules else ATTEMPTS_DEFAULT

    def is_redriven(self, message: Message, first: Grant, last: Grant) -> bool:
        """Whether the message may have died after *first*, and been redriven before *last*."""
        redrives = self.redrives.get(message[0][0], ())
        return any(redrive.began < last.operation.ended for redrive in redrives) and self.may_have_died(
            message, first, last
        )

    def may_have_died(self, message: Message, first: Grant, last: Grant) -> bool:
        """Whether the message may have died after *first*, and before *last* (of any message)."""
        settles = self.settles.get((message, first.lease), ())
        if any(settled.row.action == REJECT for settled in settles):
            return True
        attempts = first.held.attempt + self.unseen_between(message, first, last)
        is_over = first.held.deadline_ms <= last.granted_ms or any(settled.row.action != ACK for settled in settles)
        return is_over and attempts >= self.max_attempts(message[0][0])

    def died_before(self, message: Message, now: Grant) -> bool:
        """Whether the message may have died before *now*, a lease of any message of its group, was granted."""
        earlier = [grant for grant in self.grants.get(message, ()) if grant.lease < now.lease]
        if not earlier:
            return self.unseen_between(message, None, now) >= self.max_attempts(message[0][0])
        return any(self.may_have_died(message, grant, now) for grant in earlier)

    def settled_as(self, message: Message, lease: int, *actions: int) -> list[Settlement]:
        """Rows that may have settled the message of that lease so."""
        return [
            settled
            for settled in self.settles.get((message, lease), ())
            if settled.row.action in actions and settled.may_have_settled
        ]

    def is_over(self, message: Message, grant: Grant, last: Operation, *actions: int) -> bool:
        """Whether the lease of *grant* may have been ended so before *last* was answered."""
        wanted = actions or (ACK, RELEASE, NACK, REJECT)
        return any(settled.operation.began < last.ended for settled in self.settled_as(message, grant.lease, *wanted))


def movements(history: History, end: EndState) -> dict[Queue, list[Movement]]:
    """What may have moved each group in each queue. A seek of unknown outcome may have led anywhere."""
    queues: dict[str, set[int]] = {}
    for node in end.nodes:
        for topic, queue in node.queues:
            queues.setdefault(topic, set()).add(queue)
    found: dict[Queue, list[Movement]] = {}
    for operation in history.operations:
        if not operation.may_have_happened:
            continue
        match operation.asked:
            case CommitOffsets(group, topic, offsets, _):
                for queue, offset in offsets:
                    found.setdefault((group, topic, queue), []).append(Movement(offset, offset, operation))
            case Seek(group, topic, _, _) if operation.is_ok:
                for queue, _, after in operation.sought:
                    found.setdefault((group, topic, queue), []).append(Movement(after, after, operation))
            case Seek(group, topic, _, _):
                for queue in sorted(queues.get(topic, ())):
                    found.setdefault((group, topic, queue), []).append(Movement(0, LATER, operation))
    return found


def facts_of(history: History, end: EndState) -> Facts:
    """The facts of one run as it is now. Several checkers ask in a row: the last answer is kept, as long as nothing is added."""
    kept = _KEPT[0] if _KEPT else None
    if kept is None or kept[0] is not history or kept[1] is not end or kept[2] != history.events:
        kept = (history, end, history.events, Facts(history, end))
        _KEPT[:] = [kept]
    return kept[3]


_KEPT: list[tuple[History, EndState, int, Facts]] = []
