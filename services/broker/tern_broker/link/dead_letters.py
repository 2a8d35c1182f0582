"""Requests on dead letters of groups: reject, browse, purge, redrive.

This file also starts the leader's own work on dead letters: burials of messages that failed for the
last time, and redrive tasks.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import numpy as np

from tern_broker.config import BrokerConfig
from tern_broker.core.dead_topics import NOTES
from tern_broker.core.delivery.picking import Pick
from tern_broker.core.topics import Topic
from tern_broker.engine import Engine
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.proposal import Proposal
from tern_broker.reading.dead_letter_reader import DeadLetterReader, Letter
from tern_broker.upkeep.dead_letter_mover import DeadLetterMover
from tern_broker.upkeep.redriver import Redriver
from tern_broker.waiting.completion import tell
from tern_remoting import Link
from tern_wire.dead_letters import Selection
from tern_wire.errors import TaskNotFound, TernError
from tern_wire.limits import DEAD_LETTERS_PAGE_MAX
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.dead_letters.letters import (
    DeadLetter,
    DeadLetters,
    ListDeadLetters,
    Purged,
    PurgeDeadLetters,
    RejectMessages,
)
from tern_wire.link.dead_letters.redrive import CancelRedrive, GetRedrive, Redrive, RedriveTask, StartRedrive
from tern_wire.link.heads import Done
from tern_wire.link.requests import RequestCode
from tern_wire.records.hosts import host_bytes

# Notes that one request reads before it returns a place to continue at.
_SCANNED_MAX = 8 * DEAD_LETTERS_PAGE_MAX


class DeadLetterRequests(Requests):
    """DEAD_LETTER, DEAD_LETTERS, PURGE, REDRIVE. Owner: the core loop."""

    reads = frozenset({RequestCode.DEAD_LETTERS})

    def __init__(self, config: BrokerConfig, engine: Engine, *, monotonic: Callable[[], float]) -> None:
        super().__init__(config, engine)
        host = host_bytes(config.listen, config.link_port)
        self._reader = DeadLetterReader(engine.store, lambda: engine.state, host=host)
        mover = DeadLetterMover(
            engine.proposer,
            self._reader,
            state=lambda: engine.state,
            is_serving=lambda: engine.raft.is_serving,
            monotonic=monotonic,
        )
        redriver = Redriver(engine.proposer, self._reader, state=lambda: engine.state, monotonic=monotonic)
        engine.on_lead += [mover.step, redriver.step]
        engine.on_applied.append(mover.applied)

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [
            handler(RejectMessages, self._reject),
            handler(ListDeadLetters, self._browse),
            handler(PurgeDeadLetters, self._purge),
            Handler(RequestCode.REDRIVE, Redrive, self._redrive),
        ]

    def _reject(self, link: Link, opaque: int, request: RejectMessages, _raw: memoryview) -> None:
        rows = [[row.group_id, row.topic_id, row.queue, row.offset, row.lease, row.reason] for row in request.rows]
        payload = encode_msgpack({"rows": rows})

        def done(verdict: Any, _picks: list[Pick]) -> None:
            if isinstance(verdict, TernError):
                self.refuse(link, opaque, verdict)
            else:
                self.answer(link, opaque, Done(), [verdict])

        proposal = Proposal(CommandKind.DEAD_LETTER, len(payload), done, build=lambda _now: [payload])
        self._engine.proposer.submit(proposal)

    def _purge(self, link: Link, opaque: int, request: PurgeDeadLetters, _raw: memoryview) -> None:
        self.propose(link, opaque, CommandKind.PURGE, {"group": self.group(request.group).name}, Purged)

    def _redrive(self, link: Link, opaque: int, request: Redrive, _raw: memoryview) -> None:
        match request:
            case StartRedrive():
                start = {
                    "op": "start",
                    "task": request.task,
                    "group": self.group(request.group).name,
                    "selection": Selection.unpack(msgspec.structs.asdict(request.selection)).pack(),
                    "rate": request.rate,
                    "dry_run": request.dry_run,
                }
                self.propose(link, opaque, CommandKind.REDRIVE, start, RedriveTask)
            case CancelRedrive():
                cancel = {"op": "cancel", "task": request.task}
                self.propose(link, opaque, CommandKind.REDRIVE, cancel, RedriveTask)
            case GetRedrive():

                def ready(is_current: bool) -> None:
                    task = partial(self._task, link, opaque, request.task, is_current=is_current)
                    tell(task, partial(self.refuse, link, opaque))

                self._engine.raft.when_current(ready)

    def _task(self, link: Link, opaque: int, task_id: str, *, is_current: bool) -> None:
        task = self._engine.state.redriving.tasks.get(task_id)
        if not is_current:
            self.refuse(link, opaque, self.not_leader())
        elif task is None:
            self.refuse(link, opaque, TaskNotFound(task=task_id[:80]))
        else:
            self.answer(link, opaque, msgspec.convert(task.pack(), RedriveTask))

    # Browsing -------------------------------------------------------------------------------------
    def _browse(self, link: Link, opaque: int, request: ListDeadLetters, _raw: memoryview) -> None:
        group_id = self.group(request.group).group_id
        selection = Selection(
            topic=request.topic,
            tag=request.tag,
            reason=request.reason,
            from_ms=request.from_ms,
            to_ms=request.to_ms,
        )

        def steps() -> Iterator[None]:
            found: list[Letter] = []
            size, is_full = 0, False
            begin, end = self._bounds(group_id)
            at = begin = max(begin, request.offset)
            while at < end and at < begin + _SCANNED_MAX and not is_full:
                page_end = at + DEAD_LETTERS_PAGE_MAX
                for letter in self._reader.letters(group_id, at, DEAD_LETTERS_PAGE_MAX):
                    note = letter.note
                    if note is None or not selection.takes(note):
                        continue
                    size += int(letter.original["size"][0])
                    is_full = len(found) == request.count or (bool(found) and size > request.max_bytes)
                    if is_full:
                        page_end = letter.offset
                        break
                    found.append(letter)
                    page_end = max(page_end, letter.offset + 1)
                at = page_end
                yield
            reply = DeadLetters(
                letters=[_row(letter) for letter in found],
                next=at if at < end else -1,
                count=self._engine.state.dead_letters.count(group_id),
            )
            self.answer(link, opaque, reply, [self._original(letter) for letter in found])

        self.answer_in_turns(link, opaque, steps())

    def _bounds(self, group_id: int) -> tuple[int, int]:
        topic = self._engine.state.dead_letters.topics.of(group_id)
        return (topic.mins[NOTES], topic.ends[NOTES]) if topic is not None else (0, 0)

    def _original(self, letter: Letter) -> memoryview:
        """Return the original record, with its offset in its own queue."""
        assert letter.note is not None
        origin = Topic(letter.note.topic_id, letter.note.topic)
        offsets = np.array([letter.note.offset], np.int64)
        return self._engine.reader.read_messages(origin, letter.note.queue, offsets, letter.original).data


def _row(letter: Letter) -> DeadLetter:
    note = letter.note
    assert note is not None
    return DeadLetter(
        offset=letter.offset,
        topic=note.topic,
        queue=note.queue,
        origin_offset=note.offset,
        attempts=note.attempts,
        cause=note.cause,
        reason=note.reason,
        died_ms=note.died_ms,
        size_bytes=int(letter.original["size"][0]),
    )
