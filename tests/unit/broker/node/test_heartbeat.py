"""What a broker tells name servers and when: topics once a version, changes at once, each name server for itself, a farewell."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tern_broker.config import BrokerConfig
from tern_broker.node import heartbeat
from tern_broker.node.heartbeat import Described, Heartbeat
from tern_namesrv.core import Registry
from tern_wire.errors import StaleRegistration
from tern_wire.limits import KIB
from tern_wire.link.codec import read_json
from tern_wire.paths import REGISTER_PATH, UNREGISTER_PATH
from tern_wire.routing.route import Registration, TopicRoute
from tests.support.client.scripted_proxy import SILENT, Asked, Reply, ScriptedProxy, refused, said

pytestmark = pytest.mark.anyio
DEADLINE_S = 30.0


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


class NameServer(ScriptedProxy):
    """A socket in front of a real registry. `told`: every registration that came; `is_silent`: it answers nobody."""

    def __init__(self) -> None:
        super().__init__(answer=self._reply)
        self.restart()
        self.told: list[Registration] = []
        self.is_silent = False
        self.farewells = 0

    def restart(self) -> None:
        """Forget everything, as a new process."""
        self.registry = Registry(cluster="dev", started_ms=0, warm_up_ms=0, expiry_ms=1_000)

    def topics(self) -> set[str]:
        """What it would tell a proxy."""
        return set(self.registry.routes(0).topics)

    def _reply(self, asked: Asked) -> Reply:
        if self.is_silent:
            return SILENT
        if asked.path == UNREGISTER_PATH:
            self.farewells += 1
            document = asked.document
            return said({"removed": self.registry.unregister("dev", document["broker_group"], document["node"], 0)})
        assert asked.path == REGISTER_PATH
        self.told.append(read_json(asked.body, Registration, nodes_max=0))
        try:
            return said({"wants_topics": self.registry.register(self.told[-1], 0), "version": 0, "warm": True})
        except StaleRegistration as error:
            return refused(error)


class Node:
    """A broker node's core, as far as a heartbeat asks it: `now` is its registration, `topics` what it hosts."""

    def __init__(self, directory: Path, *urls: str, interval_ms: int = 30_000) -> None:
        self.config = BrokerConfig(
            node="broker-a-0",
            peers=("broker-a-0=127.0.0.1:10912",),
            namesrv=urls,
            data_dir=directory,
            cluster_key_file=directory / "key",
            group_id="0" * 32,
            heartbeat_interval_ms=interval_ms,
        )
        self.now = Registration(
            cluster="dev",
            broker_group="broker-a",
            node="broker-a-0",
            link="127.0.0.1:10911",
            http="127.0.0.1:10913",
            is_leader=True,
            term=1,
            has_topics=False,
        )
        self.topics: dict[str, TopicRoute] = {}
        self.heartbeat = Heartbeat(self.config, self.describe)

    def describe(self) -> "asyncio.Future[Described]":
        """This moment, as the core would tell it."""
        topics = dict(self.topics)
        told: asyncio.Future[Described] = asyncio.get_running_loop().create_future()
        told.set_result(Described(registration=self.now, topics=lambda: topics))
        return told

    def create(self, topic: str) -> None:
        """One more topic, told at once."""
        self.topics[topic] = TopicRoute(topic_id=len(self.topics), queues=8)
        self.change(data_version=self.now.data_version + 1)

    def change(self, **changes: Any) -> None:
        """The core says that something has changed."""
        self.now = replace(self.now, **changes)
        self.heartbeat.changed()


@contextlib.asynccontextmanager
async def running(node: Node) -> AsyncIterator[None]:
    """The heartbeat for the length of a block; it ends by itself when it is told to stop."""
    stop = asyncio.Event()
    task = asyncio.create_task(node.heartbeat.run(stop))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(DEADLINE_S):
            await task


async def eventually(check: Callable[[], Any], what: str) -> None:
    """Poll *check* until the deadline."""
    deadline_s = asyncio.get_running_loop().time() + DEADLINE_S
    while not check():
        assert asyncio.get_running_loop().time() < deadline_s, f"not in {DEADLINE_S} s: {what}"
        await asyncio.sleep(0.005)


