"""A node that stands by: it says so, finds out where its peers answer HTTP, and hands its socket on when it has a copy."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx

from tern_broker.node.rebuilder import peers_http
from tern_broker.node.standby import stand_by
from tern_raft import RaftConfig, RaftNode
from tern_service import open_socket
from tern_wire.link.requests import Parts
from tests.support.raft.http_leader import DEADLINE_S, GROUP, KEY, Leader, config_of, require_equal, with_leader


@contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    """A socket of the standby's own, and its URL."""
    sock = open_socket("127.0.0.1", 0, "--http-port")
    try:
        yield sock, f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        sock.close()


def test_a_node_that_is_rebuilt_says_so_and_hands_its_socket_on(tmp_path: Path) -> None:
    """Goal: alive, not ready, role rebuilding with figures; then the copy is in place and the same socket serves the next."""

    async def work(leader: Leader) -> None:
        raft_port = leader.sock.getsockname()[1] - 1
        # Whoever leads answers on the port behind its Raft port, and does not say so.
        config = config_of("b", tmp_path / "b", ports={"a": raft_port})
        leader.is_serving = False
        with listening() as (sock, url):
            copying = stand_by(config, sock, "it holds no log", asyncio.Event(), key=KEY, told_http_port=lambda _: 0)
            task = asyncio.create_task(copying)
            async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
                status = (await client.get(url + "/v1/broker")).json()
                assert (status["role"], status["serving"], status["rebuilding"]) == (
                    "rebuilding",
                    False,
                    "it holds no log",
                )
                assert status["copy"].keys() == {"leader", "copied_bytes", "total_bytes", "seconds"}
                assert (await client.get(url + "/healthz")).status_code == 200
                assert (await client.get(url + "/readyz")).status_code == 503
            leader.is_serving = True
            assert await task
            require_equal(leader, tmp_path)
            with socket.create_connection(sock.getsockname(), timeout=5):
                sock.setblocking(True)
                sock.accept()[0].close()

    with_leader(tmp_path, work)


def test_peers_answer_http_where_they_say_or_else_behind_their_raft_port(tmp_path: Path) -> None:
    """Goal: hosts follow from --peers, ports from the peers' greetings; this node's own is not among them."""
    config = config_of("b", tmp_path)
    assert peers_http(config, lambda _: 0) == {"a": "http://127.0.0.1:1002", "c": "http://127.0.0.1:1022"}
    told = {"c": 8_888}
    assert peers_http(config, lambda name: told.get(name, 0)) == {
        "a": "http://127.0.0.1:1002",
        "c": "http://127.0.0.1:8888",
    }
    assert config_of("b", tmp_path, http_port=4_711).raft().http_port == 4_711


def test_a_node_is_rebuilt_from_a_leader_whose_http_port_is_anywhere(tmp_path: Path) -> None:
    """Goal: only the greetings tell where; one that comes while the copy is looked for is heeded."""

    async def work(leader: Leader) -> None:
        raft_of_a = RaftConfig(
            node="a",
            members=leader.config.raft().members,
            group_id=GROUP.group_id,
            directory=tmp_path / "votes-of-a",
            bootstrap=True,
            http_port=leader.sock.getsockname()[1],
        )
        raft_of_b = replace(raft_of_a, node="b", directory=tmp_path / "votes-of-b", http_port=1)
        for one in (raft_of_a, raft_of_b):
            RaftNode.open_votes(one, incarnation=one.node.encode() * 16).close()
        links = NoLinks()
        greeter = RaftNode.greeter(raft_of_b, links)
        with listening() as (sock, _):
            config = config_of("b", tmp_path / "b")
            copying = stand_by(config, sock, "no log", asyncio.Event(), key=KEY, told_http_port=greeter.http_port_of)
            task = asyncio.create_task(copying)
            done, _ = await asyncio.wait({task}, timeout=0.1)
            assert not done, "nobody is at the port behind the Raft port"
            RaftNode.greeter(raft_of_a, links).connected("b")
            greeter.receive("a", links.posted.pop())
            greeter.lost("a")
            assert await asyncio.wait_for(task, DEADLINE_S)
            require_equal(leader, tmp_path)

    with_leader(tmp_path, work)


class NoLinks:
    """Keeps what is posted."""

    def __init__(self) -> None:
        self.posted: list[bytes] = []

    def post(self, _peer: str, parts: Parts) -> bool:
        """As Links."""
        self.posted.append(b"".join(parts))
        return True

    def buffered(self, _peer: str) -> int:
        """As Links."""
        return 0
