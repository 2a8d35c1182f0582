"""Checks received by pull: parked here, one question at each broker group for all polls, and nothing that was handed out is lost."""

import asyncio
from typing import Any

import httpx
import msgspec
import pytest

from tern_proxy.auto_create import AutoCreate
from tern_wire.errors import LinkReplyMalformed, Overloaded
from tern_wire.limits import CHECK_AFTER_DEFAULT_MS
from tern_wire.link.requests import RequestCode, body_parts
from tern_wire.paths import JSON, MSGPACK
from tests.support.broker.contents import declare_producers, delete_producers, open_transactions, producer_groups
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh
from tests.support.proxy.transaction_requests import IDS, begin, begin_several, code_of, declare, end

pytestmark = pytest.mark.anyio
CHECKS = "/v1/producer-groups/shop/checks/receive"


def two_groups() -> tuple[MemoryBroker, MemoryBroker]:
    """Leaders of two broker groups."""
    return MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b")


async def ask(mesh: ProxyMesh, **fields: Any) -> httpx.Response:
    """Receive checks of shop."""
    return await mesh.http.post(CHECKS, json=fields)


def due(broker: MemoryBroker, ms: int = CHECK_AFTER_DEFAULT_MS) -> None:
    """So much time passes at the broker; checks that are due by then are due."""
    broker.pass_time(ms)


def parked_at(broker: MemoryBroker, count: int) -> Any:
    """Whether *count* claims wait at *broker*."""
    return lambda: broker.claims == count


async def test_a_check_shows_the_transaction_and_is_answered_by_its_end() -> None:
    """Messages as receive shows them, but without offsets; encodings as there; commit answers."""
    async with proxy_mesh(topics={"orders": 4, "bills": 2}) as mesh:
        declare(mesh)
        begun = (
            await begin_several(
                mesh,
                {"topic": "orders", "json": {"n": 1}, "tag": "T", "keys": ["k"], "properties": {"a": "b"}},
                {"topic": "bills", "body_base64": "/w=="},
            )
        ).json()
        due(mesh.broker)
        answer = await ask(mesh)
        assert (answer.status_code, "mq-wait-applied" in answer.headers) == (200, False)
        (check,) = answer.json()["checks"]
        one, two = check.pop("messages")
        assert check == {
            "transaction_id": begun["transaction_id"],
            "attempt": 1,
            "producer_group": "shop",
            "begun_at": NOW_MS,
            "answer_by": NOW_MS + CHECK_AFTER_DEFAULT_MS + 10_000,
        }
        assert (one["topic"], one["json"], one["tag"], one["keys"], one["properties"]) == (
            *("orders", {"n": 1}, "T", ["k"], {"a": "b"}),
        )
        assert [one["message_id"], two["message_id"]] == begun["message_ids"]
        assert (two["topic"], two["body_base64"], "offset" in two) == ("bills", "/w==", False)
        assert (await ask(mesh)).json() == {"checks": []}
        due(mesh.broker, 10_000)  # the claim ends without an answer, and the same attempt is handed out again
        packed = await mesh.post(
            f"{CHECKS}?max_messages=1", msgspec.msgpack.encode({}), content_type=MSGPACK, accept=MSGPACK
        )
        (again,) = msgspec.msgpack.decode(packed.content)["checks"]
        assert (again["attempt"], again["messages"][1]["body"]) == (1, b"\xff")
        assert (await end(mesh, again["transaction_id"], "commit")).json()["messages"] == 2
        heads = [head for code, head in mesh.broker.heads if code == RequestCode.CLAIM_CHECKS]
        assert (heads[0]["checker"], heads[0]["claim_ms"], heads[0]["max"]) == (mesh.proxy.name, 10_000, 16)


