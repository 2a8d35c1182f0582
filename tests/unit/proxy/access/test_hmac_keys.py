"""Keys whose secrets the cluster computes: made by a route, good as long as their row is, and nowhere to be found."""

from dataclasses import replace as with_fields
from typing import Any

import pytest

from tern_client.transport.exchange import Request
from tern_client.transport.signing import hmac_signer
from tern_proxy.access.signed_requests import NotSigned, VerifyingKey, read_signature
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.requests import RequestCode
from tern_wire.principals.client_keys import encoded_public_key, read_key_text
from tern_wire.principals.documents import PrincipalDocument
from tern_wire.principals.signing_secrets import SigningSecrets
from tests.support.pki.signing_keys import HMAC, NOW_MS, REQUEST, SALT, publish, send, sign_in
from tests.support.proxy.guarded_mesh import guarded_mesh
from tests.support.proxy.proxy_mesh import KEY as CLUSTER_KEY
from tests.support.proxy.proxy_mesh import proxy_mesh

pytestmark = pytest.mark.anyio
SHOP, KEYS = "/v1/principals/shop", "/v1/principals/shop/keys"
PUBLIC = encoded_public_key(bytes(range(32)))


async def test_a_key_with_a_secret_is_shown_once_and_only_its_salt_is_kept() -> None:
    """The answer that makes it is not to be stored. No broker, no other answer and no audit line has it; any proxy of the cluster computes it."""
    async with proxy_mesh() as mesh:
        await mesh.http.put(SHOP, json={})
        made = await mesh.http.post(KEYS, json={"type": "hmac-sha256", "expires_in": "90d", "networks": ["10.0.0.0/8"]})
        assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
        document = made.json()
        kind, kid, secret = read_key_text(document["key"]) or ("", "", b"")
        assert (kind, kid, document["type"]) == ("hmac-sha256", document["kid"], "hmac-sha256")
        assert not {"public_key", "salt"} & document.keys()
        kept = mesh.broker.engine.state.principals.get("shop") or PrincipalDocument(name="shop")
        (key,) = kept.keys
        assert (key.kind, len(key.salt), key.digest, key.public_key, key.networks) == (
            kind,
            32,
            b"",
            b"",
            ("10.0.0.0/8",),
        )
        assert SigningSecrets(CLUSTER_KEY).of("shop", kid, key.salt) == secret
        packed = encode_msgpack(kept.packed())
        assert key.salt in packed and secret not in packed and document["key"][-43:].encode() not in packed
        second = (await mesh.http.post(KEYS, json={"type": "hmac-sha256"})).json()
        assert second["key"][-43:] != document["key"][-43:]
        for answer in (
            await mesh.http.get(SHOP),
            await mesh.http.get("/v1/principals"),
            await mesh.http.put(SHOP, json={"bytes_per_s": 1}),
        ):
            assert kid in answer.text
            assert document["key"][-43:] not in answer.text and encoded_public_key(key.salt) not in answer.text
        # And what its owner signs with the text is verified with what the row says.
        request = Request("GET", "/v1/topics")
        headers = hmac_signer(kid, secret, lambda: NOW_MS / 1_000)(request, "http://proxy")
        scope = {
            "type": "http", "method": "GET", "scheme": "http", "path": "/v1/topics", "raw_path": b"/v1/topics", "query_string": b"",
            "headers": [(b"host", b"proxy"), *((name.lower().encode(), value.encode()) for name, value in headers)],
        }  # fmt: skip
        assert read_signature(scope, lambda _: VerifyingKey(secret=secret), NOW_MS).kid == kid
        with pytest.raises(NotSigned):
            read_signature(scope, lambda _: VerifyingKey(secret=key.salt), NOW_MS)
        assert (await mesh.http.delete(f"{KEYS}/{kid}")).status_code == 204
        assert mesh.proxy.principals.table.find(kid) is None


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"type": "hmac-sha512"}, "/type"),
        ({"type": "HMAC-SHA256"}, "/type"),
        ({"type": "hmac-sha256", "public_key": PUBLIC}, "/public_key"),
        ({"type": "bearer", "public_key": PUBLIC}, "/public_key"),
        ({"type": "ed25519"}, "/public_key"),
        ({"type": "hmac-sha256", "expires_at": 5}, "/expires_at"),
    ],
)
async def test_a_type_that_does_not_fit_is_refused(body: dict[str, Any], pointer: str) -> None:
    """With a pointer, and no broker has heard of it."""
    async with proxy_mesh() as mesh:
        await mesh.http.put(SHOP, json={})
        asked = mesh.broker.asked[RequestCode.PUT_PRINCIPAL]
        answer = await mesh.http.post(KEYS, json=body)
        assert (answer.status_code, answer.json()["pointer"]) == (400, pointer), answer.text
        assert mesh.broker.asked[RequestCode.PUT_PRINCIPAL] == asked


