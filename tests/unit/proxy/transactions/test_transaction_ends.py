"""Ends of transactions at a proxy: once, whatever is repeated; gathered in a lane; only with an id that this cluster has made."""

import asyncio
from collections.abc import Sized
from functools import partial

import pytest

from tern_proxy.brokers.lanes import LANES_IN_FLIGHT
from tern_wire.errors import Overloaded, TransactionUnknown
from tern_wire.link.requests import RequestCode
from tern_wire.paths import JSON
from tern_wire.transactions import TransactionId, TransactionIds
from tests.support.broker.contents import declare_producers, expire_transactions
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, proxy_mesh
from tests.support.proxy.transaction_requests import IDS, SEVERAL, begin, code_of, declare, end

pytestmark = pytest.mark.anyio


async def test_an_end_is_repeated_until_somebody_answers() -> None:
    """Twice the same is once: after a lost link, and by the client; nothing is shown twice."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        begun = (await begin(mesh)).json()["transaction_id"]
        mesh.broker.script(RequestCode.END_TRANSACTIONS, lambda link, _: link.abort("scripted"))
        first = await end(mesh, begun, "commit")
        again = await end(mesh, begun, "commit")
        assert (first.status_code, again.status_code, again.json()) == (200, 200, first.json())
        assert len(mesh.broker.records("orders")) == 1


async def test_a_clients_reason_is_kept_with_the_end() -> None:
    """Shown with who ended it; said again with another reason, the first one stays."""
    async with proxy_mesh() as mesh:
        declare(mesh, "shop")
        for verb, state in (("commit", "committed"), ("rollback", "rolled-back")):
            begun = (await begin(mesh)).json()["transaction_id"]
            ended = await end(mesh, begun, verb, reason="the order is paid")
            assert (ended.status_code, ended.json()["state"], ended.json()["by"]) == (200, state, "client")
            assert (await end(mesh, begun, verb, reason="another")).json() == ended.json()
            shown = (await mesh.http.get(f"/v1/transactions/{begun}")).json()
            assert (shown["by"], shown["reason"]) == ("client", "the order is paid")


async def test_ends_follow_the_leader() -> None:
    """The old one refuses and names the new one; the client sees nothing of it."""
    first, second = MemoryBroker(KEY), MemoryBroker(KEY, node="broker-a-1", leads=False)
    async with proxy_mesh(first, second) as mesh:
        declare_producers(first, ["shop"])
        begun = (await begin(mesh)).json()["transaction_id"]
        first.resign()
        second.lead(2)
        link = mesh.proxy.groups["broker-a"].link
        await eventually(lambda: link.leader == second.node, "the second leader")
        first.greets = second.greets = False
        second.resign(first.node)
        first.lead(3)
        assert (await end(mesh, begun, "commit")).json()["state"] == "committed"
        assert [node.asked[RequestCode.END_TRANSACTIONS] for node in (first, second)] == [1, 1]


async def test_a_transaction_ends_once() -> None:
    """The other outcome is 409 with the state, whichever came first; the same is 200 again."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        for verb, other, state in (("commit", "rollback", "committed"), ("rollback", "commit", "rolled-back")):
            begun = (await begin(mesh)).json()["transaction_id"]
            ended = await end(mesh, begun, verb, reason="the order is paid")
            assert (ended.status_code, ended.json()["state"]) == (200, state)
            assert ("offset" in ended.json()) is (verb == "commit")
            refused = await end(mesh, begun, other)
            assert (*code_of(refused), refused.json()["state"]) == (409, "transaction-resolved", state)
            assert (await end(mesh, begun, verb)).json() == ended.json()
            by_hand = await end(mesh, begun, "resolve", outcome=other, reason="support")
            assert code_of(by_hand) == (409, "transaction-resolved")


async def test_an_expired_transaction_ends_by_hand_only() -> None:
    """410 for its client; resolve ends it and keeps the reason."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        begun = (await begin(mesh)).json()["transaction_id"]
        expire_transactions(mesh.broker, "shop")
        assert code_of(await end(mesh, begun, "commit")) == (410, "transaction-expired")
        resolved = await end(mesh, begun, "resolve", outcome="commit", reason="the bank says paid")
        assert (resolved.json()["state"], resolved.json()["by"], resolved.json()["offset"]) == ("committed", "hand", 0)
        shown = (await mesh.http.get(f"{SEVERAL}/{begun}")).json()
        assert (shown["by"], shown["reason"], shown["state"]) == ("hand", "the bank says paid", "committed")


async def test_ends_gather_in_a_lane_of_their_own() -> None:
    """Eight behind two flights under way become one request, each with its own verdict."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        ids = [(await begin(mesh)).json()["transaction_id"] for _ in range(10)]
        await end(mesh, ids[9], "rollback")
        mesh.broker.hold()
        tasks = []

        def has(things: Sized, count: int) -> bool:
            return len(things) == count

        for number, one in enumerate(ids):
            tasks.append(asyncio.create_task(end(mesh, one, "commit")))
            if number < LANES_IN_FLIGHT:
                await eventually(partial(has, mesh.broker.held, number + 1), "a flight at the broker")
        lane = mesh.proxy.groups["broker-a"].ends
        await eventually(lambda: lane.waiting == 8, "eight to gather")
        mesh.broker.let_go()
        answers = await asyncio.gather(*tasks)
        assert [answer.status_code for answer in answers] == [200] * 9 + [409]
        assert [answer.json()["transaction_id"] for answer in answers[:9]] == ids[:9]
        assert [head["rows"] for code, head in mesh.broker.heads if code is RequestCode.END_TRANSACTIONS] == [
            1,
            1,
            1,
            8,
        ]


