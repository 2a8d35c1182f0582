"""Requests on offsets of queues and groups, and seeks.

A request for a topic's offsets may wait until one of its queues has grown. It is answered by the
leader from the applied state, as a pull is, so what it names can be read.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from tern_broker.config import BrokerConfig
from tern_broker.core.applied import Applied
from tern_broker.core.delivery.seeking import seek_moves
from tern_broker.core.topics import Topic
from tern_broker.engine import Engine
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.waiting.topic_waiters import TopicWaiters
from tern_remoting import Link
from tern_store.visibility_times import offset_at
from tern_wire.errors import TernError
from tern_wire.limits import QUEUES_PER_TOPIC_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.link.consumer_offsets import GroupMoved, GroupOffsets, ListGroupOffsets, SeekGroup, SeekMove, SeekTo
from tern_wire.link.pulls import ListOffsets, Offsets
from tern_wire.link.requests import RequestCode


class OffsetRequests(Requests):
    """OFFSETS, GROUP_OFFSETS, SEEK. Owner: the core loop."""

    # SEEK is included: a dry run is a read.
    reads = frozenset({RequestCode.OFFSETS, RequestCode.GROUP_OFFSETS, RequestCode.SEEK})

    def __init__(self, config: BrokerConfig, engine: Engine, *, monotonic: Callable[[], float]) -> None:
        super().__init__(config, engine)
        self._monotonic = monotonic
        self.parked = TopicWaiters()
        engine.on_applied.append(self._applied)
        engine.on_clock.append(self._sweep)

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [
            handler(ListOffsets, self._offsets),
            handler(ListGroupOffsets, self._group_offsets),
            handler(SeekGroup, self._seek),
        ]

    def _offsets(self, link: Link, opaque: int, request: ListOffsets, _raw: memoryview) -> None:
        topic, time_ms = self.topic(request.topic), request.time_ms
        if time_ms < 0:
            if not request.wait_ms or sum(topic.ends) != request.seen:
                self._answer_offsets(link, opaque, topic)
                return
            deadline_s = self._monotonic() + request.wait_ms / 1_000

            def woken(answer: bool | TernError) -> None:
                if isinstance(answer, TernError):
                    self.refuse(link, opaque, answer)
                else:
                    self._answer_offsets(link, opaque, self.topic(request.topic))

            self.parked.park_topic(topic.topic_id, deadline_s, woken)
            return

        def steps() -> Iterator[None]:
            rows: list[list[int]] = []
            for queue, offset in self._offsets_at(topic, range(topic.queues), time_ms):
                rows.append([queue, topic.mins[queue], topic.ends[queue], offset])
                yield
            self.answer(link, opaque, Offsets(queues=rows))

        self.answer_in_turns(link, opaque, steps())

    def _answer_offsets(self, link: Link, opaque: int, topic: Topic) -> None:
        queues = [[queue, topic.mins[queue], end] for queue, end in enumerate(topic.ends)]
        self.answer(link, opaque, Offsets(queues=queues))

    def _applied(self, applied: Applied) -> None:
        self.parked.applied(applied)
        if applied.metadata_changed:
            self.parked.refuse_gone(self._engine.state.names.topics_by_id.__contains__)

    def _sweep(self) -> None:
        if len(self.parked):
            if self._engine.raft.is_serving:
                self.parked.sweep(self._monotonic())
            else:
                self.parked.refuse_all(self.not_leader())

    def _offsets_at(self, topic: Topic, queues: Iterable[int], time_ms: int) -> Iterator[tuple[int, int]]:
        """Yield (queue, first offset visible at *time_ms* or later; the end if there is none), one
        queue a step.
        """
        store = self._engine.store
        for queue in queues:
            least, end = topic.mins[queue], topic.ends[queue]
            yield queue, offset_at(store, topic.topic_id, queue, time_ms, least=least, end=end)

    def _group_offsets(self, link: Link, opaque: int, request: ListGroupOffsets, _raw: memoryview) -> None:
        topic, group = self.topic(request.topic), self.group(request.group)
        row = self._engine.state.leasing.deliveries.get((group.group_id, topic.topic_id), [])
        offsets = {str(queue): delivery.committed() for queue, delivery in enumerate(row) if delivery is not None}
        self.answer(link, opaque, GroupOffsets(offsets=offsets))

    # Seek -----------------------------------------------------------------------------------------
    def _seek(self, link: Link, opaque: int, request: SeekGroup, _raw: memoryview) -> None:
        topic, queues = self.topic(request.topic), request.queues
        self.group(request.group)
        if queues is not None:
            queues = [self.queue(topic, queue) for queue in queues[:QUEUES_PER_TOPIC_MAX]]
        to, is_dry = request.to, request.dry_run
        command = {"group": request.group, "topic": request.topic, "queues": queues, "to": msgspec.to_builtins(to)}
        if not isinstance(to, SeekTo) or to.time_ms is None:
            self._move(link, opaque, command, is_dry=is_dry)
            return
        time_ms = to.time_ms

        def steps() -> Iterator[None]:
            # The first offset visible at a past time does not change until the entry is built;
            # apply skips offsets that retention drops.
            offsets: dict[str, int] = {}
            for queue, offset in self._offsets_at(topic, queues or range(topic.queues), time_ms):
                offsets[str(queue)] = offset
                yield
            self._move(link, opaque, {**command, "to": {"offsets": offsets}}, is_dry=is_dry)

        self.answer_in_turns(link, opaque, steps())

    def _move(self, link: Link, opaque: int, command: dict[str, Any], *, is_dry: bool) -> None:
        if not is_dry:
            self.propose(link, opaque, CommandKind.SEEK, command, GroupMoved)
            return
        topic, group = self.topic(command["topic"]), self.group(command["group"])
        row = self._engine.state.leasing.deliveries.get((group.group_id, topic.topic_id), [])
        moves = seek_moves(topic, group, row, command)
        self.answer(link, opaque, GroupMoved(queues=[SeekMove(move.queue, move.before, move.after) for move in moves]))
