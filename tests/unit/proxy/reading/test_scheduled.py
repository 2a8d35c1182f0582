"""Messages that wait, through the whole proxy: receipts, lists over several broker groups, recalls, and what is refused."""

import random
from typing import Any

import orjson
import pytest

from tern_proxy.core.scheduled import GroupPage, Place, after_in, put_together, read_cursor, write_cursor
from tern_wire.errors import AlreadyDelivered, InvalidField, NoLeader
from tern_wire.link.requests import RequestCode
from tern_wire.link.scheduled import ScheduledMessage
from tern_wire.paths import JSON, scheduled_path
from tern_wire.recall_handles import RecallMaker
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.proxy.proxy_mesh import KEY, proxy_mesh

ONE = "/v1/topics/orders/messages"
HOUR_MS = 3_600_000
LIST = scheduled_path("orders")


async def test_a_receipt_says_when_and_how_to_recall() -> None:
    """No offset and no place to read it yet; a repeat gets the first one's, also in the minimal form."""
    async with proxy_mesh() as mesh:
        answer = await mesh.http.post(ONE, content=b"x", headers={"MQ-Delay": "1h", "Idempotency-Key": "k"})
        receipt = answer.json()
        assert answer.status_code == 201
        assert "location" not in answer.headers
        assert (receipt["offset"], receipt["deliver_at"], receipt["born_at"]) == (-1, NOW_MS + HOUR_MS, NOW_MS)
        mesh.proxy.clock.ms += 5_000  # type: ignore[attr-defined]
        again = await mesh.http.post(ONE, content=b"x", headers={"MQ-Delay": "1h", "Idempotency-Key": "k"})
        assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
        assert again.json() == receipt
        headers = {"MQ-Delay": "1h", "Idempotency-Key": "k", "Prefer": "return=minimal"}
        minimal = await mesh.http.post(ONE, content=b"x", headers=headers)
        assert minimal.status_code == 204
        assert minimal.headers["mq-recall-handle"] == receipt["recall_handle"]
        assert (minimal.headers["mq-offset"], minimal.headers["mq-deliver-at"]) == ("-1", str(receipt["deliver_at"]))
        lines = [{"body": "a", "delay_level": 1}, {"body": "b"}, {"body": "x", "idempotency_key": "k"}]
        batch = await mesh.post(f"{ONE}/batch", orjson.dumps({"messages": lines}), content_type=JSON)
        first, second, third = batch.json()["results"]
        assert (first["offset"], "recall_handle" in first) == (-1, True)
        assert (second["offset"], "recall_handle" in second) == (0, False)
        assert (third["replayed"], third["recall_handle"]) == (True, receipt["recall_handle"])


async def test_a_list_goes_over_all_broker_groups_in_the_order_of_time() -> None:
    """In pages of any size: each message once, in order, with its own handle."""
    other = MemoryBroker(KEY, broker_group="broker-b", node="broker-b-0")
    async with proxy_mesh(MemoryBroker(KEY), other) as mesh:
        for number in range(20):
            queue = f"broker-{'ab'[number % 2]}:{number % 4}"
            await mesh.http.post(f"{ONE}?queue={queue}&delay={number * 7 % 5 + 1}s&key=k{number}", content=b"body")
        for limit in (1, 3, 20, 256):
            rows: list[dict[str, Any]] = []
            cursor = ""
            while True:
                query = f"?limit={limit}" + (f"&cursor={cursor}" if cursor else "")
                page = (await mesh.http.get(LIST + query)).json()
                assert len(page["messages"]) <= limit
                rows += page["messages"]
                cursor = page.get("next_cursor", "")
                if not cursor:
                    break
            assert sorted(row["keys"][0] for row in rows) == sorted(f"k{number}" for number in range(20))
            assert [row["deliver_at"] for row in rows] == sorted(row["deliver_at"] for row in rows)
            assert len({row["recall_handle"] for row in rows}) == 20
        some = (await mesh.http.get(f"{LIST}?from={NOW_MS + 2_000}&to={NOW_MS + 3_000}")).json()["messages"]
        assert {row["deliver_at"] for row in some} == {NOW_MS + 2_000}


