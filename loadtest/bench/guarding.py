"""`python -m loadtest.bench.guarding`: what authentication and authorization cost a request at the proxy, in this process, on one core.

The guard is the real one, in front of an application that does nothing; the principal has 100 grants, and the table 1,000 principals. Turns with and
without it, so that a machine that does other things slows both. Printed as the other benches print: one line of JSON a figure.

Signed requests have three figures each: the whole; `..._ed25519_verify`, or `..._hmac_..._verify`, the bare primitive over as many bytes, which no code of ours
can go below; and the whole without it, which is ours. The bar is that of the whole with an HMAC key, and with an Ed25519 key of what is ours. With a
body means 1 KiB, read and hashed; `..._by_library` is a signature that is not in the SDK's own form. `sdk_sign` is what signing costs the client.
"""

import hmac
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from loadtest.bench.figures import Figure
from tern_client.transport.exchange import Request
from tern_client.transport.signing import hmac_signer, signer
from tern_proxy.core.access.signature_form import read_form
from tern_proxy.guard import Guard
from tern_proxy.proxy import Proxy
from tern_proxy.routes.table import RouteTable
from tern_service import SystemClock
from tern_wire.principals.client_keys import ED25519, HMAC, ClientKey, bearer_text, digest_of
from tern_wire.principals.principals import Principal, PrincipalTable, read_grant
from tern_wire.principals.signing_secrets import SigningSecrets
from tern_wire.routing.route import Routes

ROUNDS, REQUESTS = 15, 4_000
# Each is signed anew, which takes longer than the rest of the bench.
SIGNED_ROUNDS, SIGNED_REQUESTS = 9, 500
BAR_US = 20.0
_KEY, _SALT, _KID = bytes(range(32)), bytes(range(32, 64)), "E" * 16
_SECRET = SigningSecrets(_KEY).of("bench", _KID, _SALT)
_SIGNERS = {ED25519: signer(_KID, _KEY), HMAC: hmac_signer(_KID, _SECRET)}
_BODY = bytes(1_024)
_HEADERS = [
    *((b"host", b"127.0.0.1:8080"), (b"content-type", b"application/octet-stream"), (b"accept", b"*/*")),
    *((b"content-length", b"1024"), (b"idempotency-key", b"load-12345678-17"), (b"mq-tag", b"single")),
    (b"user-agent", b"bench"),
]
Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class _NoNameServers:
    """Nobody is asked."""

    endpoints = "none"

    async def fetch(self) -> tuple[bytes, Routes]:
        """Never called."""
        raise NotImplementedError


class _Known:
    """Principals that stay as they are."""

    is_ready = is_whole = True

    def __init__(self, table: PrincipalTable) -> None:
        self.table = table


async def _application(scope: Any, receive: Any, send: Any) -> None:
    """Does nothing: what is left is the guard."""