async def test_types_that_were_never_named_may_be_named() -> None:
    """A bearer key, and an Ed25519 key with its public half: as without a type."""
    async with proxy_mesh() as mesh:
        await mesh.http.put(SHOP, json={})
        bearer = (await mesh.http.post(KEYS, json={"type": "bearer"})).json()
        signing = (await mesh.http.post(KEYS, json={"type": "ed25519", "public_key": PUBLIC})).json()
        assert (bearer["type"], bearer["key"][:4]) == ("bearer", "mqk_")
        assert (signing["type"], signing["public_key"], "key" in signing) == ("ed25519", PUBLIC, False)


async def test_a_proxy_without_a_cluster_key_makes_none_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """409 with the setting; nothing is told to brokers, and keys of other types are made as ever."""
    monkeypatch.setattr("tern_proxy.routes.principals.keys.SigningSecrets", lambda _: SigningSecrets(b""))
    async with proxy_mesh() as mesh:
        await mesh.http.put(SHOP, json={})
        answer = await mesh.http.post(KEYS, json={"type": "hmac-sha256"})
        assert (answer.status_code, answer.json()["code"]) == (409, "cluster-key-missing")
        assert "--cluster-key-file" in answer.json()["detail"]
        assert (mesh.broker.engine.state.principals.get("shop") or PrincipalDocument(name="shop")).keys == ()
        assert (await mesh.http.post(KEYS, json={})).status_code == 201


async def test_a_secret_is_no_bearer_key() -> None:
    """Its text in the header of a bearer key is refused as any other wrong text; and it is told to nobody, the audit neither."""
    async with guarded_mesh() as mesh:
        sign_in(mesh, HMAC)
        text = f"mqh_{HMAC.key.kid}_{encoded_public_key(HMAC.secret)}"
        answer = await mesh.ask("GET", "/v1/whoami", text)
        assert (answer.status_code, text[-43:] in answer.text) == (401, False)
        assert repr(HMAC.verifying) == "VerifyingKey(hmac-sha256)"


async def test_a_secret_is_that_of_one_principal_and_one_cluster() -> None:
    """The same row under another name, or of another cluster's key, verifies nothing that its old owner signs."""
    async with guarded_mesh() as mesh:
        sign_in(mesh, HMAC)
        publish(mesh, HMAC.key, name="somebody")
        assert (await send(mesh, HMAC.headers(REQUEST))).status_code == 401
        publish(mesh, HMAC.key)
        foreign = SigningSecrets(bytes(32)).of("signer", HMAC.key.kid, SALT)
        assert (await send(mesh, HMAC.headers(REQUEST, foreign))).status_code == 401
        # What everybody who reads the state knows is no secret either.
        assert (await send(mesh, HMAC.headers(REQUEST, SALT))).status_code == 401
        assert (await send(mesh, HMAC.headers(REQUEST))).status_code == 201


async def test_computed_secrets_are_kept_within_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is computed once for a table; however many sign, no more are kept, and all are served."""
    monkeypatch.setattr("tern_proxy.access.authentication.SIGNATURE_KEYS_KEPT_MAX", 2)
    computed: list[str] = []
    real = SigningSecrets.of

    def counted(self: SigningSecrets, name: str, kid: str, salt: bytes) -> bytes:
        computed.append(kid)
        return real(self, name, kid, salt)

    monkeypatch.setattr(SigningSecrets, "of", counted)
    async with guarded_mesh() as mesh:
        mesh.clock.ms = NOW_MS
        secrets = SigningSecrets(CLUSTER_KEY)
        kids = [letter * 16 for letter in "ABC"]
        every = {
            kid: with_fields(HMAC, key=with_fields(HMAC.key, kid=kid), secret=secrets.of("signer", kid, SALT))
            for kid in kids
        }
        publish(mesh, *(signs.key for signs in every.values()))
        computed.clear()
        for kid in "AABBCCA":
            assert (await send(mesh, every[kid * 16].headers(REQUEST))).status_code == 201
            assert len(mesh.guard._authenticator._signers) <= 2
        assert [kid[0] for kid in computed] == ["A", "B", "C", "A"]
