"""Settings of topics and groups as maps: what is read, what is refused and where, and retry tables."""

from typing import Any

import pytest

from tern_wire import limits
from tern_wire.errors import InvalidField
from tern_wire.settings.attributes import check_attributes, merged
from tern_wire.settings.group_settings import TIME_MAX_MS, read_group_change
from tern_wire.settings.retry_policy import RetryPolicy, read_retry_policy
from tern_wire.settings.topic_settings import PERMISSIONS, perm_of, permission_of, read_topic_change


def exponential(initial_ms: Any, permille: Any, max_ms: Any) -> dict[str, Any]:
    """A policy as the link carries it."""
    numbers = {"initial_ms": initial_ms, "multiplier_permille": permille, "max_ms": max_ms}
    return {"policy": "exponential", **numbers}


@pytest.mark.parametrize(
    ("policy", "attempts", "table"),
    [
        ({"policy": "table"}, 3, limits.RETRY_DELAYS_MS),
        ({"policy": "custom", "delays_ms": [5, 1, 0]}, 16, (5, 1, 0)),
        (exponential(1_000, 2_000, 7_000), 16, (1_000, 2_000, 4_000, 7_000)),
        (exponential(1_000, 2_000, 7_000), 2, (1_000, 2_000)),
        (exponential(5_000, 1_000, 9_000), 1_000, (5_000,)),
        (exponential(100, 1_100, 133), 16, (100, 110, 121, 133)),
    ],
)
def test_a_retry_policy_comes_to_a_table(policy: dict[str, Any], attempts: int, table: tuple[int, ...]) -> None:
    """Whole numbers; the last delay holds for all further attempts; packed it is the same again."""
    read = read_retry_policy(policy)
    assert read.table(attempts) == table
    assert read_retry_policy(read.packed()) == read


def test_no_retry_table_is_long() -> None:
    """The slowest growth from the shortest delay to the longest."""
    longest = exponential(limits.RETRY_DELAY_MIN_MS, 1_100, limits.TIMER_DELAY_MAX_MS)
    table = read_retry_policy(longest).table(limits.ATTEMPTS_MAX)
    assert len(table) < 200
    assert table[-1] == limits.TIMER_DELAY_MAX_MS
    assert RetryPolicy().table(1_000) == limits.RETRY_DELAYS_MS


@pytest.mark.parametrize(
    ("policy", "pointer"),
    [
        (None, "/retry/policy"),
        ({"policy": "linear"}, "/retry/policy"),
        ({"policy": ["custom"]}, "/retry/policy"),
        ({"policy": "custom"}, "/retry/delays"),
        ({"policy": "custom", "delays_ms": [1] * 65}, "/retry/delays"),
        ({"policy": "custom", "delays_ms": [1, True]}, "/retry/delays/1"),
        ({"policy": "custom", "delays_ms": [limits.TIMER_DELAY_MAX_MS + 1]}, "/retry/delays/0"),
        (exponential(99, 2_000, 1_000), "/retry/initial"),
        (exponential(1_000, 1_001, 2_000), "/retry/multiplier"),
        (exponential(1_000, 1_000.0, 2_000), "/retry/multiplier"),
        (exponential(1_000, 100_001, 2_000), "/retry/multiplier"),
        (exponential(1_000, 2_000, 999), "/retry/max"),
    ],
)
def test_retry_policies_that_are_none_are_refused_where_they_are_wrong(policy: Any, pointer: str) -> None:
    """A float would not be the same table on every machine, so it is none."""
    with pytest.raises(InvalidField) as refused:
        read_retry_policy(policy)
    assert refused.value.fields["pointer"] == pointer


def test_changes_name_what_they_name() -> None:
    """Read and packed again they are the same map; extra keys do not get into the log."""
    topic = {"topic": "t", "mode": "alter", "queues": 9, "type": "DELAY", "perm": 2, "attributes": {"a": None}}
    assert read_topic_change({**topic, "more": 1}).packed() == topic
    group = {
        "group": "g",
        "mode": "create",
        "invisible_ms": 1,
        "start": "time",
        "start_ms": 7,
        "max_attempts": 1,
        "retry": {"policy": "table"},
        "fifo": False,
        "consume": True,
        "broadcast": False,
        "attributes": {"a": "b"},
    }
    assert read_group_change({**group, "more": 1}).packed() == group
    assert read_group_change({"group": "g"}).packed() == {"group": "g", "mode": "declare"}


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"queues": True}, "/queues"),
        ({"queues": 1_025}, "/queues"),
        ({"type": "mixed"}, "/type"),
        ({"type": ["FIFO"]}, "/type"),
        ({"perm": 5}, "/permission"),
        ({"perm": False}, "/permission"),
        ({"mode": "replace"}, "/mode"),
        ({"mode": {}}, "/mode"),
        ({"topic": 3}, "/topic"),
    ],
)
def test_topic_changes_are_refused_where_they_are_wrong(change: dict[str, Any], pointer: str) -> None:
    """Types count: True is no number."""
    with pytest.raises(InvalidField) as refused:
        read_topic_change({"topic": "t", **change})
    assert refused.value.fields["pointer"] == pointer


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"start": "time", "start_ms": -1}, "/start"),
        ({"start": "time", "start_ms": TIME_MAX_MS + 1}, "/start"),
        ({"start": "latest", "start_ms": 1}, "/start"),
        ({"start_ms": 1}, "/start"),
        ({"max_attempts": 1_001}, "/max_attempts"),
        ({"fifo": 1}, "/fifo"),
        ({"invisible_ms": 0}, "/invisible"),
    ],
)
def test_group_changes_are_refused_where_they_are_wrong(change: dict[str, Any], pointer: str) -> None:
    """A time belongs to the start `time` alone."""
    with pytest.raises(InvalidField) as refused:
        read_group_change({"group": "g", **change})
    assert refused.value.fields["pointer"] == pointer


def test_permissions_are_written_and_read() -> None:
    """RocketMQ's other bits are not shown."""
    assert {permission_of(perm_of(text)) for text in PERMISSIONS} == set(PERMISSIONS)
    assert permission_of(4 | 1 | 8) == "r"
    with pytest.raises(InvalidField):
        perm_of("x" * 1_000)


def test_attributes_are_merged_in_order_and_bounded() -> None:
    """Equal state on every node, whatever order they came in."""
    assert merged({"b": "1"}, {"a": "2", "b": None, "c": "3"}) == {"a": "2", "c": "3"}
    assert list(merged({"z": "1"}, {"a": "2"})) == ["a", "z"]
    with pytest.raises(InvalidField):
        merged({}, {f"a{n}": "x" * 250 for n in range(5)})
    refused: list[Any] = [[], {1: "x"}, {"a": 1}, {"": "x"}, {"a": "\n"}, {"a": "\ud800"}, {"a": "x" * 257}]
    for bad in refused:
        with pytest.raises(InvalidField):
            check_attributes(bad)
