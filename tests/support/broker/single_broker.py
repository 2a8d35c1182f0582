"""A broker of one node without network, threads or consensus: the real store, state machine, proposer and trimmer; time is the test's."""

import errno
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tern_broker.core import StateMachine, saving
from tern_broker.core.applied import Applied
from tern_broker.core.clock import range_of
from tern_broker.core.delivery.picking import ReceiveRequest
from tern_broker.proposal import Proposal
from tern_broker.proposer import Proposer
from tern_broker.upkeep.timer_delivery import TimerDelivery, apply_timers, recall_payload
from tern_broker.upkeep.topic_files import drop_topics
from tern_broker.upkeep.trimmer import Trimmer
from tern_store import EntryKind, Files, Genesis, LogMark, Store, StoreLimits
from tern_store.half_message_keys import index_committed
from tern_store.retention import RetentionRules
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.rows import ACK, NO_KEY, QUEUE_ENTRIES, SEND_ROW, SETTLE_ROW, QueueAppend, QueueAppends
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.layout import AT_STORE_STAMP
from tern_wire.records.properties import KEYS, MESSAGE_ID, TAGS, encode_properties
from tern_wire.records.read import decode_record
from tern_wire.records.write import encode_record

DIRECTORY = Path("/data")
GROUP = Genesis(b"g" * 16, ("a",), 1 << 16)
LIMITS = StoreLimits(
    entry_size_max_bytes=1 << 15,
    recent_max_bytes=0,
    queue_entries_per_file=128,
    index_slots=64,
    index_entries_per_file=256,
)
HOUR_MS = 3_600_000


