"""Offsets that wait at a broker, and the one request of a proxy for all tails of a topic."""

import asyncio

import pytest

from tern_proxy.waiting.growth import Growth
from tern_wire.errors import TernError, TopicNotFound
from tern_wire.link.pulls import ListOffsets
from tern_wire.link.requests import RequestCode
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
WAIT_MS = 20_000


async def ends(mesh: ProxyMesh, seen: int, wait_ms: int = WAIT_MS) -> list[int]:
    """The ends of the queues of orders, asked of the leader."""
    asked = ListOffsets(topic="orders", wait_ms=wait_ms, seen=seen)
    link = mesh.proxy.groups["broker-a"].link
    found, _ = await link.ask(asked, is_repeatable=True, deadline_ms=60_000, is_prompt=False)
    return [row[2] for row in found.queues]


def parked(mesh: ProxyMesh) -> int:
    """Requests that wait at the broker."""
    return len(mesh.broker.dispatcher.offsets.parked)


async def test_offsets_wait_until_a_queue_of_their_topic_grows() -> None:
    """Whichever it is, and not for another topic; what the client has not seen is answered at once."""
    async with proxy_mesh(topics={"orders": 2, "others": 1}) as mesh:
        assert await ends(mesh, seen=-1) == [0, 0]
        for number in range(2):
            waiting = asyncio.create_task(ends(mesh, seen=number))
            await eventually(lambda: parked(mesh), "the wait")
            await mesh.send("others")
            assert not waiting.done()
            await mesh.post(f"/v1/topics/orders/messages?queue=broker-a:{number}", b"x")
            assert sum(await waiting) == number + 1
        assert await ends(mesh, seen=1) == [1, 1]
        assert parked(mesh) == 0


async def test_offsets_that_wait_are_answered_at_their_deadline() -> None:
    """With the ends as they are."""
    async with proxy_mesh(topics={"orders": 2}) as mesh:
        waiting = asyncio.create_task(ends(mesh, seen=0))
        await eventually(lambda: parked(mesh), "the wait")
        mesh.broker.pass_time(WAIT_MS + 1)
        mesh.broker.dispatcher.offsets._sweep()
        assert await waiting == [0, 0]


async def test_offsets_that_wait_move_to_the_next_leader() -> None:
    """A node that does not lead refuses them, and the link asks the one that does."""
    async with proxy_mesh(topics={"orders": 2}) as mesh:
        waiting = asyncio.create_task(ends(mesh, seen=0))
        await eventually(lambda: parked(mesh), "the wait")
        mesh.broker.resign()
        mesh.broker.dispatcher.offsets._sweep()
        assert parked(mesh) == 0
        mesh.broker.lead()
        await mesh.send()
        assert sum(await waiting) == 1


async def test_offsets_of_a_topic_that_is_deleted_are_refused() -> None:
    """At once, not at their deadline."""
    async with proxy_mesh(topics={"orders": 2}) as mesh:
        waiting = asyncio.create_task(ends(mesh, seen=0))
        await eventually(lambda: parked(mesh), "the wait")
        await mesh.http.delete("/v1/topics/orders?confirm=orders")
        with pytest.raises(TopicNotFound):
            await waiting


class Heard:
    """A follower, and what it has heard."""

    def __init__(self) -> None:
        self.totals: list[int] = []
        self.errors: list[TernError] = []

    def grown(self, _: str, ends: list[tuple[int, int]]) -> None:
        """As Follower."""
        self.totals.append(sum(end for _, end in ends))

    def failed(self, error: TernError) -> None:
        """As Follower."""
        self.errors.append(error)


async def test_one_request_waits_for_all_followers_of_a_topic() -> None:
    """Each hears what is known at once and all news; after the last one has left, nothing is asked."""
    async with proxy_mesh(topics={"orders": 2}) as mesh:
        growth, followers = Growth(), [Heard() for _ in range(3)]
        link = mesh.proxy.groups["broker-a"].link
        leave = [growth.follow(link, "orders", each) for each in followers]
        await eventually(lambda: parked(mesh), "the wait")
        asked = mesh.broker.asked[RequestCode.OFFSETS]
        late = Heard()
        leave.append(growth.follow(link, "orders", late))
        assert late.totals == [0]
        await mesh.send()
        await eventually(lambda: late.totals[-1] == 1 and parked(mesh), "the news")
        assert [each.totals[-1] for each in followers] == [1, 1, 1]
        assert (parked(mesh), mesh.broker.asked[RequestCode.OFFSETS]) == (1, asked + 1)
        for each in leave:
            each()
            each()
        assert len(growth) == 0


async def test_a_topic_that_is_gone_is_told_to_every_follower_once() -> None:
    """And the next follower asks anew."""
    async with proxy_mesh(topics={"orders": 2}) as mesh:
        growth, followers = Growth(), [Heard() for _ in range(2)]
        link = mesh.proxy.groups["broker-a"].link
        for each in followers:
            growth.follow(link, "orders", each)
        await eventually(lambda: parked(mesh), "the wait")
        await mesh.http.delete("/v1/topics/orders?confirm=orders")
        await eventually(lambda: all(each.errors for each in followers), "the end")
        assert [[error.code for error in each.errors] for each in followers] == [["topic-not-found"]] * 2
        assert len(growth) == 0
        growth.close()
