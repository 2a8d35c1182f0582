"""What a simulated client asks as bytes of the link protocol, and replies as values of the history. As a proxy does it."""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from tern_broker.core.delivery.repeated_receives import TOKEN_SIZE_BYTES
from tern_wire.link.requests import RequestCode, body_parts
from tern_wire.link.rows import SETTLE_ROW
from tests.sim.clients.bodies import read_records
from tests.sim.clients.publication_exchange import decode_publication, encode_publication
from tests.sim.clients.send_encoding import Request, encode_begin, encode_send, read_verdicts
from tests.sim.clients.transaction_exchange import decode_transaction, encode_transaction
from tests.sim.history.history import (
    REJECT,
    Answered,
    Asked,
    Browse,
    Browsed,
    CommitOffsets,
    Committed,
    Create,
    GroupOffsets,
    Held,
    Letter,
    Offsets,
    Pull,
    Pulled,
    QueueEnds,
    Read,
    Recall,
    Receive,
    Redrive,
    Seek,
    Send,
    Settle,
    Sought,
    Task,
)
from tests.sim.history.publication_values import GiveUp, PublishBatch, StageChunk
from tests.sim.history.transaction_values import Begin

RECEIVE_SIZE_BYTES = 256 * 1024
PULL_MESSAGES, PULL_SIZE_BYTES = 48, 64 * 1024
BROWSE_MESSAGES = 20
# What a consumer says of a message that it rejects.
REASON = "unreadable"
_ALL_LETTERS = {"topic": "", "tag": "", "reason": "", "from_ms": 0, "to_ms": 0}


