"""What the mesh keeps for itself x every route that names a topic x everybody: no pattern and no name reaches it, and nobody spoils it."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from tern_proxy.auto_create import AutoCreate
from tern_proxy.core.access.requirements import Rule
from tern_proxy.routes.table import RULES
from tern_wire.kept_topics import AUDIT, DEAD_LETTERS, REPLIES, KeptTopics
from tern_wire.principals.principals import ADMIN, ALTER, DESCRIBE, LIST, SUB
from tern_wire.principals.principals import AUDIT as AUDITING
from tests.support.loops import eventually
from tests.support.proxy.guarded_mesh import EVERYTHING, OWN, ROOT_KEY, GuardedMesh, guarded_mesh
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh
from tests.support.proxy.route_samples import sample

pytestmark = pytest.mark.anyio
REPLY_TOPIC, AUDIT_TOPIC = "test_REPLY_TOPIC", "test_AUDIT_TOPIC"
OWN_TOPICS = (REPLY_TOPIC, AUDIT_TOPIC)
# Everything that can be done with any topic, by pattern and by name.
GRASPING = {
    "by pattern": ("allow ALL topic *", "allow ALL group *", "allow ALL producer-group *"),
    "by name": (*(f"allow ALL topic {name}" for name in OWN_TOPICS), "allow ALL group *", "allow ALL producer-group *"),
    "of half the name": ("allow ALL topic test*", "allow ALL group *", "allow ALL producer-group *"),
    "auditor": ("allow ALL topic *", "allow ALL group *", "allow ALL producer-group *", "allow AUDIT cluster *"),
    "administrator": EVERYTHING,
    "root": None,
}
# What the cluster's rights are good for, by what is kept and what is done.
ASKS = {
    REPLIES: {DESCRIBE: ADMIN, LIST: ADMIN, ALTER: ADMIN},
    AUDIT: {SUB: AUDITING, DESCRIBE: AUDITING, LIST: AUDITING, ALTER: ADMIN},
}
HELD = {"auditor": {AUDITING}, "administrator": {AUDITING, ADMIN}, "root": {AUDITING, ADMIN}}
NAMING = [rule for rule in RULES if any(each.kind == "topic" for each in rule.requirements)]


def renamed(value: Any, topic: str) -> Any:
    """*value* of a sample with *topic* wherever orders was."""
    if isinstance(value, dict):
        return {renamed(name, topic): renamed(item, topic) for name, item in value.items()}
    if isinstance(value, list):
        return [renamed(item, topic) for item in value]
    return topic if value == "orders" else value


def allowed(who: str, topic: str, rule: Rule) -> bool:
    """Whether the rights to the cluster let *who* do what *rule* asks of the topic."""
    asks = ASKS[KeptTopics("test").what(topic)]
    asked = [each for each in rule.requirements if each.kind == "topic" and "if it is created" not in each.condition]
    return all(asks.get(each.action) in HELD.get(who, set()) for each in asked if each.action in asks) and all(
        each.action in asks for each in asked
    )


async def request(mesh: GuardedMesh, rule: Rule, topic: str, key: str) -> httpx.Response:
    """The sample of *rule*, of *topic*."""
    asked = sample(rule, topic=topic)
    return await mesh.ask(asked.method, asked.path, key, **renamed(asked.more, topic))


def what_there_is(mesh: GuardedMesh, topic: str) -> object:
    """The topic's settings and messages. An administrator may place it, which changes neither."""
    found = mesh.broker.topics[topic]
    return found.topic_id, found.queues, found.kind, found.perm, found.attributes, mesh.broker.records(topic)


@pytest.mark.parametrize("who", GRASPING)
@pytest.mark.parametrize("topic", OWN_TOPICS)
async def test_no_grant_of_topics_reaches_what_the_mesh_keeps(topic: str, who: str) -> None:
    """On every route that names a topic, wherever the name stands; and nothing of it changes."""
    wrong = []
    async with guarded_mesh(topics=("orders", *OWN_TOPICS)) as mesh:
        grants = GRASPING[who]
        key = ROOT_KEY if grants is None else mesh.known.put("caller", grants)
        before = what_there_is(mesh, topic)
        for rule in NAMING:
            answer = await request(mesh, rule, topic, key)
            code = answer.json()["code"] if answer.status_code >= 400 else ""
            is_refused = answer.status_code in {403, 404} or code == "topic-reserved"
            # What is asked beside it may refuse them, too.
            if not is_refused and not allowed(who, topic, rule):
                wrong.append(f"{rule.method} {rule.path}: {answer.status_code} {code}")
        assert wrong == []
        assert what_there_is(mesh, topic) == before


async def test_lists_do_not_show_it() -> None:
    """To nobody but an administrator or auditor, wherever topics are listed; dead letters are their group's."""
    async with guarded_mesh(topics=("orders", *OWN_TOPICS, "shop%test_REPLY_TOPIC")) as mesh:
        every = mesh.known.put("every", EVERYTHING[:3])
        both = mesh.known.put("both", EVERYTHING)
        for headers in ({}, {"MQ-Namespace": "shop"}):
            shown = (await mesh.ask("GET", "/v1/topics", every, headers=headers)).text
            assert "REPLY_TOPIC" not in shown
            assert "AUDIT_TOPIC" not in shown
            assert "REPLY_TOPIC" in (await mesh.ask("GET", "/v1/topics", both, headers=headers)).text
        assert mesh.proxy.kept.what("%DLQ%billing") == DEAD_LETTERS


