"""Messages that wait for their delivery time: list and recall."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tern_broker.core.delivery.picking import Pick
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.proposal import Proposal
from tern_broker.upkeep.timer_delivery import recall_payload
from tern_remoting import Link
from tern_store.timers.buckets import TimerRows
from tern_store.timers.walk import TimerPage
from tern_wire.errors import TernError
from tern_wire.limits import RECEIVE_SIZE_MAX_BYTES
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import Parts, RequestCode
from tern_wire.link.scheduled import ListScheduled, Recall, Recalled, Scheduled, ScheduledMessage
from tern_wire.records.properties import KEYS, MESSAGE_ID, TAGS
from tern_wire.records.read import decode_record


class TimerRequests(Requests):
    """LIST_SCHEDULED, RECALL. Owner: the core loop."""

    reads = frozenset({RequestCode.LIST_SCHEDULED})

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [handler(ListScheduled, self._list), handler(Recall, self._recall)]

    def _list(self, link: Link, opaque: int, request: ListScheduled, _raw: memoryview) -> None:
        topic = self.topic(request.topic)
        # One more than requested shows whether there are more.
        page = TimerPage(
            request.begin_ms, request.end_ms, request.count + 1, topic_id=topic.topic_id, after=request.after
        )

        def steps() -> Iterator[None]:
            # The state and the buckets may change between two steps; a listed message was waiting
            # when it was read.
            for start_ms, rows in self._engine.store.timers.walk(page.begin_ms, page.end_ms):
                if not page.add(start_ms, rows):
                    break
                yield
            count = min(request.count, _fitting(page.rows))
            messages: list[ScheduledMessage] = []
            for row in page.rows[:count]:
                if (message := self._message(row)) is not None:
                    messages.append(message)
                yield
            last = page.rows[count - 1] if count < len(page.rows) else None
            behind = (int(last["deliver_ms"]), int(last["timer_id"])) if last is not None else None
            self.answer(link, opaque, Scheduled(messages=messages, next=behind))

        self.answer_in_turns(link, opaque, steps())

    def _message(self, row: Any) -> ScheduledMessage | None:
        """Return the list's entry of one message; None if it no longer waits."""
        # Other work ran in between: the message may have been delivered, or retention may have
        # moved its record.
        found = self._engine.store.timers.find(int(row["deliver_ms"]), int(row["timer_id"]))
        if not len(found):
            return None
        where, size = found["position"].astype(np.int64), found["size"].astype(np.int64)
        record = decode_record(self._engine.store.log.read_records(where, size))
        return ScheduledMessage(
            deliver_ms=int(row["deliver_ms"]),
            timer_id=int(row["timer_id"]),
            queue=int(row["queue"]),
            message_id=record.properties.get(MESSAGE_ID, ""),
            tag=record.properties.get(TAGS, ""),
            keys=record.properties.get(KEYS, ""),
            born_ms=record.born_ms,
            body_size_bytes=len(record.body),
        )

    def _recall(self, link: Link, opaque: int, request: Recall, _raw: memoryview) -> None:
        topic = self.topic(request.topic)

        def build(_now_ms: int) -> Parts:
            return [recall_payload(self._engine.store, topic, request.deliver_ms, request.timer_id)]

        def done(verdict: Any, _picks: list[Pick]) -> None:
            if isinstance(verdict, TernError):
                self.refuse(link, opaque, verdict)
            else:
                self.answer(link, opaque, Recalled(**verdict))

        self._engine.proposer.submit(Proposal(CommandKind.CANCEL_TIMER, 128, done, build=build))


def _fitting(rows: TimerRows) -> int:
    """Return how many of *rows* have records that fit into one answer; at least one."""
    total = np.cumsum(rows["size"].astype(np.int64))
    return max(1, int(np.searchsorted(total, RECEIVE_SIZE_MAX_BYTES, side="right")))
