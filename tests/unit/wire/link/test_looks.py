"""Heads of queries, traces, statistics and STATUS: what travels, what older peers leave out, what is refused."""

from typing import Any

import pytest

from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.heads import head_parts, read_head
from tern_wire.link.queries import FindMessages, FoundMessages, TracedGroup, TracedMessage
from tern_wire.link.requests import body_parts, read_body
from tern_wire.link.statistics import (
    FlowNumbers,
    GetGroupStatistics,
    GroupStatistics,
    QueueLag,
    QueueNumbers,
    TopicLag,
    TopicStatistics,
)
from tern_wire.link.status import GetStatus, Leadership, NodeStatus

QUERY: dict[str, Any] = {"topic": "t", "key": "k", "begin_ms": 0, "end_ms": 1, "count": 1}
FLOW: dict[str, Any] = {"messages": 1, "bytes": 2, "messages_per_s": 0.5, "bytes_per_s": 1.0}


def read(kind: Any, head: dict[str, Any]) -> Any:
    """*head*, as a peer that has maps sends it, as a *kind*."""
    return read_head(kind, b"".join(body_parts(head)))[0]


def written(head: Any) -> dict[str, Any]:
    """*head* as a peer that has maps reads it."""
    return read_body(b"".join(head_parts(head)))[0]


def test_a_query_without_a_place_begins_at_the_newest_message() -> None:
    """Where there is nothing older, the reply says so."""
    assert read(FindMessages, {**QUERY, "after": None}) == read(FindMessages, QUERY)
    assert read(FindMessages, {**QUERY, "after": [7, (1 << 63) - 1]}).after == (7, (1 << 63) - 1)
    told = written(FoundMessages(places=[(7, 1)], next=None, truncated=False))
    assert told == {"places": [[7, 1]], "next": None, "truncated": False}


@pytest.mark.parametrize("after", [[7], [7, -1], [7, 1, 2], [7, "1"], [1 << 63, 1], 7])
def test_a_place_is_two_numbers(after: Any) -> None:
    """Anything else is a broken peer."""
    with pytest.raises(LinkBodyMalformed, match="FindMessages: "):
        read(FindMessages, {**QUERY, "after": after})


def test_a_message_that_was_found_is_told_with_all_its_fields() -> None:
    """Peers look for each of them, also where it says nothing; of one that was not found older brokers say no more than that."""
    assert read(TracedMessage, {"found": False}) == TracedMessage(found=False)
    groups = [TracedGroup(state="returned", attempts=0, group="g"), TracedGroup(state="waiting", group="h")]
    told = written(TracedMessage(found=True, groups=groups))
    assert told == {
        "found": True,
        "queue": 0,
        "offset": -1,
        "visible_ms": 0,
        "groups": [{"state": "returned", "attempts": 0, "group": "g"}, {"state": "waiting", "group": "h"}],
    }


def test_numbers_of_topics_and_groups_travel_under_their_short_names() -> None:
    """And their queues as arrays, which may have more columns."""
    flow = FlowNumbers(messages=1, size_bytes=2, messages_per_s=0.5, bytes_per_s=1.0)
    topic = {"in": FLOW, "out": FLOW, "groups": ["g"], "queues": [[0, 1, 5, 9, 0.5]], "scheduled": 3}
    numbers = TopicStatistics(
        came_in=flow, went_out=flow, groups=["g"], queues=[QueueNumbers(0, 1, 5, 9, 0.5)], scheduled=3
    )
    assert (written(numbers), read(TopicStatistics, topic)) == (topic, numbers)
    row = [0, -1, 5, 5, 7, 1, 0, 0]
    lag = TopicLag(topic="t", queues=[QueueLag(0, -1, 5, 5, 7, 1, 0, 0)], went_out=flow, went_again=flow)
    group = {"topics": [{"topic": "t", "queues": [row], "out": FLOW, "again": FLOW}], "dead_letters": 2}
    assert written(GroupStatistics(topics=[lag], dead_letters=2)) == group
    group["topics"] = [{"topic": "t", "queues": [[*row, "more"]], "out": FLOW, "again": FLOW, "more": 1}]
    assert read(GroupStatistics, group).topics == [lag]
    assert written(GetGroupStatistics(group="g")) == {"group": "g"}


@pytest.mark.parametrize(
    ("told", "is_serving"),
    [
        ({"role": "leader", "term": 3}, True),
        ({"role": "leader", "serving": True, "disk_permille": 7}, True),
        ({"role": "leader", "serving": False}, False),
        ({"role": "follower"}, False),
        ({}, False),
    ],
)
def test_a_leader_serves_unless_it_says_that_it_does_not(told: dict[str, Any], is_serving: bool) -> None:
    """What else a STATUS says is for people."""
    assert read(NodeStatus, told).is_serving is is_serving
    assert written(GetStatus()) == {}


@pytest.mark.parametrize(
    "head",
    [{"node": "a", "term": -1, "serving": True}, {"node": "a", "term": 1}, {"node": "a", "term": 1, "serving": 1}],
)
def test_a_notice_of_leadership_says_all_three(head: dict[str, Any]) -> None:
    """Node, term, whether it serves; under the names that they always had."""
    assert written(Leadership("a", 1, False)) == {"node": "a", "term": 1, "serving": False}
    with pytest.raises(LinkBodyMalformed):
        read(Leadership, head)
