"""A state machine with queries that stage and publish, without a log: what became visible is read from its queues."""

from typing import Any

from tern_broker.core import saving
from tern_broker.core.feature_level import PUBLICATIONS_LEVEL
from tern_wire.errors import TernError
from tern_wire.limits_publications import STAGE_LIFE_DEFAULT_MS
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.rows import NO_KEY, SEND_ROW, message_group_hash
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.write import encode_record
from tests.support.broker.entries import Log

# (topic id, queue, body, message group, delivery time in ms)
StagedMessage = tuple[int, int, bytes, bytes, int]


def stage_payload(messages: list[StagedMessage], head: dict[str, Any]) -> bytes:
    """A STAGE command's payload."""
    rows, records = [], []
    for topic_id, queue, body, group, deliver_ms in messages:
        record = encode_record(b"t", queue, body, b"", born_ms=5)
        crc, hashed = int.from_bytes(record[8:12], "big"), message_group_hash(group) if group else 0
        row = (len(record), topic_id, queue, 0, tag_hash("A"), crc, 0, NO_KEY, deliver_ms, hashed)
        rows.append(SEND_ROW.pack(*row))
        records.append(record)
    packed = encode_msgpack(head)
    return b"".join([SEND_HEAD.pack(len(rows), len(packed)), *rows, *records, packed])


class StagedLog(Log):
    """Topic t with four queues. Bodies of what is visible are kept by position."""

    def __init__(self, level: int = PUBLICATIONS_LEVEL) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        if level > 1:
            self.apply(1, (CommandKind.RAISE, encode_msgpack({"level": level})))
        self.topic, self.group = self.create(queues=4)
        self.bodies_at: dict[int, bytes] = {}

    def stage(
        self,
        *bodies: bytes,
        query: str = "q",
        batch: int = 0,
        partition: int = 0,
        attempt: int = 0,
        chunk: int = 0,
        **more: Any,
    ) -> Any:
        """Stage one chunk in queue *queue* (0); its verdict. *group*, *deliver_ms*: of all its messages."""
        queue, group, deliver_ms = more.pop("queue", 0), more.pop("group", b""), more.pop("deliver_ms", 0)
        topic = more.pop("topic", self.topic)
        messages = [(topic, queue, body, group, deliver_ms) for body in bodies]
        head = {
            "query": query,
            "owner": "me",
            "batch": batch,
            "partition": partition,
            "attempt": attempt,
            "chunk": chunk,
        }
        head |= {"life_ms": STAGE_LIFE_DEFAULT_MS, "lost": False, **more}
        payload = stage_payload(messages, head)
        position = self.position
        applied = self.apply(self.now_ms, (CommandKind.STAGE, payload))
        at = position + 24 + SEND_HEAD.size + len(messages) * SEND_ROW.size
        for body in bodies:
            self.bodies_at[at] = body
            at += len(encode_record(b"t", queue, body, b"", born_ms=5))
        return applied.verdicts[0]

    def publish(self, *stages: tuple[int, int, int], query: str = "q", batch: int = 0, **more: Any) -> Any:
        """Publish stages, (partition, attempt, rows); the verdict."""
        command = {"op": "publish", "query": query, "owner": "me", "batch": batch, "stages": stages}
        return self.command(**command | {"final": False, "lost": False, **more})

    def abandon(self, query: str = "q", batch: int = 0, owner: str | None = "me") -> Any:
        """Give a batch up; the verdict."""
        return self.command(op="abandon", query=query, batch=batch, owner=owner)

    def command(self, **command: Any) -> Any:
        """The verdict of a PUBLICATION."""
        self.applied = self.apply(self.now_ms, (CommandKind.PUBLICATION, encode_msgpack(command)))
        return self.applied.verdicts[0]

    def pass_ms(self, ms: int) -> None:
        """Time passes, and an entry says so."""
        self.now_ms += ms
        self.apply(self.now_ms)

    def visible(self, queue: int = 0) -> list[bytes]:
        """Bodies in a queue, in order."""
        return [self.bodies_at[position] for position, _, _ in self.queues.get((self.topic, queue), [])]

    def restart(self) -> None:
        """Go on with the state as it is saved and loaded."""
        self.state = saving.load(b"".join(saving.encode(saving.take(self.state))))


def code_of(verdict: Any) -> str:
    """The code of a refusal."""
    assert isinstance(verdict, TernError), verdict
    return verdict.code
