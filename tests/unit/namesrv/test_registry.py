"""The registry's decisions at fixed times."""

import dataclasses
from itertools import pairwise
from typing import Any

import pytest

from tern_namesrv.core import NODES_MAX, LiveNode, Registry
from tern_wire.errors import (
    IllegalTopic,
    InvalidField,
    LimitReached,
    StaleRegistration,
    TernError,
    TopicNotFound,
    WarmingUp,
)
from tern_wire.limits import GONE_GROUP_KEPT_MS, QUEUES_PER_TOPIC_MAX, TOPICS_MAX
from tern_wire.routing.route import NodeRoute, Registration, TopicRoute

ORDERS = {"orders": TopicRoute(topic_id=1, queues=8)}
PAYMENTS = {"payments": TopicRoute(topic_id=2, queues=4)}
NODE = NodeRoute(link="127.0.0.1:10911", http="127.0.0.1:10913")


def registry() -> Registry:
    """Started at 0, warm after 35 s, expiry 120 s."""
    return Registry(cluster="dev", started_ms=0, warm_up_ms=35_000, expiry_ms=120_000)


def registration(node: str = "n1", **changes: Any) -> Registration:
    """The leader's heartbeat of term 3 with one topic, unless *changes* say otherwise."""
    base = Registration(
        cluster="dev",
        broker_group="broker-a",
        node=node,
        link="127.0.0.1:10911",
        http="127.0.0.1:10913",
        is_leader=True,
        term=3,
        group_size=3,
        data_version=7,
        topics=ORDERS,
    )
    return dataclasses.replace(base, **changes)


def follower(node: str, term: int = 3) -> Registration:
    """A follower's heartbeat."""
    return registration(node, is_leader=False, term=term, topics={}, data_version=0)


def leader_of(table: Registry, group: str = "broker-a") -> tuple[str, int]:
    """Leader and term as readers see them."""
    route = table.routes(0).broker_groups[group]
    return route.leader, route.term


def test_a_leader_brings_its_group_and_topics() -> None:
    """Nodes, leader, term, size and topics are in the routes."""
    table = registry()
    table.register(registration(), 0)
    routes = table.routes(0)
    group = routes.broker_groups["broker-a"]
    assert group.nodes == {"n1": NODE}
    assert (group.leader, group.term, group.group_size) == ("n1", 3, 3)
    assert routes.topics == {"orders": {"broker-a": ORDERS["orders"]}}
    assert (table.nodes_count, table.topics_count) == (1, 1)


def test_a_topic_is_listed_in_every_group_that_hosts_it() -> None:
    """Two groups, one topic."""
    table = registry()
    table.register(registration(), 0)
    table.register(registration("m1", broker_group="broker-b", term=1), 0)
    assert set(table.topic_route("orders", 0).topics["orders"]) == {"broker-a", "broker-b"}
    assert table.topics_count == 1


def test_a_follower_changes_neither_leader_nor_topics() -> None:
    """Whatever term and topics it claims."""
    table = registry()
    table.register(registration(), 0)
    table.register(dataclasses.replace(follower("n2", term=9), topics=PAYMENTS, data_version=99), 0)
    assert leader_of(table) == ("n1", 3)
    assert set(table.routes(0).topics) == {"orders"}
    assert set(table.routes(0).broker_groups["broker-a"].nodes) == {"n1", "n2"}


def test_a_deposed_leader_is_refused_and_changes_nothing() -> None:
    """Its term is over; the successor's topics stay."""
    table = registry()
    table.register(registration("n2", term=4, topics=PAYMENTS), 0)
    version = table.version
    with pytest.raises(StaleRegistration) as caught:
        table.register(registration("n1", term=3), 0)
    assert (caught.value.status, caught.value.fields["actual"], caught.value.fields["term"]) == (409, 4, 3)
    assert leader_of(table) == ("n2", 4)
    assert set(table.routes(0).topics) == {"payments"}
    assert table.version == version


def test_a_second_leader_of_one_term_is_refused() -> None:
    """Raft elects one."""
    table = registry()
    table.register(registration("n1"), 0)
    with pytest.raises(StaleRegistration):
        table.register(registration("n2"), 0)


def test_a_newer_leader_replaces_topics_whatever_their_version() -> None:
    """Versions compare within one reign only."""
    table = registry()
    table.register(registration("n1", data_version=7), 0)
    table.register(registration("n2", term=4, data_version=1, topics=PAYMENTS), 0)
    assert leader_of(table) == ("n2", 4)
    assert set(table.routes(0).topics) == {"payments"}


@pytest.mark.parametrize(("data_version", "topic"), [(6, "orders"), (7, "orders"), (8, "payments")])
def test_topics_are_taken_only_with_a_newer_data_version(data_version: int, topic: str) -> None:
    """The same version is skipped, an older one was overtaken on its way."""
    table = registry()
    table.register(registration(data_version=7), 0)
    table.register(registration(data_version=data_version, topics=PAYMENTS), 0)
    assert set(table.routes(0).topics) == {topic}