class SingleBroker:
    """Opened on what *files* hold; every proposal is durable and applied before the call returns."""

    def __init__(self, files: Files, *, rules: RetentionRules | None = None, group: Genesis = GROUP) -> None:
        self.files, self.group = files, group
        self.store = Store.open(DIRECTORY, group=group, accepts=saving.is_known, limits=LIMITS, files=files)
        self.state = saving.load(self.store.payload) if self.store.payload is not None else StateMachine()
        self.soon: deque[Callable[[], None]] = deque()
        self.mono_ms = 0
        self.lost: list[tuple[int, int, int, int]] = []
        self.failures: list[Exception] = []
        # What was asked for later, in the order of asking: when (ms of `mono_ms`), and what.
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.proposer = Proposer(
            broker_group="broker-a",
            state=lambda: self.state,
            read_queue=self.store.read_queue,
            propose=self._propose,
            is_serving=lambda: True,
            leader=lambda: "a",
            node="a",
            mono_ms=lambda: self.mono_ms,
            clocks=lambda: range_of([1_000_000_000_000 + self.mono_ms], 1),
            call_soon=self.soon.append,
        )
        self.is_serving = False  # not while the log is replayed
        self.timer_delivery = TimerDelivery(
            self.store,
            self.proposer,
            is_serving=lambda: self.is_serving,
            followed_ms=lambda: self.state.now_ms,
            call_later=self._call_later,
            fail=self.failures.append,
        )
        self.hour, self.now_s = 12, 0.0
        self.trimmer = Trimmer(
            rules or RetentionRules(), self.store, self.proposer, state=lambda: self.state, hour=lambda: self.hour
        )
        first = self.store.applied.index + 1 if self.store.applied is not None else self.store.log.first_index
        for index in range(first, self.store.log.end_index + 1):
            self._apply(index)
        self.is_serving = True

    # Requests --------------------------------------------------------------------------------------------------
    def ask(self, kind: CommandKind, payload: bytes) -> Any:
        """Propose one command; its verdict."""
        answers: list[Any] = []
        self.proposer.submit(
            Proposal(kind, len(payload), lambda verdict, _: answers.append(verdict), build=lambda _now: [payload])
        )
        self.run()
        (answer,) = answers
        return answer

    def create(self, topic: str = "t", queues: int = 2, group: str = "g") -> tuple[int, int]:
        """A topic and a group; their ids."""
        topic_id = self.ask(CommandKind.CREATE_TOPIC, encode_msgpack({"topic": topic, "queues": queues}))["topic_id"]
        request = {"group": group, "invisible_ms": 60_000, "start": "earliest"}
        return topic_id, self.ask(CommandKind.CREATE_GROUP, encode_msgpack(request))["group_id"]

    def send(
        self,
        topic: str,
        *messages: tuple[int, bytes],
        tag: str = "",
        keys: str = "",
        deliver_ms: int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> Any:
        """Send (queue, body) in one entry, to be delivered at *deliver_ms*, with *properties* of any name; the verdicts."""
        rows, records = [], []
        for number, (queue, body) in enumerate(messages):
            unique = f"{self.store.log.end_index:016X}{number:016X}"
            pairs = [(MESSAGE_ID, unique)] + [(name, text) for name, text in ((KEYS, keys), (TAGS, tag)) if text]
            pairs += (properties or {}).items()
            record = encode_record(topic.encode(), queue, body, encode_properties(pairs), born_ms=5)
            # As the leader stamps it when the entry is built.
            record = record[:AT_STORE_STAMP] + self.proposer.now_ms().to_bytes(8, "big") + record[AT_STORE_STAMP + 8 :]
            crc = int.from_bytes(record[8:12], "big")
            topic_id = self.state.names.topics[topic].topic_id
            rows.append(
                SEND_ROW.pack(
                    *(len(record), topic_id, queue, 0, tag_hash(tag) if tag else 0, crc, 0, NO_KEY, deliver_ms, 0)
                )
            )
            records.append(record)
        return self.ask(CommandKind.SEND, SEND_HEAD.pack(len(rows), 0) + b"".join(rows) + b"".join(records))

    def receive(
        self, topic: str = "t", group: str = "g", messages_max: int = 32
    ) -> list[tuple[tuple[int, ...], bytes]]:
        """Lease and read; each message's settle row for an ack, and its body."""
        found: list[tuple[tuple[int, ...], bytes]] = []

        def done(verdicts: Any, picks: list[Any]) -> None:
            for pick, (lease, _, _) in zip(picks, verdicts.tolist() if verdicts is not None else (), strict=False):
                if lease:
                    for offset, body in zip(pick.offsets.tolist(), self.bodies(pick.entries), strict=True):
                        found.append(((pick.row[0], pick.row[1], pick.row[2], ACK, offset, lease, 0), body))

        request = ReceiveRequest(
            group=self.state.names.groups[group],
            topic=self.state.names.topics[topic],
            messages_max=messages_max,
            size_max_bytes=1 << 20,
            invisible_ms=60_000,
            first_queue=0,
        )
        self.proposer.submit(Proposal(CommandKind.LEASE, 64, done, receive=request))
        self.run()
        return found

    def ack(self, *rows: tuple[int, ...]) -> bytes:
        """Settle what `receive` gave."""
        answer: bytes = self.ask(CommandKind.SETTLE, b"".join(SETTLE_ROW.pack(*row) for row in rows))
        return answer

    def pull(self, topic_id: int, queue: int, offset: int, count: int = 1000) -> list[bytes]:
        """The bodies from *offset* on."""
        return self.bodies(self.store.read_queue(topic_id, queue, offset, count))

    def bodies(self, entries: Any) -> list[bytes]:
        """Read the records that *entries* name."""
        sizes = entries["size"].astype(np.int64)
        data = self.store.log.read_records(entries["position"].astype(np.int64), sizes)
        return [decode_record(data, int(start)).body for start in np.cumsum(sizes) - sizes]

    def deliver_again(self, topic_id: int, queue: int, entry: Any) -> int:
        """Make a stored record visible (again) behind the queue's end, as a fired timer or a dead letter does; its offset.

        The command for it comes with delayed messages: here its effect is made on an empty entry, so it is not replayed.
        """
        stored = self.store.log.entry(self.store.log.end_index)
        topic = self.state.names.topics_by_id[topic_id]
        offset, topic.ends[queue] = topic.ends[queue], topic.ends[queue] + 1
        append = QueueAppend(topic_id, queue, offset, np.array([entry], QUEUE_ENTRIES))
        self.store.dispatch(stored, QueueAppends.of([append]), {topic_id: topic.name.encode()}, self.state.now_ms)
        return offset

    # Time and files --------------------------------------------------------------------------------------------
    def pass_time(self, ms: int) -> None:
        """The group's time moves on, with an entry that says so."""
        self.proposer.tick()  # its clock begins with its first use
        self.mono_ms += ms
        self.ask(CommandKind.CREATE_TOPIC, encode_msgpack({"topic": "clock", "queues": 1}))

    def save(self) -> bool:
        """A saved state of now; False if the disk has no room for it."""
        index = self.store.log.end_index
        snapshot = saving.take(self.state)
        try:
            save = self.store.save(self.store.log.mark(index), lambda: saving.encode(snapshot))
        except OSError as error:
            assert error.errno == errno.ENOSPC
            return False
        self.store.saved(save, is_saved=(is_saved := save.run()))
        return is_saved

    def fill_segments(self, topic: str, count: int, queue: int = 0) -> None:
        """Send until *count* more segments have begun."""
        wanted = len(self.store.log.segment_bases) + count
        while len(self.store.log.segment_bases) < wanted:
            self.send(topic, (queue, bytes(4_000)))

    def retain(self, steps: int = 50) -> None:
        """Let retention do all that it wants to do now."""
        for _ in range(steps):
            self.now_s += 1e6
            self.trimmer.step(self.now_s, held_back=lambda: self.store.log.end_index)
            self.run()

    def run(self) -> None:
        """Let the proposer do everything that is due."""
        while self.soon or any(due_ms <= self.mono_ms for due_ms, _ in self.later):
            due = [callback for due_ms, callback in self.later if due_ms <= self.mono_ms]
            self.later = [item for item in self.later if item[0] > self.mono_ms]
            self.soon.extend(due)
            self.soon.popleft()()

    def close(self) -> None:
        """As a stop without a save."""
        self.store.close()

    def fire(self) -> None:
        """The leader looks for messages whose delivery time has come, as it does every few ms."""
        self.timer_delivery.step(0.0)
        self.run()

    def recall(self, topic: str, deliver_ms: int, timer_id: int) -> Any:
        """Take back a message that waits; the verdict."""
        answers: list[Any] = []
        where = (self.store, self.state.names.topics[topic], deliver_ms, timer_id)
        self.proposer.submit(
            Proposal(
                CommandKind.CANCEL_TIMER,
                128,
                lambda verdict, _: answers.append(verdict),
                build=lambda _now: [recall_payload(*where)],
            )
        )
        self.run()
        (answer,) = answers
        return answer

    def _call_later(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> None:
        self.later.append((self.mono_ms + delay_s * 1000, lambda: callback(*arguments)))

    def _propose(self, parts: Any, urgent: bool) -> tuple[int, int]:
        level = self.state.feature_level.level
        entry = self.store.log.append(EntryKind.COMMANDS, self.store.log.end_index + 1, 1, parts, level, urgent=urgent)
        job = self.store.log.take_sync()
        assert job is not None
        job.run()
        self.store.log.mark_synced(job)
        self.soon.appendleft(lambda: self._apply(entry.index))
        return entry.index, entry.term

    def _apply(self, index: int) -> None:
        entry = self.store.log.entry(index)
        if entry.position % self.group.segment_size_bytes == 0 and entry.position > self.store.log.start.position:
            snapshot = saving.take(self.state)
            self.store.save_boundary(
                self.store.log.mark(index - 1),
                lambda: saving.encode(snapshot),
                position=entry.position,
                now_ms=self.state.now_ms,
                ends=[[topic.topic_id, list(topic.ends)] for topic in self.state.names.topics_by_id.values()],
            ).run()
        applied = Applied()
        if entry.kind == EntryKind.COMMANDS:
            applied = self.state.apply(entry.body, entry.position + 48, entry.index, version=entry.version)
            names = {topic_id: topic.name.encode() for topic_id, topic in self.state.names.topics_by_id.items()}
            for appends in applied.appends:
                self.store.dispatch(entry, appends, names, self.state.now_ms)
            apply_timers(self.store, entry, applied, self.state.names)
            for records in applied.committed:
                index_committed(self.store, records, names, self.state.now_ms)
            drop_topics(self.store, applied.dropped_topics)
            for moves in applied.moves:
                self.store.move(entry, moves.rows, moves.positions, names, self.state.now_ms)
            if (trim := applied.trim) is not None:
                self.lost += trim.lost
                self.store.want_trim(LogMark(trim.index, trim.position, trim.crc, trim.term), trim.floors)
                job = self.store.wanted_trim()
                if job is not None:
                    job.run()
                    self.store.trimmed(job)
        self.proposer.applied(entry.index, entry.term, applied)
        self.timer_delivery.applied(applied)
