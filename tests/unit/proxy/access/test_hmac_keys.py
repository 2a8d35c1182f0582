"""HMAC keys of earlier builds: not made, not accepted, still listed, and removable. And the types
of keys that are made.
"""

from typing import Any

import pytest

from tern_wire.limits import AUTH_FAILURES_PER_MIN
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode
from tern_wire.principals.client_keys import ClientKey, encoded_public_key
from tern_wire.principals.documents import PrincipalDocument, addition, settings_change
from tests.support.pki.signing_keys import KEY, KID, NOW_MS, PUBLIC, publish, send, sign, sign_by_hmac, sign_in
from tests.support.proxy.guarded_mesh import guarded_mesh
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
SHOP, KEYS = "/v1/principals/shop", "/v1/principals/shop/keys"
PUBLIC_TEXT = encoded_public_key(bytes(range(32)))
SALT = bytes(range(1, 33))
OLD_KEY = ClientKey(kid="H" * 16, salt=SALT)


async def given_old_keys(mesh: ProxyMesh, *keys: ClientKey) -> None:
    """The broker group has a principal *shop* with those keys, as a proxy of an earlier build has
    told it.
    """
    known = settings_change(PrincipalDocument(name="shop"))
    mesh.broker.propose(CommandKind.PUT_PRINCIPAL, {"document": known.packed(), "base": -1})
    for key in keys:
        known = mesh.broker.engine.state.principals.get("shop") or known
        mesh.broker.propose(CommandKind.PUT_PRINCIPAL, {"document": addition(known, key, 0).packed(), "base": -1})
    await mesh.proxy.principals.refresh()


async def test_a_key_of_an_earlier_build_is_listed_as_not_accepted_and_can_be_revoked() -> None:
    """Its type and state say so, its salt is in no answer, and its place is free after the
    revocation.
    """
    async with proxy_mesh() as mesh:
        await given_old_keys(mesh, OLD_KEY, ClientKey(kid="G" * 16, salt=SALT, expires_ms=1))
        for path in (SHOP, "/v1/principals"):
            answer = await mesh.http.get(path)
            keys = answer.json().get("principals", [answer.json()])[0]["keys"]
            assert [(key["kid"][0], key["type"], key["state"]) for key in keys] == [
                ("H", "hmac-sha256", "not-accepted"),
                ("G", "hmac-sha256", "not-accepted"),
            ]
            assert encoded_public_key(SALT) not in answer.text
        assert (await mesh.http.post(KEYS, json={})).status_code == 201
        full = await mesh.http.post(KEYS, json={})
        assert full.json()["code"] == "limit-reached"
        assert (await mesh.http.delete(f"{KEYS}/{OLD_KEY.kid}")).status_code == 204
        assert mesh.proxy.principals.table.find(OLD_KEY.kid) is None
        assert (await mesh.http.post(KEYS, json={})).status_code == 201


async def test_a_request_that_is_signed_with_hmac_is_told_what_to_do_instead() -> None:
    """401 with the command that makes another key; nothing is stored, and repeats do not lock
    anybody out.
    """
    async with guarded_mesh() as mesh:
        mesh.clock.ms = NOW_MS
        publish(mesh, OLD_KEY, KEY)
        for _ in range(AUTH_FAILURES_PER_MIN + 2):
            answer = await send(mesh, sign_by_hmac(OLD_KEY.kid, b"h" * 32))
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
            assert "hmac-sha256, which is not accepted any more" in answer.json()["detail"]
            assert "ternmq key create PRINCIPAL --type ed25519" in answer.json()["detail"]
        assert len(mesh.broker.records("orders")) == 0
        assert (await send(mesh, sign())).status_code == 201


async def test_that_answer_says_nothing_of_the_key() -> None:
    """An HMAC key, an Ed25519 key, none, and one whose secret everybody can read: the same answer
    but for the request's id.
    """
    async with guarded_mesh() as mesh:
        mesh.clock.ms = NOW_MS
        publish(mesh, OLD_KEY, KEY)
        said = set()
        for kid, secret in ((OLD_KEY.kid, SALT), (KID, PUBLIC), ("N" * 16, b""), (OLD_KEY.kid, b"h" * 32)):
            problem = (await send(mesh, sign_by_hmac(kid, secret))).json()
            del problem["request_id"]
            said.add(str(sorted(problem.items())))
        assert len(said) == 1


async def test_an_ed25519_signature_or_a_bearer_key_that_names_an_hmac_key_is_refused() -> None:
    """Neither with the salt, which brokers know, nor with zeros as the private half, nor with the
    old text as a bearer key.
    """
    async with guarded_mesh() as mesh:
        sign_in(mesh)
        publish(mesh, ClientKey(kid=KID, salt=SALT))
        for private in (SALT, bytes(32)):
            answer = await send(mesh, sign(private=private))
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        for prefix in ("mqh", "mqk"):
            text = f"{prefix}_{KID}_{encoded_public_key(SALT)}"
            answer = await mesh.ask("GET", "/v1/whoami", text)
            assert (answer.status_code, text[-43:] in answer.text) == (401, False)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"type": "hmac-sha256"}, "/type"),
        ({"type": "hmac-sha256", "public_key": PUBLIC_TEXT}, "/type"),
        ({"type": "hmac-sha512"}, "/type"),
        ({"type": "bearer", "public_key": PUBLIC_TEXT}, "/public_key"),
        ({"type": "ed25519"}, "/public_key"),
    ],
)
async def test_a_type_that_does_not_fit_is_refused(body: dict[str, Any], pointer: str) -> None:
    """With a pointer, and no broker has heard of it."""
    async with proxy_mesh() as mesh:
        await mesh.http.put(SHOP, json={})
        asked = mesh.broker.asked[RequestCode.PUT_PRINCIPAL]
        answer = await mesh.http.post(KEYS, json=body)
        assert (answer.status_code, answer.json()["pointer"]) == (400, pointer), answer.text
        assert "ed25519" in answer.json()["detail"] or pointer != "/type"
        assert mesh.broker.asked[RequestCode.PUT_PRINCIPAL] == asked


async def test_both_types_may_be_named() -> None:
    """A bearer key, and an Ed25519 key with its public half: as without a type."""
    async with proxy_mesh() as mesh:
        await mesh.http.put(SHOP, json={})
        bearer = (await mesh.http.post(KEYS, json={"type": "bearer"})).json()
        signing = (await mesh.http.post(KEYS, json={"type": "ed25519", "public_key": PUBLIC_TEXT})).json()
        assert (bearer["type"], bearer["key"][:4]) == ("bearer", "mqk_")
        assert (signing["type"], signing["public_key"], "key" in signing) == ("ed25519", PUBLIC_TEXT, False)
