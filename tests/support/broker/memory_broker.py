"""One broker node in memory behind a real link: the real engine, store, state machine and link requests; no disk, no threads, no peers.

    proxy --LinkServer (127.0.0.1)--> MemoryBroker --> LinkDispatcher --> Engine on files in memory

A test may bend the link: scripted replies, requests held back, a process that stands still. The broker behind it is the one that ships.
Each node is a Raft group of one; two of them with the same broker group stand for members that have
not replicated anything yet, until `replicate` of `contents.py`.
"""

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pysyncobj.node import Node
from pysyncobj.syncobj import _RAFT_STATE

from tern_broker.config import BrokerConfig
from tern_broker.core.topics import Topic
from tern_broker.engine import Engine
from tern_broker.link.dispatcher import LinkDispatcher
from tern_broker.proposal import Proposal
from tern_broker.waiting.leadership_notices import LeadershipNotices
from tern_raft import RaftConfig
from tern_remoting import Frame, Link, LinkServer
from tern_store import StoreLimits
from tern_testing.node_runtime import Nobody
from tern_wire.errors import NotLeader, TernError
from tern_wire.limits import FRAME_SIZE_MAX_BYTES
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import ERROR, RequestCode, body_parts, error_parts, read_body
from tern_wire.link.rows import NACK, RELEASE, SETTLE_ROWS
from tests.support.broker import single_broker
from tests.support.broker.loop_runtime import LoopRuntime
from tests.support.broker.roomy_link import RoomyLink
from tests.support.files.faulty_files import FaultyFiles

