"""Signed requests: what the SDK signs is let through, and one changed bit, an old one, or the same one again is not."""

import hashlib
from dataclasses import replace as with_fields
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from tern_client import signing
from tern_client.exchange import Headers, Request
from tern_proxy.core.credential_limits import Nonces
from tern_proxy.core.namespaces import SCOPE_HEADERS
from tern_proxy.signed_requests import NotSigned, Signed, read_signature, receive_checked
from tern_wire.client_keys import ClientKey
from tern_wire.errors import Overloaded, Unauthenticated
from tern_wire.limits import SIGNATURE_WINDOW_MS
from tern_wire.principals import Principal, PrincipalTable
from tests.support.guarded_mesh import OWN, GuardedMesh, grant, guarded_mesh

KID, SECRET = "S" * 16, bytes(range(32))
PUBLIC = Ed25519PrivateKey.from_private_bytes(SECRET).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
KEY = ClientKey(kid=KID, public_key=PUBLIC)
ENDPOINT, SEND = "http://proxy", "/v1/topics/orders/messages"


def headers_for(request: Request, secret: bytes = SECRET) -> Headers:
    """What the SDK adds."""
    return signing.signer(KID, secret, lambda: NOW_MS / 1_000)(request, ENDPOINT)


def scope_of(request: Request, headers: Headers) -> dict[str, Any]:
    """The request as a server gets it."""
    path, _, query = request.path.partition("?")
    sent = [("Host", "proxy"), *request.headers, *headers]
    if request.body:
        sent.append(("Content-Length", str(len(request.body))))
    return {
        "type": "http",
        "method": request.method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in sent],
    }


def verified(scope: dict[str, Any], now_ms: int) -> Signed:
    """What the proxy says of it."""
    return read_signature(scope, lambda kid: KEY if kid == KID else None, now_ms)


REQUEST = Request("POST", f"{SEND}?tag=a&key=b", (("Content-Type", "text/plain"),), b"hello")
NOW_MS = 1_800_000_000_000
HEADERS = headers_for(REQUEST)


def test_what_the_sdk_signs_holds() -> None:
    """With a body its digest is told, without one nothing is asked of it."""
    assert verified(scope_of(REQUEST, HEADERS), NOW_MS).digests.keys() == {"sha-256"}
    bare = Request("GET", "/v1/topics")
    signed = verified(scope_of(bare, headers_for(bare)), NOW_MS)
    assert (signed.kid, signed.digests) == (KID, {})
    assert len(signed.nonce) >= 16


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "PUT"},
        {"path": f"{SEND}x?tag=a&key=b"},
        {"path": f"{SEND}?tag=a&key=c"},
        {"path": SEND},
    ],
)
def test_a_changed_request_is_refused(changed: dict[str, Any]) -> None:
    """Method, path and query are signed."""
    with pytest.raises(NotSigned):
        verified(scope_of(with_fields(REQUEST, **changed), HEADERS), NOW_MS)


@settings(deadline=None)
@given(st.data())
def test_one_flipped_bit_in_what_is_signed_is_refused(data: st.DataObject) -> None:
    """In the signature, its parameters, or the digest: whatever bit it is."""
    name = data.draw(st.sampled_from([name for name, _ in HEADERS]))
    value = dict(HEADERS)[name].encode()
    at, bit = data.draw(st.integers(0, len(value) - 1)), data.draw(st.integers(0, 6))
    flipped = value[:at] + bytes([value[at] ^ (1 << bit)]) + value[at + 1 :]
    scope = scope_of(REQUEST, HEADERS)
    scope["headers"] = [(each, flipped if each == name.lower().encode() else old) for each, old in scope["headers"]]
    try:
        signed = verified(scope, NOW_MS)
    except NotSigned:
        return
    # A bit that says nothing: white space, a letter's case in a label, base64's unused ones. Then it says what was signed.
    assert signed == verified(scope_of(REQUEST, HEADERS), NOW_MS)


