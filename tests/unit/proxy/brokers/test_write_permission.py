"""A broker group whose write permission is withdrawn: nothing new goes there, what must go there is refused, the rest goes on."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
ONE, BATCH, RECEIVE = (
    "/v1/topics/orders/messages",
    "/v1/topics/orders/messages/batch",
    "/v1/topics/orders/groups/billing/receive",
)


@contextlib.asynccontextmanager
async def two_groups(*wiped: str) -> AsyncIterator[ProxyMesh]:
    """A topic in broker-a and broker-b, whose leaders are both linked; *wiped* may not be written."""
    brokers = [MemoryBroker(KEY), MemoryBroker(KEY, broker_group="broker-b", node="broker-b-0")]
    async with proxy_mesh(*brokers) as mesh:
        await eventually(lambda: all(group.link.has_leader for group in mesh.proxy.groups.values()), "both leaders")
        await wipe(mesh, *wiped)
        yield mesh


async def wipe(mesh: ProxyMesh, *broker_groups: str) -> None:
    """From now on these, and no others, may not be written."""
    mesh.name_server.wiped = set(broker_groups)
    await mesh.proxy.cache.refresh()


def group_of(queue: str) -> str:
    """The broker group of a queue's name."""
    return queue.partition(":")[0]


async def test_messages_go_to_the_groups_that_may_be_written() -> None:
    """And to all of them once the permission is restored."""
    async with two_groups("broker-a") as mesh:
        assert {group_of(sent["queue"]) for sent in await mesh.send(count=10)} == {"broker-b"}
        await wipe(mesh)
        assert {group_of(sent["queue"]) for sent in await mesh.send(count=10)} == {"broker-a", "broker-b"}


async def test_a_pinned_queue_and_a_key_that_belong_there_are_refused_with_the_fix() -> None:
    """503, so that a patient producer comes again; a key of the other group is stored as ever."""
    async with two_groups("broker-a") as mesh:
        pinned = await mesh.post(f"{ONE}?queue=broker-a:1", b"x")
        assert (pinned.status_code, pinned.json()["code"]) == (503, "broker-group-not-writable")
        assert "ternmq namesrv restore-write broker-a" in pinned.json()["detail"]
        assert pinned.json()["retryable"]
        assert int(pinned.headers["retry-after"]) >= 1
        assert (await mesh.post(f"{ONE}?queue=broker-b:1", b"x")).status_code == 201
        answers = [await mesh.post(f"{ONE}?idempotency_key=k{number}", b"x") for number in range(20)]
        assert {answer.status_code for answer in answers} == {201, 503}
        stored = {group_of(answer.json()["queue"]) for answer in answers if answer.status_code == 201}
        assert stored == {"broker-b"}
        await wipe(mesh)
        again = [await mesh.post(f"{ONE}?idempotency_key=k{number}", b"x") for number in range(20)]
        assert {answer.status_code for answer in again} == {200, 201}


async def test_a_batch_stores_what_may_be_stored() -> None:
    """207: those pinned to the group that may not be written fail, each with its problem."""
    async with two_groups("broker-a") as mesh:
        messages = [{"body": "a", "queue": "broker-a:0"}, {"body": "b"}, {"body": "c", "queue": "broker-b:0"}]
        answer = await mesh.http.post(BATCH, json={"messages": messages})
        results = answer.json()["results"]
        assert (answer.status_code, answer.json()["failed"]) == (207, 1)
        assert results[0]["error"]["code"] == "broker-group-not-writable"
        assert {group_of(result["queue"]) for result in results[1:]} == {"broker-b"}


async def test_when_no_group_may_be_written_sends_are_refused_and_reads_go_on() -> None:
    """What was stored is received and acknowledged."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=3)
        await wipe(mesh, "broker-a")
        refused = await mesh.post(ONE, b"x")
        assert (refused.status_code, refused.json()["code"]) == (503, "broker-group-not-writable")
        received = (await mesh.receive(max_messages=10)).json()["messages"]
        assert len(received) == 3
        handles = {"receipt_handles": [message["receipt_handle"] for message in received]}
        acked = await mesh.http.post("/v1/topics/orders/groups/billing/ack", json=handles)
        assert acked.status_code == 200, acked.text
        assert (await mesh.http.get("/v1/topics/orders/offsets")).status_code == 200


async def test_a_name_server_that_does_not_know_the_group_restores_nothing() -> None:
    """It has just started, and no broker has registered yet: nobody has said that the group may be written again."""
    async with two_groups("broker-a") as mesh:
        brokers, mesh.name_server.brokers = mesh.name_server.brokers, []
        await mesh.proxy.cache.refresh()
        refused = await mesh.post(f"{ONE}?queue=broker-a:1", b"x")
        assert (refused.status_code, refused.json()["code"]) == (503, "broker-group-not-writable")
        mesh.name_server.brokers = brokers
        await wipe(mesh)
        assert (await mesh.post(f"{ONE}?queue=broker-a:1", b"x")).status_code == 201
