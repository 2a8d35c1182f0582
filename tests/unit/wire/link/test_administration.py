"""What travels about topics, groups, producer groups, offsets and principals: changes that name little, what older peers leave out, and rows."""

from typing import Any

import msgspec
import pytest

from tern_wire.errors import LinkBodyMalformed
from tern_wire.limits import LISTED_MAX, PRINCIPALS_PAGE_MAX
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.link.consumer_offsets import (
    SEEK_SHIFT_MAX,
    SEEK_TIME_MAX_MS,
    CommitOffsets,
    GroupMoved,
    SeekGroup,
    SeekMove,
    SeekTo,
)
from tern_wire.link.groups import ChangeGroup, DeleteGroup, GroupDescription, GroupProgress, GroupRetry, ListGroups
from tern_wire.link.heads import head_parts, read_head
from tern_wire.link.hosted import DeadGroup, HostedGroup, HostedPage, HostedTopic, ListHosted
from tern_wire.link.principals import ChangedPrincipal, ChangedPrincipals, ListPrincipals, PrincipalPut, PutPrincipal
from tern_wire.link.producer_groups import (
    ChangeProducerGroup,
    DescribeProducerGroups,
    KnownProducerGroup,
    ProducerGroups,
)
from tern_wire.link.requests import body_parts, read_body
from tern_wire.link.topics import TOPIC_ID_MAX, ChangeTopic, DeleteTopic, QueueBounds, TopicChanged, TopicDescription
from tern_wire.principals.documents import PrincipalDocument, read_principal_document
from tern_wire.settings.group_settings import read_group_change
from tern_wire.settings.producer_settings import ProducerSettings, read_producer_change
from tern_wire.settings.topic_settings import read_topic_change

TOPIC = {"topic_id": 1, "queues": 8, "type": "MIXED", "perm": 6, "attributes": {}, "created_ms": 1}
GROUP = {
    "group_id": 1,
    "group": "g",
    "invisible_ms": 60_000,
    "start": "earliest",
    "start_ms": 0,
    "max_attempts": 16,
    "retry": {"policy": "table"},
    "retry_delays_ms": [10_000],
    "fifo": False,
    "consume": True,
    "broadcast": False,
    "attributes": {},
}
LIST = {"q": "", "after": "", "limit": 1, "descending": False}
COMMIT = {"group": "g", "topic": "t", "offsets": {"0": 7}}
SEEK = {"group": "g", "topic": "t", "to": "latest", "dry_run": False}
DESCRIBE = {"producer_group": "", "after": "", "limit": 1}


def body(head: dict[str, Any]) -> bytes:
    """A body with any head."""
    return b"".join(body_parts(head))


def written(head: Any) -> dict[str, Any]:
    """*head* as a peer of another release sees it."""
    return read_body(b"".join(head_parts(head)))[0]


# Changes ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "read", "change"),
    [
        (ChangeTopic, read_topic_change, {"topic": "t", "mode": "declare"}),
        (ChangeTopic, read_topic_change, {"topic": "t", "mode": "alter", "queues": 3, "type": "FIFO", "perm": 0}),
        (ChangeTopic, read_topic_change, {"topic": "t", "mode": "create", "attributes": {"b": "x", "a": None}}),
        (
            ChangeTopic,
            read_topic_change,
            {"topic": "t", "mode": "alter", "placement": "2|broker-a|broker-b", "own": "broker-a", "ending": True},
        ),
        (ChangeGroup, read_group_change, {"group": "g", "mode": "declare"}),
        (
            ChangeGroup,
            read_group_change,
            {
                "group": "g",
                "mode": "create",
                "invisible_ms": 1_000,
                "start": "time",
                "start_ms": 5,
                "max_attempts": 3,
                "retry": {"policy": "custom", "delays_ms": [1_000, 0]},
                "fifo": False,
                "consume": False,
                "broadcast": True,
                "attributes": {"b": "x", "a": None},
            },
        ),
        (
            ChangeGroup,
            read_group_change,
            {
                "group": "g",
                "mode": "alter",
                "retry": {
                    "policy": "exponential",
                    "initial_ms": 1_000,
                    "multiplier_permille": 2_000,
                    "max_ms": 9_000,
                },
            },
        ),
        (ChangeGroup, read_group_change, {"group": "g", "mode": "alter", "retry": {"policy": "table"}}),
        (ChangeProducerGroup, read_producer_change, {"producer_group": "p", "create": True}),
        (
            ChangeProducerGroup,
            read_producer_change,
            {
                "producer_group": "p",
                "create": True,
                **ProducerSettings().packed(),
                "fresh_secret": "whsec_AAAA",
                "least_revision": 3,
                "revision": 4,
            },
        ),
    ],
)
def test_a_change_travels_as_its_map_and_is_logged_as_it_always_was(
    kind: Any, read: Any, change: dict[str, Any]
) -> None:
    """What it does not name is not there, what it sets to false or nothing is; members of the entry are in the same order."""
    asked = msgspec.convert(change, kind)
    assert written(asked) == change
    told, _ = read_head(kind, b"".join(head_parts(asked)))
    logged = read(msgspec.to_builtins(told)).packed()
    assert logged == change
    assert encode_msgpack(logged) == encode_msgpack(read(change).packed())


