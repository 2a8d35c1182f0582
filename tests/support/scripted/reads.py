"""Reads by offset at a scripted broker: pulls, and the offsets of a topic."""

from collections.abc import Callable, Mapping
from typing import Any

from tern_wire.errors import OffsetExpired, QueueNotFound, TopicNotFound
from tern_wire.link.requests import RequestCode

Handler = Callable[[dict[str, Any], memoryview], tuple[dict[str, Any], bytes]]


class ScriptedReads:
    """*topics*: name -> (id, logs); *min_offsets*: the oldest offset kept by (topic, queue); both are the broker's and may change."""

    def __init__(
        self,
        broker_group: str,
        topics: Mapping[str, tuple[int, list[list[bytes]]]],
        min_offsets: Mapping[tuple[str, int], int],
    ) -> None:
        self._broker_group, self._topics, self._min_offsets = broker_group, topics, min_offsets

    def handlers(self) -> dict[RequestCode, Handler]:
        """As a scripted broker looks them up."""
        return {
            RequestCode.PULL: self._pull,
            RequestCode.PULL_ANYWHERE: self._pull,
            RequestCode.OFFSETS: self._offsets,
        }

    def _pull(self, head: dict[str, Any], _: memoryview) -> tuple[dict[str, Any], bytes]:
        topic, queue, offset = head["topic"], head["queue"], head["offset"]
        if topic not in self._topics:
            raise TopicNotFound(topic=topic)
        if queue >= len(self._topics[topic][1]):
            raise QueueNotFound(queue=f"{self._broker_group}:{queue}", topic=topic)
        log = self._topics[topic][1][queue]
        least = self._min_offsets.get((topic, queue), 0)
        if offset < least:
            raise OffsetExpired(offset=offset, min_offset=least)
        end = len(log) if head["end_offset"] < 0 else head["end_offset"]
        found = log[offset:end][: head["max_messages"]]
        reply = {"next_offset": offset + len(found), "min_offset": least, "max_offset": len(log)}
        return reply, b"".join(found)

    def _offsets(self, head: dict[str, Any], _: memoryview) -> tuple[dict[str, Any], bytes]:
        if head["topic"] not in self._topics:
            raise TopicNotFound(topic=head["topic"])
        logs = self._topics[head["topic"]][1]
        least = [self._min_offsets.get((head["topic"], queue), 0) for queue in range(len(logs))]
        # Of a time it knows only that everything is older.
        is_timed = head.get("time_ms", -1) >= 0
        rows = [[queue, least[queue], len(log), *([len(log)] if is_timed else [])] for queue, log in enumerate(logs)]
        return {"queues": rows}, b""