# What a scripted reply is: an error, None for silence, or a function that does what it likes with the link.
Bend = TernError | None | Callable[[Link, Frame], None]
HOLDABLE = frozenset({RequestCode.SEND, RequestCode.SETTLE, RequestCode.END_TRANSACTIONS})
LIMITS = replace(single_broker.LIMITS, entry_size_max_bytes=1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallConfig(BrokerConfig):
    """A broker's settings with files so small that a node in memory opens in a few ms."""

    log_segment_bytes: int = 1 << 21

    def raft(self) -> RaftConfig:
        """The group's settings with small segments, which `--segment-size-bytes` refuses."""
        return replace(BrokerConfig.raft(self), segment_size_bytes=self.log_segment_bytes)

    def store_limits(self) -> StoreLimits:
        """Sizes for tests."""
        return replace(LIMITS, entry_size_max_bytes=self.log_segment_bytes // 2)


class _Notices(LeadershipNotices):
    is_silent = False

    def _tell(self, link: Link) -> None:
        if not self.is_silent:
            super()._tell(link)


class MemoryBroker:
    """Owner: one test. It leads its broker group once it has started, unless *leads* is False. Its
    clocks stand still but for `pass_time`, unless *follows_loop*.
    """

    def __init__(
        self,
        key: bytes,
        *,
        broker_group: str = "broker-a",
        node: str = "",
        leads: bool = True,
        log_segment_bytes: int = 1 << 21,
        follows_loop: bool = False,
    ) -> None:
        self.broker_group, self.node = broker_group, node or f"{broker_group}-0"
        self.runtime, self.files = LoopRuntime(follows_loop=follows_loop), FaultyFiles()
        config = SmallConfig(
            cluster="test",
            broker_group=broker_group,
            node=self.node,
            peers=(f"{self.node}=127.0.0.1:10912",),
            data_dir=Path("/data"),
            cluster_key_file=Path("key"),
            group_id="a" * 32,
            bootstrap=True,
            log_segment_bytes=log_segment_bytes,
        )
        self.engine = Engine(config, runtime=self.runtime, links=Nobody(), files=self.files, on_change=lambda: None)
        self.dispatcher = LinkDispatcher(
            config, self.engine, key=key, rng=random.Random(1), monotonic=self.runtime.waited
        )
        self._notices = _Notices(self.node, lambda: (self.term, self.leads))
        self.engine.on_role.append(self._notices.role_changed)
        self._stand(0.0)
        self.engine.begin()
        self.runtime.turn()
        assert self.engine.raft.is_serving, "a group of one leads at once"
        self._leads_at_start = leads
        self.asked: Counter[RequestCode] = Counter()
        # Every request that was served: its code, its head as a map, its raw bytes.
        self.requests: list[tuple[RequestCode, dict[str, Any], bytes]] = []
        self.held: deque[Callable[[], None]] = deque()
        self.is_holding = False
        # Like SIGSTOP: the connection stays, nothing is answered.
        self.is_paused = False
        self.frozen: list[tuple[Link, Frame]] = []
        # What its STATUS says instead of, or beside, the truth.
        self.facts: dict[str, Any] = {}
        self._bends: dict[RequestCode, deque[Bend]] = {}
        self.server = LinkServer(
            "127.0.0.1",
            0,
            key=key,
            name=self.node,
            group_id="",
            on_frame=self._on_frame,
            on_ready=self._notices.opened,
            on_lost=self._notices.lost,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
        )

    async def start(self) -> None:
        """Listen."""
        if not self._leads_at_start:
            self.resign()
        await self.server.start()

    async def stop(self) -> None:
        """Close the links and the files."""
        await self.server.stop()
        self.engine.finish(lambda: None)
        self.runtime.turn()
        # Others may hold this object for the rest of the process: FastAPI caches what an application was made of.
        self.files._disk.files.clear()

    # Bending the link -------------------------------------------------------------------------------------------
    def script(self, code: RequestCode, *bends: Bend) -> None:
        """Bend the next replies to *code*, one each."""
        self._bends.setdefault(code, deque()).extend(bends)

    def straighten(self, code: RequestCode) -> None:
        """Bend no reply to *code* any more."""
        self._bends.pop(code, None)

    def hold(self) -> None:
        """Keep all SEND, SETTLE and END_TRANSACTIONS requests waiting until `let_go`."""
        self.is_holding = True

    def let_go(self, count: int = 1_000_000) -> None:
        """Serve *count* of what was held."""
        while self.held and count > 0:
            self.held.popleft()()
            count -= 1
        if not self.held:
            self.is_holding = False

    def wake(self) -> None:
        """Paused no more: everything that came meanwhile is served now."""
        self.is_paused = False
        frozen, self.frozen = self.frozen, []
        for link, frame in frozen:
            self._on_frame(link, frame)

    def serve(self, link: Link, frame: Frame) -> None:
        """Serve one request as if nothing were bent."""
        code = RequestCode(frame.code)
        head, raw = read_body(frame.body)
        self.requests.append((code, head, bytes(raw)))
        if code == RequestCode.STATUS and self.facts:
            self.serve_changed(link, frame, lambda head: {**head, **self.facts})
        else:
            self.dispatcher.on_frame(link, frame)

    def _on_frame(self, link: Link, frame: Frame) -> None:
        if self.is_paused:
            self.frozen.append((link, frame))
            return
        code = RequestCode(frame.code)
        self.asked[code] += 1
        bends = self._bends.get(code)
        if bends:
            bend = bends.popleft()
            if isinstance(bend, TernError):
                link.reply(frame.opaque, ERROR, error_parts(bend))
            elif bend is not None:
                bend(link, frame)
        elif self.is_holding and code in HOLDABLE:
            self.held.append(lambda: self.serve(link, frame))
        else:
            self.serve(link, frame)

    def serve_changed(self, link: Link, frame: Frame, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Serve one request, and let *change* make its reply's head another one."""

        def reply(opaque: int, code: int, parts: list[bytes]) -> None:
            head, raw = read_body(b"".join(parts))
            link.reply(opaque, code, body_parts(change(head), [raw]))

        self.dispatcher.on_frame(RoomyLink.answering(reply), frame)

    # Leadership -------------------------------------------------------------------------------------------------
    @property
    def leads(self) -> bool:
        """Whether it leads and serves."""
        return self.engine.raft.is_serving

    @property
    def term(self) -> int:
        """Its term."""
        return self.engine.raft.term

    def lead(self, term: int = 0) -> None:
        """Win the election of *term*, by default of the next one; proxies hear of it."""
        self.engine.raft._consensus.learn_term(term - 1)
        self._stand(0.0)
        self.engine.raft._kick()
        self.runtime.turn()
        assert self.leads, (self.term, term)

    @property
    def greets(self) -> bool:
        """Whether proxies are told of its leadership."""
        return not self._notices.is_silent

    @greets.setter
    def greets(self, greets: bool) -> None:
        self._notices.is_silent = not greets

    def tell(self) -> None:
        """A LEADERSHIP notice to every proxy, as when its role changes."""
        for link in self.server.links:
            self._notices._tell(link)

    def stay_at_level(self, level: int) -> None:
        """A member runs a release before: the group's feature level is *level* until an entry of the test raises it. Else the node's clock does,
        in some milliseconds.
        """
        self.engine.state.feature_level.level = level
        self.engine.level_upgrade.step = lambda: None  # type: ignore[method-assign]

    def resign(self, leader: str = "") -> None:
        """Follow, in the same term, *leader* if it is known; what waits is refused."""
        consensus = self.engine.raft._consensus
        self._stand(math.inf)
        consensus._SyncObj__raftLeader = Node(leader) if leader else None
        consensus._SyncObj__setState(_RAFT_STATE.FOLLOWER)
        self.engine._settle_role()
        self.dispatcher.sweep()
        self.runtime.turn()

    def not_leader(self) -> NotLeader:
        """The error with which a follower answers."""
        return self.dispatcher.receives.not_leader()

    def _stand(self, deadline_s: float) -> None:
        self.engine.raft._consensus._SyncObj__raftElectionDeadline = deadline_s

    # Commands without a link ------------------------------------------------------------------------------------
    def propose(self, kind: CommandKind, command: Mapping[str, Any]) -> Any:
        """Propose one command, and apply it; its verdict, or raises the error that is its verdict."""
        return self.submit(kind, encode_msgpack(dict(command)))

    def submit(self, kind: CommandKind, payload: bytes) -> Any:
        """As `propose`, of a command that is written already."""
        verdicts: list[Any] = []
        self.engine.proposer.submit(
            Proposal(kind, len(payload), lambda verdict, _: verdicts.append(verdict), build=lambda _now: [payload])
        )
        self.runtime.turn()
        (verdict,) = verdicts
        if isinstance(verdict, TernError):
            raise verdict
        return verdict

    def create_topic(self, name: str, queues: int, **settings: Any) -> int:
        """A topic, as if a proxy had asked for it; its id."""
        found = self.propose(CommandKind.CREATE_TOPIC, {"topic": name, "queues": queues, **settings})
        return int(found["topic_id"])

    def create_group(self, name: str, **settings: Any) -> int:
        """A consumer group that begins with the earliest message; its id."""
        command = {"group": name, "invisible_ms": 60_000, "start": "earliest", **settings}
        return int(self.propose(CommandKind.CREATE_GROUP, command)["group_id"])

    def pass_time(self, ms: int) -> None:
        """Let *ms* pass, for leases, timers and checks alike."""
        self.runtime.ahead_s += ms / 1_000
        self.keep_up()

    def keep_up(self) -> None:
        """What the node's clock does every few ms."""
        self.engine._keep_up()
        self.runtime.turn()

    # What it has ------------------------------------------------------------------------------------------------
    @property
    def topics(self) -> dict[str, Topic]:
        """Topics by name."""
        return self.engine.state.names.topics

    @property
    def groups(self) -> dict[str, int]:
        """Ids of consumer groups, by name."""
        return {name: group.group_id for name, group in self.engine.state.names.groups.items()}

    def records(self, topic: str) -> list[bytes]:
        """All records of a topic, by queue."""
        found = self.engine.state.names.topics[topic]
        return [record for queue in range(found.queues) for record in self.queue_records(topic, queue)]

    def queue_records(self, topic: str, queue: int) -> list[bytes]:
        """All records of one queue, with their offsets, as readers get them."""
        store, found = self.engine.store, self.engine.state.names.topics[topic]
        entries = store.read_queue(found.topic_id, queue, 0, found.ends[queue])
        sizes = entries["size"].astype(np.int64)
        data = bytes(store.log.read_records(entries["position"].astype(np.int64), sizes))
        ends = np.cumsum(sizes)
        records = [data[end - size : end] for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)]
        return [
            each[:20] + offset.to_bytes(8, "big") + position.to_bytes(8, "big") + each[36:]
            for offset, (position, each) in enumerate(zip(entries["position"].tolist(), records, strict=True))
        ]

    @property
    def notified(self) -> int:
        """NOTIFY requests that wait."""
        return len(self.dispatcher.waiters)

    @property
    def awaited_replies(self) -> int:
        """AWAIT_REPLY requests that wait."""
        return len(self._subject(RequestCode.AWAIT_REPLY).waiters)

    @property
    def claims(self) -> int:
        """CLAIM_CHECKS requests that wait."""
        return len(self._subject(RequestCode.CLAIM_CHECKS).waiters)

    def _subject(self, code: RequestCode) -> Any:
        return self.dispatcher._handlers[code].handle.__self__  # type: ignore[attr-defined]

    @property
    def heads(self) -> list[tuple[RequestCode, dict[str, Any]]]:
        """Code and head of every request that was served."""
        return [(code, head) for code, head, _ in self.requests]

    @property
    def flights(self) -> list[int]:
        """How many messages each SEND had."""
        return [head["rows"] for code, head, _ in self.requests if code == RequestCode.SEND]

    def settled(self, action: int) -> list[tuple[int, int]]:
        """(offset, time in ms) of all settle rows with *action* that came."""
        return [
            (offset, time_ms)
            for code, head, raw in self.requests
            if code == RequestCode.SETTLE
            for *_, told, offset, _, time_ms in np.frombuffer(raw, SETTLE_ROWS, head["rows"]).tolist()
            if told == action
        ]

    @property
    def nacked(self) -> list[tuple[int, int]]:
        """(offset, delay in ms or -1) of all nacks."""
        return self.settled(NACK)

    @property
    def rejected(self) -> list[tuple[int, str]]:
        """(offset, reason) of all messages that were to become dead letters."""
        return [
            (offset, reason)
            for code, head in self.heads
            if code == RequestCode.DEAD_LETTER
            for *_, offset, _, reason in head["rows"]
        ]

    @property
    def released(self) -> list[int]:
        """Offsets of all releases."""
        return [offset for offset, _ in self.settled(RELEASE)]
