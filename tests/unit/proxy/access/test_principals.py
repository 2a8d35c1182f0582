"""Principals, keys and grants over HTTP: told to every broker group, keys shown once, and what is said when a group does not answer."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest

from tern_proxy.core.access.principals import key_state
from tern_remoting import Frame, Link
from tern_wire.errors import LimitReached
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode
from tern_wire.principals.client_keys import (
    BEARER,
    HMAC,
    ClientKey,
    bearer_text,
    digest_of,
    encoded_public_key,
    is_bearer_of,
    read_key_text,
)
from tern_wire.principals.documents import PrincipalDocument, settings_change
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
SHOP, KEYS = "/v1/principals/shop", "/v1/principals/shop/keys"
PUB = {"effect": "allow", "actions": ["PUB"], "kind": "topic", "pattern": "orders*"}
DAY_MS = 86_400_000


def two_groups() -> tuple[MemoryBroker, MemoryBroker]:
    """Leaders of two broker groups."""
    return MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b")


def code_of(answer: httpx.Response) -> str:
    """The code of a problem; "" of an answer that is none."""
    return "" if answer.is_success else str(answer.json()["code"])


def known(broker: MemoryBroker, name: str = "shop") -> PrincipalDocument:
    """What that broker group knows."""
    return broker.engine.state.principals.get(name) or PrincipalDocument(name=name)


async def without_leader(mesh: ProxyMesh, broker: MemoryBroker) -> None:
    """That broker group has none from now on, and the proxy knows."""
    broker.resign()
    link = mesh.proxy.groups[broker.broker_group].link
    await eventually(lambda: not link.has_leader, "the leader is gone")


async def put(mesh: ProxyMesh, **fields: Any) -> httpx.Response:
    """Declare shop."""
    return await mesh.http.put(SHOP, json=fields)


async def test_a_principal_is_declared_in_every_broker_group() -> None:
    """201 when it is new, 200 afterwards; what is left out stays; saying the same again changes nothing."""
    async with proxy_mesh(*two_groups()) as mesh:
        created = await put(mesh, grants=[PUB], description="the shop")
        assert (created.status_code, created.json()) == (
            201,
            {
                "principal": "shop",
                "version": 1,
                "description": "the shop",
                "grants": [PUB],
                "requests_per_s": 0,
                "bytes_per_s": 0,
                "keys": [],
                "created": True,
            },
        )
        changed = await put(mesh, requests_per_s=5)
        assert (changed.status_code, changed.json()["version"], changed.json()["grants"]) == (200, 2, [PUB])
        assert (await put(mesh, requests_per_s=5)).json()["version"] == 2
        shown = (await mesh.http.get(SHOP)).json()
        assert (shown["description"], shown["requests_per_s"]) == ("the shop", 5)
        assert known(mesh.brokers[0]) == known(mesh.brokers[1])
        assert mesh.proxy.principals.table.principals["shop"].requests_per_s == 5


async def test_a_change_can_ask_for_the_version_that_it_was_made_from() -> None:
    """Somebody else was faster: 409, and nothing has changed; 0 is a principal that is not there."""
    async with proxy_mesh(*two_groups()) as mesh:
        assert (await put(mesh, version=0)).status_code == 201
        late = await put(mesh, version=0, description="x")
        assert (code_of(late), late.json()["actual"], late.json()["expected"]) == ("principal-changed", 1, 0)
        assert (await put(mesh, version=1, description="x")).json()["version"] == 2
        assert code_of(await put(mesh, version=1, description="y")) == "principal-changed"
        assert {known(broker).description for broker in mesh.brokers} == {"x"}


async def test_of_two_writers_who_do_not_care_both_are_done() -> None:
    """The later one looks again; each names another setting, and both are there."""
    async with proxy_mesh(*two_groups()) as mesh:
        await put(mesh)
        answers = await asyncio.gather(put(mesh, requests_per_s=5), put(mesh, bytes_per_s=7))
        assert {answer.status_code for answer in answers} == {200}
        shown = (await mesh.http.get(SHOP)).json()
        assert (shown["requests_per_s"], shown["bytes_per_s"], shown["version"]) == (5, 7, 3)
        assert known(mesh.brokers[0]) == known(mesh.brokers[1])


async def test_a_bearer_key_is_shown_once_and_only_its_hash_is_kept() -> None:
    """The answer that makes it is not to be stored; no other answer and no broker has it."""
    async with proxy_mesh(*two_groups()) as mesh:
        await put(mesh)
        made = await mesh.http.post(
            KEYS, json={"expires_in": "90d", "networks": ["10.0.0.1", "10.0.0.0/8"], "description": "till 3"}
        )
        assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
        document = made.json()
        text = document["key"]
        kind = read_key_text(text)
        assert kind is not None
        assert kind[:2] == ("bearer", document["kid"])
        assert (document["expires_at"], document["created_at"]) == (NOW_MS + 90 * DAY_MS, NOW_MS)
        assert (document["networks"], document["missing_broker_groups"]) == (["10.0.0.1/32", "10.0.0.0/8"], [])
        for broker in mesh.brokers:
            (key,) = known(broker).keys
            assert key.digest == digest_of(text)
        found = mesh.proxy.principals.table.find(document["kid"])
        assert found is not None
        assert found[0].name == "shop"
        assert is_bearer_of(found[1], text)
        for answer in (
            await mesh.http.get(SHOP),
            await mesh.http.get("/v1/principals"),
            await put(mesh, bytes_per_s=1),
        ):
            assert document["kid"] in answer.text
            assert text[-43:] not in answer.text


async def test_a_signing_key_has_no_secret_here() -> None:
    """The client made it: its public half is kept and shown."""
    async with proxy_mesh() as mesh:
        await put(mesh)
        public = encoded_public_key(bytes(range(32)))
        document = (await mesh.http.post(KEYS, json={"public_key": public})).json()
        assert "key" not in document
        assert (document["type"], document["public_key"]) == ("ed25519", public)
        assert known(mesh.broker).keys[0].public_key == bytes(range(32))


async def test_keys_are_rotated_two_at_a_time() -> None:
    """A third one is refused until one is revoked, or expired; a revoked one is gone at once, and revoking it again is fine."""
    async with proxy_mesh(*two_groups()) as mesh:
        await put(mesh)
        first, second = [(await mesh.http.post(KEYS, json={"expires_in": "1h"})).json()["kid"] for _ in range(2)]
        assert code_of(await mesh.http.post(KEYS)) == "limit-reached"
        assert (await mesh.http.delete(f"{KEYS}/{first}")).status_code == 204
        assert mesh.proxy.principals.table.find(first) is None
        assert mesh.proxy.principals.table.find(second) is not None
        assert (await mesh.http.delete(f"{KEYS}/{first}")).status_code == 204
        assert (await mesh.http.post(KEYS)).status_code == 201
        mesh.proxy.clock.ms += 3_600_000  # type: ignore[attr-defined]
        states = {key["kid"]: key["state"] for key in (await mesh.http.get(SHOP)).json()["keys"]}
        assert states[second] == "expired"
        assert (await mesh.http.post(KEYS)).status_code == 201
        assert second not in {key["kid"] for key in (await mesh.http.get(SHOP)).json()["keys"]}
        assert code_of(await mesh.http.delete(f"{KEYS}/{'x' * 16}")) == "client-key-not-found"
        assert code_of(await mesh.http.delete(f"{KEYS}/x")) == "client-key-not-found"


async def test_a_deleted_principal_is_gone_with_its_keys() -> None:
    """Everywhere; afterwards it is as if it had never been, and the name is free."""
    async with proxy_mesh(*two_groups()) as mesh:
        await put(mesh, grants=[PUB])
        kid = (await mesh.http.post(KEYS)).json()["kid"]
        assert (await mesh.http.delete(SHOP)).status_code == 204
        assert mesh.proxy.principals.table.find(kid) is None
        for answer in (await mesh.http.get(SHOP), await mesh.http.post(KEYS), await mesh.http.delete(f"{SHOP}2")):
            assert code_of(answer) == "principal-not-found"
        assert (await mesh.http.delete(SHOP)).status_code == 204
        assert (await mesh.http.get("/v1/principals")).json()["principals"] == []
        again = await put(mesh)
        assert (again.status_code, again.json()["grants"], again.json()["keys"]) == (201, [], [])


async def test_a_revocation_that_a_broker_group_has_not_heard_of_is_never_silent() -> None:
    """503 names who has it and who has not; it counts already, a repeat completes it, and so do the proxies by themselves."""
    async with proxy_mesh(*two_groups(), leader_wait_ms=50) as mesh:
        one, other = mesh.brokers
        await put(mesh)
        kid = (await mesh.http.post(KEYS)).json()["kid"]
        await without_leader(mesh, one)
        answer = await mesh.http.delete(f"{KEYS}/{kid}")
        assert (answer.status_code, code_of(answer), answer.json()["retryable"]) == (
            503,
            "principal-partly-written",
            True,
        )
        assert (answer.json()["done"], answer.json()["missing"]) == ("broker-b", "broker-a")
        assert mesh.proxy.principals.table.find(kid) is None
        assert (known(one).keys != (), known(other).keys) == (True, ())
        assert code_of(await mesh.http.delete(f"{KEYS}/{kid}")) == "principal-partly-written"
        one.lead(3)
        await eventually(lambda: mesh.proxy.groups["broker-a"].link.has_leader, "a leader")
        assert (await mesh.http.delete(f"{KEYS}/{kid}")).status_code == 204
        assert known(one) == known(other)


async def test_a_deletion_and_a_change_that_are_partly_done_are_completed_by_a_repeat() -> None:
    """As often as it takes; then it is answered as done."""
    async with proxy_mesh(*two_groups(), leader_wait_ms=50) as mesh:
        one, other = mesh.brokers
        await put(mesh, grants=[PUB])
        for method, body in (("PUT", {"grants": []}), ("DELETE", None)):
            await without_leader(mesh, other)
            assert code_of(await mesh.http.request(method, SHOP, json=body)) == "principal-partly-written"
            assert known(one) != known(other)
            other.lead(other.term + 1)
            await eventually(lambda: mesh.proxy.groups["broker-b"].link.has_leader, "a leader")
            assert (await mesh.http.request(method, SHOP, json=body)).is_success
            assert known(one) == known(other)
        assert not known(one).is_there


async def test_nothing_is_done_when_no_broker_group_has_a_leader() -> None:
    """The first trouble is the answer, and a retry can help."""
    async with proxy_mesh(*two_groups(), leader_wait_ms=50) as mesh:
        for broker in mesh.brokers:
            await without_leader(mesh, broker)
        assert code_of(await put(mesh)) == "no-leader"
        assert "shop" not in mesh.proxy.principals.table.principals


async def test_a_key_is_told_once_also_when_a_broker_group_has_not_heard_of_it() -> None:
    """201 and the names of those; a key that some group refuses is taken back where it is."""
    async with proxy_mesh(*two_groups(), leader_wait_ms=50) as mesh:
        one, other = mesh.brokers
        await put(mesh)
        other.script(RequestCode.PUT_PRINCIPAL, LimitReached(what="Keys of 'shop'", actual=2, limit=2))
        assert code_of(await mesh.http.post(KEYS)) == "limit-reached"
        assert (known(one).keys, known(other).keys) == ((), ())
        assert len(known(one).revoked) == 1
        await without_leader(mesh, other)
        made = await mesh.http.post(KEYS)
        assert (made.status_code, made.json()["missing_broker_groups"]) == (201, ["broker-b"])
        assert mesh.proxy.principals.table.find(made.json()["kid"]) is not None


async def test_lists_go_page_by_page_and_acls_are_those_that_speak_of_a_thing() -> None:
    """Principals by name; grants by principal: literal, prefixes and denials of the topic that is asked for."""
    async with proxy_mesh() as mesh:
        for name, *patterns in (("a", "orders"), ("b", "ord*", "bills"), ("c", "*"), ("d", "order")):
            lines = [{**PUB, "pattern": pattern} for pattern in patterns]
            await mesh.http.put(f"/v1/principals/{name}", json={"grants": lines})
        page = (await mesh.http.get("/v1/principals?limit=3")).json()
        assert [row["principal"] for row in page["principals"]] == ["a", "b", "c"]
        rest = (await mesh.http.get(f"/v1/principals?limit=3&cursor={page['next_cursor']}")).json()
        assert ([row["principal"] for row in rest["principals"]], rest["next_cursor"]) == (["d"], "")
        assert len((await mesh.http.get("/v1/principals?q=C")).json()["principals"]) == 1
        found = (await mesh.http.get("/v1/acls?topic=orders")).json()["acls"]
        assert [(row["principal"], row["pattern"]) for row in found] == [("a", "orders"), ("b", "ord*"), ("c", "*")]
        assert (await mesh.http.get("/v1/acls?group=orders")).json()["acls"] == []
        rows: list[str] = []
        cursor = ""
        for _ in range(5):
            part = (await mesh.http.get(f"/v1/acls?limit=2&cursor={cursor}")).json()
            rows += [row["pattern"] for row in part["acls"]]
            if not (cursor := part["next_cursor"]):
                break
        assert rows == ["orders", "bills", "ord*", "*", "order"]


async def test_whoever_asks_is_told_who_they_are() -> None:
    """Where credentials are not required that is nobody."""
    async with proxy_mesh() as mesh:
        me = (await mesh.http.get("/v1/whoami")).json()
        assert (me["principal"], me["authenticated"], me["root"], me["grants"]) == ("", False, False, [])


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer"),
    [
        ("PUT", "/v1/principals/root", {}, "path/principal"),
        ("PUT", "/v1/principals/a%20b", {}, "path/principal"),
        ("GET", "/v1/principals/-", None, "path/principal"),
        ("DELETE", "/v1/principals/root", None, "path/principal"),
        ("PUT", SHOP, {"grants": [PUB, {**PUB, "actions": ["TXN"]}]}, "/grants/1/actions"),
        ("PUT", SHOP, {"grants": [{**PUB, "pattern": "a*b"}]}, "/grants/0/pattern"),
        ("PUT", SHOP, {"grants": [{**PUB, "pattern": f"t{number}"} for number in range(101)]}, "/grants"),
        ("PUT", SHOP, {"requests_per_s": -1}, "/requests_per_s"),
        ("PUT", SHOP, {"description": "a\nb"}, "/description"),
        ("POST", KEYS, {"public_key": "A" * 42}, "/public_key"),
        ("POST", KEYS, {"expires_in": "soon"}, "/expires_in"),
        ("POST", KEYS, {"expires_in": 0}, "/expires_in"),
        ("POST", KEYS, {"expires_at": 5}, "/expires_at"),
        ("POST", KEYS, {"expires_at": "2030-01-01", "expires_in": "1d"}, "/expires_in"),
        ("POST", KEYS, {"not_before": "2040-01-01", "expires_at": "2039-01-01"}, "/expires_at"),
        ("POST", KEYS, {"not_before": "never"}, "/not_before"),
        ("POST", KEYS, {"networks": ["10.0.0.1/8"]}, "/networks/0"),
        ("POST", KEYS, {"networks": "10.0.0.0/8"}, "/networks"),
    ],
)
async def test_what_is_not_allowed_is_refused_with_a_pointer(method: str, path: str, body: Any, pointer: str) -> None:
    """400, and no broker has heard of it."""
    async with proxy_mesh() as mesh:
        await put(mesh)
        asked = mesh.broker.asked[RequestCode.PUT_PRINCIPAL]
        answer = await mesh.http.request(method, path, json=body)
        assert (answer.status_code, answer.json().get("pointer")) == (400, pointer), answer.text
        assert mesh.broker.asked[RequestCode.PUT_PRINCIPAL] == asked


async def test_who_writes_from_an_old_view_is_told_by_the_broker() -> None:
    """Between the look and the write somebody else was there: with a version 409, without one it looks again."""
    async with proxy_mesh() as mesh:
        await put(mesh)

        def race(link: Link, frame: Frame) -> None:
            mesh.broker.serve(link, frame)
            mesh.broker.runtime.turn()
            change = settings_change(known(mesh.broker), description=f"{known(mesh.broker).version}")
            mesh.broker.propose(CommandKind.PUT_PRINCIPAL, {"document": change.packed(), "base": -1})

        mesh.broker.script(RequestCode.LIST_PRINCIPALS, *[race] * 100)
        assert code_of(await put(mesh, requests_per_s=5, version=1)) == "principal-changed"
        assert code_of(await put(mesh, requests_per_s=5)) == "principal-changed"
        mesh.broker.straighten(RequestCode.LIST_PRINCIPALS)
        assert (await put(mesh, requests_per_s=5)).json()["requests_per_s"] == 5


def test_what_is_shown_of_a_key_is_no_secret() -> None:
    """Its kid, times, networks and state; of an Ed25519 key the public half; never the hash, nor the salt."""
    kid, secret = "Zk3vQ8mT1xWc5RbN", bytes(range(32))
    key = ClientKey(kid=kid, digest=digest_of(bearer_text(kid, secret)), version=1)

    def key_document(key: ClientKey, now_ms: int) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(key_state(key, now_ms))
        return shown

    shown = key_document(replace(key, expires_ms=9), 9)
    assert (shown["kid"], shown["type"], shown["state"]) == (kid, BEARER, "expired")
    assert "digest" not in shown
    assert "public_key" not in shown
    assert key_document(replace(key, not_before_ms=9), 8)["state"] == "not-yet"
    assert key_document(ClientKey(kid=kid, public_key=secret), 0)["public_key"] == encoded_public_key(secret)
    of_hmac = key_document(ClientKey(kid=kid, salt=secret), 0)
    assert (of_hmac["type"], of_hmac["state"], of_hmac.keys()) == (HMAC, "not-accepted", shown.keys())
    assert encoded_public_key(secret) not in str(of_hmac)