async def test_topics_travel_once_and_unchanged_heartbeats_are_short(tmp_path: Path) -> None:
    """However many there are."""
    async with NameServer() as server:
        node = Node(tmp_path, server.url, interval_ms=100)
        node.topics = {f"topic-{number}": TopicRoute(topic_id=number, queues=8) for number in range(1_000)}
        async with running(node):
            await eventually(lambda: len(server.told) >= 4, "heartbeats")
        assert server.topics() == set(node.topics)
        assert [told.has_topics for told in server.told[:4]] == [True, False, False, False]
        assert all(len(asked.body) <= 1 * KIB for asked in server.asked[1:])
        assert server.farewells == 1
        assert server.registry.nodes_count == 0, "a clean stop is told at once"


async def test_a_name_server_that_restarts_is_complete_with_the_next_heartbeat(tmp_path: Path) -> None:
    """It asks for the topics that the heartbeat has left out, and gets them in the same round."""
    async with NameServer() as server:
        node = Node(tmp_path, server.url, interval_ms=100)
        node.create("orders")
        async with running(node):
            await eventually(lambda: server.topics() == {"orders"}, "topics")
            server.restart()
            await eventually(lambda: server.topics() == {"orders"}, "topics once more")


async def test_changes_are_told_at_once_and_a_hanging_name_server_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval is 30 s, and the first name server takes connections and says nothing, also while this node stops."""
    monkeypatch.setattr(heartbeat, "TIMEOUT_S", 0.5)
    async with NameServer() as deaf, NameServer() as server:
        deaf.is_silent = True
        node = Node(tmp_path, deaf.url, server.url)
        async with running(node):
            for number in range(5):
                node.create(f"topic-{number}")
                await eventually(lambda: server.topics() == set(node.topics), "the new topic")
            node.change(is_leader=False, has_topics=True)
            await eventually(
                lambda: not server.registry.routes(0).broker_groups["broker-a"].leader, "the end of its reign"
            )
        assert server.farewells == 1
        assert not server.told[-1].topics, "a follower tells none"


async def test_a_new_term_is_told_at_once_although_its_topics_must_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who leads is what everybody waits for; the same topics again are not worth holding that up."""
    monkeypatch.setattr(heartbeat, "TOPICS_PACE", 10**9)
    async with NameServer() as server:
        node = Node(tmp_path, server.url)
        node.create("orders")
        async with running(node):
            await eventually(lambda: server.topics() == {"orders"}, "topics")
            whole = len([told for told in server.told if told.has_topics])
            node.change(term=7)
            await eventually(lambda: server.registry.routes(0).broker_groups["broker-a"].term == 7, "the new term")
            assert server.topics() == {"orders"}
            assert len([told for told in server.told if told.has_topics]) == whole


async def test_topics_that_are_created_one_by_one_are_gathered(tmp_path: Path) -> None:
    """The last version arrives, and far from every version was sent: the work would grow with the square of their number."""
    count = 300
    async with NameServer() as server:
        node = Node(tmp_path, server.url)
        async with running(node):
            for number in range(count):
                node.create(f"topic-{number}")
                await asyncio.sleep(0)
            await eventually(lambda: server.topics() == set(node.topics), "all topics")
        assert len([told for told in server.told if told.has_topics]) < count // 4


async def test_a_name_server_that_comes_late_is_tried_again_and_a_stale_leader_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told as soon as it answers; one that knows a newer leader is told again when something changes."""
    monkeypatch.setattr(heartbeat, "RETRY_MAX_S", 0.05)
    async with NameServer() as server:
        server.script = [Reply(hang_up=True), Reply(status=500), said([]), Reply(body=b"<html>")]
        node = Node(tmp_path, server.url)
        node.create("orders")
        async with running(node):
            await eventually(lambda: server.topics() == {"orders"}, "topics")
            server.registry.register(replace(node.now, node="broker-a-1", term=9), 0)
            node.change(term=8)
            await eventually(lambda: server.told[-1].term == 8, "the stale term")
            assert server.registry.routes(0).broker_groups["broker-a"].leader == "broker-a-1"
            node.change(term=10)
            await eventually(
                lambda: server.registry.routes(0).broker_groups["broker-a"].leader == "broker-a-0", "the newer term"
            )