async def test_a_poll_waits_for_a_check_and_its_place_is_free_afterwards() -> None:
    """Parked with everything that waits; the answer comes when a check is due, or empty when the time is over."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        begun = (await begin(mesh)).json()["transaction_id"]
        poll = asyncio.create_task(ask(mesh, wait="20s"))
        await eventually(parked_at(mesh.broker, 1), "the claim waits at the broker")
        await eventually(lambda: len(mesh.proxy.parking) == 1, "the poll has its place")
        due(mesh.broker)
        answer = await poll
        assert [check["transaction_id"] for check in answer.json()["checks"]] == [begun]
        assert answer.headers["mq-wait-applied"] == "20000ms"
        assert len(mesh.proxy.parking) == 0
        late = await ask(mesh, wait="20ms")
        assert (late.json(), late.headers["mq-wait-applied"]) == ({"checks": []}, "20ms")


async def test_many_polls_ask_each_broker_group_once_and_share_what_comes() -> None:
    """Five polls, one claim for all of them; the oldest get what came, the others wait on."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        times = ["1s", "1s", "60s", "60s", "60s"]
        for check_after in times:
            assert (await begin(mesh, MQ_Check_After=check_after)).status_code == 201
        polls = []
        for number in range(5):
            polls.append(asyncio.create_task(ask(mesh, wait="20s", max_messages=2)))
            await eventually(lambda number=number: len(mesh.proxy.parking) == number + 1, "parked")  # type: ignore[misc]
        await eventually(parked_at(mesh.broker, 1), "one claim")
        due(mesh.broker, 1_000)
        first, *rest = polls
        found = (await first).json()["checks"]
        assert len(found) == 2
        for check in found:
            await end(mesh, check["transaction_id"], "commit")
        assert not any(poll.done() for poll in rest)
        await eventually(parked_at(mesh.broker, 1), "the next claim")
        due(mesh.broker, 1_000)
        assert not any(poll.done() for poll in rest)
        due(mesh.broker, 58_000)
        shares = await asyncio.gather(*rest[:2])
        assert [len(answer.json()["checks"]) for answer in shares] == [2, 1]
        mesh.proxy.stop_waiting()
        assert {answer.text for answer in await asyncio.gather(*rest[2:])} == {'{"checks":[]}'}


async def test_checks_come_from_all_broker_groups_and_a_stray_one_goes_to_the_next_poll() -> None:
    """Both are asked; when both answer, the second answer is kept, not lost."""
    async with proxy_mesh(*two_groups()) as mesh:
        declare(mesh)
        homes: dict[str, str] = {}
        while len(homes) < 2:
            begun = (await begin(mesh)).json()["transaction_id"]
            homes[IDS.read(begun).broker_group] = begun
        poll = asyncio.create_task(ask(mesh, wait="20s"))
        await eventually(lambda: all(broker.claims == 1 for broker in mesh.brokers), "both are asked")
        due(mesh.brokers[1])
        assert [check["transaction_id"] for check in (await poll).json()["checks"]] == [homes["broker-b"]]
        due(mesh.brokers[0])  # nobody waits, but the claim is still at the broker
        await eventually(lambda: len(mesh.proxy.checks.kept) == 1, "the proxy keeps it")
        asked = mesh.brokers[0].asked[RequestCode.CLAIM_CHECKS]
        assert [check["transaction_id"] for check in (await ask(mesh)).json()["checks"]] == [homes["broker-a"]]
        assert mesh.brokers[0].asked[RequestCode.CLAIM_CHECKS] == asked


