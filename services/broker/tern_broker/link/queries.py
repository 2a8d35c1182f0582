"""Messages by id and by key, and one message's state for each group: looked up in the index, in
turns.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from tern_broker.core.dead_topics import ORIGINALS
from tern_broker.core.topics import Topic
from tern_broker.core.tracing import DEAD, SETTLED, state_of
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.reading.queries import FoundRecord, KeyQuery, filled_in, find_position
from tern_remoting import Link
from tern_store.index.key_index import Place
from tern_store.visibility_times import visible_at
from tern_wire.limits import RECEIVE_SIZE_MAX_BYTES
from tern_wire.link.queries import FindMessages, FoundMessages, TracedGroup, TracedMessage, TraceMessage
from tern_wire.link.requests import RequestCode

_TIME_MAX_MS = (1 << 53) - 1


class QueryRequests(Requests):
    """QUERY, TRACE. Owner: the core loop."""

    reads = frozenset({RequestCode.QUERY, RequestCode.TRACE})

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [handler(FindMessages, self._query), handler(TraceMessage, self._trace)]

    def _query(self, link: Link, opaque: int, request: FindMessages, _raw: memoryview) -> None:
        query = KeyQuery(
            self._engine.store,
            self.topic(request.topic),
            request.key,
            request.begin_ms,
            request.end_ms,
            request.count,
            RECEIVE_SIZE_MAX_BYTES,
            request.after,
        )

        def steps() -> Iterator[None]:
            yield from query.steps()
            found = FoundMessages(
                places=[one.place for one in query.found], next=query.next, truncated=query.is_truncated
            )
            self.answer(link, opaque, found, [filled_in(one) for one in query.found])

        self.answer_in_turns(link, opaque, steps())

    def _trace(self, link: Link, opaque: int, request: TraceMessage, _raw: memoryview) -> None:
        topic = self.topic(request.topic)

        def steps() -> Iterator[None]:
            found: FoundRecord | None = None
            after: Place | None = None
            while found is None:
                query = KeyQuery(
                    *(self._engine.store, topic, request.message_id, 0, _TIME_MAX_MS, 1, RECEIVE_SIZE_MAX_BYTES, after)
                )
                yield from query.steps()
                found, after = query.found[0] if query.found else None, query.next
                if after is None:
                    break
            if found is None:
                self.answer(link, opaque, TracedMessage(found=False))
                return
            traced, settled = self._traced(topic, found)
            for group_id, number in settled:
                dead = self._engine.state.leasing.dead_topics.of(group_id)
                if dead is not None:
                    # Nothing is copied: a dead letter is a queue entry that points at the same
                    # record.
                    dead_offset = yield from find_position(self._engine.store, dead, ORIGINALS, found.position)
                    if dead_offset >= 0:
                        traced.groups[number] = replace(
                            traced.groups[number], state=DEAD, dead_letter_offset=dead_offset
                        )
            self.answer(link, opaque, traced, [filled_in(found)])

        self.answer_in_turns(link, opaque, steps())

    def _traced(self, topic: Topic, found: FoundRecord) -> tuple[TracedMessage, list[tuple[int, int]]]:
        """Return the message's trace from the index and the state, and (group id, index in the
        trace) of groups that have settled it.
        """
        queue, offset = found.record.queue, found.offset
        state = self._engine.state
        groups: list[tuple[TracedGroup, int]] = []
        for (group_id, topic_id), row in state.leasing.deliveries.items():
            if topic_id == topic.topic_id and offset >= 0:
                where = state_of(row[queue] if queue < len(row) else None, offset)
                groups.append((TracedGroup(group=state.names.groups_by_id[group_id].name, **where), group_id))
        groups.sort(key=lambda one: one[0].group)
        is_listed = topic.mins[queue] <= offset < topic.ends[queue]
        traced = TracedMessage(
            found=True,
            queue=queue,
            offset=offset,
            visible_ms=visible_at(self._engine.store, topic.topic_id, queue, offset) if is_listed else 0,
            groups=[group for group, _ in groups],
        )
        return traced, [(group_id, number) for number, (group, group_id) in enumerate(groups) if group.state == SETTLED]
