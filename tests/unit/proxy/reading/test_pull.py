"""Pulls by offset, topic and group administration, the cluster's picture, health and metrics."""

import asyncio
from dataclasses import replace

import msgspec
import orjson
import pytest

from tern_broker.core.feature_level import EXPECTED_NOT_BEGUN_LEVEL
from tern_remoting import Frame, Link
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode, body_parts, read_body
from tern_wire.paths import MSGPACK, RECORDS
from tern_wire.records.columns import heads_of, record_starts
from tern_wire.records.read import decode_record
from tests.support.broker.contents import forget_messages, store
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, proxy_mesh

pytestmark = pytest.mark.anyio
QUEUE = "/v1/topics/orders/queues/broker-a:0/messages"


async def fill(mesh: object, count: int) -> None:
    """Messages 0 to *count* - 1 in queue broker-a:0."""
    for number in range(count):
        answer = await mesh.post("/v1/topics/orders/messages?queue=broker-a:0", b"%d" % number)  # type: ignore[attr-defined]
        assert answer.status_code == 201


async def test_a_pull_reads_a_range_and_says_where_it_goes_on() -> None:
    """Messages in order with offsets, next, min and max in the document and in headers, and a Link to the rest."""
    async with proxy_mesh() as mesh:
        await fill(mesh, 5)
        answer = await mesh.http.get(f"{QUEUE}?offset=1&max_messages=2")
        document = answer.json()
        assert [(message["offset"], message["body"]) for message in document["messages"]] == [(1, "1"), (2, "2")]
        assert (document["next_offset"], document["min_offset"], document["max_offset"]) == (3, 0, 5)
        assert [answer.headers[f"mq-{name}-offset"] for name in ("next", "min", "max")] == ["3", "0", "5"]
        rest = await mesh.http.get(answer.links["next"]["url"])
        assert [message["offset"] for message in rest.json()["messages"]] == [3, 4]
        bounded = await mesh.http.get(f"{QUEUE}?offset=1&end_offset=3")
        assert [message["offset"] for message in bounded.json()["messages"]] == [1, 2]


async def test_a_pull_begins_at_the_earliest_or_at_the_latest() -> None:
    """By name; without `offset` it is the earliest."""
    async with proxy_mesh() as mesh:
        await fill(mesh, 3)
        forget_messages(mesh.broker, "orders", 0, before=1)
        for query in ("", "?offset=earliest"):
            assert (await mesh.http.get(QUEUE + query)).json()["messages"][0]["offset"] == 1
        latest = (await mesh.http.get(f"{QUEUE}?offset=latest")).json()
        assert (latest["messages"], latest["next_offset"]) == ([], 3)


async def test_raw_records_are_the_brokers_own_bytes() -> None:
    """One body of records that tern_wire reads; MessagePack and NDJSON carry the same messages."""
    async with proxy_mesh() as mesh:
        await fill(mesh, 3)
        raw = await mesh.http.get(f"{QUEUE}?offset=0", headers={"accept": RECORDS})
        assert raw.headers["content-type"] == RECORDS
        assert raw.content == b"".join(mesh.broker.queue_records("orders", 0))
        assert [decode_record(raw.content, int(at)).offset for at in record_starts(raw.content)] == [0, 1, 2]
        packed = await mesh.http.get(QUEUE, headers={"accept": MSGPACK})
        assert [message["body"] for message in msgspec.msgpack.decode(packed.content)["messages"]] == [b"0", b"1", b"2"]
        lines = await mesh.http.get(QUEUE, headers={"accept": "application/x-ndjson"})
        assert [orjson.loads(line)["body"] for line in lines.content.splitlines()] == ["0", "1", "2"]


async def test_a_large_page_of_raw_records_is_the_brokers_own_bytes() -> None:
    """Six bodies of 100,000 bytes: the proxy sends such a page from the buffer of its link."""
    async with proxy_mesh() as mesh:
        for number in range(6):
            await mesh.post("/v1/topics/orders/messages?queue=broker-a:0", b"%d" % number * 100_000)
        raw = await mesh.http.get(f"{QUEUE}?offset=0", headers={"accept": RECORDS})
        assert raw.headers["content-length"] == str(len(raw.content))
        assert raw.content == b"".join(mesh.broker.queue_records("orders", 0))
        assert len(raw.content) > 600_000