def test_a_leader_that_steps_down_leaves_the_group_without_one() -> None:
    """Topics stay known, so that proxies say no-leader and not topic-not-found; an overtaken heartbeat changes nothing."""
    table = registry()
    table.register(registration("n1", term=3), 0)
    table.register(follower("n1", term=2), 0)
    assert leader_of(table) == ("n1", 3)
    table.register(follower("n1", term=3), 0)
    assert leader_of(table) == ("", 3)
    assert set(table.routes(0).topics) == {"orders"}


@pytest.mark.parametrize(("silent_ms", "lives"), [(119_999, True), (120_000, True), (120_001, False)])
def test_a_node_is_removed_after_more_than_the_expiry_of_silence(silent_ms: int, lives: bool) -> None:
    """`now - last > 120 s`, as RocketMQ's."""
    table = registry()
    table.register(registration(), 1_000)
    assert table.expire(1_000 + silent_ms) == ([] if lives else [("broker-a", "n1")])
    assert table.live() == ({"broker-a": {"n1": LiveNode(route=NODE, heard_ms=1_000)}} if lives else {})


def test_a_heartbeat_keeps_a_node_and_an_expired_leader_leaves_none() -> None:
    """The followers that go on keep the group, its term and its topics."""
    table = registry()
    table.register(registration("n1"), 0)
    table.register(follower("n2"), 0)
    table.register(follower("n2"), 100_000)
    assert table.expire(130_000) == [("broker-a", "n1")]
    assert leader_of(table) == ("", 3)
    assert set(table.routes(0).topics) == {"orders"}
    with pytest.raises(StaleRegistration):
        table.register(registration("n1", term=2), 130_000)


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_group_that_is_gone_keeps_its_topics_and_nobody_leads_it(is_silent: bool) -> None:
    """Expired or unregistered: a client that is told `topic-not-found` gives up, and these messages are on some disk."""
    table = registry()
    table.register(registration(), 0)
    before = table.version
    if is_silent:
        table.expire(200_000)
    else:
        table.unregister("dev", "broker-a", "n1", 200_000)
    assert table.version > before
    for routes in (table.routes(200_000), table.topic_route("orders", 200_000)):
        assert routes.warm
        assert routes.topics == {"orders": {"broker-a": ORDERS["orders"]}}
        group = routes.broker_groups["broker-a"]
        assert (group.nodes, group.leader, group.group_size) == ({}, "", 3)
    assert (table.nodes_count, table.topics_count, table.gone_count) == (0, 1, 1)
    with pytest.raises(TopicNotFound):
        table.topic_route("payments", 200_000)


def test_a_follower_that_is_back_changes_no_topics_and_a_leader_does() -> None:
    """What the group says now wins over what is remembered, also when it was made anew and begins at a low term."""
    table = registry()
    table.register(registration(), 0)
    table.expire(200_000)
    table.register(follower("n2"), 200_001)
    assert (set(table.routes(200_001).topics), table.gone_count) == ({"orders"}, 0)
    assert table.is_warm(200_001)
    table.register(registration(term=0, topics=PAYMENTS), 200_002)
    assert leader_of(table) == ("n1", 0)
    assert set(table.routes(200_002).topics) == {"payments"}
    with pytest.raises(TopicNotFound):
        table.topic_route("orders", 200_002)


def test_a_group_that_has_been_gone_for_a_day_is_forgotten() -> None:
    """A name server that knows no broker group is as one that has just started: it calls no topic unknown."""
    table = registry()
    table.register(registration(), 0)
    table.expire(200_000)
    table.expire(200_000 + GONE_GROUP_KEPT_MS)
    assert set(table.routes(0).topics) == {"orders"}
    before = table.version
    table.expire(200_001 + GONE_GROUP_KEPT_MS)
    assert (table.routes(0).topics, table.routes(0).broker_groups) == ({}, {})
    assert table.version > before
    with pytest.raises(WarmingUp):
        table.topic_route("orders", 200_001 + GONE_GROUP_KEPT_MS)


def test_unregistering_is_at_once_and_idempotent() -> None:
    """Also for a group that was never heard of."""
    table = registry()
    table.register(registration("n1"), 0)
    table.register(follower("n2"), 0)
    assert table.unregister("dev", "broker-a", "n1", 0)
    assert leader_of(table) == ("", 3)
    assert not table.unregister("dev", "broker-a", "n1", 0)
    assert not table.unregister("dev", "broker-z", "n1", 0)
    with pytest.raises(InvalidField):
        table.unregister("prod", "broker-a", "n2", 0)


def test_unknown_topics_are_warming_up_first_and_not_found_later() -> None:
    """The boundary is the warm-up's end; a known topic is answered at any time."""
    table = registry()
    table.register(registration(), 0)
    with pytest.raises(WarmingUp):
        table.topic_route("payments", 34_999)
    with pytest.raises(TopicNotFound, match="PUT /v1/topics/payments"):
        table.topic_route("payments", 35_000)
    assert not table.topic_route("orders", 1).warm
    assert table.topic_route("orders", 35_000).warm
    with pytest.raises(IllegalTopic):
        table.topic_route("a/b", 0)


