"""Settles that come along with a receive: their results, and what travels beside them or waits for them."""

import asyncio

import orjson
import pytest

from tern_remoting import Frame, Link
from tern_wire.errors import Overloaded
from tern_wire.link.requests import RequestCode, body_parts
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
RECEIVE = "/v1/topics/orders/groups/billing/receive"


async def test_settles_along_with_a_receive_have_results_of_their_own() -> None:
    """They are in `settled`, in order, and in NDJSON on a last line of their own."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=2)
        (first,) = (await mesh.receive(max_messages=1)).json()["messages"]
        entries = [{"receipt_handle": first["receipt_handle"]}, {"receipt_handle": "forged"}]
        answer = (await mesh.receive(max_messages=1, settle=entries)).json()
        assert answer["settled"][0] == {"receipt_handle": first["receipt_handle"], "status": "ok"}
        assert answer["settled"][1]["error"]["code"] == "receipt-invalid"
        assert len(answer["messages"]) == 1
        lines = await mesh.http.post(RECEIVE, json={"settle": entries[:1]}, headers={"accept": "application/x-ndjson"})
        assert list(orjson.loads(lines.content.splitlines()[-1])) == ["settled"]


def _settles_and_receives(mesh: ProxyMesh) -> list[RequestCode]:
    """In the order in which the broker answered them."""
    return [code for code, _ in mesh.broker.heads if code in {RequestCode.SETTLE, RequestCode.RECEIVE}]


async def test_acks_and_the_first_look_travel_together() -> None:
    """The look does not wait for the acks, so one entry of the log can hold both; the answer waits for both."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=2)
        (first,) = (await mesh.receive(max_messages=1)).json()["messages"]
        mesh.broker.hold()
        task = asyncio.create_task(mesh.receive(max_messages=1, settle=[{"receipt_handle": first["receipt_handle"]}]))
        await eventually(lambda: mesh.broker.held, "the ack at the broker")
        await eventually(lambda: mesh.broker.asked[RequestCode.RECEIVE] == 2, "the look beside it")
        assert not task.done()
        mesh.broker.let_go()
        answer = (await task).json()
        assert (len(answer["messages"]), answer["settled"][0]["status"]) == (1, "ok")
        assert mesh.broker.asked[RequestCode.RECEIVE] == 2


async def test_what_only_the_acks_make_room_for_is_found_after_them() -> None:
    """A first look that found nothing, or was refused, is made again when the acks have been applied."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=3)
        (first,) = (await mesh.receive(max_messages=1)).json()["messages"]

        def find_nothing(link: Link, frame: Frame) -> None:
            link.reply(frame.opaque, 0, body_parts({"runs": []}))

        for bend in (find_nothing, Overloaded(what="leases of")):
            mesh.broker.requests.clear()
            mesh.broker.script(RequestCode.RECEIVE, bend)
            answer = (await mesh.receive(max_messages=1, settle=[{"receipt_handle": first["receipt_handle"]}])).json()
            assert answer["settled"][0]["status"] == "ok"
            (first,) = answer["messages"]
            assert _settles_and_receives(mesh) == [RequestCode.SETTLE, RequestCode.RECEIVE]


@pytest.mark.parametrize(
    "fields", [{"attempt_id": "a"}, {"action": "nack"}, {"action": "release"}, {"action": "extend"}]
)
async def test_what_may_change_what_a_receive_gets_comes_before_it(fields: dict[str, str]) -> None:
    """A nacked message is there for this very receive; one with an attempt id may only repeat what is still in hand."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=2)
        (first,) = (await mesh.receive(max_messages=1)).json()["messages"]
        mesh.broker.requests.clear()
        action = {name: value for name, value in fields.items() if name == "action"}
        if action.get("action") == "nack":
            action["delay"] = "0s"
        others = {name: value for name, value in fields.items() if name != "action"}
        settle = [{"receipt_handle": first["receipt_handle"], **action}]
        answer = (await mesh.receive(max_messages=1, settle=settle, **others)).json()
        assert _settles_and_receives(mesh) == [RequestCode.SETTLE, RequestCode.RECEIVE]
        is_again = answer["messages"][0]["message_id"] == first["message_id"]
        assert is_again == (fields.get("action") in {"nack", "release"})


async def test_what_was_found_beside_acks_is_released_when_the_client_has_gone() -> None:
    """As without acks: visible at once for the next consumer, as the same attempt."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=2)
        (first,) = (await mesh.receive(max_messages=1)).json()["messages"]
        mesh.broker.hold()
        document = orjson.dumps({"settle": [{"receipt_handle": first["receipt_handle"]}]})
        gone = mesh.raw("POST", RECEIVE)
        gone.push(document)
        await eventually(lambda: mesh.broker.held, "the ack at the broker")
        await eventually(lambda: mesh.broker.asked[RequestCode.RECEIVE] == 2, "the look beside it")
        gone.hang_up()
        mesh.broker.let_go()
        await asyncio.wait_for(gone.task, 30)
        assert (gone.sent, len(mesh.broker.released)) == ([], 1)
