"""Broker groups that come and go, at a proxy: what joins gets what others have, and what is left in one is told before it may be taken out."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tern_proxy.core.sending.topic import Topic
from tern_proxy.routes.broker_groups import joining
from tern_proxy.routes.broker_groups.late_groups import begin_topic
from tern_wire.errors import AlreadyExists, BrokerGroupNotFound, LimitReached
from tern_wire.link.requests import RequestCode
from tern_wire.routing.placement import Placement
from tern_wire.settings.producer_settings import ProducerSettings
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, eventually, proxy_mesh
from tests.support.scripted.broker import ScriptedBroker

pytestmark = pytest.mark.anyio
B = "/v1/broker-groups/broker-b"
SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"


def two_groups() -> tuple[ScriptedBroker, ScriptedBroker]:
    """Leaders of broker-a and broker-b."""
    return ScriptedBroker(KEY), ScriptedBroker(KEY, node="broker-b-0", broker_group="broker-b")


def place(mesh: ProxyMesh, name: str, *groups: str, before: tuple[str, ...] = ()) -> None:
    """Let the routes of *mesh* say that the topic is placed there."""
    placement = str(Placement(epoch=2, groups=groups, before=before))
    route = {each: replace(part, placement=placement) for each, part in mesh.proxy.cache.topics[name].route.items()}
    mesh.proxy.cache.topics[name] = Topic(name, route)


async def left(mesh: ProxyMesh, path: str = B) -> Any:
    """What is left in a broker group."""
    answer = await mesh.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def wipe(mesh: ProxyMesh, name: str = "broker-b") -> None:
    """Withdraw the write permission of a broker group; the proxy hears of it."""
    mesh.name_server.wiped.add(name)
    await mesh.proxy.cache.refresh()


# Joining ----------------------------------------------------------------------------------------------------------
async def test_a_broker_group_that_joins_gets_the_groups_that_others_have_with_their_settings() -> None:
    """Of every namespace; retry policy, start, attributes, flags, and the secret with its revision."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        del other.groups["billing"]
        one.groups["shop%paying"] = 7
        settings = {"max_attempts": 3, "start": "time", "start_ms": 5, "fifo": True, "broadcast": True}
        retry = {"policy": "custom", "delays_ms": [1_000, 500]}
        one.admin.group_settings["shop%paying"] = {**settings, "retry": retry, "attributes": {"owner": "x"}}
        told = ProducerSettings(check_url="http://127.0.0.1/", check_secret=SECRET, max_checks=4)
        one.transactions.groups["shop%bank"] = (3, told)
        one.transactions.revisions["shop%bank"] = 5
        joined = await mesh.http.post(f"{B}/join")
        assert (joined.status_code, joined.json()) == (
            200,
            {"broker_group": "broker-b", "groups": 2, "producer_groups": 1},
        )
        assert set(other.groups) == {"billing", "shop%paying"}
        found = other.admin.group_settings["shop%paying"]
        assert {name: found[name] for name in settings} == settings
        assert (found["retry"], found["attributes"]) == (retry, {"owner": "x"})
        assert other.transactions.groups["shop%bank"][1] == told
        assert other.transactions.revisions["shop%bank"] == 5
        again = (await mesh.http.post(f"{B}/join")).json()
        assert (again["groups"], again["producer_groups"]) == (0, 0)


async def test_what_is_there_already_is_not_changed() -> None:
    """Not what was declared before, not what somebody declares at the same time, and nothing anywhere else."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        one.groups["late"] = one.groups["newer"] = 8
        one.admin.group_settings["billing"] = {"max_attempts": 3}
        other.admin.group_settings["billing"] = {"max_attempts": 9}
        other.script(RequestCode.CREATE_GROUP, AlreadyExists(what="group", name="late"))
        one.transactions.groups["p"] = (1, ProducerSettings(max_checks=3))
        other.transactions.groups["p"] = (1, ProducerSettings(max_checks=9))
        assert (await mesh.http.post(f"{B}/join")).json()["groups"] == 1
        assert other.admin.group_settings["billing"] == {"max_attempts": 9}
        assert other.transactions.groups["p"][1].max_checks == 9
        assert one.asked[RequestCode.CREATE_GROUP] == one.asked[RequestCode.ALTER_PRODUCER_GROUP] == 0


async def test_a_producer_group_of_its_first_use_gets_no_decision() -> None:
    """Nobody has decided anything of it: one that is declared there meanwhile keeps what was decided."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        one.transactions.groups["p"] = (1, ProducerSettings())
        assert (await mesh.http.post(f"{B}/join")).json()["producer_groups"] == 1
        (change,) = [head for code, head in other.heads if code is RequestCode.ALTER_PRODUCER_GROUP]
        assert {name: change[name] for name in ("producer_group", "create")} == {"producer_group": "p", "create": True}
        assert "check_url" not in change
        assert not change.get("revision", 0)


