"""A state machine with message groups, without a log on disk: sends pass the broker's own check and its slots, receives its ordered picker."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tern_broker.core import Applied, StateMachine, saving
from tern_broker.core.delivery.fifo import FifoDelivery
from tern_broker.core.delivery.fifo_picking import FifoPick, FifoPicker, lease_fifo_payload
from tern_broker.core.delivery.picking import ReceiveRequest
from tern_broker.link.checked_send import check_send
from tern_broker.reading.message_groups import MessageGroups
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.rows import BURIED, BURY_ROWS, NO_KEY, SEND_ROW, message_group_hash
from tern_wire.link.sends import Send
from tern_wire.records.properties import MESSAGE_GROUP, encode_properties
from tern_wire.records.write import encode_record
from tests.support.broker.entries import Log


@dataclass(frozen=True, slots=True)
class Held:
    """One message that was received."""

    queue: int
    offset: int
    lease: int
    attempt: int
    deadline_ms: int


class FifoLog(Log):
    """As Log, with every entry's bytes, and one group that gets topic t in order."""

    def __init__(self, queues: int = 2) -> None:
        super().__init__()
        self._bytes = bytearray(self.position)
        self._rng = random.Random(1)
        # Another node's state: it gets the same entries.
        self.twin: StateMachine | None = None
        # Told what every entry did.
        self.heard: Callable[[Applied], None] = lambda _applied: None
        self.topic_id, self.group_id = self.create(queues=queues)
        self.topic, self.group = self.state.names.topics["t"], self.state.names.groups["g"]
        self.group.is_fifo = True

    def apply(self, now_ms: int, *commands: tuple[CommandKind, bytes]) -> Applied:
        """As Log."""
        position = self.position
        applied = super().apply(now_ms, *commands)
        if self.twin is not None:
            self.twin.apply(memoryview(self.bodies[-1]), position, len(self.bodies))
        self._bytes += self.bodies.pop()
        self.heard(applied)
        return applied

    def read_records(self, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> memoryview:
        """As CommitLog."""
        spans = zip(positions.tolist(), sizes.tolist(), strict=True)
        return memoryview(b"".join(bytes(self._bytes[at : at + size]) for at, size in spans))

    def send_grouped(self, now_ms: int, *messages: tuple[str, bytes]) -> list[tuple[int, int]]:
        """Send (message group or "", body); where each lies: queue and offset."""
        rows, records = [], []
        for message_group, body in messages:
            properties = encode_properties([(MESSAGE_GROUP, message_group)] if message_group else [])
            record = encode_record(b"t", 0, body, properties, born_ms=5)
            crc = int.from_bytes(record[8:12], "big")
            hashed = message_group_hash(message_group.encode()) if message_group else 0
            rows.append(SEND_ROW.pack(len(record), 0, 0, 0, 0, crc, 0, NO_KEY, 0, hashed))
            records.append(record)
        raw = memoryview(b"".join(rows + records))
        send = check_send(Send(topics=["t"], rows=len(rows)), raw, self.state, self._rng)
        verdicts = self.apply(now_ms, (CommandKind.SEND, b"".join(send.payload(now_ms, bytes(8))))).verdicts[0]
        assert isinstance(verdicts, np.ndarray)
        assert not verdicts["status"].any(), verdicts
        return list(zip(verdicts["queue"].tolist(), verdicts["offset"].tolist(), strict=True))

    def picker(self) -> FifoPicker:
        """For one entry."""
        return FifoPicker(self.state, self.read, MessageGroups(self.read_records).read)

    def request(self, *, messages_max: int = 32, size_max_bytes: int = 1 << 20, first_queue: int = 0) -> ReceiveRequest:
        """A receive of group g, invisible for a second."""
        names = self.state.names
        return ReceiveRequest(
            group=names.groups["g"],
            topic=names.topics["t"],
            messages_max=messages_max,
            size_max_bytes=size_max_bytes,
            invisible_ms=1_000,
            first_queue=first_queue,
        )

    def receive_in_order(
        self, now_ms: int, messages_max: int = 32, *, size_max_bytes: int = 1 << 20, first_queue: int = 0
    ) -> list[Held]:
        """What one receive gets; as at the broker, one that meets only blocked messages looks again."""
        while True:
            request = self.request(messages_max=messages_max, size_max_bytes=size_max_bytes, first_queue=first_queue)
            picks = self.picker().pick(request)
            if not picks:
                return []
            held = self.lease(now_ms, picks)
            if held or not any(pick.rows for pick in picks):
                return held

    def lease(self, now_ms: int, picks: list[FifoPick]) -> list[Held]:
        """Apply a LEASE_FIFO of *picks*; what it granted."""
        (held,) = self.lease_together(now_ms, [picks])
        return held

    def lease_together(
        self, now_ms: int, receives: list[list[FifoPick]], *before: tuple[CommandKind, bytes]
    ) -> list[list[Held]]:
        """One entry: the commands *before*, and then one LEASE_FIFO for each of *receives*; what each was granted."""
        leases = [(CommandKind.LEASE_FIFO, lease_fifo_payload(picks)) for picks in receives]
        verdicts = self.apply(now_ms, *before, *leases).verdicts[len(before) :]
        return [_granted(picks, verdict) for picks, verdict in zip(receives, verdicts, strict=True)]

    def settle_held(self, now_ms: int, action: int, held: list[Held], time_ms: int = 0) -> bytes:
        """One status each."""
        return self.settle(
            now_ms,
            *((self.group_id, self.topic_id, each.queue, action, each.offset, each.lease, time_ms) for each in held),
        )

    def bury(self, now_ms: int, queue: int, offset: int) -> bool:
        """As the leader does with what is dying, but for the record and the note; whether it was dying."""
        dead = self.state.leasing.dead_topics.of(self.group_id)
        rows = np.zeros(1, BURY_ROWS)
        rows["group"], rows["topic"], rows["queue"], rows["offset"] = self.group_id, self.topic_id, queue, offset
        rows["dead_topic"] = 0 if dead is None else dead.topic_id
        verdict = self.apply(now_ms, (CommandKind.BURY, SEND_HEAD.pack(1, 0) + rows.tobytes())).verdicts[0]
        return verdict == bytes([BURIED])

    def reject(self, now_ms: int, held: Held) -> bytes:
        """Dead-letter one message; one status."""
        row = [self.group_id, self.topic_id, held.queue, held.offset, held.lease, "no"]
        verdict = self.apply(now_ms, (CommandKind.DEAD_LETTER, encode_msgpack({"rows": [row]}))).verdicts[0]
        assert isinstance(verdict, bytes)
        return verdict

    def seek(self, now_ms: int, queue: int, offset: int) -> None:
        """The group goes on at *offset* of *queue*."""
        request = {"group": "g", "topic": "t", "offsets": {str(queue): offset}, "expected": {}}
        assert isinstance(self.apply(now_ms, (CommandKind.COMMIT_OFFSETS, encode_msgpack(request))).verdicts[0], dict)

    def grow(self, queues: int) -> None:
        """Add empty queues."""
        for state in self.nodes():
            state.names.grow(state.names.topics["t"], queues)

    def nodes(self) -> list[StateMachine]:
        """This one, and the twin."""
        return [self.state] if self.twin is None else [self.state, self.twin]

    def reload(self) -> None:
        """Save the state and load it again: it must be the same, byte for byte, and the same as the twin's."""
        saved = b"".join(saving.encode(saving.take(self.state)))
        if self.twin is not None:
            assert saved == b"".join(saving.encode(saving.take(self.twin)))
        self.state = saving.load(saved)
        assert saved == b"".join(saving.encode(saving.take(self.state)))
        self.topic, self.group = self.state.names.topics["t"], self.state.names.groups["g"]

    def has_begun(self, queue: int) -> bool:
        """Whether the group has."""
        return self.state.leasing.find(self.group_id, self.topic_id, queue) is not None

    def delivery(self, queue: int) -> FifoDelivery:
        """The group's, which has begun there."""
        found = self.state.leasing.deliveries[self.group_id, self.topic_id][queue]
        assert isinstance(found, FifoDelivery)
        return found


def _granted(picks: list[FifoPick], verdicts: object) -> list[Held]:
    assert isinstance(verdicts, np.ndarray), verdicts
    places = [(pick.row[2], offset) for pick in picks for offset in pick.offsets.tolist()]
    return [
        Held(queue, offset, lease, attempt, deadline_ms)
        for (queue, offset), (lease, deadline_ms, attempt) in zip(places, verdicts.tolist(), strict=True)
        if lease
    ]
