"""The broker's HTTP routes over a scripted core: Raft's fields in the metrics, and the handover of leadership."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

import tern_service.server
from tern_broker.app import create_app
from tern_broker.config import BrokerConfig
from tern_broker.node.http_loop import HttpLoop
from tern_raft import EXIT_BROKEN

pytestmark = pytest.mark.anyio
STATUS: dict[str, Any] = {
    "node": "broker-a-0",
    "role": "leader",
    "serving": True,
    "leader": "broker-a-0",
    "term": 7,
    "commit_index": 41,
    "applied_index": 40,
    "last_index": 42,
    "synced_index": 42,
    "fsync_ms": 1.5,
    "disk_permille": 123,
    "elections": 2,
    "transfers": 1,
    "core_loop": {"longest_60s_ms": 12.5, "total_ms": 21.0, "steps_by_ms": {"1": 4, "20": 1, "inf": 2}},
    "refused": {"idempotency keys": 3},
    "peers": [
        {"node": "broker-a-1", "connected": True, "match_index": 42},
        {"node": "broker-a-2", "connected": False, "match_index": 30},
    ],
}


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


def a_config() -> BrokerConfig:
    """Of a node that nobody starts."""
    return BrokerConfig(
        raft_port=1,
        peers=("broker-a-0=127.0.0.1:1", "broker-a-1=127.0.0.1:2", "broker-a-2=127.0.0.1:3"),
        data_dir=Path("unused"),
        cluster_key_file=Path("unused"),
        group_id="ab" * 16,
    )


def application(status: dict[str, Any], transfers: list[str] | None = None) -> httpx.AsyncClient:
    """A client of the application over a core that answers *status*, and notes *transfers* if it has a group."""

    def answered(document: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        future.set_result(document)
        return future

    def transfer(to: str) -> asyncio.Future[dict[str, Any]]:
        assert transfers is not None
        transfers.append(to)
        reason = "" if status["role"] == "leader" else "this node does not lead"
        return answered({"asked": not reason, "to": to, "leader": status["leader"], "reason": reason})

    config = a_config()
    app = create_app(
        config,
        ask_status=lambda: answered(status),
        ask_trim=lambda: answered({"asked": False}),
        ask_transfer=None if transfers is None else transfer,
        ask_choose=None if transfers is None else transfer,
        ask_pass_over=None if transfers is None else lambda index, back: transfer(f"{index} {back}"),
    )
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://broker")


async def test_metrics_have_the_raft_fields() -> None:
    """Role, term, indexes, the last sync, elections and handovers; by peer the connection and, at the leader, the lag."""
    async with application(STATUS) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    for line in (
        "ternmq_broker_is_leader 1.0",
        "ternmq_broker_term 7.0",
        "ternmq_broker_commit_index 41.0",
        "ternmq_broker_applied_index 40.0",
        "ternmq_broker_synced_index 42.0",
        "ternmq_broker_last_fsync_seconds 0.0015",
        "ternmq_broker_disk_used_ratio 0.123",
        "ternmq_broker_elections_total 2.0",
        "ternmq_broker_transfers_total 1.0",
        'ternmq_broker_refused_total{what="idempotency keys"} 3.0',
        'ternmq_broker_follower_lag_entries{peer="broker-a-1"} 0.0',
        'ternmq_broker_follower_lag_entries{peer="broker-a-2"} 12.0',
        'ternmq_broker_peer_connected{peer="broker-a-1"} 1.0',
        'ternmq_broker_peer_connected{peer="broker-a-2"} 0.0',
    ):
        assert line in lines


async def test_metrics_have_a_histogram_of_the_core_loops_steps() -> None:
    """Cumulative, in seconds, with the longest of the last minute beside it; a node that stands by has neither."""
    async with application(STATUS) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    for line in (
        'ternmq_broker_core_loop_step_seconds_bucket{le="0.001"} 4.0',
        'ternmq_broker_core_loop_step_seconds_bucket{le="0.02"} 5.0',
        'ternmq_broker_core_loop_step_seconds_bucket{le="+Inf"} 7.0',
        "ternmq_broker_core_loop_step_seconds_count 7.0",
        "ternmq_broker_core_loop_step_seconds_sum 0.021",
        "ternmq_broker_core_loop_longest_step_seconds 0.0125",
    ):
        assert line in lines
    async with application({name: value for name, value in STATUS.items() if name != "core_loop"}) as client:
        assert "core_loop" not in (await client.get("/metrics")).text


async def test_a_follower_claims_no_lag_of_others() -> None:
    """It does not know what they have."""
    async with application({**STATUS, "role": "follower"}) as client:
        text = (await client.get("/metrics")).text
    assert "ternmq_broker_is_leader 0.0" in text
    assert "follower_lag_entries{" not in text
    assert 'ternmq_broker_peer_connected{peer="broker-a-1"} 1.0' in text


async def test_leadership_is_handed_over_on_request() -> None:
    """202 from the leader, 409 with the reason from anybody else; a body that is none of ours is refused before the core is asked."""
    asked: list[str] = []
    async with application(STATUS, asked) as client:
        named = await client.post("/v1/broker/transfer", json={"to": "broker-a-1"})
        chosen = await client.post("/v1/broker/transfer", json={})
        wrong = [
            await client.post("/v1/broker/transfer", content=body)
            for body in (b"", b"[]", b'{"to": 1}', b'{"whom": "x"}', b'{"to": "' + b"x" * 2_000 + b'"}')
        ]
    assert (named.status_code, named.json()["to"], chosen.status_code) == (202, "broker-a-1", 202)
    assert [answer.status_code for answer in wrong] == [400, 400, 400, 400, 413]
    assert asked == ["broker-a-1", ""]
    async with application({**STATUS, "role": "follower", "leader": "broker-a-1"}, asked) as client:
        refused = await client.post("/v1/broker/transfer", json={})
    assert (refused.status_code, refused.json()["leader"]) == (409, "broker-a-1")


async def test_an_operator_chooses_a_node() -> None:
    """202 from the leader, 409 with the reason from anybody else; a choice of nobody is none."""
    asked: list[str] = []
    async with application(STATUS, asked) as client:
        chosen = await client.post("/v1/broker/choose", json={"node": "broker-a-1"})
        wrong = [await client.post("/v1/broker/choose", content=body) for body in (b"", b"{}", b'{"node": 1}')]
    assert (chosen.status_code, [answer.status_code for answer in wrong], asked) == (202, [400] * 3, ["broker-a-1"])
    async with application({**STATUS, "role": "follower", "leader": "broker-a-1"}, asked) as client:
        assert (await client.post("/v1/broker/choose", json={"node": "broker-a-1"})).status_code == 409
    async with application(STATUS) as client:
        assert (await client.post("/v1/broker/choose", json={"node": "broker-a-1"})).status_code == 404


async def test_an_operator_tells_the_group_to_pass_over_an_entry() -> None:
    """202 from the leader, 409 with the reason from anybody else; an entry that is none is refused before the core is asked."""
    asked: list[str] = []
    async with application(STATUS, asked) as client:
        done = await client.post("/v1/broker/pass-over", json={"index": 7})
        back = await client.post("/v1/broker/pass-over", json={"index": 7, "withdraw": True})
        bodies = (b"", b"{}", b'{"index": "7"}', b'{"index": 7, "withdraw": 1}', b'{"index": 7, "why": ""}')
        wrong = [await client.post("/v1/broker/pass-over", content=body) for body in bodies]
    assert (done.status_code, back.status_code, asked) == (202, 202, ["7 False", "7 True"])
    assert [answer.status_code for answer in wrong] == [400] * len(bodies)
    async with application({**STATUS, "role": "follower", "leader": "broker-a-1"}, asked) as client:
        assert (await client.post("/v1/broker/pass-over", json={"index": 7})).status_code == 409
    async with application(STATUS) as client:
        assert (await client.post("/v1/broker/pass-over", json={"index": 7})).status_code == 404


async def test_a_node_that_is_blocked_says_so_everywhere() -> None:
    """In /readyz with everything that is known of it, in the metrics as 1."""
    said = {"index": 7, "error": "AssertionError: no delivery"}
    for blocked, value in ((said, 1), (None, 0)):
        async with application({**STATUS, "blocked": blocked}) as client:
            ready = (await client.get("/readyz")).json()
            assert f"ternmq_broker_blocked {value:.1f}" in (await client.get("/metrics")).text.splitlines()
        assert ready.get("blocked") == blocked


async def test_a_node_without_a_group_has_nothing_to_hand_over() -> None:
    """A quarantined node does not know the route."""
    async with application(STATUS) as client:
        assert (await client.post("/v1/broker/transfer", json={})).status_code == 404


async def test_a_loop_that_cannot_begin_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server says so with SystemExit, which in a thread nobody hears; a node that does not register would lead without being found."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)

    def cannot_begin(*_: object, **__: object) -> None:
        raise SystemExit(3)

    monkeypatch.setattr(tern_service.server, "serve", cannot_begin)
    # Nobody has begun to serve, so nobody closes the duplicate either.
    with socket.create_server(("127.0.0.1", 0)) as listener, listener.dup() as sock:
        http = HttpLoop(a_config(), sock, status=dict, trim=dict, registration=None)
        http.start()
        http._thread.join(30)
    assert codes == [EXIT_BROKEN]


async def test_a_stop_that_comes_before_the_loop_is_there_is_not_lost() -> None:
    """Start and stop in one turn, as a standby does that copies faster than FastAPI is imported: the thread ends, and serves nobody."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        http = HttpLoop(a_config(), listener.dup(), status=dict, trim=dict, registration=None)
        http.start()
        http.stop()
        assert not http._thread.is_alive()