async def test_a_recall_goes_to_the_broker_group_that_the_handle_names() -> None:
    """204 once; then what the broker says; a foreign handle never reaches it."""
    other = MemoryBroker(KEY, broker_group="broker-b", node="broker-b-0")
    async with proxy_mesh(MemoryBroker(KEY), other, topics={"orders": 4, "bills": 4}) as mesh:
        receipt = (await mesh.http.post(f"{ONE}?queue=broker-b:1&delay=1h", content=b"x")).json()
        path = scheduled_path("orders", receipt["recall_handle"])
        assert (await mesh.http.delete(path)).status_code == 204
        assert (await mesh.http.get(LIST)).json()["messages"] == []
        again = await mesh.http.delete(path)
        assert (again.status_code, again.json()["code"]) == (404, "not-scheduled")
        other.script(RequestCode.RECALL, AlreadyDelivered())
        late = await mesh.http.delete(path)
        assert (late.status_code, late.json()["code"]) == (409, "already-delivered")
        asked = other.asked[RequestCode.RECALL]
        for wrong in ("x", receipt["recall_handle"][:-4] + "AAAA", "A" * 97):
            refused = await mesh.http.delete(scheduled_path("orders", wrong))
            assert (refused.status_code, refused.json()["code"]) == (400, "recall-handle-invalid")
        foreign = await mesh.http.delete(scheduled_path("bills", receipt["recall_handle"]))
        assert (foreign.status_code, foreign.json()["code"]) == (400, "recall-handle-invalid")
        assert other.asked[RequestCode.RECALL] == asked
        unknown = await mesh.http.delete(scheduled_path("none", receipt["recall_handle"]))
        assert (unknown.status_code, unknown.json()["code"]) == (404, "topic-not-found")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?limit=0", "invalid-field"),
        ("?limit=257", "invalid-field"),
        ("?from=soon", "invalid-field"),
        ("?from=2&to=1", "invalid-field"),
        ("?cursor=x", "invalid-field"),
        ("?cursor=%C3%A9", "invalid-field"),
        ("?cursor=" + "A" * 200, "invalid-field"),
        ("?limit=1&limit=2", "invalid-field"),
        ("?offset=1", "unknown-parameter"),
    ],
)
async def test_bad_lists_are_problems(query: str, code: str) -> None:
    """400, and no broker is asked."""
    async with proxy_mesh() as mesh:
        answer = await mesh.http.get(LIST + query)
        assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text
        assert mesh.broker.asked[RequestCode.LIST_SCHEDULED] == 0


async def test_a_broker_group_without_a_leader_is_told() -> None:
    """A list with a hole in it would be a lie."""
    async with proxy_mesh(leader_wait_ms=20) as mesh:
        mesh.broker.script(RequestCode.LIST_SCHEDULED, *[NoLeader(broker_group="broker-a")] * 100)
        answer = await mesh.http.get(LIST)
        assert answer.status_code == 503


@pytest.mark.parametrize("seed", range(20))
def test_pages_of_many_broker_groups_make_one_list(seed: int) -> None:
    """Any times, groups and limits, also when rows vanish between two pages: what stays comes once, in order."""
    rng = random.Random(seed)
    maker = RecallMaker(KEY, "orders")
    groups = {
        name: {(rng.randrange(6), number) for number in rng.sample(range(1, 500), rng.randrange(12))}
        for name in ("broker-a", "broker-b", "broker-c")
    }
    stay = {(time_ms, name, number) for name, rows in groups.items() for time_ms, number in rows}
    shown: list[Place] = []
    place: Place | None = None
    while True:
        limit = rng.randrange(1, 5)
        pages = []
        for name, rows in groups.items():
            found = sorted(row for row in rows if row > after_in(name, place))
            # A broker may list fewer than it was asked for.
            count = min(limit, rng.randrange(1, 4))
            listed = [ScheduledMessage(time_ms, number, 0, "ID", "", "", 1, 2) for time_ms, number in found[:count]]
            behind = found[count - 1] if len(found) > count else None
            pages.append(GroupPage(broker_group=name, rows=listed, next=behind))
        messages, behind_all = put_together(pages, limit, maker)
        assert len(messages) <= limit
        for message in messages:
            recall = maker.read(message.recall_handle)
            shown.append((recall.deliver_ms, recall.broker_group, recall.timer_id))
        if behind_all is None:
            break
        place = read_cursor(write_cursor(behind_all))
        name = rng.choice(list(groups))
        if groups[name] and rng.random() < 0.5:
            gone = rng.choice(sorted(groups[name]))
            groups[name].remove(gone)
            if (gone[0], name, gone[1]) not in shown:
                stay.discard((gone[0], name, gone[1]))
    assert shown == sorted(set(shown))
    assert stay <= set(shown)


@pytest.mark.parametrize("text", ["", "AAAA", "gqFh", "k8DAwA", "kwGhYQD_", "é", "%"])
def test_a_cursor_that_was_not_made_here_is_refused(text: str) -> None:
    """InvalidField, whatever it is."""
    with pytest.raises(InvalidField):
        read_cursor(text)
