"""What people see of transactions: one, and pages of those that have not ended, over all broker groups."""

from typing import Any

import pytest

from tern_wire.limits import CHECK_AFTER_DEFAULT_MS, CHECK_INTERVAL_DEFAULT_MS, LISTED_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode
from tests.support.broker.contents import delete_producers, expire_transactions, open_transactions
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh
from tests.support.proxy.transaction_requests import IDS, SEVERAL, begin, begin_several, code_of, declare, end

pytestmark = pytest.mark.anyio


async def pages(mesh: ProxyMesh, query: str = "") -> list[list[dict[str, Any]]]:
    """All pages of the list."""
    found = []
    cursor = ""
    while True:
        answer = await mesh.http.get(f"{SEVERAL}?{query}" + (f"&cursor={cursor}" if cursor else ""))
        assert answer.status_code == 200, answer.text
        found.append(answer.json()["transactions"])
        cursor = answer.json()["next_cursor"]
        if not cursor:
            return found


async def test_a_transaction_is_described_while_it_is_open_and_after_its_end() -> None:
    """Its messages without offsets while they are invisible; times that are not there are left out."""
    async with proxy_mesh() as mesh:
        declare(mesh)
        begun = (await begin_several(mesh, {"topic": "orders", "body": "1"}, {"topic": "orders", "body": "2"})).json()
        number = IDS.read(begun["transaction_id"]).number
        first_ms = NOW_MS + CHECK_AFTER_DEFAULT_MS
        asked_ms = [first_ms, first_ms + CHECK_INTERVAL_DEFAULT_MS]
        for attempt, wait_ms in ((1, CHECK_AFTER_DEFAULT_MS), (2, CHECK_INTERVAL_DEFAULT_MS)):
            mesh.broker.pass_time(wait_ms)
            claim = {"producer_group": "shop", "checker": "checker-1", "max": 1, "claim_ms": 10_000}
            mesh.broker.propose(CommandKind.CLAIM_CHECKS, {**claim, "max_bytes": 1 << 20})
            report = [number, attempt, "unknown", 3]
            mesh.broker.propose(CommandKind.REPORT_CHECKS, {"reports": [report]})
        found = open_transactions(mesh.broker)[number]
        shown = (await mesh.http.get(f"{SEVERAL}/{begun['transaction_id']}")).json()
        checks = [
            {"attempt": attempt, "at": at_ms, "checker": "checker-1", "answer": "unknown", "latency_ms": 3}
            for attempt, at_ms in enumerate(asked_ms, 1)
        ]
        messages = [
            {"topic": "orders", "queue": f"broker-a:{queue}", "size": len(record)} for _, queue, record in found.halves
        ]
        assert shown == {
            "transaction_id": begun["transaction_id"],
            "producer_group": "shop",
            "state": "open",
            "begun_at": NOW_MS,
            "check_at": asked_ms[1] + CHECK_INTERVAL_DEFAULT_MS,
            "attempts": 2,
            "message_count": 2,
            "messages": messages,
            "checks": checks,
        }
        await end(mesh, begun["transaction_id"], "commit")
        ended = (await mesh.http.get(f"{SEVERAL}/{begun['transaction_id']}")).json()
        assert (ended["state"], ended["by"], ended["ended_at"], ended["message_count"]) == (
            *("committed", "client", asked_ms[1], 2),
        )
        assert ended["messages"] == [{**messages[0], "offset": 0}]
        assert not {"check_at", "reason"} & ended.keys()
        assert code_of(await mesh.http.get(f"{SEVERAL}/{begun['transaction_id']}?x=1")) == (400, "unknown-parameter")


