"""Topics and groups at a proxy with a scripted broker: what it asks, what it remembers, and what is created at its first use."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tern_proxy.auto_create import AutoCreate
from tern_proxy.core.documents.groups import GroupSettings
from tern_proxy.core.documents.topics import TopicSettings
from tern_proxy.core.groups import group_change, start_of
from tern_proxy.core.topics import topic_change, topic_state
from tern_remoting import Frame, Link
from tern_wire.errors import InvalidField, Overloaded, TernError, TopicNotFound
from tern_wire.kept_topics import AUDIT_TOPIC_END
from tern_wire.link.codec import read_json
from tern_wire.link.requests import RequestCode
from tern_wire.link.topics import TopicState
from tern_wire.replies import reply_topic_of
from tern_wire.routing.route import TopicRoute
from tern_wire.settings.group_settings import read_group_change
from tern_wire.settings.topic_settings import read_topic_change
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio


def asked(mesh: ProxyMesh, code: RequestCode) -> list[dict[str, object]]:
    """Heads of the requests of one kind so far."""
    return [head for each, head in mesh.broker.heads if each == code]


async def test_a_change_counts_at_once_at_this_proxy_and_outlives_older_routes() -> None:
    """Name servers hear of it a moment later: until then their word is older than the leader's."""
    async with proxy_mesh() as mesh:
        await mesh.send()
        assert (await mesh.http.patch("/v1/topics/orders", json={"permission": "r", "type": "FIFO"})).status_code == 200
        for number in range(3):
            mesh.broker.create_topic(
                f"other-{number}", 1
            )  # so that the routes are new, and say of this one what they said
            await mesh.proxy.cache.refresh()
            refused = await mesh.post("/v1/topics/orders/messages", b"x")
            assert (refused.status_code, refused.json()["code"]) == (403, "topic-not-writable")
        topic = mesh.proxy.cache.topics["orders"]
        assert (topic.kind, topic.perm) == ("FIFO", 4)


async def test_a_deleted_topic_is_unknown_at_once_and_routes_do_not_bring_it_back() -> None:
    """A name server that still names it is behind; one with another id is not."""
    async with proxy_mesh(topics={"orders": 4, "other": 1}) as mesh:
        mesh.name_server.forced["orders", "broker-a"] = TopicRoute(
            topic_id=mesh.broker.topics["orders"].topic_id, queues=4
        )
        assert (await mesh.http.delete("/v1/topics/orders?confirm=orders")).json() == {
            "topic": "orders",
            "deleted": True,
        }
        await mesh.proxy.cache.refresh()
        assert "orders" not in mesh.proxy.cache.topics
        assert (await mesh.post("/v1/topics/orders/messages", b"x")).status_code == 404
        assert "other" in mesh.proxy.cache.topics
        mesh.name_server.forced["orders", "broker-a"] = TopicRoute(topic_id=77, queues=2)
        await mesh.proxy.cache.refresh()
        assert mesh.proxy.cache.topics["orders"].route["broker-a"].topic_id == 77


