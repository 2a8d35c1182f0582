"""Offsets of queues and groups, and groups that are moved to another place."""

from collections.abc import Iterable, Iterator
from typing import Any

from tern_broker.core.delivery.seeking import seek_moves
from tern_broker.core.topics import Topic
from tern_broker.link.requests import RequestHandler, Requests, bounded
from tern_remoting import Link
from tern_store.kept_times import offset_at
from tern_wire.limits import QUEUES_PER_TOPIC_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode, body_parts

_TIME_MAX_MS = (1 << 53) - 1
_SHIFT_MAX = (1 << 62) - 1


class OffsetRequests(Requests):
    """OFFSETS, GROUP_OFFSETS, SEEK. Owner: the core loop."""

    # SEEK too: a dry run is a read.
    reads = frozenset({RequestCode.OFFSETS, RequestCode.GROUP_OFFSETS, RequestCode.SEEK})

    def handlers(self) -> dict[int, RequestHandler]:
        """As Requests."""
        return {
            RequestCode.OFFSETS: self._offsets,
            RequestCode.GROUP_OFFSETS: self._group_offsets,
            RequestCode.SEEK: self._seek,
        }

    def _offsets(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        topic = self.topic(head["topic"])
        time_ms = bounded(head.get("time_ms", -1), -1, _TIME_MAX_MS)
        if time_ms < 0:
            queues = [[queue, topic.mins[queue], end] for queue, end in enumerate(topic.ends)]
            link.reply(opaque, 0, body_parts({"queues": queues}))
            return

        def steps() -> Iterator[None]:
            rows: list[list[int]] = []
            for queue, offset in self._offsets_at(topic, range(topic.queues), time_ms):
                rows.append([queue, topic.mins[queue], topic.ends[queue], offset])
                yield
            link.reply(opaque, 0, body_parts({"queues": rows}))

        self.answer_in_turns(link, opaque, steps())

    def _offsets_at(self, topic: Topic, queues: Iterable[int], time_ms: int) -> Iterator[tuple[int, int]]:
        """(queue, first offset that was visible at *time_ms* or later; the end if none was), one a step."""
        store = self._engine.store
        for queue in queues:
            least, end = topic.mins[queue], topic.ends[queue]
            yield queue, offset_at(store, topic.topic_id, queue, time_ms, least=least, end=end)

    def _group_offsets(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        topic, group = self.topic(head["topic"]), self.group(head["group"])
        row = self._engine.state.leasing.deliveries.get((group.group_id, topic.topic_id), [])
        offsets = {str(queue): delivery.committed() for queue, delivery in enumerate(row) if delivery is not None}
        link.reply(opaque, 0, body_parts({"offsets": offsets}))

    # Seek ------------------------------------------------------------------------------------------------------
    def _seek(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        topic = self.topic(head["topic"])
        self.group(head["group"])
        queues = head.get("queues")
        if queues is not None:
            queues = [self.queue(topic, queue) for queue in queues[:QUEUES_PER_TOPIC_MAX]]
        request = {"group": head["group"], "topic": head["topic"], "queues": queues, "to": head["to"]}
        is_dry, to = bool(head["dry_run"]), head["to"]
        if isinstance(to, dict) and "shift" in to:
            bounded(to["shift"], -_SHIFT_MAX, _SHIFT_MAX)
        if not (isinstance(to, dict) and "time_ms" in to):
            self._move(link, opaque, request, is_dry=is_dry)
            return
        time_ms = bounded(to["time_ms"], 0, _TIME_MAX_MS)

        def steps() -> Iterator[None]:
            # What was visible first at a time that has passed does not change until the entry is built; what retention drops, apply skips.
            offsets: dict[str, int] = {}
            for queue, offset in self._offsets_at(topic, queues or range(topic.queues), time_ms):
                offsets[str(queue)] = offset
                yield
            self._move(link, opaque, {**request, "to": {"offsets": offsets}}, is_dry=is_dry)

        self.answer_in_turns(link, opaque, steps())

    def _move(self, link: Link, opaque: int, request: dict[str, Any], *, is_dry: bool) -> None:
        if not is_dry:
            self.propose_map(link, opaque, CommandKind.SEEK, request)
            return
        topic, group = self.topic(request["topic"]), self.group(request["group"])
        row = self._engine.state.leasing.deliveries.get((group.group_id, topic.topic_id), [])
        moves = seek_moves(topic, group, row, request)
        link.reply(opaque, 0, body_parts({"queues": [[move.queue, move.before, move.after] for move in moves]}))
