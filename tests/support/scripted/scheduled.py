"""What a scripted broker does with messages that wait: it keeps them, lists them, and forgets those that are recalled. None ever comes due."""

from collections.abc import Callable
from typing import Any

from tern_wire.errors import NotScheduled, TopicNotFound
from tern_wire.link.requests import RequestCode
from tern_wire.records.properties import KEYS, MESSAGE_ID, TAGS
from tern_wire.records.read import decode_record

Answer = tuple[dict[str, Any], bytes]


class ScriptedScheduled:
    """LIST_SCHEDULED, RECALL, and the timers that sends set. *topics*: the names that are known."""

    def __init__(self, topics: dict[str, Any]) -> None:
        self._topics = topics
        # Timer id -> topic, queue, time (ms), record; recalled ones stay in `all`.
        self.waiting: dict[int, tuple[str, int, int, bytes]] = {}
        self.all: dict[int, tuple[str, int, int, bytes]] = {}

    def handlers(self) -> dict[RequestCode, Callable[[dict[str, Any], memoryview], Answer]]:
        """By request."""
        return {RequestCode.LIST_SCHEDULED: self._list, RequestCode.RECALL: self._recall}

    def add(self, topic: str, queue: int, deliver_ms: int, record: bytes) -> int:
        """A message waits; its timer's id."""
        timer_id = 1_000 + len(self.all)
        self.all[timer_id] = self.waiting[timer_id] = (topic, queue, deliver_ms, record)
        return timer_id

    def _list(self, head: dict[str, Any], _raw: memoryview) -> Answer:
        if head["topic"] not in self._topics:
            raise TopicNotFound(topic=head["topic"])
        found = sorted(
            (deliver_ms, timer_id)
            for timer_id, (topic, _queue, deliver_ms, _record) in self.waiting.items()
            if topic == head["topic"] and head["begin_ms"] <= deliver_ms < head["end_ms"]
        )
        found = [place for place in found if place > tuple(head["after"])]
        shown = found[: head["count"]]
        messages = []
        for deliver_ms, timer_id in shown:
            _topic, queue, _ms, data = self.waiting[timer_id]
            record = decode_record(data)
            texts = [record.properties.get(name, "") for name in (MESSAGE_ID, TAGS, KEYS)]
            messages.append([deliver_ms, timer_id, queue, *texts, record.born_ms, len(record.body)])
        return {"messages": messages, "next": list(shown[-1]) if len(found) > len(shown) else None}, b""

    def _recall(self, head: dict[str, Any], _: memoryview) -> Answer:
        if self.waiting.pop(head["timer_id"], None) is None:
            raise NotScheduled(topic=head["topic"])
        return {"recalled": 1}, b""
