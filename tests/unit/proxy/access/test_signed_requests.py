"""Signed requests: what the SDK signs is let through, and one changed bit, an old one, or the same
one again is not.
"""

import base64
import hashlib
from dataclasses import replace as with_fields
from typing import Any

import pytest
from http_message_signatures import algorithms
from hypothesis import given, settings
from hypothesis import strategies as st

from tern_client.transport import signing
from tern_client.transport.exchange import Headers, Request
from tern_proxy.access.signed_requests import NotSigned, Signed, read_signature, receive_checked
from tern_proxy.core.access.credential_limits import Nonces
from tern_proxy.core.access.namespaces import SCOPE_HEADERS
from tern_wire.errors import Overloaded, Unauthenticated
from tern_wire.limits import SIGNATURE_WINDOW_MS
from tern_wire.principals.principals import PrincipalTable
from tests.support.pki.signing_keys import (
    KEY,
    KID,
    NOW_MS,
    REQUEST,
    SEND,
    find,
    publish,
    send,
    sign,
    sign_in,
)
from tests.support.proxy.guarded_mesh import OTHER, OWN, guarded_mesh


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


def verified(scope: dict[str, Any], now_ms: int = NOW_MS) -> Signed:
    """What the proxy says of it."""
    return read_signature(scope, find, now_ms)


def test_what_the_sdk_signs_holds() -> None:
    """With a body its digest is told, without one nothing is asked of it."""
    assert verified(scope_of(REQUEST, sign())).digests.keys() == {"sha-256"}
    bare = Request("GET", "/v1/topics")
    signed = verified(scope_of(bare, sign(bare)))
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
        verified(scope_of(with_fields(REQUEST, **changed), sign()))


@settings(deadline=None)
@given(data=st.data())
def test_one_flipped_bit_in_what_is_signed_is_refused(data: st.DataObject) -> None:
    """In the signature, its parameters, or the digest: whatever bit it is."""
    headers = sign()
    name = data.draw(st.sampled_from([name for name, _ in headers]))
    value = dict(headers)[name].encode()
    at, bit = data.draw(st.integers(0, len(value) - 1)), data.draw(st.integers(0, 6))
    flipped = value[:at] + bytes([value[at] ^ (1 << bit)]) + value[at + 1 :]
    scope = scope_of(REQUEST, headers)
    scope["headers"] = [(each, flipped if each == name.lower().encode() else old) for each, old in scope["headers"]]
    try:
        signed = verified(scope)
    except NotSigned:
        return
    # A bit that says nothing: white space, a letter's case in a label, base64's unused ones. Then
    # it says what was signed.
    assert signed == verified(scope_of(REQUEST, headers))


@settings(deadline=None)
@given(data=st.data())
def test_whatever_is_covered_cannot_be_changed(data: st.DataObject) -> None:
    """Method, path, query, host, namespace, digest: any other value of any of them, and the
    signature does not hold.
    """
    request = with_fields(REQUEST, headers=(("MQ-Namespace", "acme"),))
    scope = scope_of(request, sign(request))
    scope[SCOPE_HEADERS] = scope["headers"]
    assert verified(scope).kid == KID
    what = data.draw(
        st.sampled_from(["method", "raw_path", "query_string", b"host", b"mq-namespace", b"content-digest"])
    )
    if isinstance(what, str):
        old = scope[what] if isinstance(scope[what], bytes) else scope[what].encode()
    else:
        old = dict(scope["headers"])[what]
    letters = st.text("ABab01-._~/=:&", min_size=1, max_size=3).map(str.encode)
    at, end = sorted(data.draw(st.tuples(*[st.integers(0, len(old))] * 2)))
    new = old[:at] + data.draw(letters) + old[end:]
    if what == b"content-digest":
        new = b"sha-256=:%b:" % base64.b64encode(hashlib.sha256(new).digest())
    # A host's name means the same in capitals, and with the port that its scheme has anyway.
    if new.lower().removesuffix(b":80") == old.lower() or new.lower().removesuffix(b":") == old.lower():
        return
    if isinstance(what, str):
        changed = {**scope, what: new if isinstance(scope[what], bytes) else new.decode()}
    else:
        changed = {**scope, SCOPE_HEADERS: [(name, new if name == what else value) for name, value in scope["headers"]]}
    with pytest.raises(NotSigned):
        verified(changed)


@pytest.mark.parametrize("begin", [b":", b":80", b"x", b"@y", b""])
def test_a_path_begins_with_a_slash(begin: bytes) -> None:
    """What stands before it is not taken for a part of the host that says nothing."""
    scope = scope_of(REQUEST, sign())
    assert verified(scope).kid == KID
    with pytest.raises(NotSigned):
        verified({**scope, "raw_path": begin + scope["raw_path"][not begin :]})


