"""Entries for the state machine without a log: builds bodies, applies them, keeps queue entries in memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core import Applied, StateMachine
from tern_broker.core.delivery.picking import Pick, Picker, ReceiveRequest, lease_rows
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind, entry_parts
from tern_wire.link.rows import ACK, FLAG_KEYED, NO_KEY, QUEUE_ENTRIES, SEND_ROW, SETTLE_ROW, key_hash
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.write import encode_record


class Log:
    """A state machine and what it stored. Time is given with every call."""

    def __init__(self) -> None:
        self.state = StateMachine()
        self.position = 100
        self.queues: dict[tuple[int, int], list[Any]] = {}
        self.bodies: list[bytes] = []

    def apply(self, now_ms: int, *commands: tuple[CommandKind, bytes]) -> Applied:
        """One entry of *commands*, written for the group's feature level."""
        body = b"".join(entry_parts(now_ms, [(kind, [payload]) for kind, payload in commands]))
        self.bodies.append(body)
        applied = self.state.apply(
            memoryview(body), self.position, len(self.bodies), version=self.state.feature_level.level
        )
        self.position += len(body)
        for append in (append for appends in applied.appends for append in appends):
            queue = self.queues.setdefault((append.topic_id, append.queue), [])
            assert len(queue) == append.first_offset
            queue.extend(append.entries.tolist())
        return applied

    def create(self, topic: str = "t", queues: int = 2, group: str = "g", start: str = "earliest") -> tuple[int, int]:
        """A topic and a group; their ids."""
        verdicts = self.apply(
            1,
            (CommandKind.CREATE_TOPIC, encode_msgpack({"topic": topic, "queues": queues})),
            (CommandKind.CREATE_GROUP, encode_msgpack({"group": group, "invisible_ms": 1000, "start": start})),
        ).verdicts
        topic_verdict, group_verdict = verdicts
        assert isinstance(topic_verdict, dict)
        assert isinstance(group_verdict, dict)
        return topic_verdict["topic_id"], group_verdict["group_id"]

    def send(self, now_ms: int, *messages: tuple[int, int, bytes, bytes]) -> npt.NDArray[Any]:
        """Send (topic id, queue, body, idempotency key or b""); the verdicts."""
        verdict = self.apply(now_ms, (CommandKind.SEND, send_payload(*messages))).verdicts[0]
        assert isinstance(verdict, np.ndarray), verdict
        return verdict

    def read(self, topic_id: int, queue: int, offset: int, count: int) -> npt.NDArray[Any]:
        """As ConsumeQueues.read."""
        return np.array(self.queues.get((topic_id, queue), [])[offset : offset + count], QUEUE_ENTRIES)

    def receive(
        self,
        now_ms: int,
        topic: str = "t",
        group: str = "g",
        look_up: Callable[[int], int] = lambda _queue: 0,
        token: bytes = b"",
        **limits: int,
    ) -> list[tuple[Pick, int, int]]:
        """Pick and lease; (pick, lease id, attempt) of what was granted."""
        request = ReceiveRequest(
            group=self.state.names.groups[group],
            topic=self.state.names.topics[topic],
            messages_max=limits.get("messages_max", 32),
            size_max_bytes=limits.get("size_max_bytes", 1 << 20),
            invisible_ms=limits.get("invisible_ms", 1000),
            first_queue=limits.get("first_queue", 0),
            look_up=look_up,
            token=token,
        )
        picks = Picker(self.state, self.read).pick(request)
        if not picks:
            return []
        verdict = self.apply(now_ms, (CommandKind.LEASE, lease_rows(picks))).verdicts[0]
        granted = zip(picks, verdict.tolist(), strict=True)  # type: ignore[union-attr]
        return [(pick, lease, attempt) for pick, (lease, _, attempt) in granted if lease]

    def settle(self, now_ms: int, *rows: tuple[int, int, int, int, int, int, int]) -> bytes:
        """Settle (group, topic, queue, action, offset, lease, invisible_ms); one status a row."""
        payload = b"".join(SETTLE_ROW.pack(*row) for row in rows)
        verdict = self.apply(now_ms, (CommandKind.SETTLE, payload)).verdicts[0]
        assert isinstance(verdict, bytes)
        return verdict

    def ack_all(self, now_ms: int, granted: list[tuple[Pick, int, int]]) -> bytes:
        """Ack everything of a receive."""
        rows = [
            (pick.row[0], pick.row[1], pick.row[2], ACK, int(offset), lease, 0)
            for pick, lease, _ in granted
            for offset in pick.offsets
        ]
        return self.settle(now_ms, *rows)


def send_payload(*messages: tuple[int, int, bytes, bytes]) -> bytes:
    """A SEND command's payload."""
    rows, records = [], []
    for topic_id, queue, body, key in messages:
        record = encode_record(b"t", queue, body, b"", born_ms=5)
        hashed = key_hash(b"t", key) if key else NO_KEY
        crc = int.from_bytes(record[8:12], "big")
        rows.append(
            SEND_ROW.pack(len(record), topic_id, queue, FLAG_KEYED if key else 0, tag_hash("A"), crc, 0, hashed, 0, 0)
        )
        records.append(record)
    return SEND_HEAD.pack(len(rows), 0) + b"".join(rows) + b"".join(records)