def test_a_change_that_names_no_mode_declares() -> None:
    """And one of a producer group that does not say so creates nothing."""
    topic, _ = read_head(ChangeTopic, body({"topic": "t"}))
    group, _ = read_head(ChangeGroup, body({"group": "g"}))
    assert read_topic_change(msgspec.to_builtins(topic)).mode == "declare"
    assert read_group_change(msgspec.to_builtins(group)).mode == "declare"
    assert not read_head(ChangeProducerGroup, body({"producer_group": "p"}))[0].create


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        (ChangeTopic, {"topic": "t", "queues": "3"}),
        (ChangeTopic, {"topic": "t", "queues": True}),
        (ChangeTopic, {"topic": "t", "attributes": {"a": 1}}),
        (ChangeGroup, {"group": "g", "fifo": 1}),
        (ChangeGroup, {"group": "g", "retry": "table"}),
        (ChangeGroup, {"group": "g", "retry": {"policy": "custom", "delays_ms": ["1s"]}}),
        (ChangeProducerGroup, {"producer_group": "p", "create": 1}),
        (ChangeProducerGroup, {"producer_group": None}),
        (PutPrincipal, {"base": 0}),
        (PutPrincipal, {"document": {}, "is_repair": 1}),
    ],
)
def test_a_change_of_another_type_is_refused(kind: Any, head: dict[str, Any]) -> None:
    """The proxy has read it as its user wrote it, so this is a broken peer."""
    with pytest.raises(LinkBodyMalformed):
        read_head(kind, body(head))


# What older peers leave out ---------------------------------------------------------------------------------------
def test_a_broker_of_before_placements_says_nothing_of_them() -> None:
    """As little as one that has never placed a topic."""
    changed, _ = read_head(TopicChanged, body({**TOPIC, "created": True}))
    assert (changed.placement, changed.placed_ms, changed.keyed_ms) == ("", 0, 0)
    assert written(changed) == {**TOPIC, "created": True}


def test_a_broker_that_parks_nothing_does_not_say_so() -> None:
    """And the counts of a topic that it tells are kept apart from the group's settings."""
    progress = {"topic": "t", "committed": {"0": 7}, "lag": 1, "leased": 0, "available": 1}
    told, _ = read_head(GroupDescription, body({**GROUP, "topics": [progress], "more": False}))
    assert told.topics == [GroupProgress(topic="t", committed={"0": 7}, lag=1, leased=0, available=1, parked=0)]
    assert told.retry == GroupRetry(policy="table")


def test_lists_of_a_proxy_of_before_namespaces_are_of_names_without_one() -> None:
    """Producer groups, too."""
    for kind, head in ((ListGroups, LIST), (DescribeProducerGroups, DESCRIBE)):
        asked: Any = read_head(kind, body(head))[0]
        assert (asked.namespace, asked.everywhere) == ("", False)
        assert written(asked) == head


def test_offsets_may_be_committed_without_conditions() -> None:
    """As proxies do that know of no epochs; and a seek that names no queues is of all."""
    commit, _ = read_head(CommitOffsets, body(COMMIT))
    assert (commit.offsets, commit.expected, commit.epochs) == ({"0": 7}, {}, {})
    for head in (SEEK, {**SEEK, "queues": None}):
        assert read_head(SeekGroup, body(head))[0].queues is None


def test_a_producer_group_may_be_told_without_its_numbers() -> None:
    """Then nobody knows them, which is not zero."""
    group = {"producer_group": "p", "producer_group_id": 1, **ProducerSettings().packed(), "revision": 0}
    told, _ = read_head(ProducerGroups, body({"groups": [group], "more": False}))
    assert told.groups[0].stats is None
    assert set(ProducerSettings().packed()) < set(KnownProducerGroup.__struct_fields__)