@dataclass(slots=True)
class Exchange:
    """Translates. Owner: the clients; *ids* of topics, groups and producer groups come from the replies that created them."""

    ids: dict[str, int] = field(default_factory=dict)

    def encode(self, asked: Asked, operation: int, now_s: float) -> Request:
        """The request for *asked*; *operation* is its number in the history."""
        match asked:
            case Send():
                return encode_send(asked, operation, int(now_s * 1000))
            case Begin():
                return encode_begin(asked, operation, int(now_s * 1000))
            case Receive(group, topic, messages_max, invisible_ms, attempt):
                head = {"topic": topic, "group": group, "max_messages": messages_max, "max_bytes": RECEIVE_SIZE_BYTES}
                token = {"attempt_id": blake2b(attempt.encode(), digest_size=TOKEN_SIZE_BYTES).digest()}
                head |= {"invisible_ms": invisible_ms, **(token if attempt else {})}
                return Request(RequestCode.RECEIVE, body_parts(head), bool(attempt))
            case Settle(group, rows) if rows[0].action == REJECT:
                ids = self.ids
                dead = [[ids[group], ids[row.topic], row.queue, row.offset, row.lease, REASON] for row in rows]
                return Request(RequestCode.DEAD_LETTER, body_parts({"rows": dead}), True)
            case Settle(group, rows):
                ids, pack = self.ids, SETTLE_ROW.pack
                packed = b"".join(
                    [
                        pack(ids[group], ids[topic], queue, action, offset, lease, invisible_ms)
                        for topic, queue, offset, lease, action, invisible_ms in rows
                    ]
                )
                return Request(RequestCode.SETTLE, body_parts({"rows": len(rows)}, [packed]), True)
            case Pull(topic, queue, offset):
                head = {"topic": topic, "queue": queue, "offset": offset, "end_offset": -1}
                limits = {"max_messages": PULL_MESSAGES, "max_bytes": PULL_SIZE_BYTES}
                return Request(RequestCode.PULL, body_parts(head | limits), True)
            case Offsets(topic):
                return Request(RequestCode.OFFSETS, body_parts({"topic": topic}), True)
            case GroupOffsets(group, topic):
                return Request(RequestCode.GROUP_OFFSETS, body_parts({"group": group, "topic": topic}), True)
            case CommitOffsets(group, topic, offsets, expected):
                head = {
                    "group": group,
                    "topic": topic,
                    "offsets": {str(queue): offset for queue, offset in offsets},
                    "expected": {str(queue): offset for queue, offset in expected},
                }
                return Request(RequestCode.COMMIT_OFFSETS, body_parts(head), not expected)
            case Seek(group, topic, to, number):
                wanted = to if to in {"earliest", "latest"} else {"shift" if to == "shift" else "time_ms": number}
                head = {"group": group, "topic": topic, "to": wanted, "queues": None, "dry_run": False}
                return Request(RequestCode.SEEK, body_parts(head), False)
            case Recall(topic, _, deliver_ms, timer_id):
                head = {"topic": topic, "deliver_ms": deliver_ms, "timer_id": timer_id}
                return Request(RequestCode.RECALL, body_parts(head), False)
            case Browse(group, offset):
                head = {"group": group, "offset": offset, "count": BROWSE_MESSAGES, "max_bytes": PULL_SIZE_BYTES}
                return Request(RequestCode.DEAD_LETTERS, body_parts({**head, **_ALL_LETTERS}), True)
            case Redrive(_, task, True):
                return Request(RequestCode.REDRIVE, body_parts({"op": "get", "task": task}), True)
            case Redrive(group, task, _):
                head = {"op": "start", "task": task, "group": group, "rate": 0, "dry_run": False}
                return Request(
                    RequestCode.REDRIVE, body_parts(head | {"selection": {**_ALL_LETTERS, "offsets": None}}), True
                )
            case Create("topic", name, number, settings):
                head = {"topic": name, "queues": number, **dict(settings)}
                return Request(RequestCode.CREATE_TOPIC, body_parts(head), True)
            case Create("group", name, number, settings):
                head = {"group": name, "invisible_ms": number, "start": "earliest", **dict(settings)}
                return Request(RequestCode.CREATE_GROUP, body_parts(head), True)
            case Create(_, name, number, settings):
                head = {"producer_group": name, "create": True, "max_checks": number, **dict(settings)}
                return Request(RequestCode.ALTER_PRODUCER_GROUP, body_parts(head), True)
            case StageChunk() | PublishBatch() | GiveUp():
                return encode_publication(asked, operation, int(now_s * 1000))
            case _:
                return encode_transaction(asked, self.ids)

    def decode(self, asked: Asked, head: dict[str, Any], raw: memoryview) -> Answered:
        """What the reply to *asked* says."""
        match asked:
            case Send() | Begin():
                return read_verdicts(head, raw)
            case Receive():
                records = read_records(raw)
                return tuple(
                    [
                        Held(queue, stored.offset, lease, attempt, deadline_ms, stored.body_name)
                        for queue, lease, attempt, deadline_ms, count in head["runs"]
                        for _, stored in zip(range(count), records, strict=False)
                    ]
                )
            case Settle():
                return bytes(raw)
            case Pull():
                found = tuple([Read(row.offset, row.body_name, row.stored_ms) for row in read_records(raw)])
                return Pulled(head["next_offset"], head["min_offset"], head["max_offset"], found)
            case Offsets():
                return tuple([QueueEnds(*queue) for queue in head["queues"]])
            case GroupOffsets() | CommitOffsets():
                return tuple([Committed(int(queue), offset) for queue, offset in head["offsets"].items()])
            case Seek():
                return tuple([Sought(*queue) for queue in head["queues"]])
            case Recall():
                return None
            case Browse():
                names = [record.body_name for record in read_records(raw)]
                letters = [
                    Letter(offset, topic, queue, origin, attempts, cause, died_ms, name)
                    for (offset, topic, queue, origin, attempts, cause, _, died_ms, _), name in zip(
                        head["letters"], names, strict=True
                    )
                ]
                return Browsed(head["next"], head["count"], tuple(letters))
            case Redrive():
                return Task(head["state"], head["redriven"], head["failed"])
            case Create(what, name, _):
                self.ids[name] = head[f"{what}_id"]
                return None
            case StageChunk() | PublishBatch() | GiveUp():
                return decode_publication(asked, head)
            case _:
                return decode_transaction(asked, head, raw, self.ids)