async def test_a_kept_check_that_nobody_could_answer_in_time_is_dropped() -> None:
    """Its broker group asks again when the claim is over."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        await begin(mesh)
        poll = mesh.raw("POST", CHECKS)
        poll.push(b'{"wait": "20s"}')
        await eventually(parked_at(mesh.broker, 1), "the claim waits at the broker")
        poll.hang_up()
        await eventually(lambda: len(mesh.proxy.parking) == 0, "a client that is gone frees its place")
        await poll.task
        assert poll.sent == []
        due(mesh.broker)
        await eventually(lambda: len(mesh.proxy.checks.kept) == 1, "the proxy keeps it")
        mesh.proxy.clock.ms += CHECK_AFTER_DEFAULT_MS + 8_001  # type: ignore[attr-defined]
        assert (await ask(mesh)).json() == {"checks": []}


async def test_a_full_parking_lot_answers_at_once_and_says_so() -> None:
    """No place, no wait: the header has what was granted."""
    async with proxy_mesh(polls_max=1) as mesh:
        declare(mesh)
        first = asyncio.create_task(ask(mesh, wait="20s"))
        await eventually(lambda: len(mesh.proxy.parking) == 1, "the only place is taken")
        second = await ask(mesh, wait="20s")
        assert (second.json(), second.headers["mq-wait-applied"]) == ({"checks": []}, "0ms")
        mesh.proxy.stop_waiting()
        assert (await first).json() == {"checks": []}


async def test_a_poll_outlives_an_election() -> None:
    """The old leader refuses what waits; the new one is asked; the client hears of the check only."""
    old, new = MemoryBroker(KEY), MemoryBroker(KEY, node="broker-a-1", leads=False)
    async with proxy_mesh(old, new) as mesh:
        declare_producers(old, ["shop"])
        poll = asyncio.create_task(ask(mesh, wait="20s"))
        await eventually(parked_at(old, 1), "the claim waits at the old leader")
        old.resign()
        new.lead(2)
        declare_producers(new, ["shop"])
        begun = (await begin(mesh)).json()["transaction_id"]
        await eventually(parked_at(new, 1), "the claim waits at the new leader")
        due(new)
        assert [check["transaction_id"] for check in (await poll).json()["checks"]] == [begun]


async def test_a_broker_group_in_trouble_is_passed_over_and_all_in_trouble_is_the_answer() -> None:
    """503 only when nobody could say and nobody waits for it to end."""
    async with proxy_mesh(*two_groups()) as mesh:
        declare(mesh)
        await begin(mesh)
        home = next(broker for broker in mesh.brokers if open_transactions(broker))
        away = next(broker for broker in mesh.brokers if broker is not home)
        due(home)
        away.script(RequestCode.CLAIM_CHECKS, Overloaded(what="checks"))
        assert len((await ask(mesh)).json()["checks"]) == 1
        for broker in mesh.brokers:
            broker.script(RequestCode.CLAIM_CHECKS, *[Overloaded(what="checks")] * 2)
        assert code_of(await ask(mesh)) == (503, "overloaded")
        poll = asyncio.create_task(ask(mesh, wait="20s"))
        await eventually(lambda: sum(broker.claims for broker in mesh.brokers) == 2, "both are asked again")
        due(home, 10_000)
        assert len((await poll).json()["checks"]) == 1


async def test_an_unknown_producer_group_is_404_or_made_at_its_first_use() -> None:
    """One broker group that knows it is enough; one that is deleted while somebody waits is 404, too."""
    async with proxy_mesh(*two_groups()) as mesh:
        assert code_of(await ask(mesh)) == (404, "producer-group-not-found")
        assert code_of(await ask(mesh, wait="20s")) == (404, "producer-group-not-found")
        declare(mesh)
        delete_producers(mesh.brokers[1], "shop")
        assert (await ask(mesh, wait="5ms")).json() == {"checks": []}
        await eventually(parked_at(mesh.brokers[0], 0), "the first claim is over")
        poll = asyncio.create_task(ask(mesh, wait="20s"))
        await eventually(parked_at(mesh.brokers[0], 1), "the claim waits")
        delete_producers(mesh.brokers[0], "shop")
        assert code_of(await poll) == (404, "producer-group-not-found")
    async with proxy_mesh(auto_create=AutoCreate(groups=True)) as mesh:
        assert (await ask(mesh)).json() == {"checks": []}
        assert "shop" in producer_groups(mesh.broker)


async def test_what_a_broker_cannot_mean_is_an_error_not_half_a_check() -> None:
    """Records that are missing, or too many."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        row = [1, 1, 1, "shop", 7, NOW_MS, NOW_MS + 10_000, [["orders", 0, 10]]]
        for head, raw in (({"checks": [row]}, b""), ({"checks": []}, b"x")):
            mesh.broker.script(
                RequestCode.CLAIM_CHECKS,
                lambda link, frame, head=head, raw=raw: link.reply(frame.opaque, 0, body_parts(head, [raw])),  # type: ignore[misc]
            )
            assert code_of(await ask(mesh)) == (LinkReplyMalformed.status, LinkReplyMalformed.code)


@pytest.mark.parametrize(
    ("query", "body", "status", "code"),
    [
        ("", b"{", 400, "malformed-body"),
        ("", b'{"max_messages": 0}', 400, "invalid-field"),
        ("", b'{"max_messages": 257}', 400, "invalid-field"),
        ("", b'{"max_messages": "1"}', 400, "invalid-field"),
        ("", b'{"wait": "31s"}', 400, "illegal-wait"),
        ("", b'{"invisible": "31s"}', 400, "unknown-field"),
        ("?max_messages=0", b"", 400, "invalid-field"),
        ("?wait=soon", b"", 400, "illegal-wait"),
        ("?encoding=rot13", b"", 400, "invalid-field"),
        ("?limit=1", b"", 400, "unknown-parameter"),
        ("", b" " * 5_000, 413, "batch-too-large"),
    ],
)
async def test_bad_polls_are_problems(query: str, body: bytes, status: int, code: str) -> None:
    """Refused before a broker is asked."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        assert code_of(await mesh.post(CHECKS + query, body, content_type=JSON)) == (status, code)
        assert code_of(await mesh.post("/v1/producer-groups/a.b/checks/receive")) == (400, "illegal-group")
        assert not mesh.broker.asked[RequestCode.CLAIM_CHECKS]