@pytest.mark.parametrize("is_older", [False, True])
async def test_heads_alone_are_the_heads_of_the_records(is_older: bool) -> None:
    """Their type says so, and their ETag is another one. A broker of the release before sends whole records, of which
    the proxy passes on the heads.
    """
    async with proxy_mesh() as mesh:
        await fill(mesh, 5)

        def without_the_field(link: Link, frame: Frame) -> None:
            head, raw = read_body(frame.body)
            assert head.pop("heads_only") is True
            mesh.broker.serve(link, replace(frame, body=memoryview(b"".join(body_parts(head, [raw])))))

        if is_older:
            mesh.broker.script(RequestCode.PULL, without_the_field)
        heads = await mesh.http.get(f"{QUEUE}?offset=1&end_offset=4&fields=heads", headers={"accept": RECORDS})
        assert heads.headers["content-type"] == f"{RECORDS}; fields=heads"
        assert heads.content == heads_of(b"".join(mesh.broker.queue_records("orders", 0)[1:4]))
        assert heads.headers["mq-next-offset"] == "4"
        whole = await mesh.http.get(f"{QUEUE}?offset=1&end_offset=4", headers={"accept": RECORDS})
        assert whole.headers["etag"] != heads.headers["etag"]
        again = {"accept": RECORDS, "if-none-match": heads.headers["etag"]}
        assert (await mesh.http.get(f"{QUEUE}?offset=1&end_offset=4&fields=heads", headers=again)).status_code == 304


async def test_fields_are_of_records_and_are_their_heads() -> None:
    """Anything else is refused with its place."""
    async with proxy_mesh() as mesh:
        for query, accept in (("fields=bodies", RECORDS), ("fields=heads", "application/json"), ("fields=", RECORDS)):
            answer = await mesh.http.get(f"{QUEUE}?{query}", headers={"accept": accept})
            assert (answer.status_code, answer.json()["code"], answer.json()["pointer"]) == (
                *(400, "invalid-field"),
                "query/fields",
            )