# Out of range -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "head", "lie"),
    [
        (DeleteTopic, {"topic": "t", "topic_id": 0}, {"topic_id": -1}),
        (DeleteTopic, {"topic": "t", "topic_id": 0}, {"topic_id": TOPIC_ID_MAX + 1}),
        (DeleteGroup, {"group": "g", "group_id": 0}, {"group_id": -1}),
        (ListGroups, LIST, {"limit": 0}),
        (ListGroups, LIST, {"limit": LISTED_MAX + 1}),
        (DescribeProducerGroups, DESCRIBE, {"limit": LISTED_MAX + 1}),
        (ListHosted, {"after": "", "limit": 1}, {"limit": 0}),
        (ListPrincipals, {"after": 0, "limit": 1}, {"after": -1}),
        (ListPrincipals, {"after": 0, "limit": 1}, {"limit": PRINCIPALS_PAGE_MAX + 1}),
        (CommitOffsets, COMMIT, {"offsets": {"x": 7}}),
        (CommitOffsets, COMMIT, {"offsets": {"07": 7}}),
        (CommitOffsets, COMMIT, {"expected": {"-1": 7}}),
        (CommitOffsets, COMMIT, {"epochs": {"0": "7"}}),
        (SeekGroup, SEEK, {"to": 7}),
        (SeekGroup, SEEK, {"to": {"shift": SEEK_SHIFT_MAX + 1}}),
        (SeekGroup, SEEK, {"to": {"time_ms": SEEK_TIME_MAX_MS + 1}}),
        (SeekGroup, SEEK, {"to": {"time_ms": -1}}),
        (SeekGroup, SEEK, {"to": {"offsets": {"0\n": 7}}}),
        (SeekGroup, SEEK, {"queues": ["0"]}),
    ],
)
def test_what_is_out_of_range_is_refused(kind: Any, head: dict[str, Any], lie: dict[str, Any]) -> None:
    """By the proxy already, so this is a broken peer."""
    read_head(kind, body(head))
    with pytest.raises(LinkBodyMalformed):
        read_head(kind, body({**head, **lie}))


# Places, rows and documents ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("to", ["earliest", "latest", {"shift": -3}, {"time_ms": 0}, {"offsets": {"0": 7, "11": 0}}])
def test_a_place_to_seek_travels_as_it_is_logged(to: Any) -> None:
    """A word, or a map of the one thing that it names."""
    asked, _ = read_head(SeekGroup, body({**SEEK, "to": to}))
    assert written(asked)["to"] == to
    assert msgspec.to_builtins(asked.to) == to
    assert isinstance(asked.to, str if isinstance(to, str) else SeekTo)


def test_rows_travel_as_arrays_that_may_get_more_columns() -> None:
    """And none is missing."""
    page = {"more": False, "open": 0, "dead_letters": 1, "dead_groups": [["g", 1]]}
    hosted, _ = read_head(HostedPage, body({**page, "topics": [["t", 3, 1, [["g", 2, 1, "more"]], "more"]]}))
    assert hosted.topics == [HostedTopic("t", 3, 1, [HostedGroup("g", 2, 1)])]
    assert hosted.dead_groups == [DeadGroup("g", 1)]
    assert written(hosted)["topics"] == [["t", 3, 1, [["g", 2, 1]]]]
    described = {**TOPIC, "bounds": [[0, 1, 2, "more"]], "groups": []}
    assert read_head(TopicDescription, body(described))[0].bounds == [QueueBounds(0, 1, 2)]
    assert read_head(GroupMoved, body({"queues": [[0, -1, 2, "more"]]}))[0].queues == [SeekMove(0, -1, 2)]
    for row in (["t", 3, 1], ["t", 3, 1, [["g", 2]]], ["t", "3", 1, []]):
        with pytest.raises(LinkBodyMalformed):
            read_head(HostedPage, body({**page, "topics": [row]}))


def test_a_principal_s_document_travels_as_a_map_and_comes_back_in_messagepack() -> None:
    """A proxy puts it as it is, and hears of it as brokers keep it."""
    document = PrincipalDocument(name="app", version=3, description="what it is for")
    asked = PutPrincipal(document=msgspec.Raw(encode_msgpack(document.packed())), base=2)
    assert written(asked) == {"document": document.packed(), "base": 2}
    told, _ = read_head(PutPrincipal, b"".join(head_parts(asked)))
    assert read_principal_document(decode_msgpack(told.document)) == document
    row = [7, encode_msgpack(document.packed())]
    page, _ = read_head(ChangedPrincipals, body({"principals": [[*row, "more"]], "revision": 7, "more": False}))
    assert page.principals == [ChangedPrincipal(7, row[1])]  # type: ignore[arg-type]
    assert written(page)["principals"] == [row]


def test_a_put_that_says_nothing_new_has_no_witness() -> None:
    """Nobody reads it but whoever compares nodes."""
    told, _ = read_head(PrincipalPut, body({"changed": False, "revision": 7, "version": 3}))
    assert (told.size, told.crc) == (0, 0)