async def test_an_overloaded_broker_is_passed_on() -> None:
    """503 with a pause, once; the next end goes through."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        begun = (await begin(mesh)).json()["transaction_id"]
        mesh.broker.script(RequestCode.END_TRANSACTIONS, Overloaded(what="requests that wait"))
        assert code_of(await end(mesh, begun, "commit")) == (503, "overloaded")
        assert (await end(mesh, begun, "commit")).status_code == 200


async def test_a_topic_that_the_routes_do_not_name_yet_is_asked_for() -> None:
    """The broker group that committed knows it; if it cannot say, the commit is answered without."""
    async with proxy_mesh(route_interval_ms=300_000) as mesh:
        declare(mesh)
        for trouble, topic in ((None, "orders"), (TransactionUnknown(), "")):
            begun = (await begin(mesh)).json()["transaction_id"]
            mesh.proxy.cache.topics.clear()
            if trouble is not None:
                mesh.broker.script(RequestCode.DESCRIBE_TRANSACTION, trouble)
            committed = await end(mesh, begun, "commit")
            assert (committed.status_code, committed.json().get("topic", "")) == (200, topic)
            assert mesh.broker.asked[RequestCode.DESCRIBE_TRANSACTION] >= 1
            await mesh.http.put("/v1/topics/orders")


@pytest.mark.parametrize("kind", ["other key", "cut", "flipped", "long", "empty", "signs", "handle"])
@pytest.mark.parametrize("verb", ["commit", "rollback", "resolve", ""])
async def test_a_forged_id_is_refused_without_asking_the_broker(kind: str, verb: str) -> None:
    """400 transaction-id-invalid for anything that this cluster did not make."""
    transaction = TransactionId("broker-a", 100 << 20, 7)
    good = IDS.make(transaction)
    forged = {
        "other key": TransactionIds(bytes(32)).make(transaction),
        "cut": good[:-4],
        "flipped": ("B" if good[20] != "B" else "C").join((good[:20], good[21:])),
        "long": good * 9,
        "empty": "%20",
        "signs": "%C3%A9%25%00",
        "handle": "AQABAAAAAQAAAAEAAAADAAAAAAAAACoAAAAAAAAAB2Jyb2tlci1hb3JkZXJzYmlsbGlu",
    }[kind]
    async with proxy_mesh() as mesh:
        if verb:
            fields = {"outcome": "commit", "reason": "x"} if verb == "resolve" else {}
            answer = await end(mesh, forged, verb, **fields)
        else:
            answer = await mesh.http.get(f"{SEVERAL}/{forged}")
        assert code_of(answer) == (400, "transaction-id-invalid")
        assert not mesh.broker.asked.keys() & {RequestCode.END_TRANSACTIONS, RequestCode.DESCRIBE_TRANSACTION}


async def test_a_transaction_that_nobody_knows_is_404_and_one_of_a_group_that_is_away_waits() -> None:
    """An outcome that is forgotten, a producer group that was made anew; 503 while a broker group is not there."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        begun = IDS.read((await begin(mesh)).json()["transaction_id"])
        for unknown in (
            TransactionId("broker-a", begun.number + 1, begun.producer_group_id),
            TransactionId("broker-a", begun.number, begun.producer_group_id + 1),
        ):
            made = IDS.make(unknown)
            for verb in ("commit", "rollback"):
                assert code_of(await end(mesh, made, verb)) == (404, "transaction-unknown")
            assert code_of(await mesh.http.get(f"{SEVERAL}/{made}")) == (404, "transaction-unknown")
            resolved = await end(mesh, made, "resolve", outcome="commit", reason="x")
            assert code_of(resolved) == (404, "transaction-unknown")
        away = IDS.make(TransactionId("broker-z", begun.number, begun.producer_group_id))
        assert code_of(await end(mesh, away, "commit")) == (503, "no-leader")
        assert code_of(await mesh.http.get(f"{SEVERAL}/{away}")) == (503, "no-leader")


@pytest.mark.parametrize(
    ("verb", "body", "code"),
    [
        ("commit", b"{", "malformed-body"),
        ("commit", b"[]", "invalid-field"),
        ("commit", b'{"reason": 1}', "invalid-field"),
        ("rollback", b'{"why": "x"}', "unknown-field"),
        ("rollback", b'{"reason": "' + b"x" * 257 + b'"}', "invalid-field"),
        ("rollback", b'{"reason": "\\u0001"}', "invalid-field"),
        ("commit", b" " * 5_000, "batch-too-large"),
        ("resolve", b"{}", "invalid-field"),
        ("resolve", b'{"outcome": "commit"}', "invalid-field"),
        ("resolve", b'{"outcome": "commit", "reason": " "}', "invalid-field"),
        ("resolve", b'{"outcome": "unknown", "reason": "x"}', "invalid-field"),
        ("resolve", b'{"outcome": "commit", "reason": "x", "by": "me"}', "unknown-field"),
    ],
)
async def test_bad_ends_are_problems(verb: str, body: bytes, code: str) -> None:
    """Refused before the broker is asked; so is an unknown parameter, and another method is 405."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        begun = (await begin(mesh)).json()["transaction_id"]
        answer = await mesh.post(f"{SEVERAL}/{begun}/{verb}", body, content_type=JSON)
        assert answer.json()["code"] == code, answer.text
        assert code_of(await mesh.http.post(f"{SEVERAL}/{begun}/{verb}?x=1"))[0] == 400
        assert (await mesh.http.put(f"{SEVERAL}/{begun}/{verb}")).status_code == 405
        assert not mesh.broker.asked.keys() & {RequestCode.END_TRANSACTIONS, RequestCode.RESOLVE_TRANSACTION}
