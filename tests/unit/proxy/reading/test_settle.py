"""Acks and extensions: any proxy with the cluster key reads a handle, a forged one is told from an expired one."""

from typing import Any
from zlib import crc32

import msgspec
import pytest

from tern_wire.errors import DiskFull
from tern_wire.handles import HandleMaker, Receipt
from tern_wire.limits import SETTLE_ENTRIES_MAX
from tern_wire.link.requests import RequestCode
from tern_wire.paths import JSON, MSGPACK
from tests.support.proxy.proxy_mesh import KEY, proxy_mesh

pytestmark = pytest.mark.anyio
ACK = "/v1/topics/orders/groups/billing/ack"
SETTLE = "/v1/topics/orders/groups/billing/settle"


async def handles_of(mesh: Any, count: int) -> list[str]:
    """Handles of *count* fresh messages."""
    await mesh.send(count=count)
    messages = (await mesh.receive(max_messages=count)).json()["messages"]
    return [message["receipt_handle"] for message in messages]


async def test_acks_answer_one_result_a_handle() -> None:
    """In the body, in MessagePack, or one in the query; acking again is success."""
    async with proxy_mesh() as mesh:
        handles = await handles_of(mesh, 3)
        answer = await mesh.http.post(ACK, json={"receipt_handles": handles})
        assert (answer.status_code, answer.json()) == (
            200,
            {"results": [{"receipt_handle": handle, "status": "ok"} for handle in handles], "failed": 0},
        )
        body = msgspec.msgpack.encode({"receipt_handles": handles})
        again = await mesh.post(ACK, body, content_type=MSGPACK, accept=MSGPACK)
        assert (again.status_code, msgspec.msgpack.decode(again.content)["failed"]) == (200, 0)
        assert (await mesh.http.post(f"{ACK}?receipt_handle={handles[0]}")).status_code == 200
        mesh.broker.pass_time(60_001)
        assert (await mesh.receive()).json()["messages"] == []


async def test_a_handle_made_by_another_proxy_is_good_here() -> None:
    """Only the cluster key, the topic and the group matter."""
    async with proxy_mesh() as mesh:
        (handle,) = await handles_of(mesh, 1)
        made = HandleMaker(KEY, "orders", "billing").make(HandleMaker(KEY, "orders", "billing").read(handle))
        assert (await mesh.http.post(ACK, json={"receipt_handles": [made]})).status_code == 200


@pytest.mark.parametrize(
    "kind", ["other key", "other topic", "other group", "cut", "flipped", "long", "empty", "signs"]
)
async def test_a_forged_handle_is_refused_without_asking_the_broker(kind: str) -> None:
    """400 receipt-invalid for anything that this cluster did not make for this topic and group."""
    receipt = Receipt("broker-a", 1, 1, 1, 0, 1, 1)
    good = HandleMaker(KEY, "orders", "billing").make(receipt)
    forged = {
        "other key": HandleMaker(bytes(32), "orders", "billing").make(receipt),
        "other topic": HandleMaker(KEY, "bills", "billing").make(receipt),
        "other group": HandleMaker(KEY, "orders", "audit").make(receipt),
        "cut": good[:-4],
        "flipped": ("B" if good[20] != "B" else "C").join((good[:20], good[21:])),
        "long": good * 9,
        "empty": "",
        "signs": "é%\x00",
    }[kind]
    async with proxy_mesh() as mesh:
        answer = await mesh.http.post(ACK, json={"receipt_handles": [forged]})
        assert (answer.status_code, answer.json()["code"]) == (400, "receipt-invalid")
        assert mesh.broker.asked[RequestCode.SETTLE] == 0


async def test_an_expired_lease_is_gone_not_invalid() -> None:
    """410 when all are, 207 when some are."""
    async with proxy_mesh() as mesh:
        handles = await handles_of(mesh, 2)
        mesh.broker.pass_time(60_001)
        answer = await mesh.http.post(ACK, json={"receipt_handles": handles})
        assert (answer.status_code, answer.json()["code"]) == (410, "receipt-expired")
        (fresh,) = [message["receipt_handle"] for message in (await mesh.receive(max_messages=1)).json()["messages"]]
        mixed = await mesh.http.post(ACK, json={"receipt_handles": [fresh, handles[1], "forged"]})
        assert (mixed.status_code, mixed.json()["failed"]) == (207, 2)
        results = mixed.json()["results"]
        assert results[0] == {"receipt_handle": fresh, "status": "ok"}
        assert [result["error"]["code"] for result in results[1:]] == ["receipt-expired", "receipt-invalid"]