async def test_a_topic_that_only_one_broker_group_has_is_described_and_deleted_there() -> None:
    """A broker group that joined later has not all topics."""
    async with proxy_mesh(MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b")) as mesh:
        await mesh.http.put("/v1/groups/everywhere")
        del mesh.brokers[1].topics["orders"], mesh.brokers[1].groups["everywhere"]
        assert (await mesh.http.get("/v1/topics/orders")).json()["broker_groups"] == {"broker-a": 4}
        assert (await mesh.http.patch("/v1/topics/orders", json={"queues": 5})).json()["broker_groups"] == {
            "broker-a": 5
        }
        assert "orders" not in mesh.brokers[1].topics
        assert (await mesh.http.delete("/v1/topics/orders?confirm=orders")).status_code == 200
        assert (await mesh.http.get("/v1/topics/orders")).status_code == 404
        assert (await mesh.http.get("/v1/groups/everywhere")).status_code == 200
        assert (await mesh.http.delete("/v1/groups/everywhere?confirm=everywhere")).status_code == 200
        assert (await mesh.http.get("/v1/groups/everywhere")).status_code == 404


async def test_trouble_in_one_broker_group_is_the_answer() -> None:
    """Never half an answer as if it were the whole."""
    async with proxy_mesh(MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b")) as mesh:
        mesh.brokers[1].script(RequestCode.DESCRIBE_TOPIC, Overloaded(what="requests that wait"))
        assert (await mesh.http.get("/v1/topics/orders")).json()["code"] == "overloaded"


async def test_without_leave_nothing_is_created_and_the_answer_says_how_to() -> None:
    """The default."""
    async with proxy_mesh() as mesh:
        refused = await mesh.post("/v1/topics/unmade/messages", b"x")
        assert (refused.status_code, refused.json()["code"]) == (404, "topic-not-found")
        assert "PUT /v1/topics/unmade" in refused.json()["detail"]
        refused = await mesh.http.post("/v1/topics/orders/groups/unmade/receive")
        assert refused.json()["code"] == "group-not-found"
        assert not asked(mesh, RequestCode.CREATE_TOPIC)
        assert not asked(mesh, RequestCode.CREATE_GROUP)


async def test_many_first_sends_make_one_creation_and_all_are_stored() -> None:
    """Singles and batches; the settings are the defaults."""
    async with proxy_mesh(auto_create=AutoCreate(topics=True), route_interval_ms=60_000) as mesh:
        sends = [mesh.post("/v1/topics/made/messages", b"x") for _ in range(20)]
        batches = [
            mesh.http.post("/v1/topics/made/messages/batch", json={"messages": [{"body": "y"}]}) for _ in range(5)
        ]
        answers = await asyncio.gather(*sends, *batches)
        assert {answer.status_code for answer in answers} == {200, 201}
        assert asked(mesh, RequestCode.CREATE_TOPIC) == [
            {"topic": "made", "mode": "declare", "placement": "1|broker-a|", "own": "broker-a"}
        ]
        assert len(mesh.broker.records("made")) == 25
        refused = await mesh.http.post("/v1/topics/orders/groups/unmade/receive")
        assert refused.json()["code"] == "group-not-found", "groups have a setting of their own"


async def test_a_failed_creation_is_everyones_error_and_the_next_send_tries_again() -> None:
    """Nothing is remembered of it."""
    async with proxy_mesh(auto_create=AutoCreate(topics=True)) as mesh:
        mesh.broker.script(RequestCode.CREATE_TOPIC, Overloaded(what="requests that wait"))
        answers = await asyncio.gather(*(mesh.post("/v1/topics/made/messages", b"x") for _ in range(5)))
        assert {answer.json()["code"] for answer in answers} == {"overloaded"}
        assert (await mesh.post("/v1/topics/made/messages", b"x")).status_code == 201


async def test_a_client_that_goes_away_does_not_take_the_creation_from_the_others() -> None:
    """It goes on for those who wait."""
    held: list[tuple[Link, Frame]] = []
    async with proxy_mesh(auto_create=AutoCreate(topics=True), route_interval_ms=60_000) as mesh:
        mesh.broker.script(RequestCode.CREATE_TOPIC, lambda link, frame: held.append((link, frame)))
        first = asyncio.create_task(mesh.post("/v1/topics/made/messages", b"x"))
        await eventually(lambda: held, "a creation under way")
        asked_before = mesh.name_server.asked
        second = asyncio.create_task(mesh.post("/v1/topics/made/messages", b"x"))
        await eventually(lambda: mesh.name_server.asked > asked_before, "the second one has looked for the topic")
        first.cancel()
        await asyncio.wait([first])
        (link, frame) = held.pop()
        mesh.broker.serve(link, frame)
        assert (await second).status_code == 201
        assert mesh.broker.asked[RequestCode.CREATE_TOPIC] == 1


async def test_nothing_is_created_while_it_may_exist_or_under_a_bad_name() -> None:
    """A name server that is warming up, or none that answers, denies no topic."""
    async with proxy_mesh(auto_create=AutoCreate(topics=True, groups=True)) as mesh:
        mesh.name_server.is_warm = False
        assert (await mesh.post("/v1/topics/made/messages", b"x")).json()["code"] == "warming-up"
        mesh.name_server.is_up = False
        assert (await mesh.post("/v1/topics/made/messages", b"x")).json()["code"] == "no-name-server"
        mesh.name_server.is_up = mesh.name_server.is_warm = True
        for name in ("a.b", "%25DLQ%25g", "x" * 128):
            assert (await mesh.post(f"/v1/topics/{name}/messages", b"x")).json()["code"] == "illegal-topic"
        assert (await mesh.http.post("/v1/topics/made/groups/g/receive")).json()["code"] == "topic-not-found"
        assert not asked(mesh, RequestCode.CREATE_TOPIC)


async def test_a_topic_is_created_where_a_leader_is() -> None:
    """A broker group that is down must not keep the others from taking messages."""
    second = MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b")
    async with proxy_mesh(MemoryBroker(KEY), second, auto_create=AutoCreate(topics=True)) as mesh:
        await mesh.send()
        second.resign()
        await mesh.proxy.cache.refresh()
        second.script(RequestCode.CREATE_TOPIC, *[Overloaded(what="requests that wait")] * 3)
        answer = await mesh.post("/v1/topics/made/messages", b"x")
        assert answer.status_code == 201
        assert answer.json()["queue"].startswith("broker-a:")


async def test_a_group_is_created_at_its_first_receive_once() -> None:
    """However many receive at once."""
    async with proxy_mesh(auto_create=AutoCreate(groups=True)) as mesh:
        await mesh.send()
        answers = await asyncio.gather(
            *(mesh.http.post("/v1/topics/orders/groups/made/receive", json={"max_messages": 1}) for _ in range(8))
        )
        assert {answer.status_code for answer in answers} == {200}
        assert sum(len(answer.json()["messages"]) for answer in answers) == 1
        assert asked(mesh, RequestCode.CREATE_GROUP) == [{"group": "made", "mode": "declare"}]


def test_not_found_says_what_to_do() -> None:
    """In HTTP and on the command line."""
    assert "ternmq topic create t" in TopicNotFound(topic="t").detail


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
NEAR = st.sampled_from(
    ["10s", "0s", "41d", "1e9", "-1", -1, 0, 1, 1 << 70, 1.1, 1e308, "earliest", "2026-01-31T12:00:00Z", "9999-12-31"]
)
RETRIES = st.fixed_dictionaries(
    {"policy": st.sampled_from(["table", "custom", "exponential"]) | VALUES},
    optional={name: NEAR | VALUES | st.lists(NEAR, max_size=4) for name in ("delays", "initial", "multiplier", "max")},
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("queues", "permission", "invisible", "start", "max_attempts"), NEAR | VALUES),
        **{name: st.booleans() | VALUES for name in ("fifo", "consume", "broadcast")},
        "type": st.sampled_from(["FIFO", "fifo"]) | VALUES,
        "attributes": st.dictionaries(st.text(max_size=3), st.none() | st.text(max_size=3)) | VALUES,
        "retry": RETRIES | VALUES,
    },
)


