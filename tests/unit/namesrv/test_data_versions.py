"""Registration by data version: topics travel when a name server lacks them, and are asked for; write permission outlives brokers."""

import dataclasses
from typing import Any

import orjson
import pytest

from tern_namesrv.core import Registry
from tern_wire.errors import BrokerGroupNotFound, InvalidField, StaleRegistration, WarmingUp
from tern_wire.limits import KIB
from tern_wire.routing.route import PERM_READ, PERM_WRITE, Registration, TopicRoute

ORDERS = {"orders": TopicRoute(topic_id=1, queues=8, type="FIFO", perm=4)}
PAYMENTS = {"payments": TopicRoute(topic_id=2, queues=4)}


def registry(wiped: frozenset[str] = frozenset()) -> Registry:
    """Started at 0, warm after 35 s, expiry 120 s."""
    return Registry(cluster="dev", started_ms=0, warm_up_ms=35_000, expiry_ms=120_000, wiped=wiped)


def whole(node: str = "n1", **changes: Any) -> Registration:
    """The leader's registration of term 3 and data version 7, with its topics."""
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


def short(node: str = "n1", **changes: Any) -> Registration:
    """The same without its topics."""
    return whole(node, topics={}, has_topics=False, **changes)


def test_topics_are_asked_for_until_this_version_of_them_has_come() -> None:
    """The leader is believed at once, its topics are not known; then an unchanged heartbeat changes nothing."""
    table = registry()
    assert table.register(short(), 0)
    assert (table.routes(0).broker_groups["broker-a"].leader, table.routes(0).topics) == ("n1", {})
    assert not table.is_warm(10**9), "nobody here knows what the group hosts"
    assert not table.register(whole(), 1)
    assert table.routes(1).topics == {"orders": {"broker-a": ORDERS["orders"]}}
    versions = (table.version, table.topics_version)
    assert not table.register(short(), 2)
    assert (table.version, table.topics_version) == versions


def test_a_newer_data_version_is_asked_for_and_the_old_topics_stay_meanwhile() -> None:
    """A reader never sees a group without topics because they are on their way."""
    table = registry()
    table.register(whole(), 0)
    assert table.register(short(data_version=8), 1)
    assert set(table.routes(1).topics) == {"orders"}
    assert not table.register(whole(data_version=8, topics=PAYMENTS), 2)
    assert set(table.routes(2).topics) == {"payments"}
    assert not table.register(whole(data_version=7), 3), "a registration that was overtaken is no news"
    assert set(table.routes(3).topics) == {"payments"}


@pytest.mark.parametrize("reign", [{"node": "n2", "term": 4}, {"node": "n1", "term": 5}])
def test_a_new_reign_is_asked_for_its_topics_whatever_its_data_version(reign: dict[str, Any]) -> None:
    """Versions of another reign say nothing about this one's topics; the leader changes at once, the topics when they come."""
    table = registry()
    table.register(whole(), 0)
    before = table.topics_version
    assert table.register(short(**reign), 1)
    routes = table.routes(1)
    assert (routes.broker_groups["broker-a"].leader, routes.broker_groups["broker-a"].term) == tuple(reign.values())
    assert set(routes.topics) == {"orders"}
    assert table.topics_version == before, "readers need not fetch them again for a new leader"
    assert not table.register(whole(**reign, data_version=2, topics=PAYMENTS), 2)
    assert set(table.routes(2).topics) == {"payments"}


def test_a_follower_is_never_asked_for_topics() -> None:
    """They come from leaders."""
    table = registry()
    assert not table.register(whole("n2", is_leader=False, topics={}, data_version=99), 0)
    assert not table.register(short("n2", is_leader=False, data_version=99), 0)


def test_a_deposed_leaders_late_heartbeat_changes_nothing_with_or_without_topics() -> None:
    """Fenced by its term; and it does not even count as heard of."""
    table = registry()
    table.register(whole("n1"), 0)
    table.register(whole("n2", term=4, topics=PAYMENTS), 1)
    known = (table.version, table.topics_version, table.live(), table.routes(1))
    for late in (whole("n1", data_version=99), short("n1", data_version=99), short("n1", term=4)):
        with pytest.raises(StaleRegistration):
            table.register(late, 2)
        assert (table.version, table.topics_version, table.live(), table.routes(1)) == known