async def test_a_join_goes_page_by_page_and_so_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group is found, whichever broker groups have which; and no more wait for the new one than the limit says."""
    monkeypatch.setattr(joining, "LISTED_MAX", 3)
    monkeypatch.setattr(joining, "JOINS_AT_ONCE", 2)
    one, other = two_groups()
    third = ScriptedBroker(KEY, node="broker-c-0", broker_group="broker-c")
    waiting: list[Any] = []
    async with proxy_mesh(one, other, third) as mesh:
        for number in range(10):
            (one if number % 2 else third).groups[f"g{number}"] = 10 + number
        other.groups["g4"] = 50
        other.script(RequestCode.CREATE_GROUP, *[lambda link, frame: waiting.append((link, frame))] * 2)
        done = asyncio.create_task(mesh.http.post(f"{B}/join"))
        await eventually(lambda: len(waiting) == 2, "two that wait")
        assert other.asked[RequestCode.CREATE_GROUP] == 2
        for link, frame in waiting:
            other._answer(link, frame, RequestCode.CREATE_GROUP)
        assert (await done).json()["groups"] == 9
        assert set(other.groups) == {"billing", *(f"g{number}" for number in range(10))}


async def test_a_join_that_is_refused_halfway_is_completed_by_the_next_one() -> None:
    """The first trouble is the answer; what was declared stays."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        one.groups |= {"g1": 8, "g2": 9}
        other.script(RequestCode.CREATE_GROUP, LimitReached(what="groups", actual=1, limit=1))
        refused = await mesh.http.post(f"{B}/join")
        assert (refused.status_code, refused.json()["code"]) == (429, "limit-reached")
        assert len(other.groups) == 2
        assert (await mesh.http.post(f"{B}/join")).json()["groups"] == 1


@pytest.mark.parametrize(("method", "end"), [("GET", ""), ("GET", "/topics"), ("POST", "/join")])
async def test_a_broker_group_that_nobody_knows_is_not_found(method: str, end: str) -> None:
    """With those that are known; while the name server is warming up it may come."""
    async with proxy_mesh() as mesh:
        missing = await mesh.http.request(method, f"{B}{end}")
        known = BrokerGroupNotFound(broker_group="broker-b", known="broker-a")
        assert (missing.status_code, missing.json()["detail"]) == (404, known.detail)
        mesh.name_server.is_warm = False
        await mesh.proxy.cache.refresh()
        assert (await mesh.http.request(method, f"{B}{end}")).json()["code"] == "warming-up"


@pytest.mark.parametrize(("method", "end"), [("GET", ""), ("GET", "/topics"), ("POST", "/join")])
async def test_broker_groups_are_the_clusters_and_no_namespaces(method: str, end: str) -> None:
    """Whoever asks from a namespace gets the same answer as everybody, names apart from their namespaces."""
    one, other = two_groups()
    async with proxy_mesh(one, other, topics={"shop%orders": 1, "orders": 1}) as mesh:
        inside = await mesh.http.request(method, f"{B}{end}", headers={"MQ-Namespace": "shop"})
        outside = await mesh.http.request(method, f"{B}{end}")
        assert (inside.status_code, inside.json()) == (outside.status_code, outside.json())
        assert "%" not in inside.text


