"""Apply redrives: tasks that deliver dead letters to their group again.

A task is part of the replicated state, and the leader carries it out in steps (redriver.py): it
reads the next dead letters, and proposes in one command which of them to redrive and the new
progress. So a proxy or leader that dies loses or repeats nothing: the next leader continues at the
same place, any proxy can report the progress or cancel the task, and a redriven dead letter is gone
for every other task.

A REDRIVE's map is one of

    {op: start, task, group, selection {topic, tag, reason, from_ms, to_ms, offsets}, rate, dry_run}
    {op: step, task, at, next, skipped, rows [[dead letter's offset, topic id, queue, offset,
     hash of its message group (0: none)], ...]}
    {op: cancel, task}

A step counts only if the task is still *at* that place. *offsets*: null, or the offsets to redrive;
*next* counts dead letters, or these offsets.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tern_broker.core.applied import Applied, Handler, read_map
from tern_broker.core.dead_letters.dead_letters import DeadLetters
from tern_broker.core.dead_topics import NOTES
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.topics import Names, Topic
from tern_wire.dead_letters import CANCELLED, DONE, LETTER_GONE, ORIGIN_GONE, REDRIVEN, RUNNING, Selection
from tern_wire.errors import LimitReached, LinkBodyMalformed, TaskNotFound
from tern_wire.limits import REDRIVE_FAILURES_MAX, REDRIVE_TASKS_MAX
from tern_wire.link.commands import CommandKind


@dataclass(slots=True, kw_only=True)
class RedriveTask:
    """One task. *next* of *begin* .. *end* is the leader's next position; times are the group's."""

    task_id: str
    group_id: int
    group: str
    selection: Selection
    rate: int
    dry_run: bool
    begin: int
    end: int
    next: int
    started_ms: int
    finished_ms: int = 0
    state: str = RUNNING
    redriven: int = 0
    skipped: int = 0
    failed: int = 0
    # [dead letter's offset, LETTER_GONE or ORIGIN_GONE] of the first that failed.
    failures: list[list[int]] = field(default_factory=list)

    def pack(self) -> dict[str, Any]:
        """Return a frozen copy of MessagePack's types; the leader reports the task in the same
        form.
        """
        names = [name for name in self.__slots__ if name not in {"selection", "failures"}]
        packed: dict[str, Any] = {name: getattr(self, name) for name in names}
        return {**packed, "selection": self.selection.pack(), "failures": [list(failure) for failure in self.failures]}

    @classmethod
    def unpack(cls, packed: dict[str, Any]) -> "RedriveTask":
        """Restore an instance from *packed*."""
        return cls(**{**packed, "selection": Selection.unpack(packed["selection"])})


class Redriving:
    """The tasks: running ones and the last that ended. Owner: the state machine."""

    def __init__(self, names: Names, leasing: Leasing, letters: DeadLetters) -> None:
        self._names, self._leasing, self._letters = names, leasing, letters
        self.tasks: dict[str, RedriveTask] = {}

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.REDRIVE: self._redrive}

    def is_due(self, _now_ms: int) -> bool:
        """Return False: a task ends by a step, not by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """Do nothing: nothing here ends by itself."""

    def drop(self, applied: Applied, _topic_id: int, group_id: int) -> None:
        """Cancel the tasks of a deleted group (with *group_id* 0 a topic was deleted: nothing to
        do).
        """
        for task in self.tasks.values():
            if group_id and task.group_id == group_id:
                _finish(task, CANCELLED, applied.now_ms)

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return [task.pack() for task in self.tasks.values()]

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self.tasks = {task["task_id"]: RedriveTask.unpack(task) for task in packed}

    # Commands -------------------------------------------------------------------------------------
    def _redrive(self, payload: memoryview, _position: int, applied: Applied) -> dict[str, Any]:
        request = read_map(payload)
        if request["op"] == "start":
            return self._start(request, applied).pack()
        task = self.tasks.get(str(request["task"]))
        if task is None:
            raise TaskNotFound(task=str(request["task"])[:80])
        if request["op"] == "cancel":
            _finish(task, CANCELLED, applied.now_ms)
        elif task.state == RUNNING and task.next == int(request["at"]):
            self._step(task, request, applied)
        return task.pack()

    def _start(self, request: dict[str, Any], applied: Applied) -> RedriveTask:
        task_id, selection = str(request["task"]), Selection.unpack(request["selection"])
        rate, dry_run = int(request["rate"]), bool(request["dry_run"])
        if task_id in self.tasks:
            return self.tasks[task_id]  # a repeat, since the answer was lost
        group = self._letters.group(request["group"])
        self._make_room()
        dead = self._letters.topics.of(group.group_id)
        begin, end = (dead.mins[NOTES], dead.ends[NOTES]) if dead is not None else (0, 0)
        if selection.offsets is not None:
            begin, end = 0, len(selection.offsets)
        task = self.tasks[task_id] = RedriveTask(
            task_id=task_id,
            group_id=group.group_id,
            group=group.name,
            selection=selection,
            rate=rate,
            dry_run=dry_run,
            begin=begin,
            end=end,
            next=begin,
            started_ms=applied.now_ms,
        )
        if begin == end:
            _finish(task, DONE, applied.now_ms)
        return task

    def _make_room(self) -> None:
        """Remove the oldest task that has ended, if the limit is reached; LimitReached if all are
        running.
        """
        if len(self.tasks) >= REDRIVE_TASKS_MAX:
            ended = [task for task in self.tasks.values() if task.state != RUNNING]
            if not ended:
                raise LimitReached(what="running redrive tasks", actual=len(self.tasks), limit=REDRIVE_TASKS_MAX)
            del self.tasks[min(ended, key=lambda task: (task.finished_ms, task.task_id)).task_id]

    def _step(self, task: RedriveTask, request: dict[str, Any], applied: Applied) -> None:
        rows = [tuple(map(int, row)) for row in request["rows"]]
        if any(len(row) != 5 or not 0 <= row[4] < 1 << 64 for row in rows):
            raise LinkBodyMalformed(reason="a row of a redrive is five numbers, the last of them a hash")
        reached, skipped = int(request["next"]), int(request["skipped"])
        # From here on nothing is refused.
        task.next = min(max(task.next, reached), task.end)
        task.skipped += skipped
        dead_topic = self._letters.topics.of(task.group_id)
        taken: list[int] = []
        origins: dict[tuple[int, int], dict[int, int]] = {}
        for dead, topic_id, queue, offset, message_group in rows:
            status = (
                self._status(task.group_id, dead_topic, dead, topic_id, queue, offset)
                if dead not in taken
                else LETTER_GONE
            )
            if status == REDRIVEN:
                taken.append(dead)
                origins.setdefault((topic_id, queue), {})[offset] = message_group
            else:
                task.failed += 1
                if len(task.failures) < REDRIVE_FAILURES_MAX:
                    task.failures.append([dead, status])
        task.redriven += len(taken)
        if dead_topic is not None and taken and not task.dry_run:
            for (topic_id, queue), message_groups in origins.items():
                delivery = self._leasing.delivery(task.group_id, self._names.topics_by_id[topic_id], queue)
                offsets = np.unique(np.array(list(message_groups), np.int64))
                delivery.revive(offsets, self._leasing.next_id, message_groups)
                applied.woken_topics.add(topic_id)
            self._letters.take(task.group_id, dead_topic, taken)
        if task.next >= task.end:
            _finish(task, DONE, applied.now_ms)

    def _status(
        self, group_id: int, dead_topic: Topic | None, dead: int, topic_id: int, queue: int, offset: int
    ) -> int:
        if dead_topic is None or not self._letters.holds(dead_topic, group_id, dead):
            return LETTER_GONE
        topic = self._names.topics_by_id.get(topic_id)
        if topic is None or not 0 <= queue < topic.queues or not topic.mins[queue] <= offset < topic.ends[queue]:
            return ORIGIN_GONE
        return REDRIVEN


def _finish(task: RedriveTask, state: str, now_ms: int) -> None:
    if task.state == RUNNING:
        task.state, task.finished_ms = state, now_ms
