"""One broker node of a TestMesh: the engine and the requests of the product, on files in memory.

    proxy --Link over a socket pair--> MemoryNode --> LinkDispatcher --> Engine on MemoryFiles

It is a Raft group of one, so it leads from its first turn on.
"""

import asyncio
import random
import secrets
import socket
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tern_broker.config import BrokerConfig
from tern_broker.engine import Engine
from tern_broker.link.dispatcher import LinkDispatcher
from tern_broker.waiting.leadership_notices import LeadershipNotices
from tern_remoting import Link
from tern_remoting.handshake import NONCE_SIZE_BYTES, ClientHandshake, Identity, ServerHandshake
from tern_routing import OnDown, OnNotice, OnUp
from tern_store import StoreLimits
from tern_testing.memory_files import MemoryFiles
from tern_testing.node_runtime import Nobody, NodeRuntime
from tern_testing.virtual_loop import VirtualLoop
from tern_wire.limits import ENTRY_SIZE_MAX_BYTES, FRAME_SIZE_MAX_BYTES
from tern_wire.routing.route import BrokerGroupRoute, NodeRoute, Routes, TopicRoute

CLUSTER, BROKER_GROUP, NODE = "testing", "broker-a", "broker-a-0"
# While a request waits at the broker, time passes in steps of this length, far below the patience
# of the proxy with an answer that is late.
STEP_WITH_WAITS_S = 0.5
SEGMENT_SIZE_BYTES = 16 << 20
# tern_raft passes a journal to its consensus through a global of that library.
_MAKING = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Config(BrokerConfig):
    def store_limits(self) -> StoreLimits:
        """The limits of the product, and files that are as small as a test."""
        return StoreLimits(
            entry_size_max_bytes=ENTRY_SIZE_MAX_BYTES,
            recent_max_bytes=1 << 20,
            queue_entries_per_file=1_024,
            index_slots=1_024,
            index_entries_per_file=4_096,
        )


class MemoryNode:
    """Owner of the engine and of both ends of its link, on *loop*. *began_ms*: the wall clock at
    the loop's 0.
    """

    def __init__(self, loop: VirtualLoop, key: bytes, *, began_ms: int, capacity_bytes: int, retention_ms: int) -> None:
        self._loop, self._key = loop, key
        self.files, self._runtime = MemoryFiles(capacity_bytes), NodeRuntime(loop, began_ms)
        config = _Config(
            cluster=CLUSTER,
            broker_group=BROKER_GROUP,
            node=NODE,
            peers=(f"{NODE}=127.0.0.1:10912",),
            data_dir=Path("/data"),
            cluster_key_file=Path("key"),
            group_id=secrets.token_hex(16),
            bootstrap=True,
            segment_size_bytes=SEGMENT_SIZE_BYTES,
            retention_ms=retention_ms,
        )
        with _MAKING:
            self.engine = Engine(
                config, runtime=self._runtime, links=Nobody(), files=self.files, on_change=lambda: None
            )
        rng = random.Random()  # noqa: S311 (which record to check: no secret)
        self._dispatcher = LinkDispatcher(config, self.engine, key=key, rng=rng, monotonic=loop.time)
        raft = self.engine.raft
        self._notices = LeadershipNotices(NODE, lambda: (raft.term, raft.is_serving))
        self.engine.on_role.append(self._notices.role_changed)
        self.engine.on_applied.append(lambda _applied: self._runtime.look_again())
        self._runtime.until_due_s = self._until_due_s
        self._links: set[Link] = set()

    def begin(self) -> None:
        """Lead."""
        self.engine.begin()

    async def stop(self) -> None:
        """Close links and files, and drop what they hold."""
        for link in list(self._links):
            link.close("the mesh ends")
        for link in list(self._links):
            await link.gone()
        finished = asyncio.Event()
        self.engine.finish(finished.set)
        await finished.wait()
        self.files.clear()

    def look_again(self) -> None:
        """An advance begins."""
        self._runtime.look_again()

    # The way from the proxy -----------------------------------------------------------------------
    def dial(self, _host: str, _port: int, on_up: OnUp, on_down: OnDown, on_notice: OnNotice) -> "Dialled":
        """Connect a proxy, as tern_routing.Dial; there is one node, wherever routes say it is."""
        return Dialled(self._connect(on_up, on_down, on_notice))

    async def _connect(self, on_up: OnUp, on_down: OnDown, on_notice: OnNotice) -> Link:
        here, there = socket.socketpair()
        here.setblocking(False)
        there.setblocking(False)
        server = Link(
            ServerHandshake(self._identity("broker", NODE), secrets.token_bytes(NONCE_SIZE_BYTES)),
            on_frame=self._dispatcher.on_frame,
            on_ready=self._notices.opened,
            on_lost=self._notices.lost,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
        )
        client = Link(
            ClientHandshake(self._identity("proxy", "proxy-a"), secrets.token_bytes(NONCE_SIZE_BYTES)),
            on_frame=on_notice,
            on_ready=on_up,
            on_lost=on_down,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
        )
        self._links |= {server, client}
        await self._loop.connect_accepted_socket(lambda: server, there)
        await self._loop.connect_accepted_socket(lambda: client, here)
        await client.greeted()
        return client

    def _identity(self, role: str, name: str) -> Identity:
        return Identity(key=self._key, role=role, name=name, group_id=CLUSTER)

    # What the name server would say ---------------------------------------------------------------
    endpoints = "the test's own process"

    async def fetch(self) -> tuple[bytes, Routes]:
        """The routes to this node, as a name server's answer."""
        topics = {
            topic.name: {
                BROKER_GROUP: TopicRoute(
                    topic_id=topic.topic_id,
                    queues=topic.queues,
                    type=topic.kind,
                    perm=topic.perm,
                    placement=topic.placement_text,
                )
            }
            for topic in self.engine.state.names.topics.values()
        }
        raft = self.engine.raft
        nodes = {NODE: NodeRoute(link="127.0.0.1:1", http="127.0.0.1:1")}
        group = BrokerGroupRoute(nodes=nodes, leader=NODE if raft.is_serving else "", term=raft.term)
        routes = Routes(cluster=CLUSTER, warm=True, broker_groups={BROKER_GROUP: group}, topics=topics)
        return f"{raft.term} {self.engine.state.metadata.data_version}".encode(), routes

    # What is due ----------------------------------------------------------------------------------
    def _until_due_s(self, within_s: float) -> float:
        """Seconds until a lease, a rest, a check or a delay ends; at most *within_s*."""
        if any(link.in_flight for link in self._links):
            within_s = min(within_s, STEP_WITH_WAITS_S)
        state, now_ms = self.engine.state, self.engine.proposer.now_ms()
        low, high = 0, int(within_s * 1000)
        due_ms = self.engine.store.timers.next_due_ms()
        if due_ms is not None:
            high = min(high, max(0, due_ms - now_ms))
        if not state.is_due(now_ms + high):
            return high / 1000
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if state.is_due(now_ms + middle) else (middle + 1, high)
        return low / 1000


class Dialled:
    """The link of one proxy, while it is connected and until it is closed."""

    def __init__(self, connecting: Coroutine[Any, Any, Link]) -> None:
        self._connecting = asyncio.get_running_loop().create_task(connecting)

    def close(self) -> None:
        """Close the link."""
        if not self._connecting.done():
            self._connecting.cancel()
        elif not self._connecting.cancelled() and self._connecting.exception() is None:
            self._connecting.result().close("the proxy ends")