@settings(max_examples=500, deadline=None)
@given(body=BODIES | VALUES)
def test_whatever_is_wrong_in_a_body_is_refused_as_a_problem(body: Any) -> None:
    """Never an error that is not ours, and nothing reaches a broker that it would refuse."""
    data = orjson.dumps(body) if not _is_too_large(body) else json.dumps(body).encode()
    checks: list[Callable[[], dict[str, Any]]] = [
        lambda: _topic(read_json(data, TopicSettings)),
        lambda: _group(read_json(data, GroupSettings)),
    ]
    for check in checks:
        try:
            assert check()
        except TernError as error:
            assert error.status == 400, error


def _is_too_large(value: Any) -> bool:
    return any(abs(number) >= 1 << 63 for number in map(int, re.findall(r"\d{19,}", repr(value)))) or "\\ud" in repr(
        value
    )


def _topic(asked: TopicSettings) -> dict[str, Any]:
    return read_topic_change(topic_change("t", "declare", asked)).packed()


def topic_with(attributes: dict[str, str]) -> TopicState:
    """What a broker group says of a topic."""
    return TopicState(topic_id=1, queues=1, type="MIXED", perm=6, attributes=attributes, created_ms=1)


def _group(asked: GroupSettings) -> dict[str, Any]:
    return read_group_change(group_change("g", "declare", asked, start_of(asked))).packed()


@pytest.mark.parametrize("choice", ["refuse", "drop-oldest"])
def test_what_a_topic_does_when_the_disk_is_full_is_a_setting_of_its_own(choice: str) -> None:
    """Kept as an attribute, which every release passes on, and shown beside them; other attributes stay what they are."""
    change = topic_change("t", "declare", TopicSettings(when_full=choice, attributes={"owner": "x"}))
    assert change["attributes"] == {"owner": "x", "when_full": choice}
    assert "attributes" not in topic_change("t", "declare", TopicSettings(queues=2))
    state = topic_state("t", [("broker-a", topic_with(change["attributes"]))])
    assert (state.when_full, state.attributes) == (choice, {"owner": "x"})


def test_a_topic_that_says_nothing_refuses_and_the_mesh_s_own_give_way() -> None:
    """Replies that nobody waits for any more, and the audit, which is in the logs as well, must not stop everybody's sends."""
    for topic, expected in {
        "orders": "refuse",
        "dev" + AUDIT_TOPIC_END: "drop-oldest",
        reply_topic_of("dev"): "drop-oldest",
        reply_topic_of("dev", "shop"): "drop-oldest",
    }.items():
        assert topic_state(topic, [("broker-a", topic_with({}))]).when_full == expected


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        (TopicSettings(when_full="drop"), "/when_full"),
        (TopicSettings(when_full=""), "/when_full"),
        (TopicSettings(attributes={"when_full": "refuse"}), "/attributes/when_full"),
        (TopicSettings(attributes={"when_full": None}), "/attributes/when_full"),
    ],
)
def test_a_choice_that_is_none_is_refused(settings: TopicSettings, pointer: str) -> None:
    """With where it stands."""
    with pytest.raises(InvalidField) as refused:
        topic_change("t", "declare", settings)
    assert refused.value.fields["pointer"] == pointer
