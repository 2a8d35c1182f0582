"""Principals, keys and grants as both shells of the SDK ask for them."""

import asyncio
import json
from typing import Any

import pytest

from tern_client import Admin, BlockingAdmin, RetryPolicy
from tern_wire.errors import ClientKeyNotFound, InvalidField, NoLeader, PrincipalNotFound, PrincipalPartlyWritten
from tern_wire.principals.principals import Grant, read_grant
from tests.support.client.scripted_proxy import Reply, ScriptedProxy, refused, said

KID = "Zk3vQ8mT1xWc5RbN"
PUB = {"effect": "allow", "actions": ["PUB"], "kind": "topic", "pattern": "orders"}
SHOP: dict[str, Any] = {"principal": "shop", "version": 1, "grants": [PUB], "keys": []}
PARTLY = refused(PrincipalPartlyWritten(principal="shop", done="broker-a", missing="broker-b"))


async def test_both_shells_say_the_same() -> None:
    """Paths, bodies and documents; a grant is a map or a Grant; what is None is not named."""
    replies: list[Reply] = [
        said({"principal": "shop", "authenticated": True}),
        said({**SHOP, "created": True}, 201),
        said(SHOP),
        said({"principals": [SHOP], "next_cursor": "c"}),
        said({"principals": [], "next_cursor": ""}),
        said({"kid": KID, "key": "mqk"}, 201),
        said({"acls": [{"principal": "shop", **PUB}], "next_cursor": ""}),
        said({}, 204),
        said({}, 204),
        refused(PrincipalNotFound(principal="shop")),
    ]
    async with ScriptedProxy(*replies) as one, ScriptedProxy(*replies) as two:
        async with Admin(one.url) as admin:
            assert (await admin.whoami())["principal"] == "shop"
            mixed: list[Grant | dict[str, Any]] = [
                read_grant("allow", ["PUB"], "topic", "orders"),
                {**PUB, "pattern": "bills"},
            ]
            assert (await admin.put_principal("shop", grants=mixed, version=0, description=None))["created"]
            assert await admin.principal("shop") == SHOP
            assert await admin.principals() == [SHOP]
            made = await admin.create_key("shop", expires_in="90d", networks=["10.0.0.0/8"])
            assert made["key"] == "mqk"
            assert (await admin.acls(topic="orders"))[0]["pattern"] == "orders"
            await admin.revoke_key("shop", KID)
            await admin.delete_principal("shop")
            await admin.delete_principal("shop", missing_ok=True)

        def blocking() -> None:
            with BlockingAdmin(two.url) as other:
                assert other.whoami()["principal"] == "shop"
                assert other.put_principal("shop", grants=mixed, version=0, description=None)["created"]
                assert other.principal("shop") == SHOP
                assert other.principals() == [SHOP]
                assert other.create_key("shop", expires_in="90d", networks=["10.0.0.0/8"])["key"] == "mqk"
                assert other.acls(topic="orders")[0]["pattern"] == "orders"
                other.revoke_key("shop", KID)
                other.delete_principal("shop")
                other.delete_principal("shop", missing_ok=True)

        await asyncio.to_thread(blocking)
        asked = [[(each.method, each.path, each.body) for each in proxy.asked] for proxy in (one, two)]
    assert asked[0] == asked[1]
    assert [path for _, path, _ in asked[0]] == [
        "/v1/whoami",
        "/v1/principals/shop",
        "/v1/principals/shop",
        "/v1/principals?limit=1000",
        "/v1/principals?limit=1000&cursor=c",
        "/v1/principals/shop/keys",
        "/v1/acls?limit=1000&topic=orders",
        f"/v1/principals/shop/keys/{KID}",
        "/v1/principals/shop",
        "/v1/principals/shop",
    ]
    assert json.loads(asked[0][1][2]) == {"grants": [PUB, {**PUB, "pattern": "bills"}], "version": 0}
    assert json.loads(asked[0][5][2]) == {"expires_in": "90d", "networks": ["10.0.0.0/8"]}


async def test_a_revocation_that_is_partly_done_is_repeated_until_it_is_done_or_told() -> None:
    """By itself, as every 503 that may be repeated; and in the end the caller hears of it."""
    async with ScriptedProxy(PARTLY, PARTLY, said({}, 204)) as proxy, Admin(proxy.url) as admin:
        await admin.revoke_key("shop", KID)
        assert len(proxy.asked) == 3
    later = PrincipalPartlyWritten(
        principal="shop", done="broker-a", missing="broker-b", retry_after_ms=RetryPolicy().deadline_ms
    )
    async with ScriptedProxy(refused(later)) as proxy, Admin(proxy.url) as admin:
        with pytest.raises(PrincipalPartlyWritten) as told:
            await admin.revoke_key("shop", KID)
        assert told.value.fields["missing"] == "broker-b"


async def test_what_cannot_be_is_not_sent() -> None:
    """Names that are none, and kids that are none."""
    async with ScriptedProxy(refused(NoLeader(broker_group="broker-a"))) as proxy, Admin(proxy.url) as admin:
        with pytest.raises(InvalidField):
            await admin.put_principal("root")
        with pytest.raises(ClientKeyNotFound):
            await admin.revoke_key("shop", "../shop")
        assert proxy.asked == []
