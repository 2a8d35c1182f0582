"""Fail-over seen from the proxy: notices, leaders that hang, elections that nobody tells of; over real links to brokers in memory.

A paused broker is one whose process was stopped: its connections stay open and nothing is answered.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from tern_proxy.brokers.lanes import LANES_IN_FLIGHT
from tern_remoting import Frame
from tern_remoting.waiting import Waiting
from tern_wire.link.heads import head_parts
from tern_wire.link.requests import NoticeCode, RequestCode
from tern_wire.link.status import Leadership
from tern_wire.records.read import decode_record
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import BOTH_LOOPS, eventually
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
ONE = "/v1/topics/orders/messages?queue=broker-a:0"


@contextlib.asynccontextmanager
async def three_nodes() -> AsyncIterator[tuple[ProxyMesh, MemoryBroker, MemoryBroker, MemoryBroker]]:
    """A group of three, the first of which leads in term 1. No name server answers any more, so that routes help nobody."""
    nodes = [MemoryBroker(KEY, node=f"broker-a-{number}", leads=not number) for number in range(3)]
    async with proxy_mesh(*nodes, leader_wait_ms=5_000) as mesh:
        link = mesh.proxy.groups["broker-a"].link
        await eventually(lambda: all(node["connected"] for node in link.nodes().values()), "all links")
        assert link.leader == nodes[0].node
        mesh.name_server.is_up = False
        yield mesh, nodes[0], nodes[1], nodes[2]


def sending(mesh: ProxyMesh, body: bytes, key: str = "") -> asyncio.Task[httpx.Response]:
    """A send that is under way."""
    headers = {"idempotency_key": key} if key else {}
    return asyncio.create_task(mesh.post(ONE, body, **headers))


def bodies(broker: MemoryBroker) -> list[bytes]:
    """What a broker has stored in the queue that is used here."""
    return [bytes(decode_record(record).body) for record in broker.queue_records("orders", 0)]


async def test_what_hangs_at_a_paused_leader_ends_with_the_next_leaders_notice() -> None:
    """Keyless sends are open outcomes, keyed ones and those behind them are stored at the new leader, in their order; the woken
    leader's claim to lead is not believed."""
    async with three_nodes() as (mesh, old, new, _):
        lane = mesh.proxy.groups["broker-a"].sends
        old.is_paused = True
        hanging = [sending(mesh, b"plain")]
        await eventually(lambda: lane.flights == 1, "a first flight")
        hanging.append(sending(mesh, b"first", "k1"))
        await eventually(lambda: lane.flights == LANES_IN_FLIGHT, "a second flight")
        behind = [sending(mesh, b"behind 1", "k2"), sending(mesh, b"behind 2")]
        await eventually(lambda: lane.waiting == 2, "both to gather behind them")
        await eventually(lambda: new.asked[RequestCode.STATUS], "a question about the silence")
        assert not any(task.done() for task in (*hanging, *behind))
        new.lead(2)
        assert (await hanging[0]).json()["code"] == "outcome-unknown"
        for task in (hanging[1], *behind):
            assert (await task).status_code == 201
        assert bodies(new) == [b"first", b"behind 1", b"behind 2"]
        old.wake()
        old.tell()
        await mesh.send()
        link = mesh.proxy.groups["broker-a"].link
        assert (link.leader, link.term) == (new.node, 2)


async def test_a_notice_alone_is_enough() -> None:
    """No node answers STATUS and no name server is there: sends that wait for a leader go to the one that says so."""
    async with three_nodes() as (mesh, old, new, other):
        for node in (old, new, other):
            node.script(RequestCode.STATUS, *[None] * 1_000)
        old.resign()
        link = mesh.proxy.groups["broker-a"].link
        await eventually(lambda: link.leader == "", "the resignation")
        waiting = sending(mesh, b"x")
        await eventually(lambda: new.asked[RequestCode.STATUS], "the search for a leader")
        new.lead(2)
        assert (await waiting).status_code == 201
        assert bodies(new) == [b"x"]


