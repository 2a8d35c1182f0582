"""Plans of reads through the whole proxy: many topics, several broker groups, sizes, and what is refused."""

from typing import Any

import httpx
import orjson
import pytest

from tern_broker.link import read_plans
from tern_proxy.core.reading import plans
from tern_wire.errors import StorageDamaged
from tern_wire.limits_reads import READ_BODY_SIZE_MAX_BYTES, READ_PLAN_QUEUES_MAX, READ_PLAN_TOPICS_MAX
from tern_wire.link.requests import RequestCode
from tern_wire.paths import JSON, READ_LEASES_PATH, READ_PLAN_PATH
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh
from tests.support.proxy.two_groups import two_groups

TOPICS = {"orders": 2, "payments": 3}


async def plan(mesh: ProxyMesh, *topics: dict[str, Any], **fields: Any) -> httpx.Response:
    """Plan *topics*."""
    return await mesh.http.post(READ_PLAN_PATH, json={"topics": list(topics), **fields})


async def fill(mesh: ProxyMesh, queue: str, sizes: list[int], topic: str = "orders") -> None:
    """Store bodies of these sizes in *queue*."""
    for size in sizes:
        answer = await mesh.post(f"/v1/topics/{topic}/messages?queue={queue}", bytes(size))
        assert answer.status_code == 201


def of_queue(answer: httpx.Response, queue: str, topic: int = 0) -> dict[str, Any]:
    """The row of *queue*."""
    assert answer.status_code == 200, answer.text
    (row,) = [row for row in answer.json()["topics"][topic]["queues"] if row["queue"] == queue]
    return dict(row)


def record_sizes(mesh: ProxyMesh, queue: int) -> list[int]:
    """What each record of a queue of orders takes."""
    return [len(record) for record in mesh.broker.queue_records("orders", queue)]


async def test_one_request_to_each_broker_group_whatever_the_number_of_topics() -> None:
    """The topics in the order of the request, with the queues of every broker group."""
    async with proxy_mesh(*two_groups(), topics=TOPICS) as mesh:
        await fill(mesh, "broker-a:0", [1, 1])
        await fill(mesh, "broker-b:2", [1], "payments")
        answer = await plan(mesh, {"topic": "payments"}, {"topic": "orders"})
        assert [row["topic"] for row in answer.json()["topics"]] == ["payments", "orders"]
        assert [len(row["queues"]) for row in answer.json()["topics"]] == [6, 4]
        assert of_queue(answer, "broker-b:2") == {"queue": "broker-b:2", "min_offset": 0, "max_offset": 1}
        assert of_queue(answer, "broker-a:0", 1) == {"queue": "broker-a:0", "min_offset": 0, "max_offset": 2}
        assert (answer.json()["is_complete"], answer.json()["size_bytes"]) == (True, 0)
        assert [broker.asked[RequestCode.PLAN_READ] for broker in mesh.brokers] == [1, 1]


async def test_sizes_are_those_of_the_records_and_cuts_divide_them() -> None:
    """Each part is as large as it may be, and no larger."""
    async with proxy_mesh(topics=TOPICS) as mesh:
        await fill(mesh, "broker-a:1", [100, 200, 300, 2_000, 50, 60])
        sizes = record_sizes(mesh, 1)
        step_bytes = sizes[0] + sizes[1] + sizes[2]
        answer = await plan(mesh, {"topic": "orders"}, sizes=True, step_bytes=step_bytes)
        row = of_queue(answer, "broker-a:1")
        assert (row["begin"], row["measured_to"], row["size_bytes"]) == (0, 6, sum(sizes))
        assert row["cuts"] == [3, 4]
        assert of_queue(answer, "broker-a:0")["size_bytes"] == 0
        assert (answer.json()["is_complete"], answer.json()["size_bytes"]) == (True, sum(sizes))


async def test_ranges_and_budgets_are_of_single_queues() -> None:
    """A budget ends before the message that does not fit; other queues are not measured."""
    async with proxy_mesh(topics=TOPICS) as mesh:
        await fill(mesh, "broker-a:1", [100, 200, 300, 400])
        sizes = record_sizes(mesh, 1)
        named = {"topic": "orders", "begin": {"broker-a:1": 1}, "end": {"broker-a:1": 3}}
        answer = await plan(mesh, named, sizes=True)
        row = of_queue(answer, "broker-a:1")
        assert (row["begin"], row["measured_to"], row["size_bytes"]) == (1, 3, sizes[1] + sizes[2])
        assert "begin" not in of_queue(answer, "broker-a:0")
        assert answer.json()["is_complete"]
        for budget_bytes, reached in ((sizes[1] - 1, 1), (sizes[1], 2), (sizes[1] + sizes[2], 3), (1 << 40, 4)):
            budget = {"begin": {"broker-a:1": 1}, "budget_bytes": {"broker-a:1": budget_bytes}}
            answer = await plan(mesh, {"topic": "orders", **budget})
            assert of_queue(answer, "broker-a:1")["measured_to"] == reached
            assert answer.json()["is_complete"], "the budget is what was asked for"


async def test_a_time_gives_the_offset_of_that_time() -> None:
    """For the topic that names it."""
    async with proxy_mesh(topics=TOPICS) as mesh:
        await fill(mesh, "broker-a:1", [1, 1])
        answer = await plan(mesh, {"topic": "orders", "time": NOW_MS - 1_000}, {"topic": "payments"})
        assert of_queue(answer, "broker-a:1")["offset_at"] == 0
        assert "offset_at" not in of_queue(answer, "broker-a:1", 1)
        late = await plan(mesh, {"topic": "orders", "time": NOW_MS + 60_000_000})
        assert of_queue(late, "broker-a:1")["offset_at"] == 2


