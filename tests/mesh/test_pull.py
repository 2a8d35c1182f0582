"""Pulls by offset: filters, waits without polling, ranges that may be kept, places by time, broadcast groups."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tern_client import BlockingPullConsumer, MemoryOffsets
from tern_remoting import dial
from tern_wire.errors import NotLeader, TopicNotFound
from tern_wire.limits import FRAME_SIZE_MAX_BYTES
from tern_wire.link.requests import ERROR, RequestCode, body_parts, read_body, read_error
from tern_wire.paths import RECORDS
from tern_wire.records.columns import heads_of, record_starts
from tern_wire.records.layout import HEAD_SIZE_BYTES
from tests.support.mesh.mesh import Mesh, eventually

QUEUE = "broker-a:0"


def send(mesh: Mesh, topic: str, *messages: dict[str, Any], queue: str = QUEUE) -> list[dict[str, Any]]:
    """The receipts of a batch, every message with a key that makes a repeat harmless."""
    keyed = [
        {"queue": queue, "idempotency_key": f"{topic}-{queue}-{message['body']}", **message} for message in messages
    ]
    answer = mesh.patient("POST", f"/v1/topics/{topic}/messages/batch", json={"messages": keyed})
    assert answer.json()["failed"] == 0, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def pull(mesh: Mesh, topic: str, **query: Any) -> dict[str, Any]:
    """The document of one pull of the topic's first queue."""
    answer = mesh.settled("GET", f"/v1/topics/{topic}/queues/{QUEUE}/messages", params=query)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def bodies(document: dict[str, Any]) -> list[str]:
    """What the messages of a document say."""
    return [message["body"] for message in document["messages"]]


def test_a_filter_passes_over_what_is_not_wanted_and_counts_it(mesh: Mesh) -> None:
    """By tags and by SQL; `next_offset` is behind everything that was looked at. Tags with one hash are told apart."""
    mesh.create("pull-filters", queues=1)
    tags = ["Aa", "BB", "C", ""]
    send(
        mesh,
        "pull-filters",
        *({"body": f"{n}", "tag": tags[n % 4], "properties": {"price": f"{n}"}} for n in range(100)),
    )
    by_tags = pull(mesh, "pull-filters", offset=0, tags="Aa || C", max_messages=1000)
    assert bodies(by_tags) == [f"{n}" for n in range(100) if n % 4 in {0, 2}]
    assert (by_tags["next_offset"], by_tags["max_offset"]) == (100, 100)
    by_sql = pull(mesh, "pull-filters", offset=10, sql="price >= 90 AND TAGS = 'BB'", max_messages=1000)
    assert bodies(by_sql) == ["93", "97"]
    first = pull(mesh, "pull-filters", offset=0, tags="BB", max_messages=2)
    assert (bodies(first), first["next_offset"]) == (["1", "5"], 9)  # the next one that is wanted
    rest = pull(mesh, "pull-filters", offset=9, end_offset=14, tags="BB")
    assert (bodies(rest), rest["next_offset"]) == (["9", "13"], 14)


def test_a_waiting_pull_is_woken_by_what_it_wants_and_by_nothing_else(mesh: Mesh) -> None:
    """It waits at the broker; messages that its filter drops count in its progress and leave it parked."""
    mesh.create("pull-waits", queues=2)
    send(mesh, "pull-waits", {"body": "old", "tag": "no"})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(pull, mesh, "pull-waits", offset=0, wait="25s", tags="yes")
        eventually(lambda: parked(mesh) > 0, within_s=30, what="a parked pull")
        send(mesh, "pull-waits", {"body": "not this", "tag": "no"})
        send(mesh, "pull-waits", {"body": "nor this", "tag": "yes"}, queue="broker-a:1")
        assert not waiting.done()
        send(mesh, "pull-waits", {"body": "this", "tag": "yes"})
        found = waiting.result()
    assert (bodies(found), found["next_offset"]) == (["this"], 3)