async def test_a_leader_without_a_notice_is_found_by_asking_beside_the_silent_one() -> None:
    """The silent one is asked too and does not answer; that holds up nothing."""
    async with three_nodes() as (mesh, old, new, _):
        old.is_paused = True
        plain, keyed = sending(mesh, b"plain"), sending(mesh, b"keyed", "k")
        new.greets = False
        new.lead(2)
        assert (await keyed).status_code == 201
        assert (await plain).json()["code"] == "outcome-unknown"
        assert new.asked[RequestCode.STATUS] >= 1


async def test_a_slow_leader_keeps_its_requests() -> None:
    """However long it is silent: the others are asked, none of them serves, and its answer is the answer."""
    async with three_nodes() as (mesh, slow, other, _):
        slow.hold()
        task = sending(mesh, b"x")
        await eventually(lambda: other.asked[RequestCode.STATUS] >= 3, "questions about the silence")
        slow.let_go()
        assert (await task).status_code == 201
        assert slow.asked[RequestCode.SEND] == 1
        assert mesh.proxy.groups["broker-a"].link.leader == slow.node


async def test_a_deposed_leader_that_lives_may_answer_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the grace after its successor's notice: the send was stored, and its client hears that."""
    monkeypatch.setattr("tern_routing.attempts.GRACE_S", 60.0)
    async with three_nodes() as (mesh, old, new, _):
        link = mesh.proxy.groups["broker-a"].link
        old.hold()
        task = sending(mesh, b"x")
        await eventually(lambda: old.held, "the send at the old leader")
        new.lead(2)
        await eventually(lambda: link.leader == new.node, "the new leader")
        old.let_go()
        assert (await task).status_code == 201
        assert (bodies(old), bodies(new)) == ([b"x"], [])


async def test_a_killed_leaders_sends_go_on_at_the_next_one() -> None:
    """Its connections break at once; keyed sends are answered as if nothing had happened."""
    async with three_nodes() as (mesh, old, new, _):
        old.hold()
        keyed, plain = sending(mesh, b"keyed", "k"), sending(mesh, b"plain")
        await eventually(lambda: old.held, "sends at the old leader")
        await old.server.stop()
        assert (await plain).json()["code"] == "outcome-unknown"
        waiting = sending(mesh, b"waiting")
        await eventually(lambda: new.asked[RequestCode.STATUS], "the search for a leader")
        new.lead(2)
        assert (await keyed).status_code == 201
        assert (await waiting).status_code == 201
        assert sorted(bodies(new)) == [b"keyed", b"waiting"]


async def test_polls_settles_and_receives_follow_too() -> None:
    """What is parked, settled or received at a leader that hangs goes on at the next one."""
    async with three_nodes() as (mesh, old, new, _):
        await mesh.send()
        leased = (await mesh.receive()).json()["messages"][0]["receipt_handle"]
        poll = asyncio.create_task(mesh.receive(wait="30s"))
        await eventually(lambda: old.notified == 1, "the poll to park")
        old.is_paused = True
        ack = asyncio.create_task(mesh.http.post(f"/v1/topics/orders/groups/billing/ack?receipt_handle={leased}"))
        receive = asyncio.create_task(mesh.receive())
        await eventually(lambda: len(old.frozen) >= 2, "both at the paused leader")
        new.lead(2)
        assert (await receive).json()["messages"] == []
        assert (await ack).status_code in {200, 410}
        assert new.asked[RequestCode.SETTLE] == 1
        await eventually(lambda: new.notified == 1, "the poll at the new leader")
        await mesh.send()
        assert len((await poll).json()["messages"]) == 1