async def test_more_than_one_request_may_measure_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each queue gets its part, and what one does not need is for the next."""
    monkeypatch.setattr(read_plans, "READ_PLAN_ROWS_MAX", 5)
    async with proxy_mesh(topics={"orders": 2}) as mesh:
        await fill(mesh, "broker-a:0", [1])
        await fill(mesh, "broker-a:1", [1] * 6)
        answer = await plan(mesh, {"topic": "orders"}, sizes=True)
        assert not answer.json()["is_complete"]
        assert of_queue(answer, "broker-a:0")["measured_to"] == 1
        assert of_queue(answer, "broker-a:1")["measured_to"] == 4
        rest = await plan(mesh, {"topic": "orders", "begin": {"broker-a:1": 4}}, sizes=True)
        assert (rest.json()["is_complete"], of_queue(rest, "broker-a:1")["measured_to"]) == (True, 6)


async def test_a_range_is_cut_to_what_is_there() -> None:
    """Below the oldest and behind the next offset there is nothing to measure."""
    async with proxy_mesh(topics=TOPICS) as mesh:
        await fill(mesh, "broker-a:1", [1, 1])
        behind = {"topic": "orders", "begin": {"broker-a:1": 7}, "end": {"broker-a:1": 9}}
        row = of_queue(await plan(mesh, behind, sizes=True), "broker-a:1")
        assert (row["begin"], row["measured_to"], row["size_bytes"]) == (2, 2, 0)


@pytest.mark.parametrize(
    ("fields", "code", "pointer"),
    [
        ({"topics": []}, "invalid-field", "/topics"),
        (
            {"topics": [{"topic": f"t{number}"} for number in range(READ_PLAN_TOPICS_MAX + 1)]},
            "invalid-field",
            "/topics",
        ),
        ({"topics": [{"topic": "orders"}, {"topic": "orders"}]}, "invalid-field", "/topics/1"),
        ({"topics": [{"topic": "nowhere"}]}, "topic-not-found", ""),
        ({"topics": [{"topic": "no way"}]}, "illegal-topic", ""),
        ({"topics": [{"topic": "orders", "begin": {"broker-a:9": 0}}]}, "queue-not-found", ""),
        ({"topics": [{"topic": "orders", "begin": {"broker-a:0": -1}}]}, "invalid-field", "/topics/0/begin/broker-a:0"),
        (
            {"topics": [{"topic": "orders", "begin": {"broker-a:0": 5}, "end": {"broker-a:0": 4}}]},
            "invalid-field",
            "/topics/0/end/broker-a:0",
        ),
        ({"topics": [{"topic": "orders", "time": "yesterday"}]}, "invalid-field", "/topics/0/time"),
        ({"topics": [{"topic": "orders"}], "step_bytes": -1}, "invalid-field", "/step_bytes"),
        ({"topics": [{"topic": "orders", "beginn": {}}]}, "unknown-field", ""),
    ],
)
async def test_what_is_no_plan_is_refused(fields: dict[str, Any], code: str, pointer: str) -> None:
    """With the place of the fault."""
    async with proxy_mesh(topics=TOPICS) as mesh:
        answer = await mesh.post(READ_PLAN_PATH, orjson.dumps(fields), content_type=JSON)
        assert answer.json()["code"] == code, answer.text
        assert not pointer or answer.json()["pointer"] == pointer


async def test_a_plan_of_too_many_queues_is_refused_before_anybody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is a smaller plan."""
    monkeypatch.setattr(plans, "READ_PLAN_QUEUES_MAX", 4)
    async with proxy_mesh(topics=TOPICS) as mesh:
        answer = await plan(mesh, {"topic": "orders"}, {"topic": "payments"})
        assert answer.json()["code"] == "limit-reached"
        assert "Plan fewer topics at a time." in answer.json()["detail"]
        assert mesh.broker.asked[RequestCode.PLAN_READ] == 0


@pytest.mark.parametrize("path", [READ_PLAN_PATH, READ_LEASES_PATH])
async def test_a_body_may_name_as_many_queues_as_the_limit_says_and_no_more_bytes_than_its_own(path: str) -> None:
    """20,000 queues with begin, end and budget are read, so that the first unknown one is named; a longer body is refused unread."""
    names = [f"broker-a:{number}" for number in range(READ_PLAN_QUEUES_MAX)]
    topic: dict[str, Any] = {"topic": "orders", "begin": dict.fromkeys(names, 0), "end": dict.fromkeys(names, 10**12)}
    if path == READ_PLAN_PATH:
        topic["budget_bytes"] = dict.fromkeys(names, 10**9)
    async with proxy_mesh(topics=TOPICS) as mesh:
        answer = await mesh.post(path, orjson.dumps({"topics": [topic]}), content_type=JSON)
        assert (answer.status_code, answer.json()["code"]) == (404, "queue-not-found"), answer.text
        padded = b'{"topics": [{"topic": "orders"}]' + b" " * READ_BODY_SIZE_MAX_BYTES + b"}"
        answer = await mesh.post(path, padded, content_type=JSON)
        assert (answer.status_code, answer.json()["code"]) == (413, "message-too-large"), answer.text


async def test_an_error_of_one_broker_group_is_the_answer() -> None:
    """Half a plan would lose messages in silence."""
    async with proxy_mesh(*two_groups(), topics=TOPICS, leader_wait_ms=50) as mesh:
        mesh.brokers[1].script(RequestCode.PLAN_READ, StorageDamaged(node="broker-b-0", broker_group="broker-b"))
        assert (await plan(mesh, {"topic": "orders"})).json()["code"] == "storage-damaged"