def test_a_name_server_is_cold_until_every_group_that_it_hears_has_told_its_topics() -> None:
    """Started while all brokers were down, or while a group elects: it may call nothing unknown, however long ago it started."""
    table = registry()
    assert not table.is_warm(10**9)
    table.register(follower("n2"), 10**9)
    with pytest.raises(WarmingUp):
        table.topic_route("orders", 10**9)
    table.register(registration(), 10**9)
    assert table.is_warm(10**9)
    table.register(dataclasses.replace(follower("m1"), broker_group="broker-b"), 10**9)
    assert not table.is_warm(10**9)
    table.unregister("dev", "broker-b", "m1", 10**9)
    assert table.is_warm(10**9), "a group that never said what it hosts is not remembered"
    assert table.gone_count == 0


def test_the_version_counts_changes_and_not_heartbeats() -> None:
    """Readers poll it."""
    table = registry()
    seen = [table.version]
    steps = [registration(), registration(), follower("n2"), follower("n2"), registration(http="127.0.0.1:1")]
    for at_ms, step in enumerate(steps):
        table.register(step, at_ms)
        seen.append(table.version)
    assert [after > before for before, after in pairwise(seen)] == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("changes", "error", "pointer"),
    [
        ({"cluster": "prod"}, InvalidField, "/cluster"),
        ({"broker_group": "Broker A"}, InvalidField, "/broker_group"),
        ({"broker_group": ""}, InvalidField, "/broker_group"),
        ({"node": "a/b"}, InvalidField, "/node"),
        ({"node": "n" * 65}, InvalidField, "/node"),
        ({"link": "127.0.0.1"}, InvalidField, "/link"),
        ({"http": "127.0.0.1:65536"}, InvalidField, "/http"),
        ({"http": "a b:80"}, InvalidField, "/http"),
        ({"term": -1}, InvalidField, "/term"),
        ({"data_version": -1}, InvalidField, "/data_version"),
        ({"group_size": 0}, InvalidField, "/group_size"),
        ({"topics": {"a b": TopicRoute(topic_id=1, queues=1)}}, IllegalTopic, None),
        ({"topics": {"a": TopicRoute(topic_id=1, queues=0)}}, InvalidField, "/topics/a"),
        ({"topics": {"a": TopicRoute(topic_id=1, queues=QUEUES_PER_TOPIC_MAX + 1)}}, InvalidField, "/topics/a"),
        ({"topics": {f"t{n}": TopicRoute(topic_id=n, queues=1) for n in range(TOPICS_MAX + 1)}}, LimitReached, None),
    ],
)
def test_a_registration_that_cannot_be_is_refused_and_changes_nothing(
    changes: dict[str, Any], error: type[TernError], pointer: str | None
) -> None:
    """With the pointer of what is wrong."""
    table = registry()
    with pytest.raises(error) as caught:
        table.register(registration(**changes), 0)
    assert caught.value.fields.get("pointer") == pointer
    assert (table.version, table.nodes_count) == (0, 0)


def test_the_table_of_nodes_is_bounded_and_known_nodes_stay_welcome() -> None:
    """The thousand-and-first is refused."""
    table = registry()
    for number in range(NODES_MAX):
        table.register(follower(f"n{number}"), 0)
    with pytest.raises(LimitReached):
        table.register(follower("late"), 0)
    with pytest.raises(LimitReached):
        table.register(registration(broker_group="broker-z"), 0)
    table.register(follower("n0"), 1)
    assert set(table.routes(0).broker_groups) == {"broker-a"}


def test_a_name_server_that_has_heard_of_all_expected_broker_groups_is_warm() -> None:
    """A follower's word is none; one group of two is not enough; a group that left after it had told counts."""
    expected = frozenset({"broker-a", "broker-b"})
    table = Registry(cluster="dev", started_ms=0, warm_up_ms=35_000, expiry_ms=120_000, expected=expected)
    assert not table.is_warm(1)
    table.register(registration(), 1)
    table.register(dataclasses.replace(follower("m1"), broker_group="broker-b"), 1)
    assert not table.is_warm(2)
    table.unregister("dev", "broker-a", "n1", 3)
    table.register(registration("m1", broker_group="broker-b", topics=PAYMENTS), 3)
    assert table.is_warm(3)


def test_an_expected_broker_group_that_never_comes_holds_nothing_up_for_ever() -> None:
    """The time of the warm-up stays the bound; and a group that nobody expected is waited for like any other."""
    table = Registry(
        cluster="dev", started_ms=0, warm_up_ms=35_000, expiry_ms=120_000, expected=frozenset({"broker-x"})
    )
    table.register(registration(), 1)
    assert [table.is_warm(now_ms) for now_ms in (34_999, 35_000)] == [False, True]
    table = Registry(
        cluster="dev", started_ms=0, warm_up_ms=35_000, expiry_ms=120_000, expected=frozenset({"broker-a"})
    )
    table.register(registration(), 1)
    table.register(dataclasses.replace(follower("m1"), broker_group="broker-b"), 1)
    assert not table.is_warm(2)
