"""A broker for tests of the simulator's clients: the real door, proposer and state machine over a log in memory, no disk, no peers.

Its connections are bad on purpose: `loss` of the requests are lost, and as many of the replies. Owner: the test.
"""

from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from tern_broker.config import BrokerConfig
from tern_broker.core import StateMachine, saving
from tern_broker.engine import Engine
from tern_broker.link_door import LinkDoor
from tern_broker.proposer import Proposer
from tern_broker.reader import Messages
from tern_remoting import Frame, Link
from tern_wire.record import Record, decode_record, fill_in, record_starts
from tern_wire.requests import Parts, RequestCode, body_parts
from tern_wire.rows import QUEUE_ENTRIES
from tests.sim.asking import Answer, Told
from tests.sim.bodies import read_records
from tests.sim.history import EndState, LogRow, NodeEnd, QueueEnd
from tests.sim.scheduler import Scheduler

ROUND_TRIP_S = 0.002
NODE = "broker-a-0"
LEADER = SimpleNamespace(is_serving=True, is_leader=True, leader=NODE, when_current=lambda ready: ready(True))


@dataclass(slots=True)
class MemoryEngine:
    """What LinkDoor uses of an Engine. Every entry is applied one round trip after it was proposed."""

    scheduler: Scheduler
    state: StateMachine = field(default_factory=StateMachine)
    log: bytearray = field(default_factory=bytearray)
    rows: list[LogRow] = field(default_factory=list)
    queues: dict[tuple[int, int], Any] = field(default_factory=dict)
    on_applied: list[Any] = field(default_factory=list)
    on_clock: list[Any] = field(default_factory=list)
    raft: Any = field(default_factory=lambda: LEADER)
    proposer: Proposer = field(init=False)

    def __post_init__(self) -> None:
        self.proposer = Proposer(
            broker_group="broker-a",
            state=lambda: self.state,
            read_queue=self.read_queue,
            propose=self._propose,
            is_serving=lambda: True,
            leader=lambda: NODE,
            node=NODE,
            mono_ms=lambda: int(self.scheduler.now_s * 1000),
            wall_ms=lambda: int(self.scheduler.now_s * 1000),
            call_soon=lambda step: self.scheduler.after(0.0, step),
        )
        self._tick()

    def _tick(self) -> None:
        self.proposer.tick()
        self.scheduler.after(0.05, self._tick)

    def _propose(self, parts: Parts, _version: int, _urgent: bool) -> tuple[int, int]:
        position = len(self.log)
        self.log += b"".join(parts)
        body = memoryview(bytes(self.log[position:]))
        index = len(self.rows) + 1
        self.rows.append(LogRow(index, 1, 0, position))
        self.scheduler.after(ROUND_TRIP_S, self.apply, body, position, index)
        return index, 1

    def apply(self, body: memoryview, position: int, index: int) -> None:
        """As every node does."""
        applied = self.state.apply(body, position)
        for appends in applied.appends:
            for append in appends:
                code = (append.topic_id, append.queue)
                before = self.queues.get(code, np.empty(0, QUEUE_ENTRIES))[: append.first_offset]
                self.queues[code] = np.concatenate([before, append.entries])
        self.proposer.applied(index, 1, applied)

    def read_queue(self, topic_id: int, queue: int, offset: int, count: int) -> Any:
        """Entries of a queue."""
        return self.queues.get((topic_id, queue), np.empty(0, QUEUE_ENTRIES))[offset : offset + count]

    def read_messages(self, _topic: Any, _queue: int, offsets: Any, entries: Any) -> Messages:
        """Records, filled in."""
        positions, sizes = entries["position"].astype(np.int64), entries["size"].astype(np.int64)
        data = bytearray().join(
            self.log[at : at + size] for at, size in zip(positions.tolist(), sizes.tolist(), strict=True)
        )
        fill_in(data, np.cumsum(sizes) - sizes, offsets, positions)
        return Messages(memoryview(data), offsets)

    def pull(self, topic: Any, queue: int, offset: int, end: int, messages_max: int, size_max_bytes: int) -> Messages:
        """Messages from *offset* on."""
        entries = self.read_queue(topic.topic_id, queue, offset, min(messages_max, max(0, end - offset)))
        fits = max(1, int(np.searchsorted(np.cumsum(entries["size"].astype(np.int64)), size_max_bytes, side="right")))
        entries = entries[:fits]
        return self.read_messages(topic, queue, np.arange(offset, offset + len(entries)), entries)

    def pull_records(self, topic: Any, queue: int, offset: int, count: int) -> list[Record]:
        """As pull, decoded."""
        found = self.pull(topic, queue, offset, offset + count, count, 1 << 20)
        return [decode_record(found.data, int(start)) for start in record_starts(found.data)]

    @property
    def reader(self) -> "MemoryEngine":
        """Who reads messages: this."""
        return self


class MemoryBroker:
    """Answers what clients ask, unless a connection fails first."""

    def __init__(self, scheduler: Scheduler, rng: Random, *, loss: float = 0.0) -> None:
        self._scheduler, self._rng, self.loss = scheduler, rng, loss
        self.engine = MemoryEngine(scheduler)
        config = SimpleNamespace(node=NODE, broker_group="broker-a", listen="127.0.0.1", link_port=10911)
        self.door = LinkDoor(
            cast(BrokerConfig, config), cast(Engine, self.engine), rng=Random(0), monotonic=lambda: scheduler.now_s
        )
        self.asked = 0

    def ask(self, _node: str, code: int, parts: Parts, timeout_s: float, told: Told) -> None:
        """tests.sim.asking.Ask."""
        self.asked += 1
        loses_request, loses_reply = self._rng.random() < self.loss, self._rng.random() < self.loss
        is_told = False

        def tell(answer: Answer | None) -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                told(answer)

        def reply(_opaque: int, answer_code: int, answer: Parts) -> bool:
            if not loses_reply:
                self._scheduler.after(ROUND_TRIP_S / 2, tell, Answer(answer_code, b"".join(answer)))
            return True

        if code == RequestCode.STATUS and not loses_request:
            reply(0, 0, body_parts({"role": "leader", "serving": True, "term": 1}))
        elif not loses_request:
            frame = Frame(code, 1, 0, "", b"".join(parts))
            link = cast(Link, SimpleNamespace(reply=reply))
            self._scheduler.after(ROUND_TRIP_S / 2, self.door.on_frame, link, frame)
        if loses_request or loses_reply:
            self._scheduler.after(timeout_s if self._rng.random() < 0.3 else ROUND_TRIP_S, tell, None)

    def end_state(self) -> EndState:
        """The only node, as a run's end reports it."""
        state, engine = self.engine.state, self.engine
        queues = {}
        for topic in state.names.topics.values():
            for queue, end in enumerate(topic.ends):
                entries = engine.read_queue(topic.topic_id, queue, 0, end)
                data = engine.read_messages(topic, queue, np.arange(len(entries)), entries).data
                queues[topic.name, queue] = QueueEnd(0, tuple(read_records(data)))
        node = NodeEnd(
            node=NODE,
            applied=len(engine.rows),
            commit=len(engine.rows),
            first_index=1,
            log=tuple(engine.rows),
            digest=b"".join(saving.encode(saving.take(state))).hex()[:64],
            queues=queues,
        )
        return EndState(nodes=(node,), is_drained=True)