async def test_settle_acks_and_extends_in_one_call() -> None:
    """The new invisible time travels in milliseconds; the handle stays good."""
    async with proxy_mesh() as mesh:
        one, two = await handles_of(mesh, 2)
        entries = [{"receipt_handle": one}, {"receipt_handle": two, "action": "extend", "invisible": "5m"}]
        answer = await mesh.http.post(SETTLE, json={"entries": entries})
        assert (answer.status_code, answer.json()["failed"]) == (200, 0)
        assert (await mesh.http.post(ACK, json={"receipt_handles": [two]})).status_code == 200


async def test_settle_nacks_and_rejects_in_one_call_and_keeps_the_order_of_results() -> None:
    """Delays travel in milliseconds, -1 stands for the group's policy; what is over or forged is told at its place."""
    async with proxy_mesh() as mesh:
        one, two, three, four = await handles_of(mesh, 4)
        entries = [
            {"receipt_handle": one, "action": "nack"},
            {"receipt_handle": two, "action": "dead_letter", "reason": "no such shop"},
            {"receipt_handle": "forged", "action": "dead_letter"},
            {"receipt_handle": three, "action": "nack", "delay": "1.5s"},
            {"receipt_handle": four},
            {"receipt_handle": two, "action": "dead_letter"},
        ]
        answer = await mesh.http.post(SETTLE, json={"entries": entries})
        assert (answer.status_code, answer.json()["failed"]) == (207, 1)
        results = [result.get("status") or result["error"]["code"] for result in answer.json()["results"]]
        assert results == ["ok", "ok", "receipt-invalid", "ok", "ok", "ok"]
        assert sorted(delay for _, delay in mesh.broker.nacked) == [-1, 1_500]
        assert [reason for _, reason in mesh.broker.rejected] == ["no such shop", ""]
        mesh.broker.pass_time(3_600_000)
        again = (await mesh.receive(max_messages=9)).json()["messages"]
        assert [message["attempt"] for message in again] == [2, 2]


async def test_a_release_gives_back_at_once_and_does_not_count_the_attempt() -> None:
    """Attempts of before stay: it takes back its own and no other, once. It goes along with a receive, too."""
    async with proxy_mesh() as mesh:
        (handle,) = await handles_of(mesh, 1)
        for attempt in (1, 2):
            entry = {"receipt_handle": handle, "action": "release"}
            answer = await mesh.http.post(SETTLE, json={"entries": [entry]})
            assert answer.json() == {"results": [{"receipt_handle": handle, "status": "ok"}], "failed": 0}
            repeated = await mesh.http.post(SETTLE, json={"entries": [entry]})
            assert repeated.json()["code"] == "receipt-expired"
            again = (await mesh.receive()).json()["messages"]
            assert [message["attempt"] for message in again] == [attempt]
            nack = {"receipt_handle": again[0]["receipt_handle"], "action": "nack", "delay": "0s"}
            again = (await mesh.receive(settle=[nack])).json()["messages"]
            assert [message["attempt"] for message in again] == [attempt + 1]
            handle = again[0]["receipt_handle"]
        entry = {"receipt_handle": handle, "action": "release"}
        answer = (await mesh.receive(settle=[entry])).json()
        assert ([message["attempt"] for message in answer["messages"]], len(answer["settled"])) == ([3], 1)
        assert mesh.proxy.counters.messages["released"] == 3


