"""Heads of sends, receives, pulls and waits for replies: what travels, what older peers leave out, what is refused."""

from typing import Any

import msgspec
import pytest

from tern_wire.errors import LinkBodyMalformed
from tern_wire.limits import INVISIBLE_MAX_MS, PULL_MESSAGES_MAX, RECEIVE_MESSAGES_MAX, WAIT_MAX_MS
from tern_wire.link.heads import head_parts, read_head
from tern_wire.link.pulls import ListOffsets, Offsets, Pull, PullAnywhere, Pulled
from tern_wire.link.queries import AwaitReply
from tern_wire.link.receives import (
    ATTEMPT_ID_SIZE_BYTES,
    SETTLE_ROWS_MAX,
    AwaitMessages,
    Leased,
    LeasedRun,
    Receive,
    Settle,
)
from tern_wire.link.requests import body_parts, read_body
from tern_wire.link.sends import ProducerGroupFacts, Replay, Send, Sent

RECEIVE: dict[str, Any] = {"topic": "t", "group": "g", "max_messages": 1, "max_bytes": 1, "invisible_ms": 0}
PULL: dict[str, Any] = {"topic": "t", "queue": 0, "offset": 0, "end_offset": -1, "max_messages": 1, "max_bytes": 1}
NOTIFY: dict[str, Any] = {"topic": "t", "group": "g", "wait_ms": 0}
AWAIT: dict[str, Any] = {"topic": "t", "correlation_id": "c", "reply_to": "r", "from_ms": 0, "wait_ms": 0}


def read(kind: Any, head: dict[str, Any], raw: bytes = b"") -> Any:
    """*head*, as a peer that has maps sends it, as a *kind*."""
    return read_head(kind, b"".join(body_parts(head, [raw])))[0]


def written(head: Any) -> dict[str, Any]:
    """*head* as a peer that has maps reads it."""
    return read_body(b"".join(head_parts(head)))[0]


def test_a_send_without_half_messages_says_nothing_of_producer_groups() -> None:
    """Nor does its reply; both are what peers that have maps say."""
    assert read(Send, {"topics": ["t"], "rows": 1}) == Send(topics=["t"], rows=1)
    assert written(Send(topics=["t"], rows=1)) == {"topics": ["t"], "rows": 1}
    assert written(Sent(rows=1, replays=[])) == {"rows": 1, "replays": []}
    told = Sent(rows=2, replays=[Replay(1, "id", 7, 0)], producer_groups=[ProducerGroupFacts(3, 6_000, 30_000, 15)])
    assert written(told) == {"rows": 2, "replays": [[1, "id", 7, 0]], "producer_groups": [[3, 6_000, 30_000, 15]]}


def test_rows_of_a_newer_broker_may_have_more_columns() -> None:
    """What this release does not know is passed over."""
    sent = read(Sent, {"rows": 1, "replays": [[0, "id", 7, 0, "more"]], "producer_groups": [[3, 1, 2, 4, "more"]]})
    assert (sent.replays, sent.producer_groups) == ([Replay(0, "id", 7, 0)], [ProducerGroupFacts(3, 1, 2, 4)])
    leased = read(Leased, {"topic_id": 1, "group_id": 2, "runs": [[0, 9, 1, 5_000, 3, "more"]]})
    assert leased.runs == [LeasedRun(queue=0, lease=9, attempt=1, deadline_ms=5_000, count=3)]


def test_what_a_receive_leaves_out_is_said_by_default() -> None:
    """No principal, no attempt id, no filter of its own; and a lease's runs travel as arrays."""
    asked = read(Receive, RECEIVE)
    assert (asked.reader, asked.attempt_id, asked.again_only, asked.tags, asked.sql) == ("", b"", False, None, None)
    assert written(asked) == RECEIVE
    token = bytes(ATTEMPT_ID_SIZE_BYTES)
    assert read(Receive, {**RECEIVE, "attempt_id": token, "tags": None, "sql": "a > 1"}).attempt_id == token
    leased = Leased(topic_id=1, group_id=2, runs=[LeasedRun(0, 9, 1, 5_000, 3)])
    assert written(leased) == {"topic_id": 1, "group_id": 2, "runs": [[0, 9, 1, 5_000, 3]]}
    assert written(Leased(topic_id=1, group_id=2, runs=[])) == {"topic_id": 1, "group_id": 2, "runs": []}


def test_a_pull_of_any_node_is_a_pull() -> None:
    """As proxies ask it, without a wait; a broker that suggests nobody need not say so."""
    asked = Pull(topic="t", queue=0, offset=0, end_offset=-1, max_messages=1, max_bytes=1)
    assert written(asked) == PULL
    assert written(PullAnywhere(**msgspec.structs.asdict(asked))) == PULL
    assert read(Pulled, {"next_offset": 1, "min_offset": 0, "max_offset": 2}).suggested_node == ""


def test_offsets_of_a_time_are_one_column_more() -> None:
    """And without a time there are three, as ever."""
    assert read(ListOffsets, {"topic": "t"}).time_ms == -1
    found = {"queues": [[0, 1, 2], [1, 0, 5, 3]]}
    assert written(read(Offsets, found)) == found
    with pytest.raises(LinkBodyMalformed):
        read(Offsets, {"queues": [[0, 1]]})


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        *((Receive, {**RECEIVE, "max_messages": count}) for count in (0, RECEIVE_MESSAGES_MAX + 1)),
        *((Receive, {**RECEIVE, "invisible_ms": invisible_ms}) for invisible_ms in (-1, INVISIBLE_MAX_MS + 1)),
        (Receive, {**RECEIVE, "attempt_id": bytes(ATTEMPT_ID_SIZE_BYTES + 1)}),
        (Receive, {**RECEIVE, "again_only": 1}),
        *((AwaitMessages, {**NOTIFY, "wait_ms": wait_ms}) for wait_ms in (-1, WAIT_MAX_MS + 1)),
        *((AwaitReply, {**AWAIT, "wait_ms": wait_ms}) for wait_ms in (-1, WAIT_MAX_MS + 1)),
        (AwaitReply, {**AWAIT, "from_ms": -1}),
        *((Settle, {"rows": rows}) for rows in (0, -1, SETTLE_ROWS_MAX + 1)),
        *((Pull, {**PULL, "offset": offset}) for offset in (-1, 1 << 63)),
        (Pull, {**PULL, "end_offset": -2}),
        *((Pull, {**PULL, "max_messages": count}) for count in (0, PULL_MESSAGES_MAX + 1)),
        (Pull, {**PULL, "max_bytes": 0}),
        (PullAnywhere, {**PULL, "queue": "0"}),
        (ListOffsets, {"topic": "t", "time_ms": -2}),
        (Send, {"topics": ["t", 1], "rows": 1}),
        (Send, {"topics": ["t"], "rows": 1, "producer_groups": None}),
    ],
)
def test_what_is_out_of_range_is_refused_at_the_door(kind: Any, head: dict[str, Any]) -> None:
    """With the name of what was asked."""
    with pytest.raises(LinkBodyMalformed, match=f"{kind.__name__}: "):
        read(kind, head)


def test_the_largest_offset_is_one() -> None:
    """An offset is a number of 63 bits."""
    assert read(Pull, {**PULL, "offset": (1 << 63) - 1, "end_offset": (1 << 63) - 1}).offset == (1 << 63) - 1