async def test_a_parked_poll_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for long at a leader that is well: nobody is asked about that."""
    monkeypatch.setattr("tern_routing.attempts.SILENCE_S", 0.05)
    asked = []
    async with three_nodes() as (mesh, _, other, __):
        for _ in range(5):
            before = other.asked[RequestCode.STATUS]
            assert (await mesh.receive(wait="200ms")).json()["messages"] == []
            asked.append(other.asked[RequestCode.STATUS] - before)
    # On a busy machine the receive before the wait may take as long as that, which is silence.
    assert 0 in asked, asked


async def test_a_notice_under_another_name_is_not_heeded() -> None:
    """A port that another node took over says nothing about the one that routes know there."""
    async with three_nodes() as (mesh, old, new, _):
        for link in new.server.links:
            link.post(NoticeCode.LEADERSHIP, head_parts(Leadership("broker-a-9", 9, True)))
            link.post(NoticeCode.LEADERSHIP, head_parts(Leadership(new.node, 1, False)))
        await mesh.send()
        assert mesh.proxy.groups["broker-a"].link.leader == old.node


async def test_a_malformed_notice_costs_its_own_link_only() -> None:
    """It is dialled again; the leader goes on."""
    async with three_nodes() as (mesh, _, new, __):
        for link in new.server.links:
            link.post(NoticeCode.LEADERSHIP, [b"nonsense"])
        nodes = mesh.proxy.groups["broker-a"].link.nodes
        await eventually(lambda: not nodes()[new.node]["connected"], "the link to close")
        await mesh.send()
        await eventually(lambda: nodes()[new.node]["connected"], "the link to come back")


async def test_a_group_that_was_made_anew_is_believed_although_its_terms_begin_again() -> None:
    """Only when a majority of the nodes says so and none of them knows our term."""
    async with three_nodes() as (mesh, old, new, other):
        link = mesh.proxy.groups["broker-a"].link
        old.lead(7)
        await eventually(lambda: link.term == 7, "the old group's last term")
        other.facts = {"term": 7}
        new.greets = False
        new.lead(2)
        await old.server.stop()
        waiting = sending(mesh, b"x")
        await eventually(lambda: other.asked[RequestCode.STATUS] >= 3, "some rounds of questions")
        assert not waiting.done()
        other.facts = {"term": 2}
        assert (await waiting).status_code == 201
        assert (link.leader, link.term) == (new.node, 2)


async def test_a_name_server_that_has_just_started_takes_no_node_away() -> None:
    """It has heard of one broker of three; links to the others stay."""
    async with three_nodes() as (mesh, old, new, _):
        link = mesh.proxy.groups["broker-a"].link
        mesh.name_server.brokers, mesh.name_server.is_warm, mesh.name_server.is_up = [new], False, True
        await mesh.proxy.cache.refresh()
        assert (len(link.nodes()), link.leader) == (3, old.node)
        mesh.name_server.is_warm = True
        await mesh.proxy.cache.refresh()
        assert list(link.nodes()) == [new.node]


@pytest.mark.parametrize("anyio_backend", BOTH_LOOPS)
async def test_an_answer_counts_though_its_node_is_superseded_in_the_same_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that stood still finds a deposed leader's answer and the next leader's notice at once: the answer is no open outcome."""
    async with three_nodes() as (mesh, old, new, _):
        link = mesh.proxy.groups["broker-a"].link
        old.is_paused = True
        asked = sending(mesh, b"plain")
        await eventually(lambda: bool(new.asked[RequestCode.STATUS]), "a question about the silence")
        waiting = link._nodes[old.node].link._waiting  # type: ignore[union-attr]
        resolve, (opaque,) = (
            Waiting.resolve,
            [frame.opaque for _, frame in old.frozen if frame.code == RequestCode.SEND],
        )

        def supersede_and_resolve(self: Waiting, frame: Frame) -> None:
            if self is waiting and frame.opaque == opaque:
                link._serves(new.node, 2)
            resolve(self, frame)

        # Frames of two links that are read in one turn of the loop, the notice first.
        monkeypatch.setattr(Waiting, "resolve", supersede_and_resolve)
        old.wake()
        assert (await asked).status_code == 201