async def test_a_group_that_starts_with_what_comes_begins_with_the_oldest_where_its_topic_grows() -> None:
    """What was sent to the new broker group before its first receive there is newer than its begin; queues that it has begun are left alone."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        for broker in (one, other):
            broker.groups |= {"late": 7, "early": 8, "idle": 9}
            for group in ("late", "idle"):
                broker.admin.group_settings[group] = {"start": "latest"}
        one.admin.begun = {("late", "orders"): {"0": 3}, ("early", "orders"): {"0": 3}}
        other.admin.begun = {("late", "orders"): {"1": 4}}
        assert (await mesh.http.post(f"{B}/join")).status_code == 200
        seeks = [head for code, head in other.heads if code is RequestCode.SEEK]
        assert [(seek["group"], seek["topic"], seek["queues"], seek["to"]) for seek in seeks] == [
            ("late", "orders", [0, 2, 3], "earliest")
        ]
        assert one.asked[RequestCode.SEEK] == 0
        one.admin.begun["early", "orders"] = {"0": 0}
        other.admin.begun = {}
        assert await begin_topic(mesh.proxy, "orders", "broker-b", 4) == 4
        other.admin.begun = {("late", "orders"): {str(queue): 0 for queue in range(4)}}
        assert await begin_topic(mesh.proxy, "orders", "broker-b", 4) == 0
        assert await begin_topic(mesh.proxy, "nope", "broker-b", 4) == 0


async def test_a_topic_that_is_placed_on_a_broker_group_is_begun_there_before_anybody_sends() -> None:
    """The new one is told of the topic, of the groups that have begun it, and then of its placement."""
    one, other = two_groups()
    async with proxy_mesh(one, other, topics={}) as mesh:
        assert (await mesh.http.put("/v1/topics/orders", json={"queues": 2})).status_code == 201
        assert (await mesh.http.put("/v1/topics/orders/placement", json={"broker_groups": ["broker-a"]})).is_success
        await mesh.http.put("/v1/topics/orders/placement", json={"broker_groups": ["broker-a"]})
        del other.topics["orders"]
        for broker in (one, other):
            broker.groups["late"] = 7
            broker.admin.group_settings["late"] = {"start": "latest"}
        one.admin.begun, other.admin.begun = {("late", "orders"): {"0": 3}}, {}
        other.heads.clear()
        placed = await mesh.http.put("/v1/topics/orders/placement", json={"broker_groups": ["broker-a", "broker-b"]})
        assert placed.status_code == 200, placed.text
        codes = [code for code, _ in other.heads if code in {RequestCode.CREATE_TOPIC, RequestCode.SEEK}]
        assert codes == [RequestCode.CREATE_TOPIC, RequestCode.SEEK, RequestCode.CREATE_TOPIC]


# Draining ---------------------------------------------------------------------------------------------------------
async def test_what_is_left_in_a_broker_group_is_counted_and_named() -> None:
    """By topic: what its slowest group has to read, what is leased, what waits; and what no topic has."""
    one, other = two_groups()
    async with proxy_mesh(one, other, topics={"orders": 2, "shop%bills": 1, "empty": 1}) as mesh:
        other.topics["orders"][1][0].extend([b"r"] * 5)
        other.admin.reading = {"orders": {"billing": (3, 2), "audit": (5, 0)}, "empty": {"billing": (0, 0)}}
        other.admin.scheduled = {"shop%bills": 4}
        other.admin.open_transactions, other.admin.dead = 2, {"shop%payers": 6}
        place(mesh, "orders", "broker-a")
        place(mesh, "shop%bills", "broker-a", before=("broker-a", "broker-b"))
        place(mesh, "empty", "broker-a", "broker-b", before=("broker-b",))
        found = await left(mesh)
        assert (found["broker_group"], found["writable"], found["leader"]) == ("broker-b", True, "broker-b-0")
        assert (found["topics"], found["placed"], found["moving"]) == (3, 1, 1)
        assert (found["unread"], found["in_flight"], found["scheduled"], found["unclaimed"]) == (5, 2, 4, 0)
        assert (found["transactions"], found["dead_letters"], found["is_drained"]) == (2, 6, False)
        rows = {(row["namespace"], row["topic"]): row for row in found["topics_left"]}
        assert {place: row["why"] for place, row in rows.items()} == {
            ("", "empty"): ["placed"],
            ("", "orders"): ["unread"],
            ("shop", "bills"): ["moving", "scheduled"],
        }
        behind = [{"group": "audit", "unread": 5}, {"group": "billing", "unread": 3}]
        assert rows["", "orders"]["groups"] == behind
        assert found["dead_letters_left"] == [{"namespace": "shop", "group": "payers", "dead_letters": 6}]


async def test_a_broker_group_without_permission_and_without_anything_left_is_drained() -> None:
    """What no group reads keeps nobody, and is told; with write permission it could get more at any time."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        other.topics["orders"][1][0].extend([b"r"] * 7)
        place(mesh, "orders", "broker-a")
        assert not (await left(mesh))["is_drained"]
        await wipe(mesh)
        place(mesh, "orders", "broker-a")
        found = await left(mesh)
        assert (found["is_drained"], found["unclaimed"], found["topics_left"]) == (True, 7, [])


@pytest.mark.parametrize("what", ["placed", "moving", "unread", "scheduled", "transactions", "dead letters"])
async def test_whatever_is_left_keeps_the_broker_group(what: str) -> None:
    """Each of them alone."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        await wipe(mesh)
        other.admin.reading = {"orders": {"billing": (int(what == "unread"), 0)}}
        other.admin.scheduled = {"orders": int(what == "scheduled")}
        other.admin.open_transactions = int(what == "transactions")
        other.admin.dead = {"billing": 1} if what == "dead letters" else {}
        before = ("broker-b",) if what == "moving" else ()
        place(mesh, "orders", "broker-b" if what == "placed" else "broker-a", before=before)
        assert not (await left(mesh))["is_drained"]


async def test_a_group_that_reads_the_topic_elsewhere_has_everything_of_it_to_read_here() -> None:
    """It has not come by since the topic grew; what is here was sent for it, too."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        await wipe(mesh)
        other.topics["orders"][1][0].extend([b"r"] * 7)
        one.admin.reading = {"orders": {"billing": (0, 0)}, "elsewhere": {"billing": (9, 9)}}
        place(mesh, "orders", "broker-a")
        found = await left(mesh)
        assert (found["unread"], found["in_flight"], found["unclaimed"], found["is_drained"]) == (7, 0, 0, False)
        assert found["topics_left"][0]["groups"] == [{"group": "billing", "unread": 7}]