async def test_heads_of_one_answer_come_from_many_pages_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is over behind every page of one record: a page of records with a filter ends there, one of heads goes on."""
    monkeypatch.setattr("tern_broker.link.reads.SLICE_S", -1.0)
    monkeypatch.setattr("tern_broker.reading.scan.PAGE_SIZE_MAX_BYTES", 1)
    async with proxy_mesh() as mesh:
        await fill(mesh, 5)
        found = {}
        for query in ("&sql=TAGS+IS+NULL", "&fields=heads", "&fields=heads&sql=TAGS+IS+NULL"):
            answer = await mesh.http.get(f"{QUEUE}?offset=0{query}", headers={"accept": RECORDS})
            found[query] = int(answer.headers["mq-next-offset"])
        assert list(found.values()) == [1, 5, 5]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (f"{QUEUE}?offset=-1", 400, "invalid-field"),
        (f"{QUEUE}?offset=first", 400, "invalid-field"),
        (f"{QUEUE}?max_messages=0", 400, "invalid-field"),
        (f"{QUEUE}?max_bytes=0", 400, "invalid-field"),
        (f"{QUEUE}?wait=1h", 400, "illegal-wait"),
        (f"{QUEUE}?tag=A", 400, "unknown-parameter"),
        (f"{QUEUE}?tags=A||B|", 400, "illegal-filter"),
        (f"{QUEUE}?sql=a+>", 400, "illegal-filter"),
        (f"{QUEUE}?tags=A&sql=a>1", 400, "illegal-filter"),
        (f"{QUEUE}?offset=@yesterday", 400, "invalid-field"),
        ("/v1/topics/orders/queues/broker-a:9/messages", 404, "queue-not-found"),
        ("/v1/topics/orders/queues/3/messages", 404, "queue-not-found"),
        ("/v1/topics/nope/queues/broker-a:0/messages", 404, "topic-not-found"),
    ],
)
async def test_bad_pulls_are_problems(path: str, status: int, code: str) -> None:
    """Refused before the broker is asked."""
    async with proxy_mesh() as mesh:
        answer = await mesh.http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert mesh.broker.asked[RequestCode.PULL] == 0


async def test_an_offset_that_was_removed_is_gone() -> None:
    """410 with the oldest offset that is kept."""
    async with proxy_mesh() as mesh:
        await fill(mesh, 3)
        forget_messages(mesh.broker, "orders", 0, before=2)
        answer = await mesh.http.get(f"{QUEUE}?offset=0")
        assert (answer.status_code, answer.json()["code"]) == (410, "offset-expired")
        assert int(answer.json()["min_offset"]) == 2


async def test_a_pull_can_wait_for_the_next_message() -> None:
    """It looks again until something is there."""
    async with proxy_mesh() as mesh:
        waiting = asyncio.create_task(mesh.http.get(f"{QUEUE}?offset=0&wait=30s"))
        await eventually(lambda: mesh.broker.asked[RequestCode.PULL], "a first look")
        await fill(mesh, 1)
        assert [message["offset"] for message in (await waiting).json()["messages"]] == [0]


# Admin ------------------------------------------------------------------------------------------------------------
async def test_a_topic_is_declared_in_every_broker_group_and_known_at_once() -> None:
    """201, then 200; a send right after it needs no name server."""
    one, two = MemoryBroker(KEY), MemoryBroker(KEY, broker_group="broker-b", node="broker-b-0")
    async with proxy_mesh(one, two, route_interval_ms=60_000) as mesh:
        answer = await mesh.http.put("/v1/topics/new", json={"queues": 3})
        assert (answer.status_code, answer.json()["broker_groups"]) == (201, {"broker-a": 3, "broker-b": 3})
        mesh.name_server.is_up = False
        await mesh.send("new")
        assert (await mesh.http.put("/v1/topics/new", json={"queues": 3})).status_code == 200
        default = await mesh.http.put("/v1/topics/other")
        assert default.json()["broker_groups"] == {"broker-a": 8, "broker-b": 8}
        offsets = (await mesh.http.get("/v1/topics/new/offsets")).json()
        assert [queue["queue"] for queue in offsets["queues"]] == [f"broker-{x}:{n}" for x in "ab" for n in range(3)]
        assert sum(queue["max_offset"] - queue["min_offset"] for queue in offsets["queues"]) == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("PUT", "/v1/topics/a.b", b"", 400, "illegal-topic"),
        ("PUT", "/v1/topics/ok", b'{"queues":0}', 400, "invalid-field"),
        ("PUT", "/v1/topics/ok", b'{"queues":1025}', 400, "invalid-field"),
        ("PUT", "/v1/topics/ok", b'{"queue":1}', 400, "unknown-field"),
        ("PUT", "/v1/topics/ok", b"{", 400, "malformed-body"),
        ("PUT", "/v1/topics/ok?x=1", b"", 400, "unknown-parameter"),
        ("PUT", "/v1/topics/ok", b'{"queues":' + b" " * (256 << 10) + b"1}", 413, "message-too-large"),
        ("PUT", "/v1/groups/a b", b"", 400, "illegal-group"),
        ("PUT", "/v1/groups/ok", b'{"start":"now"}', 400, "invalid-field"),
        ("PUT", "/v1/groups/ok", b'{"invisible":"0s"}', 400, "illegal-invisible-time"),
        ("GET", "/v1/groups/billing/offsets", b"", 400, "invalid-field"),
        ("GET", "/v1/groups/nobody/offsets?topic=orders", b"", 404, "group-not-found"),
        ("GET", "/v1/groups/billing/offsets?topic=nope", b"", 404, "topic-not-found"),
        ("PUT", "/v1/groups/billing/offsets", b'{"topic":"orders","offsets":{}}', 400, "invalid-field"),
        ("PUT", "/v1/groups/billing/offsets", b'{"topic":"orders","offsets":{"3":1}}', 404, "queue-not-found"),
        ("PUT", "/v1/groups/billing/offsets", b'{"topic":"orders","offsets":{"broker-a:0":-1}}', 400, "invalid-field"),
        ("GET", "/v1/topics/nope/offsets", b"", 404, "topic-not-found"),
        ("GET", "/v1/nothing", b"", 404, "route-not-found"),
        ("POST", "/v1/topics/orders", b"", 405, "method-not-allowed"),
        ("PUT", "/v1/topics/orders/messages", b"", 405, "method-not-allowed"),
        ("POST", QUEUE, b"", 405, "method-not-allowed"),
        ("POST", "/v1/topics/orders/groups/billing/nack", b"", 404, "route-not-found"),
    ],
    ids=lambda value: None if isinstance(value, str | int) else f"{len(value)}-{sum(value)}",
)
async def test_bad_admin_requests_and_unknown_paths_are_problems(
    method: str, path: str, body: bytes, status: int, code: str
) -> None:
    """A stable code and the request id, from FastAPI's routes as from the raw ones."""
    async with proxy_mesh() as mesh:
        answer = await mesh.http.request(method, path, content=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.headers["mq-request-id"] == answer.json()["request_id"]


async def test_groups_and_their_offsets() -> None:
    """Declare, commit, read, and commit only if nothing moved (409 says what did)."""
    async with proxy_mesh() as mesh:
        assert (
            await mesh.http.put("/v1/groups/audit", json={"invisible": "90s", "start": "latest"})
        ).status_code == 201
        assert (await mesh.http.put("/v1/groups/audit")).status_code == 200
        path = "/v1/groups/audit/offsets"
        store(mesh.broker, "orders", 0, [b"x"] * 9)
        store(mesh.broker, "orders", 2, [b"x"] * 9)
        commit = {"topic": "orders", "offsets": {"broker-a:0": 5, "broker-a:2": 7}}
        assert (await mesh.http.put(path, json=commit)).json()["offsets"] == commit["offsets"]
        assert (await mesh.http.get(f"{path}?topic=orders")).json()["offsets"] == commit["offsets"]
        expected = {"topic": "orders", "offsets": {"broker-a:0": 9}, "expected": {"broker-a:0": 4}}
        moved = await mesh.http.put(path, json=expected)
        assert (moved.status_code, moved.json()["code"], moved.json()["queue"]) == (409, "offset-moved", "broker-a:0")


async def test_a_group_is_begun_once() -> None:
    """null expects that it has not begun; below its feature level a broker group says that an upgrade is not finished."""
    async with proxy_mesh() as mesh:
        mesh.broker.stay_at_level(EXPECTED_NOT_BEGUN_LEVEL - 1)
        await mesh.http.put("/v1/groups/audit")
        path, queue = "/v1/groups/audit/offsets", "broker-a:0"
        store(mesh.broker, "orders", 0, [b"x"] * 9)
        begin = {"topic": "orders", "offsets": {queue: 5}, "expected": {queue: None}}
        early = await mesh.http.put(path, json=begin)
        assert (early.status_code, early.json()["code"]) == (503, "upgrade-unfinished")
        mesh.broker.propose(CommandKind.RAISE, {"level": EXPECTED_NOT_BEGUN_LEVEL})
        assert (await mesh.http.put(path, json=begin)).json()["offsets"] == {queue: 5}
        again = await mesh.http.put(path, json={**begin, "offsets": {queue: 7}})
        assert (again.status_code, again.json()["code"], again.json()["actual"]) == (409, "offset-moved", 5)
        assert (await mesh.http.get(f"{path}?topic=orders")).json()["offsets"] == {queue: 5}


async def test_the_cluster_health_and_metrics_can_be_read() -> None:
    """Leaders and terms, this proxy's id, readiness with reasons, and counters that moved."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=2)
        await mesh.receive()
        cluster = (await mesh.http.get("/v1/cluster")).json()
        group = cluster["broker_groups"]["broker-a"]
        assert (group["leader"], group["term"], cluster["topics"]) == ("broker-a-0", 1, 1)
        assert cluster["proxy"] == mesh.proxy.name
        assert (await mesh.http.get("/healthz")).status_code == 200
        ready = await mesh.http.get("/readyz")
        assert (ready.status_code, ready.json()["leaders"]) == (200, {"broker-a": "broker-a-0"})
        metrics = (await mesh.http.get("/metrics")).text
        for line in (
            'ternmq_proxy_requests_total{route="produce",status="201"} 2.0',
            'ternmq_proxy_messages_total{what="stored"} 2.0',
            'ternmq_proxy_messages_total{what="delivered"} 2.0',
            'ternmq_proxy_request_seconds_count{route="produce"} 2.0',
            'ternmq_proxy_parked_polls{of="all"} 0.0',
        ):
            assert line in metrics