def parked(mesh: Mesh) -> float:
    """Polls and pulls that wait at the first proxy."""
    lines = mesh.call("GET", "/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if "parked_polls" in line and not line.startswith("#"))


def test_a_pull_that_waits_in_vain_says_how_far_it_looked(mesh: Mesh) -> None:
    """An empty page at the deadline; the next pull goes on behind what was passed over."""
    mesh.create("pull-vain", queues=1)
    send(mesh, "pull-vain", {"body": "a", "tag": "no"}, {"body": "b", "tag": "no"})
    found = pull(mesh, "pull-vain", offset=0, wait="300ms", tags="yes")
    assert (bodies(found), found["next_offset"], found["max_offset"]) == ([], 2, 2)


def test_a_pull_begins_at_a_time(mesh: Mesh) -> None:
    """`@time` in ms and in ISO 8601: the first message that was visible then; offsets at a time for all queues in one call."""
    mesh.create("pull-times", queues=2)
    send(mesh, "pull-times", {"body": "0"}, {"body": "1"})
    middle_ms = eventually(lambda: clock_behind(mesh, "pull-times"), within_s=30, what="a later millisecond")
    send(mesh, "pull-times", {"body": "2"})
    assert bodies(pull(mesh, "pull-times", offset=f"@{middle_ms}")) == ["2"]
    assert bodies(pull(mesh, "pull-times", offset="@2020-01-01T00:00:00Z")) == ["0", "1", "2"]
    assert bodies(pull(mesh, "pull-times", offset="@2200-01-01T00:00:00Z")) == []
    rows = mesh.settled("GET", f"/v1/topics/pull-times/offsets?time={middle_ms}").json()["queues"]
    assert [(row["queue"], row["min_offset"], row["max_offset"], row["offset_at"]) for row in rows] == [
        ("broker-a:0", 0, 3, 2),
        ("broker-a:1", 0, 0, 0),
    ]


def clock_behind(mesh: Mesh, topic: str) -> int:
    """A time behind the last message of the first queue, 0 while its millisecond lasts."""
    last = pull(mesh, topic, offset=0)["messages"][-1]["stored_at"]
    now_ms = time.time_ns() // 1_000_000
    return last + 1 if now_ms > last + 2 else 0


def test_a_closed_range_may_be_kept(mesh: Mesh) -> None:
    """ETag and Cache-Control on a range that is over; who has it is told so. An open one carries neither."""
    mesh.create("pull-ranges", queues=1)
    send(mesh, "pull-ranges", *({"body": f"{n}"} for n in range(4)))
    path = f"/v1/topics/pull-ranges/queues/{QUEUE}/messages"
    closed = mesh.settled("GET", f"{path}?offset=1&end_offset=3")
    assert "immutable" in closed.headers["cache-control"]
    again = mesh.settled("GET", f"{path}?offset=1&end_offset=3", headers={"if-none-match": closed.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", closed.headers["etag"])
    for open_range in (
        "offset=1",
        "offset=1&end_offset=9",
        "offset=1&end_offset=4&max_messages=1",
        "offset=earliest&end_offset=3",
    ):
        assert "etag" not in mesh.settled("GET", f"{path}?{open_range}").headers, open_range
    other = mesh.settled("GET", f"{path}?offset=1&end_offset=4", headers={"if-none-match": closed.headers["etag"]})
    assert other.status_code == 200


def test_heads_alone_are_the_heads_of_what_is_there(mesh: Mesh) -> None:
    """Of a whole queue, of a range, of what a filter wants; the limit of bytes counts heads."""
    mesh.create("pull-heads", queues=1)
    send(
        mesh,
        "pull-heads",
        *(
            {
                "idempotency_key": f"heads-{n}",
                "body": f"{n} " + "x" * 3_000,
                "tag": "ab"[n % 2],
                "properties": {"n": f"{n}"},
            }
            for n in range(400)
        ),
    )
    path = f"/v1/topics/pull-heads/queues/{QUEUE}/messages"

    def records(**query: Any) -> bytes:
        """All records of a query's range, or their heads, page by page."""
        content, offset, end = b"", int(query.pop("offset", 0)), int(query.pop("end_offset", 400))
        while offset < end:
            asked = {"offset": offset, "end_offset": end, "max_messages": 16_384, **query}
            answer = mesh.settled("GET", path, params=asked, headers={"accept": RECORDS})
            assert answer.status_code == 200, answer.text
            assert ("fields=heads" in answer.headers["content-type"]) == ("fields" in query)
            assert int(answer.headers["mq-next-offset"]) > offset
            content, offset = content + answer.content, int(answer.headers["mq-next-offset"])
        return content

    for query in ({}, {"offset": 7, "end_offset": 90}, {"tags": "a"}, {"sql": "n > 350 AND TAGS = 'b'"}):
        assert records(fields="heads", **query) == heads_of(records(**query)), query
    few = mesh.settled(
        *("GET", path),
        params={"offset": 0, "max_messages": 1_000, "max_bytes": 10 * HEAD_SIZE_BYTES, "fields": "heads"},
        headers={"accept": RECORDS},
    )
    assert (len(few.content), few.headers["mq-next-offset"]) == (10 * HEAD_SIZE_BYTES, "10")


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("offset=@tomorrow", 400, "invalid-field"),
        ("offset=@-5", 400, "invalid-field"),
        ("offset=@99999999999999999", 400, "invalid-field"),
        ("sql=price+>", 400, "illegal-filter"),
        ("tags=a&sql=a+IS+NULL", 400, "illegal-filter"),
        ("tags=a|b", 400, "illegal-filter"),
        ("end_offset=-1", 400, "invalid-field"),
        ("wait=1h", 400, "illegal-wait"),
        ("filter=a", 400, "unknown-parameter"),
    ],
)
def test_bad_pulls_are_problems(mesh: Mesh, query: str, status: int, code: str) -> None:
    """With the place of the mistake."""
    mesh.create("pull-problems", queues=1)
    answer = mesh.settled("GET", f"/v1/topics/pull-problems/queues/{QUEUE}/messages?{query}")
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_each_client_of_a_broadcast_group_reads_everything(mesh: Mesh) -> None:
    """Receives are refused and say what to do instead; pull consumers keep their own places and go on where they were."""
    mesh.create("broadcast", queues=3)
    assert mesh.settled("PUT", "/v1/groups/everyone", json={"broadcast": True}).status_code in {200, 201}
    refused = mesh.settled("POST", "/v1/topics/broadcast/groups/everyone/receive", json={})
    assert (refused.status_code, refused.json()["code"]) == (409, "broadcast-group"), refused.text
    for queue in range(3):
        send(mesh, "broadcast", *({"body": f"{queue}-{n}"} for n in range(5)), queue=f"broker-a:{queue}")
    wanted = {f"{queue}-{n}".encode() for queue in range(3) for n in range(5)}
    places = [MemoryOffsets(), MemoryOffsets()]
    for offsets in places:
        with BlockingPullConsumer(mesh.endpoint, "broadcast", offsets=offsets) as consumer:
            assert {message.body for message in consumer.until_idle()} == wanted
            consumer.commit()
    send(mesh, "broadcast", {"body": "later"})
    with BlockingPullConsumer(mesh.endpoint, "broadcast", offsets=places[0]) as consumer:
        assert [message.body for message in consumer.until_idle()] == [b"later"]


def ask(mesh: Mesh, node: str, code: RequestCode, head: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """What *node* itself answers, asked as a proxy asks; raises what it refuses with."""

    def told() -> dict[str, Any] | None:
        nodes = mesh.settled("GET", "/v1/cluster").json()["broker_groups"]["broker-a"]["nodes"]
        found: dict[str, Any] | None = nodes.get(node)
        return found  # one that has died is in no route until it is back

    host, _, port = eventually(told, within_s=30, what=f"{node} in the routes")["link"].rpartition(":")

    async def once() -> tuple[dict[str, Any], bytes]:
        link = await dial(
            *(host, int(port)),
            key=(mesh.directory / "cluster.key").read_bytes(),
            role="proxy",
            name="test",
            group_id=mesh.settled("GET", "/v1/cluster").json()["cluster"],
            on_frame=lambda link, frame: None,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
        )
        try:
            frame = await link.request(code, body_parts(head), timeout_s=5)
        finally:
            link.abort("done")
        if frame.code == ERROR:
            raise read_error(frame.body)
        reply, raw = read_body(frame.body)
        return reply, bytes(raw)

    return asyncio.run(once())


@pytest.mark.calm
def test_a_follower_serves_what_it_has_applied_and_nothing_else(mesh: Mesh) -> None:
    """The same bytes as the leader's; other requests are refused there."""
    mesh.create("pull-follower", queues=1)
    send(mesh, "pull-follower", *({"body": f"{n}", "tag": "odd" if n % 2 else "even"} for n in range(6)))
    head = {"topic": "pull-follower", "queue": 0, "offset": 0, "end_offset": -1, "max_messages": 100, "max_bytes": 1000}
    head |= {"tags": "odd", "sql": None}

    def from_leader() -> bytes:
        try:
            return ask(mesh, mesh.leader(), RequestCode.PULL, head)[1]
        except NotLeader:
            return b""  # another one leads by now

    def served(node: str) -> bytes:
        try:
            return ask(mesh, node, RequestCode.PULL_ANYWHERE, head)[1]
        except TopicNotFound:
            return b""  # it has not applied so much yet

    def refusing() -> str:
        follower = next(name for name in mesh.brokers() if name != mesh.leader())
        try:
            ask(mesh, follower, RequestCode.PULL, head)
        except NotLeader:
            return follower
        return ""  # it leads by now

    whole = eventually(from_leader, within_s=20, what="the leader's messages")
    assert len(record_starts(whole)) == 3
    follower = eventually(refusing, within_s=20, what="a follower that refuses to speak for the group")
    eventually(lambda: served(follower) == whole, within_s=20, what="the follower has applied everything")
