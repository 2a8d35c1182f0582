"""Messages by key over several broker groups, seeks in parts, numbers put together, and old data read from followers."""

from typing import Any

import pytest

from tern_proxy.brokers.follower_reads import SUGGESTION_KEPT_S, SUGGESTIONS_MAX, FollowerReads
from tern_proxy.core.documents.offsets import SeekPlace, SeekRequest
from tern_proxy.core.documents.queries import FoundMessage
from tern_proxy.core.reading.searching import FoundPage, put_together, read_cursor, write_cursor
from tern_proxy.core.reading.seeking import SeekPart, plan_seek
from tern_proxy.core.sending.topic import Queue, Topic
from tern_wire.errors import InvalidField, QueueNotFound
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.consumer_offsets import SeekTo
from tern_wire.link.requests import RequestCode, body_parts
from tern_wire.routing.route import TopicRoute
from tests.support.broker.contents import store
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.proxy.proxy_mesh import KEY, proxy_mesh

pytestmark = pytest.mark.anyio
TOPIC = Topic("orders", {name: TopicRoute(topic_id=1, queues=2) for name in ("broker-a", "broker-b")})


def page(*stored: int, next_: list[int] | None = None, after: list[int] | None = None) -> FoundPage:
    """What one broker group found: messages stored at these times, at places of the same number."""
    messages = [
        (FoundMessage(message_id="ID", topic="orders", queue="a:0", born_at=at, stored_at=at), [1, at]) for at in stored
    ]
    return FoundPage(after=after, messages=messages, next=next_, truncated=False)


def test_pages_of_broker_groups_are_put_together_newest_first_and_go_on_where_each_was_cut() -> None:
    """One that was not come to keeps its place; one that is done is asked no more."""
    pages = {"a": page(9, 5, 3), "b": page(8, 7, next_=[1, 6]), "c": page(1, after=[2, 2])}
    shown, cursor = put_together(pages, 4)
    assert [message.stored_at for message in shown] == [9, 8, 7, 5]
    assert cursor == {"a": [1, 5], "b": [1, 6], "c": [2, 2]}
    assert read_cursor(write_cursor(cursor)) == cursor
    shown, cursor = put_together(pages, 100)
    assert (len(shown), cursor) == (6, {"b": [1, 6]})
    assert write_cursor({}) == ""


@pytest.mark.parametrize(
    "value", [[], {}, {"a": [1]}, {"a": [1, -1]}, {"a": [1, "2"]}, {"a": [True, 1]}, {1: None}, "a", None]
)
def test_a_cursor_that_was_not_made_here_is_refused(value: Any) -> None:
    """400, whatever is inside."""
    text = write_cursor(value) if isinstance(value, dict) and value else encode_msgpack(value).hex()
    with pytest.raises(InvalidField):
        read_cursor(text)


async def test_a_query_asks_every_broker_group_and_pages_through_them() -> None:
    """Nothing twice, nothing left out."""
    one, two = MemoryBroker(KEY), MemoryBroker(KEY, broker_group="broker-b", node="broker-b-0")
    async with proxy_mesh(one, two) as mesh:
        for number in range(10):
            queue = "broker-a:0" if number % 2 else "broker-b:0"
            answer = await mesh.post(f"/v1/topics/orders/messages?queue={queue}&key=k", b"%d" % number)
            assert answer.status_code == 201
        seen, cursor = [], ""
        for _ in range(20):
            path = "/v1/topics/orders/messages?key=k&limit=3" + (f"&cursor={cursor}" if cursor else "")
            found = (await mesh.http.get(path)).json()
            seen += [message["body"] for message in found["messages"]]
            cursor = found.get("next_cursor", "")
            if not cursor:
                break
        assert sorted(seen) == [f"{number}" for number in range(10)]
        receipt = (await mesh.post("/v1/topics/orders/messages?queue=broker-b:1", b"by id")).json()
        message = (await mesh.http.get(f"/v1/topics/orders/messages/{receipt['message_id']}")).json()
        assert (message["body"], message["queue"]) == ("by id", "broker-b:1")
        traced = (await mesh.http.get(f"/v1/messages/{receipt['message_id']}/trace?topic=orders")).json()
        assert (traced["queue"], traced["body_size"]) == ("broker-b:1", 5)