async def test_dead_letters_whose_broker_is_in_trouble_fail_each_for_itself() -> None:
    """Acks of the same request go on; the problem is at each dead letter."""
    async with proxy_mesh() as mesh:
        one, two = await handles_of(mesh, 2)
        mesh.broker.script(RequestCode.DEAD_LETTER, *[DiskFull(broker_group="broker-a")] * 50)
        entries = [{"receipt_handle": one, "action": "dead_letter"}, {"receipt_handle": two}]
        answer = await mesh.http.post(SETTLE, json={"entries": entries})
        assert answer.status_code == 207, answer.text
        assert [result.get("status") or result["error"]["code"] for result in answer.json()["results"]] == [
            "disk-full",
            "ok",
        ]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (ACK, b"", 400, "malformed-body"),
        (ACK, b"{}", 400, "invalid-field"),
        (ACK, b'{"receipt_handles":[]}', 400, "invalid-field"),
        (ACK, b'{"receipt_handles":["x"],"reason":"r"}', 400, "unknown-field"),
        (f"{ACK}?receipt_handle=x", b"{}", 400, "invalid-field"),
        (f"{ACK}?handle=x", b"", 400, "unknown-parameter"),
        (ACK, b'{"receipt_handles":[' + b",".join([b'"x"'] * (SETTLE_ENTRIES_MAX + 1)) + b"]}", 413, "batch-too-large"),
        (ACK, b'{"receipt_handles":[' + b",".join([b'"x"'] * 10_001) + b"]}", 413, "batch-too-large"),
        (SETTLE, b'{"entries":[' + b",".join([b'{"receipt_handle":"x"}'] * 10_001) + b"]}", 413, "batch-too-large"),
        (ACK, bytes(2 << 20), 413, "batch-too-large"),
        ("/v1/topics/orders/groups/a.b/ack", b'{"receipt_handles":["x"]}', 400, "illegal-group"),
        (SETTLE, b'{"entries":[{"receipt_handle":"x","action":"reject"}]}', 400, "invalid-field"),
        (SETTLE, b'{"entries":[{"receipt_handle":"x","invisible":"5s"}]}', 400, "invalid-field"),
        (
            SETTLE,
            b'{"entries":[{"receipt_handle":"x","action":"extend","invisible":"0s"}]}',
            400,
            "illegal-invisible-time",
        ),
        (SETTLE, b'{"entries":[{"receipt_handle":"x","delay":"5s"}]}', 400, "invalid-field"),
        (SETTLE, b'{"entries":[{"receipt_handle":"x","action":"nack","delay":"13h"}]}', 400, "invalid-field"),
        (SETTLE, b'{"entries":[{"receipt_handle":"x","action":"nack","reason":"why"}]}', 400, "invalid-field"),
        (SETTLE, b'{"entries":[{"receipt_handle":"x","action":"extend","delay":"1s"}]}', 400, "invalid-field"),
        (SETTLE, b'{"entries":[{"receipt_handle":"x","action":"release","delay":"5s"}]}', 400, "invalid-field"),
        (SETTLE, b'{"entries":[{"receipt_handle":"x","backoff":"5s"}]}', 400, "unknown-field"),
    ],
    ids=lambda value: None if isinstance(value, str | int) else f"{len(value)}-{crc32(value) % 997}",
)
async def test_bad_settles_are_problems(path: str, body: bytes, status: int, code: str) -> None:
    """Refused before the broker is asked."""
    async with proxy_mesh() as mesh:
        answer = await mesh.post(path, body, content_type=JSON)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert mesh.broker.asked[RequestCode.SETTLE] == 0


async def test_settles_survive_a_lost_link() -> None:
    """Settling twice is settling once, so the flight is repeated."""
    async with proxy_mesh() as mesh:
        handles = await handles_of(mesh, 2)
        mesh.broker.script(RequestCode.SETTLE, lambda link, _: link.abort("scripted"))
        answer = await mesh.http.post(ACK, json={"receipt_handles": handles})
        assert (answer.status_code, mesh.broker.asked[RequestCode.SETTLE]) == (200, 2)


async def test_a_handle_of_a_broker_group_that_is_not_there_waits_for_it() -> None:
    """503 no-leader: the lease may still be good when the group is back."""
    async with proxy_mesh() as mesh:
        handle = HandleMaker(KEY, "orders", "billing").make(Receipt("broker-z", 1, 1, 1, 0, 1, 1))
        answer = await mesh.http.post(ACK, json={"receipt_handles": [handle]})
        assert (answer.status_code, answer.json()["code"]) == (503, "no-leader")
