"""What a scripted broker answers about messages, places and numbers: over its own logs, as a real one over its index."""

from collections.abc import Callable
from typing import Any

from tern_wire.errors import GroupNotFound, InvalidField, TopicNotFound
from tern_wire.link.requests import RequestCode
from tern_wire.records.properties import KEYS, MESSAGE_ID
from tern_wire.records.read import decode_record

Logs = dict[str, tuple[int, list[list[bytes]]]]
Answer = tuple[dict[str, Any], bytes]
_FLOW = {"messages": 0, "bytes": 0, "messages_per_s": 0.0, "bytes_per_s": 0.0}


class ScriptedQueries:
    """QUERY, TRACE, SEEK, TOPIC_STATS, GROUP_STATS. *committed*: (group, topic) to offsets by queue, as texts."""

    def __init__(self, topics: Logs, groups: dict[str, int], committed: dict[tuple[str, str], dict[str, int]]) -> None:
        self._topics, self._groups, self._committed = topics, groups, committed

    def handlers(self) -> dict[RequestCode, Callable[[dict[str, Any], memoryview], Answer]]:
        """By request."""
        return {
            RequestCode.QUERY: self._query,
            RequestCode.TRACE: self._trace,
            RequestCode.SEEK: self._seek,
            RequestCode.TOPIC_STATS: self._topic_stats,
            RequestCode.GROUP_STATS: self._group_stats,
        }

    def _logs(self, head: dict[str, Any]) -> list[list[bytes]]:
        if head["topic"] not in self._topics:
            raise TopicNotFound(topic=head["topic"])
        return self._topics[head["topic"]][1]

    def _check_group(self, head: dict[str, Any]) -> None:
        if head["group"] not in self._groups:
            raise GroupNotFound(group=head["group"])

    def _query(self, head: dict[str, Any], _: memoryview) -> Answer:
        """Places count a topic's messages over all queues; the newest is the last one of the last queue."""
        records = [record for log in self._logs(head) for record in log]
        number = head["after"][1] if head.get("after") is not None else len(records)
        places: list[list[int]] = []
        found = b""
        while number > 0 and len(places) < head["count"]:
            number -= 1
            properties = decode_record(records[number]).properties
            if head["key"] in {properties[MESSAGE_ID], *properties.get(KEYS, "").split(" ")}:
                places.append([7, number])
                found += records[number]
        return {"places": places, "next": [7, number] if number else None, "truncated": False}, found

    def _trace(self, head: dict[str, Any], _: memoryview) -> Answer:
        for queue, log in enumerate(self._logs(head)):
            for offset, record in enumerate(log):
                if decode_record(record).properties[MESSAGE_ID] == head["message_id"]:
                    groups = [{"group": group, "state": "waiting"} for group in sorted(self._groups)]
                    found = {"found": True, "queue": queue, "offset": offset, "visible_ms": 5, "groups": groups}
                    return found, record
        return {"found": False}, b""

    def _seek(self, head: dict[str, Any], _: memoryview) -> Answer:
        logs = self._logs(head)
        self._check_group(head)
        committed = self._committed.setdefault((head["group"], head["topic"]), {})
        to, rows = head["to"], []
        for queue in head.get("queues", range(len(logs))):
            before, end = committed.get(str(queue), -1), len(logs[queue])
            if isinstance(to, dict) and "offsets" in to and str(queue) not in to["offsets"]:
                continue
            after = {"earliest": 0, "latest": end}.get(to) if isinstance(to, str) else None
            if after is None:
                after = to["offsets"][str(queue)] if "offsets" in to else min(max(before + to.get("shift", 0), 0), end)
            if after > end:
                raise InvalidField(reason=f"offset {after} is not in 0..{end}", pointer=f"/to/offsets/{queue}")
            rows.append([queue, before, after])
        if not head["dry_run"]:
            committed.update({str(queue): after for queue, _, after in rows})
        return {"queues": rows}, b""

    def _topic_stats(self, head: dict[str, Any], _: memoryview) -> Answer:
        queues = [[queue, 0, len(log), 5 if log else 0, 0.5] for queue, log in enumerate(self._logs(head))]
        groups = sorted(self._groups)
        return {"in": _FLOW, "out": _FLOW, "groups": groups, "queues": queues, "scheduled": 7}, b""

    def _group_stats(self, head: dict[str, Any], _: memoryview) -> Answer:
        self._check_group(head)
        topics = []
        for topic in [head["topic"]] if "topic" in head else sorted(self._topics):
            queues = [[queue, -1, len(log), len(log), 7, 1, 0, 0] for queue, log in enumerate(self._topics[topic][1])]
            topics.append({"topic": topic, "queues": queues, "out": _FLOW, "again": _FLOW})
        return {"topics": topics, "dead_letters": 2}, b""