def at(text: str | int, _pointer: str) -> int:
    """A time is its number."""
    return int(text)


def test_a_seek_is_divided_by_broker_groups() -> None:
    """All queues, some, or those with offsets; only a shift must not be repeated."""
    everywhere = plan_seek(SeekRequest("orders", "latest"), TOPIC, at)
    assert everywhere.parts == {name: SeekPart(to="latest", queues=None) for name in ("broker-a", "broker-b")}
    assert everywhere.is_repeatable
    some = plan_seek(SeekRequest("orders", SeekPlace(time=5), queues=["broker-b:1", "broker-b:1"]), TOPIC, at)
    assert some.parts == {"broker-b": SeekPart(to=SeekTo(time_ms=5), queues=[1])}
    explicit = plan_seek(SeekRequest("orders", SeekPlace(offsets={"broker-a:1": 7})), TOPIC, at)
    assert explicit.parts == {"broker-a": SeekPart(to=SeekTo(offsets={"1": 7}), queues=None)}
    assert explicit.pointer("broker-a", InvalidField(reason="", pointer="/to/offsets/1")) == "/to/offsets/broker-a:1"
    assert not plan_seek(SeekRequest("orders", SeekPlace(shift=-1)), TOPIC, at).is_repeatable
    with pytest.raises(QueueNotFound):
        plan_seek(SeekRequest("orders", "latest", queues=["broker-a:2"]), TOPIC, at)


async def test_a_suggested_follower_is_asked_for_the_next_page_and_the_leader_when_it_has_nothing() -> None:
    """What the follower cannot give, the leader does; a follower that is gone costs nothing but the attempt."""
    leader, follower = MemoryBroker(KEY), MemoryBroker(KEY, node="broker-a-1", leads=False)
    path = "/v1/topics/orders/queues/broker-a:0/messages?max_messages=2&offset="

    for node in (leader, follower):
        node.create_topic("orders", 4)
        store(node, "orders", 0, [b"%d" % number for number in range(6)])
    async with proxy_mesh(leader, follower) as mesh:

        def suggest(link: Any, frame: Any) -> None:
            log = leader.queue_records("orders", 0)
            head = {"next_offset": 2, "min_offset": 0, "max_offset": 6, "suggested_node": "broker-a-1"}
            link.reply(frame.opaque, 0, body_parts(head, log[:2]))

        leader.script(RequestCode.PULL, suggest)
        assert (await mesh.http.get(path + "0")).json()["next_offset"] == 2
        asked = leader.asked[RequestCode.PULL]
        from_follower = (await mesh.http.get(path + "2")).json()
        assert [message["body"] for message in from_follower["messages"]] == ["2", "3"]
        assert (follower.asked[RequestCode.PULL_ANYWHERE], leader.asked[RequestCode.PULL]) == (1, asked)
        at_end = (await mesh.http.get(path + "6")).json()
        assert (at_end["messages"], at_end["next_offset"]) == ([], 6)
        assert leader.asked[RequestCode.PULL] == asked + 1
        assert [message["body"] for message in (await mesh.http.get(path + "4")).json()["messages"]] == ["4", "5"]
        assert follower.asked[RequestCode.PULL_ANYWHERE] == 2  # asked at the end, and then no more


def test_suggestions_end_with_their_time_and_are_bounded() -> None:
    """A reader that comes back later is suggested somebody again."""
    now_s = 100.0
    old = FollowerReads(lambda: now_s)
    queue = Queue("broker-a", 3)
    old.suggested("orders", queue, "broker-a-1")
    assert old.node_for("orders", queue) == "broker-a-1"
    now_s += SUGGESTION_KEPT_S + 1
    assert old.node_for("orders", queue) == ""
    for number in range(SUGGESTIONS_MAX + 5):
        old.suggested("orders", Queue("broker-b", number), "broker-b-1")
    assert old.node_for("orders", Queue("broker-b", 0)) == ""
    assert old.node_for("orders", Queue("broker-b", SUGGESTIONS_MAX)) == "broker-b-1"
