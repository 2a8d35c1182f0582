"""Offsets: what a group has committed in a queue moved as nobody moved it. An observation is the value of a GROUP_OFFSETS, or
the expected value of an `ok` commit, or what an `ok` seek says it found; every commit is a seek.

Exactly: 1. an observation is never below an earlier one, or an earlier `ok` commit (over before it began), unless a commit to a lower
offset may have come in between; this is also how a stale read shows. 2. Two `ok` commits that expected the same offset and both moved on
from it need a commit back to it. 3. An observation is never above an offset that nobody can have settled by then: each offset below it was
acked, or passed by a commit, in an operation that had begun, or is a dead letter or has been dropped by retention at the end. 4. It is never above the queue's end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from tern_wire.link.rows import ACK, SETTLED
from tests.sim.checkers.grants import Movement, movements
from tests.sim.history.history import (
    LATER,
    CommitOffsets,
    EndState,
    GraveEnd,
    GroupOffsets,
    History,
    Operation,
    Seek,
    Settle,
    Violation,
)


@dataclass(slots=True)
class _Queue:
    """One group in one queue. *settled*: offset -> the first event at which an ack of it began."""

    # (value, operation): what was seen; what was committed or sought.
    seen: list[tuple[int, Operation]] = field(default_factory=list)
    commits: list[Movement] = field(default_factory=list)
    swaps: list[tuple[int, int, Operation]] = field(default_factory=list)
    settled: dict[int, int] = field(default_factory=dict)

    def lowest_between(self, after: Operation, before: Operation) -> int:
        """The lowest offset that another commit may have set after *after* had begun and before *before* was over."""
        others = [
            lowest
            for lowest, _, commit in self.commits
            if commit is not after
            and commit is not before
            and commit.began < before.ended
            and commit.over > after.began
        ]
        # A commit that was sent more than once may come in again after itself.
        if after.lost_attempts and isinstance(after.asked, CommitOffsets):
            others += [lowest for lowest, _, commit in self.commits if commit is after]
        return min(others, default=LATER)


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(observations² of a queue) at worst, linear while all is well."""
    queues = {key: _Queue(commits=moved) for key, moved in movements(history, end).items()}
    for operation in history.operations:
        _note(operation, queues)
    for group, grave in end.nodes[0].graves.items():
        _bury(grave, group, queues)
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    for place, held in end.nodes[0].queues.items():
        ends[place] = (held.min_offset, held.messages[-1].offset + 1 if held.messages else held.min_offset)
    return [
        Violation("offsets", f"{group} in {topic}:{queue}: {text}")
        for (group, topic, queue), known in queues.items()
        for text in (*_went_back(known), *_swapped_twice(known), *_skipped(known, *ends.get((topic, queue), (0, 0))))
    ]


def _note(operation: Operation, queues: dict[tuple[str, str, int], _Queue]) -> None:
    asked = operation.asked
    match asked:
        case GroupOffsets(group, topic) if operation.is_ok:
            for queue, offset in operation.committed:
                queues.setdefault((group, topic, queue), _Queue()).seen.append((offset, operation))
        case CommitOffsets(group, topic, offsets, expected) if operation.is_ok:
            wanted = dict(expected)
            for queue, offset in offsets:
                if queue in wanted:
                    known = queues[group, topic, queue]
                    known.seen.append((wanted[queue], operation))
                    known.swaps.append((wanted[queue], offset, operation))
        case Seek(group, topic, _, _) if operation.is_ok:
            for queue, before, _ in operation.sought:
                if before >= 0:
                    queues[group, topic, queue].seen.append((before, operation))
        case Settle(group, rows) if operation.may_have_happened:
            is_final = operation.is_ok and not operation.lost_attempts
            for number, row in enumerate(rows):
                if row.action == ACK and not (is_final and operation.statuses[number] != SETTLED):
                    known = queues.setdefault((group, row.topic, row.queue), _Queue())
                    known.settled[row.offset] = min(known.settled.get(row.offset, LATER), operation.began)


def _bury(grave: GraveEnd, group: str, queues: dict[tuple[str, str, int], _Queue]) -> None:
    """What died counts as settled, whenever that was. Where dead letters were dropped, nobody knows which."""
    for letter in grave.letters:
        queues.setdefault((group, letter.topic, letter.queue), _Queue()).settled[letter.origin] = 0


def _went_back(known: _Queue) -> Iterator[str]:
    facts = [(value, read) for value, read in known.seen if isinstance(read.asked, GroupOffsets)]
    facts += [(offset, commit) for offset, _, commit in known.commits if commit.is_ok]
    for value, observation in known.seen:
        for fact, earlier in facts:
            if (
                fact > value
                and earlier.ended < observation.began
                and known.lowest_between(earlier, observation) > value
            ):
                yield f"was {fact} ({earlier}), is {value} ({observation})"
                break


def _swapped_twice(known: _Queue) -> Iterator[str]:
    first: dict[int, Operation] = {}
    for expected, offset, operation in known.swaps:
        if offset <= expected:
            continue
        other = first.setdefault(expected, operation)
        if other is not operation and not any(back <= expected for back, _, _ in known.commits):
            yield f"moved on from {expected} twice: {other} and {operation}"


def _skipped(known: _Queue, oldest: int, end: int) -> Iterator[str]:
    top = max((value for value, _ in known.seen), default=0)
    events = [known.settled.get(offset, LATER) if offset >= oldest else 0 for offset in range(top)]
    for _, highest, commit in known.commits:
        events[:highest] = [min(event, commit.began) for event in events[:highest]]
    # When, at the earliest, everything up to an offset can have been settled.
    latest = list(accumulate(events, max))
    for value, observation in known.seen:
        if value > end:
            yield f"{value} is above the queue's end {end} ({observation})"
        elif value and latest[value - 1] >= observation.ended:
            missing = next(offset for offset, event in enumerate(events) if event >= observation.ended)
            yield f"is {value}, though nobody can have settled {missing} ({observation})"