async def test_pages_go_through_all_broker_groups_and_lose_nothing() -> None:
    """Every open one once, in the same order for every size of page; what ends in between makes none come twice and none be passed over."""
    brokers = (MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b"))
    async with proxy_mesh(*brokers) as mesh:
        declare(mesh, "shop", "till")
        begun = {(await begin(mesh)).json()["transaction_id"] for _ in range(11)}
        whole = [row["transaction_id"] for row in (await pages(mesh))[0]]
        assert set(whole) == begun
        assert whole == sorted(whole, key=lambda one: (IDS.read(one).broker_group, IDS.read(one).number))
        for limit in (1, 2, 3, 5, 10, 11, 12):
            found = await pages(mesh, f"limit={limit}")
            assert [row["transaction_id"] for page in found for row in page] == whole
            assert max(len(page) for page in found) <= limit
        first = (await mesh.http.get(f"{SEVERAL}?limit=4")).json()
        for one in whole[:5]:
            await end(mesh, one, "rollback")
        rest = (await mesh.http.get(f"{SEVERAL}?limit=100&cursor={first['next_cursor']}")).json()
        assert [row["transaction_id"] for row in rest["transactions"]] == whole[5:]
        assert rest["next_cursor"] == ""


async def test_lists_choose_by_producer_group_state_and_age() -> None:
    """As asked; what has ended is not listed."""
    async with proxy_mesh() as mesh:
        declare(mesh, "shop", "till")
        two = (await begin(mesh)).json()["transaction_id"]
        expire_transactions(mesh.broker, "shop")
        one = (await begin(mesh)).json()["transaction_id"]
        three = (await begin(mesh, MQ_Producer_Group="till")).json()["transaction_id"]

        async def ids(query: str) -> list[str]:
            return [row["transaction_id"] for page in await pages(mesh, query) for row in page]

        assert await ids("") == [two, one, three]
        assert await ids("producer_group=shop") == [two, one]
        assert await ids("state=expired") == [two]
        assert await ids("state=open&producer_group=till") == [three]
        assert await ids("older_than=5m") == [two]
        heads = [head for code, head in mesh.broker.heads if code == RequestCode.LIST_TRANSACTIONS]
        assert {"namespace": "", **heads[-1]} == {
            "namespace": "",
            "producer_group": "",
            "state": "",
            "older_than_ms": 300_000,
            "after": 0,
            "limit": 100,
        }


async def test_a_list_of_a_producer_group_that_only_one_broker_group_has_is_that_ones() -> None:
    """404 only when none has it."""
    brokers = (MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b"))
    async with proxy_mesh(*brokers) as mesh:
        declare(mesh)
        mesh.name_server.wiped.add("broker-a")
        await mesh.proxy.cache.refresh()
        begun = {(await begin(mesh)).json()["transaction_id"] for _ in range(3)}
        delete_producers(mesh.brokers[0], "shop")
        found = [row["transaction_id"] for page in await pages(mesh, "producer_group=shop&limit=1") for row in page]
        assert set(found) == begun
        assert code_of(await mesh.http.get(f"{SEVERAL}?producer_group=none")) == (404, "producer-group-not-found")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=0", "invalid-field"),
        (f"limit={LISTED_MAX + 1}", "invalid-field"),
        ("limit=x", "invalid-field"),
        ("state=committed", "invalid-field"),
        ("older_than=old", "invalid-field"),
        ("producer_group=a.b", "illegal-group"),
        ("cursor=nowhere", "invalid-field"),
        ("cursor=broker-a:99999999999999999999", "invalid-field"),
        ("cursor=broker-a:-1", "invalid-field"),
        ("after=1", "unknown-parameter"),
        ("limit=1&limit=2", "invalid-field"),
    ],
)
async def test_bad_lists_are_problems(query: str, code: str) -> None:
    """400, and no broker is asked."""
    async with proxy_mesh() as mesh:
        assert code_of(await mesh.http.get(f"{SEVERAL}?{query}")) == (400, code)
        assert not mesh.broker.asked[RequestCode.LIST_TRANSACTIONS]


async def test_a_broker_group_in_trouble_is_the_answer_of_a_list() -> None:
    """Never half a list as if it were the whole."""
    brokers = (MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b"))
    async with proxy_mesh(*brokers, leader_wait_ms=50) as mesh:
        declare(mesh)
        await begin(mesh)
        brokers[1].resign()
        assert code_of(await mesh.http.get(SEVERAL)) == (503, "no-leader")
