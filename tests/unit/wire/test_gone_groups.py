"""What is remembered of broker groups that are gone: for how long, and how much of it."""

from tern_wire.limits import GONE_GROUP_KEPT_MS, GONE_TOPICS_KEPT_MAX
from tern_wire.routing.gone_groups import GoneGroup, GoneGroups
from tern_wire.routing.route import TopicRoute


def hosting(*topics: str) -> GoneGroup:
    """A group of three nodes with these topics."""
    return GoneGroup({topic: TopicRoute(topic_id=number, queues=4) for number, topic in enumerate(topics)}, 3)


def names(table: GoneGroups) -> list[str]:
    """The groups remembered."""
    return [name for name, _ in table.items()]


def test_a_group_is_remembered_until_it_is_taken_back() -> None:
    """Once: it lives now, and its own word counts."""
    table = GoneGroups()
    assert table.take("broker-a") is None
    table.keep("broker-a", hosting("orders"), 0)
    assert dict(table.items()) == {"broker-a": hosting("orders")}
    assert table.take("broker-a") == hosting("orders")
    assert (table.take("broker-a"), len(table)) == (None, 0)


def test_a_group_is_forgotten_when_it_has_been_gone_for_more_than_a_day() -> None:
    """Counted from when it went last."""
    table = GoneGroups()
    table.keep("broker-a", hosting("orders"), 0)
    table.keep("broker-b", hosting("orders"), 10)
    table.keep("broker-a", hosting("orders", "late"), 20)
    assert table.expire(10 + GONE_GROUP_KEPT_MS) == []
    assert table.expire(11 + GONE_GROUP_KEPT_MS) == ["broker-b"]
    assert dict(table.items()) == {"broker-a": hosting("orders", "late")}
    assert table.expire(21 + GONE_GROUP_KEPT_MS) == ["broker-a"]


def test_a_full_table_forgets_the_group_that_went_first() -> None:
    """Topics are counted, and each group as one more; what was taken or replaced counts no more."""
    table = GoneGroups()
    half = hosting(*(f"t{number}" for number in range(GONE_TOPICS_KEPT_MAX // 2 - 1)))
    table.keep("oldest", hosting(), 0)
    for now_ms, name in enumerate(("first", "second", "second")):
        table.keep(name, half, now_ms)
    assert names(table) == ["first", "second"], "the group without topics was one too many"
    table.keep("third", hosting(), 5)
    assert names(table) == ["second", "third"]
    table.take("second")
    table.keep("fourth", half, 6)
    assert names(table) == ["third", "fourth"]
