"""A proxy that keeps topics, leases and acks in memory, for tests of the load: what the scripted proxy answers with, and a fault of one's choice.

Only what the benches ask for. Faults: `loses` (acknowledges one message in 29 and does not store it), `repeats` (delivers some twice),
`forgets` (drops acks), `disorders` (message groups have no order), `withholds` (never delivers the eighth of a queue), `passes more`
(filters pass everything).
"""

import itertools
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zlib import crc32

from tern_wire.paths import HEADER_NEXT_OFFSET
from tern_wire.records.write import encode_record
from tests.support.client.scripted_proxy import Asked, Reply, packed, said


class ProxyInMemory:
    """Topics, groups and one *fault*. Owner: the scripted proxy that it answers for."""

    def __init__(self, fault: str = "") -> None:
        self._fault = fault
        # Messages of each queue of each topic; what each group has in hand (queue, number -> message group) and has acked.
        self._topics: dict[str, list[list[dict[str, Any]]]] = {}
        self._in_hand: dict[tuple[str, str], dict[tuple[int, int], str]] = {}
        self._acked: dict[tuple[str, str], set[tuple[int, int]]] = {}
        self._turn = itertools.count()

    def answer(self, asked: Asked) -> Reply:
        """Of whatever the benches ask; 404 for anything else."""
        split = urlsplit(asked.path)
        query = {name: texts[0] for name, texts in parse_qs(split.query).items()}
        match asked.method, split.path.split("/")[2:]:
            case "PUT", ["topics", topic]:
                self._topics.setdefault(topic, [[] for _ in range(asked.document.get("queues", 8))])
                return said({}, 201)
            case "PUT", ["groups", _]:
                return said({}, 201)
            case "POST", ["topics", topic, "messages"]:
                self._store(topic, [{"body": asked.body}])
                return said({}, 201)
            case "POST", ["topics", topic, "messages", "batch"]:
                messages = asked.document["messages"]
                self._store(topic, messages)
                return packed({"results": [{}] * len(messages), "failed": 0})
            case "GET", ["topics"]:
                rows = [{"topic": name} for name in sorted(self._topics) if query["q"] in name]
                return said({"topics": rows, "next_cursor": ""})
            case "GET", ["topics", topic, "offsets"]:
                return said({"queues": self._offsets(topic)})
            case "GET", ["groups", group, "offsets"]:
                return said({"offsets": self._committed(query["topic"], group)})
            case "GET", ["topics", topic, "queues", name, "messages"]:
                return self._pull(topic, int(name.partition(":")[2]), query)
            case "POST", ["topics", topic, "groups", group, "receive"]:
                return packed(self._receive(topic, group, asked.document))
            case "POST", ["topics", topic, "groups", group, "ack"]:
                self._ack(topic, group, asked.document["receipt_handles"])
                return said({"results": []})
        return said({}, 404)

    def _offsets(self, topic: str) -> list[dict[str, Any]]:
        now_ms = time.time_ns() // 1_000_000
        ends = [sum(message["due"] <= now_ms for message in queue) for queue in self._topics[topic]]
        return [{"queue": f"a:{number}", "min_offset": 0, "max_offset": end} for number, end in enumerate(ends)]

    def _pull(self, topic: str, number: int, query: dict[str, str]) -> Reply:
        offset, queue = int(query["offset"]), self._topics[topic][number]
        records = [encode_record(b"t", 0, m["body"], b"", born_ms=0) for m in queue[offset:] if self._passes(m, query)]
        return Reply(body=b"".join(records), headers={HEADER_NEXT_OFFSET: str(len(queue))})

    def _store(self, topic: str, messages: list[dict[str, Any]]) -> None:
        queues = self._topics[topic]
        for message in messages:
            number = next(self._turn)
            if self._fault == "loses" and number % 29 == 28:
                continue
            name = message.get("message_group", "")
            message["due"] = message.get("deliver_at", 0)
            queues[crc32(name.encode()) % len(queues) if name else number % len(queues)].append(message)

    def _receive(self, topic: str, group: str, asked: dict[str, Any]) -> dict[str, Any]:
        settled = self._ack(topic, group, [entry["receipt_handle"] for entry in asked.get("settle", [])])
        in_hand, acked = self._in_hand[topic, group], self._acked[topic, group]
        blocked = set(in_hand.values()) - {""} if self._fault != "disorders" else set()
        found: list[dict[str, Any]] = []
        for number, queue in enumerate(self._topics[topic]):
            for offset, message in enumerate(queue):
                name = message.get("message_group", "")
                if len(found) == asked["max_messages"]:
                    break
                if (number, offset) in acked or (number, offset) in in_hand or name in blocked:
                    continue
                if not self._passes(message, asked.get("filter", {})) or (self._fault == "withholds" and offset == 7):
                    continue
                in_hand[number, offset] = name
                handle = f"{number}:{offset}"
                place = {"queue": f"a:{number}", "offset": offset, "receipt_handle": handle}
                found.append({**place, "body": message["body"]})
                if self._fault == "repeats" and offset % 50 == 0:
                    found.append(found[-1])
        if self._fault == "disorders":
            found.reverse()
        return {"messages": found, "settled": settled}

    def _ack(self, topic: str, group: str, handles: list[str]) -> list[dict[str, Any]]:
        in_hand = self._in_hand.setdefault((topic, group), {})
        acked = self._acked.setdefault((topic, group), set())
        for handle in handles:
            queue, offset = map(int, handle.split(":"))
            in_hand.pop((queue, offset), None)
            acked.add((queue, offset))
        if self._fault == "forgets" and acked:
            acked.pop()
        return [{} for _ in handles]

    def _committed(self, topic: str, group: str) -> dict[str, int]:
        acked = self._acked[topic, group]
        return {
            f"a:{number}": next(offset for offset in itertools.count() if (number, offset) not in acked)
            for number in range(len(self._topics[topic]))
        }

    def _passes(self, message: dict[str, Any], wanted: dict[str, str]) -> bool:
        if self._fault == "passes more":
            return True
        if "tags" in wanted:
            return bool(message["tag"] == wanted["tags"])
        if "sql" in wanted:
            properties = message["properties"]
            return properties["region"] == "eu" and 10 <= int(properties["price"]) <= 11
        return True
