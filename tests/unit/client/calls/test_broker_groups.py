"""Broker groups and placements as both shells of the SDK ask for them."""

import asyncio
import json
from typing import Any

import pytest

from tern_client import Admin, BlockingAdmin
from tern_wire.errors import BrokerGroupNotFound, IllegalTopic, OutcomeUnknown
from tests.support.client.scripted_proxy import Reply, ScriptedProxy, refused, said

PLACED: dict[str, Any] = {"topic": "orders", "broker_groups": ["broker-a", "broker-b"], "is_moving": True}
ROW = {"namespace": "shop", "topic": "orders"}


async def test_both_shells_say_the_same() -> None:
    """Paths, bodies and documents; lists page by page."""
    replies: list[Reply] = [
        said(PLACED),
        said({**PLACED, "changed": True}),
        said({"broker_group": "broker-b", "groups": 2, "producer_groups": 1}),
        said({"is_drained": True}),
        said({"topics": [ROW], "next_cursor": "c"}),
        said({"topics": [ROW], "next_cursor": ""}),
        refused(BrokerGroupNotFound(broker_group="x", known="broker-a")),
    ]
    async with ScriptedProxy(*replies) as one, ScriptedProxy(*replies) as two:
        async with Admin(one.url, namespace="shop") as admin:
            assert await admin.placement("orders") == PLACED
            assert (await admin.place("orders", ("broker-a", "broker-b")))["changed"]
            assert (await admin.join("broker-b"))["groups"] == 2
            assert (await admin.broker_group("broker-b"))["is_drained"]
            assert await admin.broker_group_topics("broker-b", which="elsewhere") == [ROW, ROW]
            with pytest.raises(BrokerGroupNotFound, match="known: broker-a"):
                await admin.broker_group("../x")
            with pytest.raises(IllegalTopic):
                await admin.place("no topic", [])

        def blocking() -> None:
            with BlockingAdmin(two.url, namespace="shop") as other:
                assert other.placement("orders") == PLACED
                assert other.place("orders", ("broker-a", "broker-b"))["changed"]
                assert other.join("broker-b")["groups"] == 2
                assert other.broker_group("broker-b")["is_drained"]
                assert other.broker_group_topics("broker-b", which="elsewhere") == [ROW, ROW]
                with pytest.raises(BrokerGroupNotFound, match="known: broker-a"):
                    other.broker_group("../x")

        await asyncio.to_thread(blocking)
        asked = [[(each.method, each.path, each.body) for each in proxy.asked] for proxy in (one, two)]
        assert {each.headers["mq-namespace"] for each in one.asked} == {"shop"}
    assert asked[0] == asked[1]
    assert [(method, path) for method, path, _ in asked[0]] == [
        ("GET", "/v1/topics/orders/placement"),
        ("PUT", "/v1/topics/orders/placement"),
        ("POST", "/v1/broker-groups/broker-b/join"),
        ("GET", "/v1/broker-groups/broker-b"),
        ("GET", "/v1/broker-groups/broker-b/topics?limit=1000&which=elsewhere"),
        ("GET", "/v1/broker-groups/broker-b/topics?limit=1000&which=elsewhere&cursor=c"),
        ("GET", "/v1/broker-groups/..%2Fx"),
    ]
    assert json.loads(asked[0][1][2]) == {"broker_groups": ["broker-a", "broker-b"]}


async def test_a_placement_and_a_join_are_repeated_when_their_outcome_is_not_known() -> None:
    """Twice done is done."""
    unknown = refused(OutcomeUnknown())
    async with ScriptedProxy(unknown, said(PLACED), unknown, said({"groups": 0})) as made, Admin(made.url) as admin:
        assert await admin.place("orders", ["broker-a"]) == PLACED
        assert await admin.join("broker-b") == {"groups": 0}