async def _reading(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body, so that the guard has to hash it, and does nothing with it."""
    await receive()


async def _body() -> dict[str, Any]:
    return {"type": "http.request", "body": _BODY, "more_body": False}


def _scope(path: str, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
    }


def _guarded(key: ClientKey, app: Asgi = _application, *, requests_per_s: int = 0, bytes_per_s: int = 0) -> Guard:
    grants = [read_grant("allow", ["PUB", "SUB"], "topic", f"topic-{number}*") for number in range(100)]
    principals = [
        Principal(
            name="bench", grants=tuple(grants), keys=(key,), requests_per_s=requests_per_s, bytes_per_s=bytes_per_s
        )
    ]
    for number in range(1_000):
        own = ClientKey(kid=f"{number:016}", digest=bytes(32))
        principals.append(Principal(name=f"other-{number}", grants=tuple(grants[:3]), keys=(own,)))
    proxy = Proxy(
        cluster_key=_KEY, cluster="bench", name_servers=_NoNameServers(), clock=SystemClock(), authenticates=True
    )
    proxy.principals = _Known(PrincipalTable.of(principals, 1))  # type: ignore[assignment]  # nothing but its table is read
    return Guard(app, proxy, RouteTable())


async def _us(app: Asgi, scopes: list[dict[str, Any]], receive: Any = None) -> float:
    """Microseconds of CPU a request: other processes of the machine do not count."""
    began = time.thread_time()
    for scope in scopes:
        await app(dict(scope), receive, None)
    return (time.thread_time() - began) * 1e6 / len(scopes)


async def _figure(name: str, guard: Guard, scopes: Callable[[], list[dict[str, Any]]], rounds: int) -> Figure:
    costs, bare = [], []
    for _ in range(rounds + 1):
        made = scopes()
        bare.append(await _us(_application, made))
        costs.append(await _us(guard, made))
    return _made(name, [a - b for a, b in zip(costs[1:], bare[1:], strict=True)], guard)


def _made(name: str, costs: list[float], guard: Guard) -> Figure:
    more = {"bar_us": BAR_US, "least_us": round(min(costs), 2), "refused": guard.audit.counts["denied"]}
    value = round(statistics.median(costs), 2)
    return Figure(bench="guard", figure=name, value=value, unit="us of CPU a request", more=more)


# Signed requests --------------------------------------------------------------------------------------------------
def _signed(kind: str, path: str, body: bytes, *, is_canonical: bool = True) -> dict[str, Any]:
    """A request that the SDK signs with a key of that *kind*."""
    added = _SIGNERS[kind](Request("POST" if body else "GET", path, (), body), "http://127.0.0.1:8080")
    own = [(name.lower().encode(), value.encode()) for name, value in added]
    if not is_canonical:
        # A space that says nothing, and which the SDK does not write.
        own = [(name, value.replace(b'=("', b'=( "')) for name, value in own]
    headers = _HEADERS if body else [each for each in _HEADERS if each[0] != b"content-length"]
    return _scope(path, [*headers, *own]) | {"method": "POST" if body else "GET"}


def _verify_us(kind: str, scopes: list[dict[str, Any]]) -> float:
    """Microseconds of CPU that verifying takes, by itself, over as many bytes as the base of these requests' signatures has."""
    private = Ed25519PrivateKey.from_private_bytes(_KEY)
    public, signed = private.public_key(), []
    for scope in scopes:
        written = read_form(scope["method"], "http", scope["raw_path"], b"", scope["headers"], False, False)
        base = written.base if written is not None else bytes(400)
        signed.append((private.sign(base), base))
    began = time.thread_time()
    for signature, base in signed:
        if kind == HMAC:
            hmac.compare_digest(hmac.digest(_SECRET, base, "sha256"), signature)
        else:
            public.verify(signature, base)
    return (time.thread_time() - began) * 1e6 / len(signed)


async def _signed_figures(kind: str, name: str, path: str, body: bytes, *, is_canonical: bool = True) -> list[Figure]:
    """The whole, bare verifying, and the first without the second."""
    public = Ed25519PrivateKey.from_private_bytes(_KEY).public_key().public_bytes_raw()
    app = _reading if body else _application
    key = ClientKey(kid=_KID, salt=_SALT) if kind == HMAC else ClientKey(kid=_KID, public_key=public)
    guard = _guarded(key, app)
    whole, floor = [], []
    for _ in range(SIGNED_ROUNDS + 1):
        scopes = [_signed(kind, path, body, is_canonical=is_canonical) for _ in range(SIGNED_REQUESTS)]
        bare = await _us(app, scopes, _body)
        whole.append(await _us(guard, scopes, _body) - bare)
        floor.append(_verify_us(kind, scopes))
    ours = [a - b for a, b in zip(whole[1:], floor[1:], strict=True)]
    return [
        _made(name, whole[1:], guard),
        _made(f"{name}{'' if kind == HMAC else '_ed25519'}_verify", floor[1:], guard),
        _made(f"{name}_without_verify", ours, guard),
    ]


def _signing_figure(kind: str, name: str, path: str, body: bytes) -> Figure:
    """What the SDK's signing costs."""
    request, costs = Request("POST", path, (), body), []
    for _ in range(SIGNED_ROUNDS + 1):
        began = time.thread_time()
        for _ in range(SIGNED_REQUESTS):
            _SIGNERS[kind](request, "http://127.0.0.1:8080")
        costs.append((time.thread_time() - began) * 1e6 / SIGNED_REQUESTS)
    more = {"least_us": round(min(costs[1:]), 2)}
    return Figure(
        bench="guard", figure=name, value=round(statistics.median(costs[1:]), 2), unit="us of CPU a request", more=more
    )


async def figures() -> list[Figure]:
    """All of them."""
    text = bearer_text("B" * 16, _KEY)
    key = ClientKey(kid="B" * 16, digest=digest_of(text))
    bearer = [*_HEADERS, (b"authorization", f"Bearer {text}".encode())]
    topics = [f"/v1/topics/topic-{number}/messages" for number in range(100)]

    def same() -> list[dict[str, Any]]:
        return [_scope(topics[7], bearer) for _ in range(REQUESTS)]

    def many() -> list[dict[str, Any]]:
        return [_scope(topics[number % 100], bearer) for number in range(REQUESTS)]

    def fresh() -> list[dict[str, Any]]:
        return [
            _scope(f"/v1/topics/topic-7/messages/M{number}", bearer) | {"method": "GET"} for number in range(REQUESTS)
        ]

    return [
        await _figure("bearer_one_topic", _guarded(key), same, ROUNDS),
        await _figure("bearer_100_topics", _guarded(key), many, ROUNDS),
        await _figure("bearer_new_path_each", _guarded(key), fresh, ROUNDS),
        await _figure("bearer_with_quotas", _guarded(key, requests_per_s=10**6, bytes_per_s=10**9), same, ROUNDS),
        *await _signed_figures(HMAC, "signed_hmac", topics[7], b""),
        *await _signed_figures(HMAC, "signed_hmac_with_body", topics[7], _BODY),
        *await _signed_figures(HMAC, "signed_hmac_by_library", topics[7], _BODY, is_canonical=False),
        *await _signed_figures(ED25519, "signed", topics[7], b""),
        *await _signed_figures(ED25519, "signed_with_body", topics[7], _BODY),
        *await _signed_figures(ED25519, "signed_by_library", topics[7], _BODY, is_canonical=False),
        _signing_figure(HMAC, "sdk_sign_hmac", topics[7], _BODY),
        _signing_figure(ED25519, "sdk_sign_ed25519", topics[7], _BODY),
    ]


def main() -> None:
    """Print them."""
    for figure in uvloop.run(figures()):
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
