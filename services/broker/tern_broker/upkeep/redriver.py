"""Carries out redrive tasks on the leader, a page of dead letters a step.

Law: a task's progress is in the replicated state alone (core/dead_letters/redriving.py); this file
keeps only the allowance of its rate.
"""

from collections.abc import Callable
from typing import Any

from tern_broker.core.dead_letters.redriving import RedriveTask
from tern_broker.core.dead_topics import NOTES
from tern_broker.core.delivery.fifo import FifoDelivery
from tern_broker.core.delivery.picking import Pick
from tern_broker.core.machine import StateMachine
from tern_broker.proposal import Proposal
from tern_broker.proposer import Proposer
from tern_broker.reading.dead_letter_reader import DeadLetterReader, Letter
from tern_wire.dead_letters import RUNNING
from tern_wire.errors import TernError
from tern_wire.limits import DEAD_LETTERS_PAGE_MAX, LEASED_PER_QUEUE_MAX
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import Parts
from tern_wire.link.rows import message_group_hash

# After a refusal.
PAUSE_S = 1.0
# An unused allowance does not grow beyond what this time brings: no burst after a pause.
ALLOWANCE_S = 0.25


class Redriver:
    """Owner: the core loop."""

    def __init__(
        self,
        proposer: Proposer,
        reader: DeadLetterReader,
        *,
        state: Callable[[], StateMachine],
        monotonic: Callable[[], float],
    ) -> None:
        self._proposer, self._reader, self._state, self._monotonic = proposer, reader, state, monotonic
        self._waiting: set[str] = set()
        # Task id -> when its allowance was computed (s), and the number of messages that it may
        # redrive now.
        self._allowed: dict[str, tuple[float, float]] = {}
        self._not_before_s = 0.0

    def step(self, now_s: float) -> None:
        """Propose the next steps of running tasks. Called every few ms on the leader."""
        tasks = self._state().redriving.tasks
        if len(self._allowed) > len(tasks):
            self._allowed = {key: value for key, value in self._allowed.items() if key in tasks}
        if now_s < self._not_before_s:
            return
        for task in tasks.values():
            if task.state == RUNNING and task.task_id not in self._waiting and (count := self._allowance(task, now_s)):
                self._propose(task.task_id, count)

    def _allowance(self, task: RedriveTask, now_s: float) -> int:
        if not task.rate:
            return DEAD_LETTERS_PAGE_MAX
        before_s, allowed = self._allowed.get(task.task_id, (now_s, 1.0))
        most = max(1.0, task.rate * ALLOWANCE_S)
        allowed = min(most, allowed + (now_s - before_s) * task.rate)
        self._allowed[task.task_id] = (now_s, allowed)
        return min(int(allowed), DEAD_LETTERS_PAGE_MAX)

    def _propose(self, task_id: str, count: int) -> None:
        self._waiting.add(task_id)
        taken = before = 0

        def build(_now_ms: int) -> Parts:
            nonlocal taken, before
            step = self._next(task_id, count)
            taken, before = len(step["rows"]), step["at"]
            return [encode_msgpack(step)]

        def done(verdict: Any, _picks: list[Pick]) -> None:
            self._waiting.discard(task_id)
            if isinstance(verdict, TernError):
                self._not_before_s = self._monotonic() + PAUSE_S
                return
            if task_id in self._allowed:
                at_s, allowed = self._allowed[task_id]
                self._allowed[task_id] = (at_s, allowed - taken)
            if verdict["state"] == RUNNING and verdict["next"] <= before:
                self._not_before_s = self._monotonic() + PAUSE_S  # no room in the group: its consumers make some
            elif verdict["state"] == RUNNING and not verdict["rate"]:
                self.step(self._monotonic())  # as fast as entries go

        self._proposer.submit(Proposal(CommandKind.REDRIVE, 64 * count, done, build=build, is_upkeep=True))

    def _next(self, task_id: str, count: int) -> dict[str, Any]:
        """Return the next step of a task: at most *count* dead letters of the next page."""
        task = self._state().redriving.tasks.get(task_id)
        if task is None or task.state != RUNNING:
            return {"op": "step", "task": task_id, "at": -1, "next": -1, "skipped": 0, "rows": []}
        rows: list[list[int]] = []
        planned: dict[tuple[int, int], int] = {}
        at, skipped = task.next, 0
        for index, letter in self._page(task, count):
            row = _row_of(letter)
            note = letter.note if isinstance(letter, Letter) else None
            if note is not None and task.selection.offsets is None and not task.selection.takes(note):
                at = index + 1
                skipped += 1
                continue
            if len(rows) == count or not self._has_room(task, row, planned):
                break
            rows.append(row)
            at = index + 1
        else:
            page = DEAD_LETTERS_PAGE_MAX if task.selection.offsets is None else count
            # Dead letters that were purged, redriven or dropped meanwhile are skipped.
            dead = self._state().dead_letters.topics.of(task.group_id)
            least = dead.mins[NOTES] if dead is not None and task.selection.offsets is None else 0
            at = min(task.end, max(at, task.next + page, least))
        return {"op": "step", "task": task_id, "at": task.next, "next": at, "skipped": skipped, "rows": rows}

    def _page(self, task: RedriveTask, count: int) -> list[tuple[int, Letter | int]]:
        """Return (place in the task, dead letter, or the offset of a missing one) of the next
        page.
        """
        if task.selection.offsets is None:
            room = min(DEAD_LETTERS_PAGE_MAX, task.end - task.next)
            return [
                (letter.offset, letter)
                for letter in self._reader.letters(task.group_id, task.next, room)
                if letter.offset < task.next + room
            ]
        page: list[tuple[int, Letter | int]] = []
        for index in range(task.next, min(task.end, task.next + count)):
            offset = task.selection.offsets[index]
            found = [letter for letter in self._reader.letters(task.group_id, offset, 1) if letter.offset == offset]
            page.append((index, found[0] if found else offset))
        return page

    def _has_room(self, task: RedriveTask, row: list[int], planned: dict[tuple[int, int], int]) -> bool:
        """Return whether the group may have one more unsettled message there: a redrive must not
        grow the state without bound.
        """
        _, topic_id, queue, *_ = row
        delivery = self._state().leasing.find(task.group_id, topic_id, queue)
        held = delivery.unsettled if delivery is not None else 0
        room = LEASED_PER_QUEUE_MAX - held
        if isinstance(delivery, FifoDelivery):
            room = min(LEASED_PER_QUEUE_MAX - len(delivery.in_hand), delivery.parked.room)
        planned[topic_id, queue] = planned.get((topic_id, queue), 0) + 1
        return planned[topic_id, queue] <= room


def _row_of(letter: Letter | int) -> list[int]:
    """Return a row of a step. Topic id 0 is no topic: apply reports what is wrong with the dead
    letter.
    """
    if isinstance(letter, int):
        return [letter, 0, 0, 0, 0]
    note = letter.note
    if note is None:
        return [letter.offset, 0, 0, 0, 0]
    hashed = message_group_hash(note.message_group.encode()) if note.message_group else 0
    return [letter.offset, note.topic_id, note.queue, note.offset, hashed]
