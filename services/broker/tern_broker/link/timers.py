"""Messages that wait for their delivery time: listed, recalled."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tern_broker.core.delivery.picking import Pick
from tern_broker.link.requests import RequestHandler, Requests, bounded
from tern_broker.proposer import Proposal
from tern_broker.upkeep.firer import recall_payload
from tern_remoting import Link
from tern_store.timers.buckets import TimerRows
from tern_store.timers.walk import TimerPage
from tern_wire.errors import TernError
from tern_wire.limits import RECEIVE_SIZE_MAX_BYTES, SCHEDULED_LISTED_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import ERROR, Parts, RequestCode, body_parts, error_parts
from tern_wire.records.record import KEYS, MESSAGE_ID, TAGS, decode_record

_TIME_MAX_MS = _ID_MAX = (1 << 62) - 1


class TimerRequests(Requests):
    """LIST_SCHEDULED, RECALL. Owner: the core loop."""

    reads = frozenset({RequestCode.LIST_SCHEDULED})

    def handlers(self) -> dict[int, RequestHandler]:
        """As Requests."""
        return {RequestCode.LIST_SCHEDULED: self._list, RequestCode.RECALL: self._recall}

    def _list(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        topic = self.topic(head)
        after = (bounded(head["after"][0], 0, _TIME_MAX_MS), bounded(head["after"][1], -1, _ID_MAX))
        page = TimerPage(
            bounded(head["begin_ms"], 0, _TIME_MAX_MS),
            bounded(head["end_ms"], 0, _TIME_MAX_MS),
            # One more tells whether there is more.
            bounded(head["count"], 1, SCHEDULED_LISTED_MAX) + 1,
            topic_id=topic.topic_id,
            after=after,
        )

        def steps() -> Iterator[None]:
            # In the state and the buckets others go on between two steps; what is listed has waited when it was looked at.
            for start_ms, rows in self._engine.store.timers.walk(page.begin_ms, page.end_ms):
                if not page.add(start_ms, rows):
                    break
                yield
            count = min(head["count"], _fitting(page.rows))
            messages: list[list[Any]] = []
            for row in page.rows[:count]:
                if (message := self._message(row)) is not None:
                    messages.append(message)
                yield
            last = page.rows[count - 1] if count < len(page.rows) else None
            behind = [int(last["deliver_ms"]), int(last["timer_id"])] if last is not None else None
            link.reply(opaque, 0, body_parts({"messages": messages, "next": behind}))

        self.answer_in_turns(link, opaque, steps())

    def _message(self, row: Any) -> list[Any] | None:
        """What the list says of one message; None if it does not wait any more."""
        # Others have had their turn since: it may have been delivered, or retention may have moved its record.
        found = self._engine.store.timers.find(int(row["deliver_ms"]), int(row["timer_id"]))
        if not len(found):
            return None
        where, size = found["position"].astype(np.int64), found["size"].astype(np.int64)
        record = decode_record(self._engine.store.log.read_records(where, size))
        return [
            *(int(row[name]) for name in ("deliver_ms", "timer_id", "queue")),
            record.properties.get(MESSAGE_ID, ""),
            record.properties.get(TAGS, ""),
            record.properties.get(KEYS, ""),
            record.born_ms,
            len(record.body),
        ]

    def _recall(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        topic = self.topic(head)
        deliver_ms = bounded(head["deliver_ms"], 0, _TIME_MAX_MS)
        timer_id = bounded(head["timer_id"], 0, _ID_MAX)

        def build(_now_ms: int) -> Parts:
            return [recall_payload(self._engine.store, topic, deliver_ms, timer_id)]

        def done(verdict: Any, _picks: list[Pick]) -> None:
            if isinstance(verdict, TernError):
                link.reply(opaque, ERROR, error_parts(verdict))
            else:
                link.reply(opaque, 0, body_parts(verdict))

        self._engine.proposer.submit(Proposal(CommandKind.CANCEL_TIMER, 128, done, build=build))


def _fitting(rows: TimerRows) -> int:
    """How many of *rows* have records that may be read for one answer: one in any case."""
    total = np.cumsum(rows["size"].astype(np.int64))
    return max(1, int(np.searchsorted(total, RECEIVE_SIZE_MAX_BYTES, side="right")))
