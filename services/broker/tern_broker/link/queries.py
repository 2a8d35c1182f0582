"""Messages by id and by key, and where one message is for each group: looked for in the index, in turns."""

from collections.abc import Iterator
from typing import Any

from tern_broker.core.dead_topics import ORIGINALS
from tern_broker.core.topics import Topic
from tern_broker.core.tracing import DEAD, SETTLED, state_of
from tern_broker.link.requests import RequestHandler, Requests, bounded
from tern_broker.reading.queries import FoundRecord, KeyQuery, filled_in, find_position
from tern_remoting import Link
from tern_store.index.key_index import Place
from tern_store.kept_times import visible_at
from tern_wire.limits import QUERY_MESSAGES_MAX, RECEIVE_SIZE_MAX_BYTES
from tern_wire.link.requests import RequestCode, body_parts

_TIME_MAX_MS = (1 << 53) - 1
_PLACE_MAX = (1 << 63) - 1


class QueryRequests(Requests):
    """QUERY, TRACE. Owner: the core loop."""

    reads = frozenset({RequestCode.QUERY, RequestCode.TRACE})

    def handlers(self) -> dict[int, RequestHandler]:
        """As Requests."""
        return {RequestCode.QUERY: self._query, RequestCode.TRACE: self._trace}

    def _query(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        query = KeyQuery(
            self._engine.store,
            self.topic(head["topic"]),
            str(head["key"]),
            bounded(head["begin_ms"], 0, _TIME_MAX_MS),
            bounded(head["end_ms"], 0, _TIME_MAX_MS),
            bounded(head["count"], 1, QUERY_MESSAGES_MAX),
            RECEIVE_SIZE_MAX_BYTES,
            _place(head.get("after")),
        )

        def steps() -> Iterator[None]:
            yield from query.steps()
            reply = {
                "places": [list(found.place) for found in query.found],
                "next": list(query.next) if query.next is not None else None,
                "truncated": query.is_truncated,
            }
            link.reply(opaque, 0, body_parts(reply, [filled_in(found) for found in query.found]))

        self.answer_in_turns(link, opaque, steps())

    def _trace(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        topic, message_id = self.topic(head["topic"]), str(head["message_id"])

        def steps() -> Iterator[None]:
            found: FoundRecord | None = None
            after: Place | None = None
            while found is None:
                query = KeyQuery(
                    *(self._engine.store, topic, message_id, 0, _TIME_MAX_MS, 1, RECEIVE_SIZE_MAX_BYTES, after)
                )
                yield from query.steps()
                found, after = query.found[0] if query.found else None, query.next
                if after is None:
                    break
            if found is None:
                link.reply(opaque, 0, body_parts({"found": False}))
                return
            head, settled = self._traced(topic, found)
            for group_id, state in settled:
                dead = self._engine.state.leasing.dead_topics.of(group_id)
                if dead is not None:
                    # Nothing is copied: a dead letter is a queue entry that points at the same record.
                    dead_offset = yield from find_position(self._engine.store, dead, ORIGINALS, found.position)
                    if dead_offset >= 0:
                        state.update(state=DEAD, dead_letter_offset=dead_offset)
            link.reply(opaque, 0, body_parts(head, [filled_in(found)]))

        self.answer_in_turns(link, opaque, steps())

    def _traced(self, topic: Topic, found: FoundRecord) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
        """The reply's head, and (group id, entry in it) of groups that have settled the message, one way or another."""
        queue, offset = found.record.queue, found.offset
        state = self._engine.state
        groups: list[dict[str, Any]] = []
        settled: list[tuple[int, dict[str, Any]]] = []
        for (group_id, topic_id), row in state.leasing.deliveries.items():
            if topic_id == topic.topic_id and offset >= 0:
                one = state_of(row[queue] if queue < len(row) else None, offset)
                groups.append(one)
                one["group"] = state.names.groups_by_id[group_id].name
                if one["state"] == SETTLED:
                    settled.append((group_id, one))
        is_listed = topic.mins[queue] <= offset < topic.ends[queue]
        head = {
            "found": True,
            "queue": queue,
            "offset": offset,
            "visible_ms": visible_at(self._engine.store, topic.topic_id, queue, offset) if is_listed else 0,
            "groups": sorted(groups, key=lambda one: str(one["group"])),
        }
        return head, settled


def _place(value: Any) -> Place | None:
    if value is None:
        return None
    base, number = value
    return bounded(base, 0, _PLACE_MAX), bounded(number, 0, _PLACE_MAX)
