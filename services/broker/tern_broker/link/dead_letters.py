"""Dead letters of groups, as proxies ask for them: rejected by a consumer, browsed, purged, delivered again.

Here also begins what the leader does with them by itself: burying what has failed for the last time, and redrive tasks.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tern_broker.config import BrokerConfig
from tern_broker.core.dead_topics import NOTES
from tern_broker.core.delivery.picking import Pick
from tern_broker.core.topics import Topic
from tern_broker.engine import Engine
from tern_broker.link.requests import RequestHandler, Requests, bounded
from tern_broker.proposer import Proposal
from tern_broker.reading.dead_letter_reader import DeadLetterReader, Letter
from tern_broker.upkeep.burier import Burier
from tern_broker.upkeep.redriver import Redriver
from tern_broker.waiting.telling import tell
from tern_remoting import Link
from tern_wire.dead_letters import Selection
from tern_wire.errors import LinkBodyMalformed, TaskNotFound, TernError
from tern_wire.limits import (
    DEAD_LETTERS_PAGE_MAX,
    RECEIVE_SIZE_MAX_BYTES,
    REDRIVE_OFFSETS_MAX,
    REDRIVE_RATE_MAX_PER_S,
    SETTLE_ENTRIES_MAX,
)
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import ERROR, RequestCode, body_parts, error_parts
from tern_wire.records.record import host_bytes

_OFFSET_MAX = (1 << 62) - 1
# Notes that one request looks at before it says where to go on.
_SCANNED_MAX = 8 * DEAD_LETTERS_PAGE_MAX


class DeadLetterRequests(Requests):
    """DEAD_LETTER, DEAD_LETTERS, PURGE, REDRIVE. Owner: the core loop."""

    reads = frozenset({RequestCode.DEAD_LETTERS})

    def __init__(self, config: BrokerConfig, engine: Engine, *, monotonic: Callable[[], float]) -> None:
        super().__init__(config, engine)
        host = host_bytes(config.listen, config.link_port)
        self._reader = DeadLetterReader(engine.store, lambda: engine.state, host=host)
        burier = Burier(
            engine.proposer,
            self._reader,
            state=lambda: engine.state,
            is_serving=lambda: engine.raft.is_serving,
            monotonic=monotonic,
        )
        redriver = Redriver(engine.proposer, self._reader, state=lambda: engine.state, monotonic=monotonic)
        engine.on_lead += [burier.step, redriver.step]
        engine.on_applied.append(burier.applied)

    def handlers(self) -> dict[int, RequestHandler]:
        """As Requests."""
        return {
            RequestCode.DEAD_LETTER: self._dead_letter,
            RequestCode.DEAD_LETTERS: self._browse,
            RequestCode.PURGE: self._purge,
            RequestCode.REDRIVE: self._redrive,
        }

    def _dead_letter(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        rows = [[*(int(number) for number in numbers), str(reason)] for *numbers, reason in head["rows"]]
        if not 1 <= len(rows) <= SETTLE_ENTRIES_MAX or any(len(row) != 6 for row in rows):
            raise LinkBodyMalformed(reason=f"DEAD_LETTER of {len(rows)} rows")
        payload = encode_msgpack({"rows": rows})

        def done(verdict: Any, _picks: list[Pick]) -> None:
            if isinstance(verdict, TernError):
                link.reply(opaque, ERROR, error_parts(verdict))
            else:
                link.reply(opaque, 0, body_parts({}, [verdict]))

        proposal = Proposal(CommandKind.DEAD_LETTER, len(payload), done, build=lambda _now: [payload])
        self._engine.proposer.submit(proposal)

    def _purge(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        self.propose_map(link, opaque, CommandKind.PURGE, {"group": self.group(head["group"]).name})

    def _redrive(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        task_id = str(head["task"])
        if head["op"] == "start":
            selection = Selection.unpack(head["selection"])
            bounded(len(selection.offsets or ()), 0, REDRIVE_OFFSETS_MAX)
            request = {
                "op": "start",
                "task": task_id,
                "group": self.group(head["group"]).name,
                "selection": selection.pack(),
                "rate": bounded(head["rate"], 0, REDRIVE_RATE_MAX_PER_S),
                "dry_run": bool(head["dry_run"]),
            }
            self.propose_map(link, opaque, CommandKind.REDRIVE, request)
        elif head["op"] == "cancel":
            self.propose_map(link, opaque, CommandKind.REDRIVE, {"op": "cancel", "task": task_id})
        else:

            def ready(is_current: bool) -> None:
                task = partial(self._task, link, opaque, task_id, is_current=is_current)
                tell(task, partial(self.refuse, link, opaque))

            self._engine.raft.when_current(ready)

    def _task(self, link: Link, opaque: int, task_id: str, *, is_current: bool) -> None:
        task = self._engine.state.redriving.tasks.get(task_id)
        if not is_current:
            link.reply(opaque, ERROR, error_parts(self.not_leader()))
        elif task is None:
            link.reply(opaque, ERROR, error_parts(TaskNotFound(task=task_id[:80])))
        else:
            link.reply(opaque, 0, body_parts(task.pack()))

    # Browsing --------------------------------------------------------------------------------------------------
    def _browse(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        group_id = self.group(head["group"]).group_id
        offset = bounded(head["offset"], 0, _OFFSET_MAX)
        count = bounded(head["count"], 1, DEAD_LETTERS_PAGE_MAX)
        size_max = bounded(head["max_bytes"], 1, RECEIVE_SIZE_MAX_BYTES)
        selection = Selection.unpack({**head, "offsets": None})

        def steps() -> Iterator[None]:
            found: list[Letter] = []
            size, is_full = 0, False
            begin, end = self._bounds(group_id)
            at = begin = max(begin, offset)
            while at < end and at < begin + _SCANNED_MAX and not is_full:
                page_end = at + DEAD_LETTERS_PAGE_MAX
                for letter in self._reader.letters(group_id, at, DEAD_LETTERS_PAGE_MAX):
                    note = letter.note
                    if note is None or not selection.takes(note):
                        continue
                    size += int(letter.original["size"][0])
                    is_full = len(found) == count or (bool(found) and size > size_max)
                    if is_full:
                        page_end = letter.offset
                        break
                    found.append(letter)
                    page_end = max(page_end, letter.offset + 1)
                at = page_end
                yield
            reply = {
                "letters": [_row(letter) for letter in found],
                "next": at if at < end else -1,
                "count": self._engine.state.dead_letters.count(group_id),
            }
            link.reply(opaque, 0, body_parts(reply, [self._original(letter) for letter in found]))

        self.answer_in_turns(link, opaque, steps())

    def _bounds(self, group_id: int) -> tuple[int, int]:
        topic = self._engine.state.dead_letters.topics.of(group_id)
        return (topic.mins[NOTES], topic.ends[NOTES]) if topic is not None else (0, 0)

    def _original(self, letter: Letter) -> memoryview:
        """The original record, with the offset that it has in its own queue."""
        assert letter.note is not None
        origin = Topic(letter.note.topic_id, letter.note.topic)
        offsets = np.array([letter.note.offset], np.int64)
        return self._engine.reader.read_messages(origin, letter.note.queue, offsets, letter.original).data


def _row(letter: Letter) -> list[Any]:
    note = letter.note
    assert note is not None
    place = [letter.offset, note.topic, note.queue, note.offset]
    return [*place, note.attempts, note.cause, note.reason, note.died_ms, int(letter.original["size"][0])]