def test_a_group_that_came_back_is_asked_and_remembered_meanwhile() -> None:
    """What it hosted before its last node went stays until it says something else."""
    table = registry()
    table.register(whole(), 0)
    table.unregister("dev", "broker-a", "n1", 1)
    assert table.register(short(term=0, data_version=0), 2)
    assert set(table.routes(2).topics) == {"orders"}
    table.register(whole(term=0, data_version=0, topics={}), 3)
    assert table.routes(3).topics == {}


def test_types_and_permissions_reach_readers() -> None:
    """They are the leader's word; one that does not say them means what TopicRoute says."""
    table = registry()
    table.register(whole(topics=ORDERS | PAYMENTS), 0)
    topics = table.routes(0).topics
    assert (topics["orders"]["broker-a"].type, topics["orders"]["broker-a"].perm) == ("FIFO", 4)
    assert topics["payments"]["broker-a"] == TopicRoute(topic_id=2, queues=4)
    assert topics["payments"]["broker-a"].perm == PERM_READ | PERM_WRITE


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"has_topics": False}, "/has_topics"),
        ({"topics": {"a": TopicRoute(topic_id=1, queues=1, type="normal")}}, "/topics/a/type"),
        ({"topics": {"a": TopicRoute(topic_id=1, queues=1, perm=16)}}, "/topics/a/perm"),
        ({"topics": {"a": TopicRoute(topic_id=1, queues=1, perm=-1)}}, "/topics/a/perm"),
    ],
)
def test_a_registration_that_contradicts_itself_is_refused(changes: dict[str, Any], pointer: str) -> None:
    """With the pointer of what is wrong."""
    with pytest.raises(InvalidField) as caught:
        registry().register(whole(**changes), 0)
    assert caught.value.fields["pointer"] == pointer


def test_an_unchanged_heartbeat_is_at_most_a_kibibyte() -> None:
    """With the longest names and numbers that there are."""
    longest = short(
        node="n" * 64,
        cluster="c" * 64,
        broker_group="g" * 31,
        link=f"{'h' * 253}:65535",
        http=f"{'h' * 253}:65535",
        term=2**63 - 1,
        data_version=2**63 - 1,
    )
    assert len(orjson.dumps(longest)) <= 1 * KIB


# Write permission -------------------------------------------------------------------------------------------------
def test_a_withdrawn_permission_outlives_its_broker_group() -> None:
    """New registrations, a new leader, the group's death and its return: it is an operator's word."""
    table = registry(frozenset({"broker-a"}))
    table.register(whole(), 0)
    table.register(whole(broker_group="broker-b"), 0)
    seen = [table.routes(0)]
    table.register(whole("n2", term=4), 1)
    seen.append(table.routes(1))
    table.unregister("dev", "broker-a", "n1", 2)
    table.unregister("dev", "broker-a", "n2", 2)
    seen.append(table.routes(2))
    table.register(whole(term=9), 3)
    seen.append(table.topic_route("orders", 3))
    for routes in seen:
        assert [routes.broker_groups[name].writable for name in ("broker-a", "broker-b")] == [False, True]
    before = (table.version, table.topics_version)
    table.wipe(frozenset())
    assert table.routes(3).broker_groups["broker-a"].writable
    assert (table.version, table.topics_version) == (before[0] + 1, before[1])


def test_only_groups_that_are_known_or_wiped_can_be_wiped() -> None:
    """A name that nobody has is a typing error, unless brokers may still come; what was withdrawn can always be restored."""
    table = registry(frozenset({"broker-z"}))
    with pytest.raises(WarmingUp):
        table.check_known("broker-a", 0)
    table.register(whole(), 0)
    table.check_known("broker-a", 0)
    with pytest.raises(WarmingUp):
        table.check_known("broker-b", 34_999)
    with pytest.raises(BrokerGroupNotFound, match="known: broker-a"):
        table.check_known("broker-b", 35_000)
    table.check_known("broker-z", 35_000)
    with pytest.raises(InvalidField):
        table.check_known("Broker A", 0)
    assert (table.hosted_count("broker-a"), table.hosted_count("broker-z")) == (1, 0)