@pytest.mark.parametrize("skew_ms", [-SIGNATURE_WINDOW_MS - 1_000, SIGNATURE_WINDOW_MS + 1_000])
def test_a_signature_is_good_for_five_minutes_each_way(skew_ms: int) -> None:
    """A second more in either direction, and it is none."""
    headers = sign()
    inside = skew_ms - 1_000 if skew_ms > 0 else skew_ms + 1_000
    assert verified(scope_of(REQUEST, headers), NOW_MS + inside).kid == KID
    with pytest.raises(NotSigned):
        verified(scope_of(REQUEST, headers), NOW_MS + skew_ms)


def test_a_body_without_a_signed_digest_is_refused() -> None:
    """Otherwise whoever is in between could exchange it."""
    bare = with_fields(REQUEST, body=b"")
    with pytest.raises(NotSigned):
        verified(scope_of(REQUEST, sign(bare)))


@pytest.mark.parametrize("left_out", ["@method", "@path", "@query", "@authority"])
def test_a_signature_that_says_too_little_is_refused(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds, and whoever has it could do something else with it."""
    whole = signing.signature_base

    def too_little(request: Request, endpoint: str, parameters: str) -> tuple[bytes, str, str]:
        base, text, digest = whole(request, endpoint, parameters)
        less = text.replace(f'"{left_out}" ', "").replace(f' "{left_out}"', "")
        lines = [line for line in base.decode().splitlines() if not line.startswith(f'"{left_out}"')]
        return "\n".join([*lines[:-1], f'"@signature-params": {less}']).encode(), less, digest

    monkeypatch.setattr(signing, "signature_base", too_little)
    with pytest.raises(NotSigned, match="is not covered"):
        verified(scope_of(REQUEST, sign()))


def test_a_namespace_is_signed_where_there_is_one() -> None:
    """The proxy takes it off the headers; it is one of what was signed all the same, and cannot be
    added, taken away or changed.
    """
    request = with_fields(REQUEST, headers=(*REQUEST.headers, ("MQ-Namespace", "acme")))
    scope = scope_of(request, sign(request))
    stripped = scope_of(REQUEST, sign(request))["headers"]
    inside = {**scope, SCOPE_HEADERS: scope["headers"], "headers": stripped}
    assert verified(inside).kid == KID
    with pytest.raises(NotSigned):
        verified({**inside, SCOPE_HEADERS: inside["headers"]})
    with pytest.raises(NotSigned, match="is not covered"):
        unsigned = scope_of(request, sign())
        verified({**unsigned, SCOPE_HEADERS: unsigned["headers"]})


@pytest.mark.parametrize("key", [b"", bytes(31) + b"\x01"], ids=["none", "another"])
def test_an_unknown_key_and_a_wrong_one_are_refused_alike(key: bytes) -> None:
    """Both are verified with some key, and both fail."""
    with pytest.raises(NotSigned, match="does not hold") as refused:
        read_signature(scope_of(REQUEST, sign()), lambda _: key, NOW_MS)
    assert refused.value.kid == KID


def test_every_kid_costs_one_look_up_and_one_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known, without a public half, or unknown: the time of a refusal does not say which keys there
    are.
    """
    verified_with: list[Any] = []

    class Counted(algorithms.ED25519):
        def verify(self, signature: bytes, message: bytes) -> None:
            verified_with.append(self.public_key)
            super().verify(signature, message)

    monkeypatch.setattr("tern_proxy.access.signed_requests.algorithms.ED25519", Counted)
    asked: list[str] = []

    def found(kid: str) -> bytes:
        asked.append(kid)
        return find(kid)

    forged = scope_of(REQUEST, sign(private=b"x" * 32))
    for kid in (KID, "N" * 16):
        headers = [(name, value.replace(KID.encode(), kid.encode())) for name, value in forged["headers"]]
        with pytest.raises(NotSigned, match="does not hold"):
            read_signature({**forged, "headers": headers}, found, NOW_MS)
    assert (asked, len(verified_with)) == ([KID, "N" * 16], 2)


def test_the_public_half_of_nobody_lets_nobody_in() -> None:
    """What an unknown kid is verified with has a private half that everybody knows; that is no way
    in.
    """
    headers = sign(private=bytes(32))
    with pytest.raises(NotSigned, match="no such key"):
        read_signature(scope_of(REQUEST, headers), lambda _: b"", NOW_MS)


def test_nonces_are_remembered_and_never_forgotten_early() -> None:
    """A full table refuses; time makes room."""
    nonces = Nonces(kept_max=2)
    assert [nonces.take("S" * 16, nonce, 0, 10) for nonce in ("a", "b", "a")] == [True, True, False]
    with pytest.raises(Overloaded):
        nonces.take("S" * 16, "c", 10, 20)
    assert not nonces.take("S" * 16, "a", 10, 20)
    assert nonces.take("S" * 16, "c", 11, 20)
    assert [nonces.take("S" * 16, nonce, 11, 15) for nonce in ("a", "c")] == [True, False]
    # A clock that was set back, or far forward, changes nothing about that.
    assert [nonces.take("S" * 16, nonce, 5, 6) for nonce in ("a", "c")] == [False, False]
    assert [nonces.take("S" * 16, nonce, 10**9, 10**9 + 1) for nonce in ("a", "c")] == [True, True]
    assert nonces.kept == 2


# At the proxy ------------------------------------------------------------------------------------------------------
@pytest.mark.anyio
async def test_a_signed_request_is_its_principals_once() -> None:
    """It is done, and the same signature again is not."""
    async with guarded_mesh() as mesh:
        sign_in(mesh)
        headers = sign()
        assert (await send(mesh, headers)).status_code == 201
        assert (await send(mesh, headers)).status_code == 401
        assert (await send(mesh, sign())).status_code == 201


@pytest.mark.anyio
async def test_a_signature_is_good_once_for_as_long_as_its_window_is_open() -> None:
    """One that was made ahead of the proxy's clock, too: its window closes later."""
    async with guarded_mesh() as mesh:
        sign_in(mesh)
        made_ms = NOW_MS + SIGNATURE_WINDOW_MS - 1_000
        headers = sign(made_ms=made_ms)
        assert (await send(mesh, headers)).status_code == 201
        for now_ms in (
            NOW_MS,
            NOW_MS + 1_000,
            made_ms,
            made_ms + SIGNATURE_WINDOW_MS,
            made_ms + SIGNATURE_WINDOW_MS + 1,
        ):
            mesh.clock.ms = now_ms
            assert (await send(mesh, headers)).status_code == 401
        assert len(mesh.broker.records("orders")) == 1


@pytest.mark.anyio
async def test_another_body_than_the_signed_one_is_refused_and_not_stored() -> None:
    """Whole, in pieces, or empty: hot routes and others."""
    async with guarded_mesh() as mesh:
        sign_in(mesh)
        for body in (b"hellp", b"hello ", b"h"):
            assert (await send(mesh, sign(), body)).status_code == 401
        assert len(mesh.broker.records("orders")) == 0
        patch = Request("PATCH", "/v1/topics/orders", (), b'{"queues": 5}')
        good = await mesh.http.patch(patch.path, content=patch.body, headers=list(sign(patch)))
        assert good.status_code == 200
        bad = await mesh.http.patch(patch.path, content=b'{"queues": 6}', headers=list(sign(patch)))
        assert bad.status_code == 401


@pytest.mark.anyio
async def test_a_body_in_pieces_is_hashed_as_one() -> None:
    """Every algorithm that was told must agree at the last piece, and what comes after it is
    nobody's body.
    """
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
        assert (await send(mesh, sign())).status_code == 201
        mesh.clock.ms = NOW_MS + 10_000
        for changed, status in (
            ({}, 201),
            ({"expires_ms": NOW_MS + 5_000}, 401),
            ({"expires_ms": NOW_MS + 20_000}, 201),
            ({"networks": ("192.0.2.0/24",)}, 401),
            ({"public_key": bytes(31) + b"\x01"}, 401),
            ({"kid": "X" * 16}, 401),
            ({}, 201),
        ):
            publish(mesh, with_fields(KEY, **changed))
            assert (await send(mesh, sign())).status_code == status, changed
        mesh.known.table = PrincipalTable.of([], 3)
        assert (await send(mesh, sign())).status_code == 401


@pytest.mark.anyio
async def test_a_key_and_a_signature_together_are_refused() -> None:
    """Which of them would it be?"""
    async with guarded_mesh() as mesh:
        sign_in(mesh)
        key = mesh.known.put("other", OWN)
        answer = await send(mesh, (*sign(), ("Authorization", f"Bearer {key}")))
        assert answer.status_code == 401


@pytest.mark.anyio
async def test_a_signature_gives_the_rights_of_its_principal_and_no_more() -> None:
    """A topic of another principal is as if it were not there; with grants for it, and a second
    key, it is there.
    """
    async with guarded_mesh() as mesh:
        sign_in(mesh)
        theirs = Request("POST", "/v1/topics/invoices/messages", (), b"x")
        answer = await mesh.http.post(theirs.path, content=theirs.body, headers=list(sign(theirs)))
        assert answer.status_code == 404
        publish(mesh, with_fields(KEY, kid="T" * 16), KEY, grants=OTHER)
        answer = await mesh.http.post(theirs.path, content=theirs.body, headers=list(sign(theirs)))
        assert answer.status_code == 201
        assert (await send(mesh, sign())).status_code == 404