async def test_another_broker_group_is_asked_only_where_it_has_the_same_topics() -> None:
    """One that is without a leader does not keep the others from being drained of what it never had; of what it has, nobody can tell."""
    one, other = two_groups()
    async with proxy_mesh(one, other, topics={}, leader_wait_ms=50) as mesh:
        other.create_topic("mine", 1)
        other.topics["mine"][1][0].append(b"r")
        await mesh.proxy.cache.refresh()
        await left(mesh)
        assert one.asked[RequestCode.HOSTED] == 0
        one.create_topic("mine", 1)
        await mesh.proxy.cache.refresh()
        await left(mesh)
        assert one.asked[RequestCode.HOSTED] == 1
        one.resign()
        assert (await mesh.http.get(B)).json()["code"] == "no-leader"


async def test_a_topic_that_says_nothing_of_a_placement_is_placed_wherever_it_is() -> None:
    """As topics of before there were placements."""
    async with proxy_mesh(*two_groups()) as mesh:
        found = await left(mesh)
        assert (found["placed"], found["topics_left"][0]["why"]) == (1, ["placed"])


async def test_a_long_list_of_what_is_left_is_cut_and_still_counted() -> None:
    """A hundred names."""
    topics = {f"t{number:03}": 1 for number in range(120)}
    async with proxy_mesh(*two_groups(), topics=topics) as mesh:
        found = await left(mesh)
        assert (found["placed"], len(found["topics_left"])) == (120, 100)


async def test_topics_are_listed_by_where_they_are() -> None:
    """Those of every namespace that are here, or elsewhere, page by page."""
    one, other = two_groups()
    async with proxy_mesh(one, other, topics={"both": 1, "shop%both": 1}) as mesh:
        one.create_topic("there", 1)
        await mesh.proxy.cache.refresh()
        place(mesh, "both", "broker-a", before=("broker-a", "broker-b"))
        first = (await mesh.http.get(f"{B}/topics?limit=1")).json()
        assert first["topics"] == [
            {
                "namespace": "",
                "topic": "both",
                "broker_groups": ["broker-a"],
                "before": ["broker-a", "broker-b"],
                "hosts": ["broker-a", "broker-b"],
            }
        ]
        second = (await mesh.http.get(f"{B}/topics", params={"cursor": first["next_cursor"]})).json()
        assert [(row["namespace"], row["topic"]) for row in second["topics"]] == [("shop", "both")]
        assert second["next_cursor"] == ""
        others = (await mesh.http.get(f"{B}/topics?which=elsewhere")).json()["topics"]
        assert [row["topic"] for row in others] == ["there"]
        assert (await mesh.http.get(f"{B}/topics?which=all")).json()["code"] == "invalid-field"


# Taken out --------------------------------------------------------------------------------------------------------
async def test_what_is_asked_of_everybody_goes_on_without_a_broker_group_that_was_taken_out() -> None:
    """Without write permission and without brokers. It counts again when one of them comes back."""
    one, other = two_groups()
    async with proxy_mesh(one, other, leader_wait_ms=50) as mesh:
        other.resign()
        await wipe(mesh)
        assert (await mesh.http.put("/v1/groups/new")).json()["code"] == "no-leader"
        mesh.name_server.brokers = [one]
        await mesh.proxy.cache.refresh()
        for method, path in (("PUT", "/v1/groups/new"), ("PUT", "/v1/producer-groups/shop"), ("GET", "/v1/groups")):
            answer = await mesh.http.request(method, path)
            assert answer.is_success, answer.text
        mesh.name_server.brokers = [one, other]
        other.lead(2)
        await mesh.proxy.cache.refresh()
        await eventually(lambda: mesh.proxy.group("broker-b").link.has_leader, "its leader")
        assert (await mesh.http.put("/v1/groups/other")).status_code == 201
        assert "other" in other.groups


async def test_a_broker_group_that_is_only_down_is_waited_for() -> None:
    """Nobody has withdrawn anything: what is declared without it would be missing there."""
    one, other = two_groups()
    async with proxy_mesh(one, other, leader_wait_ms=50) as mesh:
        other.resign()
        mesh.name_server.brokers = [one]
        await mesh.proxy.cache.refresh()
        assert (await mesh.http.put("/v1/groups/new")).json()["code"] == "no-leader"