@pytest.mark.parametrize("skew_ms", [-SIGNATURE_WINDOW_MS - 1_000, SIGNATURE_WINDOW_MS + 1_000])
def test_a_signature_is_good_for_five_minutes_each_way(skew_ms: int) -> None:
    """A second more in either direction, and it is none."""
    inside = skew_ms - 1_000 if skew_ms > 0 else skew_ms + 1_000
    assert verified(scope_of(REQUEST, HEADERS), NOW_MS + inside).kid == KID
    with pytest.raises(NotSigned):
        verified(scope_of(REQUEST, HEADERS), NOW_MS + skew_ms)


def test_a_body_without_a_signed_digest_is_refused() -> None:
    """Otherwise whoever is in between could exchange it."""
    bare = with_fields(REQUEST, body=b"")
    with pytest.raises(NotSigned):
        verified(scope_of(REQUEST, headers_for(bare)), NOW_MS)


@pytest.mark.parametrize("left_out", ["@method", "@path", "@query", "@authority"])
def test_a_signature_that_says_too_little_is_refused(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds, and whoever has it could do something else with it."""
    monkeypatch.setattr(signing, "COVERED", tuple(name for name in signing.COVERED if name != left_out))
    with pytest.raises(NotSigned, match="was not covered"):
        verified(scope_of(REQUEST, headers_for(REQUEST)), NOW_MS)


def test_a_namespace_is_signed_where_there_is_one() -> None:
    """The door takes it off the headers; it is one of what was signed all the same, and cannot be added, taken away or changed."""
    request = with_fields(REQUEST, headers=(*REQUEST.headers, ("MQ-Namespace", "acme")))
    scope = scope_of(request, headers_for(request))
    inside = {**scope, SCOPE_HEADERS: scope["headers"], "headers": scope_of(REQUEST, headers_for(request))["headers"]}
    assert verified(inside, NOW_MS).kid == KID
    with pytest.raises(NotSigned):
        verified({**inside, SCOPE_HEADERS: inside["headers"]}, NOW_MS)
    with pytest.raises(NotSigned, match="was not covered"):
        unsigned = scope_of(request, HEADERS)
        verified({**unsigned, SCOPE_HEADERS: unsigned["headers"]}, NOW_MS)


def test_an_unknown_key_and_a_wrong_one_are_refused_alike() -> None:
    """Both are verified with some key, and both fail."""
    for find in (
        lambda _: None,
        lambda _: ClientKey(kid=KID, public_key=bytes(31) + b"\x01"),
        lambda _: ClientKey(kid=KID),
    ):
        with pytest.raises(NotSigned) as refused:
            read_signature(scope_of(REQUEST, HEADERS), find, NOW_MS)
        assert refused.value.kid == KID


def test_the_public_half_of_nobody_lets_nobody_in() -> None:
    """What an unknown kid is verified with has a private half that everybody knows; that is no way in."""
    headers = headers_for(REQUEST, bytes(32))
    with pytest.raises(NotSigned, match="no such key"):
        read_signature(scope_of(REQUEST, headers), lambda _: None, NOW_MS)


def test_nonces_are_remembered_and_never_forgotten_early() -> None:
    """A full table refuses; time makes room."""
    nonces = Nonces(kept_max=2)
    assert [nonces.take(KID, nonce, 0, 10) for nonce in ("a", "b", "a")] == [True, True, False]
    with pytest.raises(Overloaded):
        nonces.take(KID, "c", 9, 10)
    assert nonces.take(KID, "c", 10, 10)


# At the proxy ------------------------------------------------------------------------------------------------------
def sign_in(mesh: GuardedMesh) -> None:
    """The signer is a principal with everything of its own."""
    mesh.clock.ms = NOW_MS
    principal = Principal(name="signer", grants=tuple(map(grant, OWN)), keys=(KEY,))
    mesh.known.table = PrincipalTable.of([principal], 1)


async def send(mesh: GuardedMesh, headers: Headers, body: bytes = REQUEST.body) -> Any:
    """That request with those headers."""
    return await mesh.http.post(REQUEST.path, content=body, headers=[*REQUEST.headers, *headers])


@pytest.mark.anyio
async def test_a_signed_request_is_its_principals_once() -> None:
    """It is done, and the same signature again is not."""
    async with guarded_mesh() as mesh:
        sign_in(mesh)
        assert (await send(mesh, HEADERS)).status_code == 201
        assert (await send(mesh, HEADERS)).status_code == 401
        assert (await send(mesh, headers_for(REQUEST))).status_code == 201


@pytest.mark.anyio
async def test_another_body_than_the_signed_one_is_refused_and_not_stored() -> None:
    """Whole, in pieces, or empty: hot routes and others."""
    async with guarded_mesh() as mesh:
        sign_in(mesh)
        for body in (b"hellp", b"hello ", b"h"):
            assert (await send(mesh, headers_for(REQUEST), body)).status_code == 401
        assert sum(map(len, mesh.broker.topics["orders"][1])) == 0
        patch = Request("PATCH", "/v1/topics/orders", (), b'{"queues": 5}')
        good = await mesh.http.patch(patch.path, content=patch.body, headers=list(headers_for(patch)))
        assert good.status_code == 200
        bad = await mesh.http.patch(patch.path, content=b'{"queues": 6}', headers=list(headers_for(patch)))
        assert bad.status_code == 401


@pytest.mark.anyio
async def test_a_body_in_pieces_is_hashed_as_one() -> None:
    """Every algorithm that was told must agree at the last piece, and what comes after it is nobody's body."""
    hashes = {"sha-256": hashlib.sha256(b"hello").digest(), "sha-512": hashlib.sha512(b"hello").digest()}
    wrong = hashes | {"sha-512": bytes(64)}

    async def read(digests: dict[str, bytes], *pieces: bytes) -> bytes:
        messages = [{"type": "http.request", "body": each, "more_body": True} for each in pieces]
        messages[-1]["more_body"] = False
        waiting = iter([*messages, {"type": "http.disconnect"}])

        async def receive() -> Any:
            return next(waiting)

        checked = receive_checked(receive, digests)
        got = [await checked() for _ in range(len(pieces) + 1)]
        return b"".join(each.get("body", b"") for each in got)

    for pieces in ((b"hello",), (b"he", b"llo"), (b"", b"h", b"", b"ello", b"")):
        assert await read(hashes, *pieces) == b"hello"
        for digests, sent in ((wrong, pieces), (hashes, (*pieces, b"x")), (hashes, (b"x", *pieces))):
            with pytest.raises(Unauthenticated):
                await read(digests, *sent)


@pytest.mark.anyio
async def test_a_signing_key_ends_with_the_table_that_had_it() -> None:
    """What was found about it once is not believed against a newer table, nor beyond its time."""
    async with guarded_mesh() as mesh:
        sign_in(mesh)
        assert (await send(mesh, headers_for(REQUEST))).status_code == 201
        mesh.clock.ms = NOW_MS + 10_000
        for key, status in (
            (KEY, 201),
            (with_fields(KEY, expires_ms=NOW_MS + 5_000), 401),
            (with_fields(KEY, expires_ms=NOW_MS + 20_000), 201),
            (with_fields(KEY, networks=("192.0.2.0/24",)), 401),
            (with_fields(KEY, public_key=bytes(31) + b"\x01"), 401),
        ):
            principal = Principal(name="signer", grants=tuple(map(grant, OWN)), keys=(key,))
            mesh.known.table = PrincipalTable.of([principal], 2)
            assert (await send(mesh, headers_for(REQUEST))).status_code == status
        mesh.known.table = PrincipalTable.of([], 3)
        assert (await send(mesh, headers_for(REQUEST))).status_code == 401


@pytest.mark.anyio
async def test_a_key_and_a_signature_together_are_refused() -> None:
    """Which of them would it be?"""
    async with guarded_mesh() as mesh:
        sign_in(mesh)
        key = mesh.known.put("other", OWN)
        answer = await send(mesh, (*HEADERS, ("Authorization", f"Bearer {key}")))
        assert answer.status_code == 401