async def test_replies_still_reach_who_has_asked() -> None:
    """The way that is made for them: asked for, replied to, found."""
    async with guarded_mesh() as mesh:
        asking, serving = mesh.known.put("asking", OWN), mesh.known.put("serving", OWN)
        path = "/v1/topics/orders/requests?timeout=1ms&correlation_id=c1&client=shop-7"
        assert (await mesh.ask("POST", path, asking, content=b"how much?")).json()["code"] == "reply-timeout"
        path = "/v1/topics/orders/groups/billing/receive"
        (message,) = (await mesh.ask("POST", path, serving, json={})).json()["messages"]
        query = {"reply_to": message["reply_to"], "correlation_id": message["correlation_id"]}
        replied = await mesh.ask("POST", "/v1/topics/orders/replies", serving, content=b"42", params=query)
        assert replied.status_code == 201
        path = "/v1/topics/orders/requests/c1?client=shop-7"
        assert (await mesh.ask("GET", path, asking)).content == b"42"
        assert (await mesh.ask("GET", path, serving)).status_code == 404


# Where nobody is asked who it is -----------------------------------------------------------------------------------
@pytest.mark.parametrize("topic", ["test_REPLY_TOPIC", "test_AUDIT_TOPIC"])
@pytest.mark.parametrize("kind", ["FIFO", "DELAY", "TRANSACTION", "MIXED"])
async def test_nobody_makes_it_beforehand(kind: str, topic: str) -> None:
    """Not of a type that takes no replies, and of no other; nor alters, deletes or fills it."""
    async with proxy_mesh(cluster="test", auto_create=AutoCreate(topics=True, groups=True)) as mesh:
        path = f"/v1/topics/{topic}"
        answers = [
            await mesh.http.put(path, json={"type": kind}),
            await mesh.http.patch(path, json={"type": kind}),
            await mesh.http.delete(f"{path}?confirm={topic}"),
            await mesh.post(f"{path}/messages", b"forged"),
            await mesh.http.post(f"{path}/messages/batch", json={"messages": [{"body": "x"}]}),
            await mesh.post(f"{path}/requests?timeout=1ms", b"forged"),
            await mesh.post(f"{path}/transactions?producer_group=shop", b"forged"),
        ]
        assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(400, "topic-reserved")] * 7
        assert topic not in mesh.broker.topics


async def reply_to_one(mesh: ProxyMesh) -> httpx.Response:
    """The answer to a reply."""
    query = "correlation_id=c1&reply_to=broker-a:shop-7"
    return await mesh.post(f"/v1/topics/orders/replies?{query}", b"42")


@pytest.mark.parametrize("kind", ["FIFO", "DELAY", "TRANSACTION"])
async def test_a_topic_of_replies_that_was_made_for_something_else_is_mended(kind: str) -> None:
    """By an earlier release, which let it happen: the next reply is stored, once, and the type is MIXED from then on."""
    async with proxy_mesh(cluster="test", topics={"orders": 4, REPLY_TOPIC: 4}) as mesh:
        mesh.broker.topics[REPLY_TOPIC].kind = kind
        (part,) = mesh.proxy.cache.topics[REPLY_TOPIC].route.values()
        mesh.proxy.cache.insert(REPLY_TOPIC, "broker-a", replace(part, type=kind))
        assert mesh.proxy.cache.topics[REPLY_TOPIC].kind == kind
        assert (await reply_to_one(mesh)).status_code == 201
        assert mesh.broker.topics[REPLY_TOPIC].kind == "MIXED"
        assert len(mesh.broker.records(REPLY_TOPIC)) == 1


async def test_rocketmqs_own_names_are_kept_back() -> None:
    """Neither declared nor made by a first use; one that is there from before is served, altered and deleted."""
    settings: Any = {"auto_create": AutoCreate(topics=True, groups=True), "topics": {"orders": 4, "BenchmarkTest": 4}}
    async with proxy_mesh(**settings) as mesh:
        for name in ("SCHEDULE_TOPIC_XXXX", "TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"):
            for answer in (
                await mesh.http.put(f"/v1/topics/{name}", json={}),
                await mesh.post(f"/v1/topics/{name}/messages", b"x"),
                await mesh.http.put(f"/v1/topics/{name}", json={}, headers={"MQ-Namespace": "shop"}),
            ):
                assert (answer.status_code, answer.json()["code"]) == (400, "topic-reserved"), answer.text
                assert name in answer.json()["detail"]
            assert name not in mesh.broker.topics
        assert (await mesh.post("/v1/topics/BenchmarkTest/messages", b"x")).status_code == 201
        assert len((await mesh.receive(topic="BenchmarkTest")).json()["messages"]) == 1
        assert (await mesh.http.put("/v1/topics/BenchmarkTest", json={"queues": 4})).status_code == 200
        assert (await mesh.http.delete("/v1/topics/BenchmarkTest?confirm=BenchmarkTest")).status_code == 200
        for name in ("%DLQ%billing", "%RETRY%billing"):
            answer = await mesh.http.put(f"/v1/topics/{name.replace('%', '%25')}", json={})
            assert (answer.status_code, answer.json()["code"]) == (400, "illegal-topic")
        await eventually(lambda: "BenchmarkTest" not in mesh.broker.topics, "the topic to be gone")
