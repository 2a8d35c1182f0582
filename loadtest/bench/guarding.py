"""`python -m loadtest.bench.guarding`: the cost of authentication and authorization at the proxy.

It runs in this process, on one core. The guard is the real one, in front of an application that
does nothing. The principal has 100 grants, and the table 1,000 principals. Rounds with and without
the guard alternate, so that a busy machine slows both. Each figure is one line of JSON, as in the
other benches.

Signed requests have three figures: the whole; `..._verify`, the bare Ed25519 over as many bytes;
and `..._without_verify`, the difference, which is the library's reader of RFC 9421 and the guard.
With a body means 1 KiB, read and hashed. `sdk_sign` is the cost of signing for the client.
"""

import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from loadtest.bench.figures import Figure
from tern_client.transport.exchange import Request
from tern_client.transport.signing import signer
from tern_proxy.guard import Guard
from tern_proxy.hot import Application
from tern_proxy.proxy import Proxy
from tern_proxy.routes.table import RouteTable
from tern_service import SystemClock
from tern_wire.principals.client_keys import ClientKey, bearer_text, digest_of
from tern_wire.principals.principals import Principal, PrincipalTable, read_grant
from tern_wire.routing.route import Routes

ROUNDS, REQUESTS = 15, 4_000
# Each is signed anew, which takes longer than the rest of the bench.
SIGNED_ROUNDS, SIGNED_REQUESTS = 9, 500
# Of a bearer key: a small part of a send. Of a signed request: a proxy's core verifies 2,000 a
# second.
BAR_US, SIGNED_BAR_US = 20.0, 500.0
# The bytes that the SDK signs of a request with a body.
BASE_SIZE_BYTES = 400
_KEY, _KID = bytes(range(32)), "E" * 16
_PRIVATE = Ed25519PrivateKey.from_private_bytes(_KEY)
_SIGN = signer(_KID, _KEY)
_BODY = bytes(1_024)
_HEADERS = [
    *((b"host", b"127.0.0.1:8080"), (b"content-type", b"application/octet-stream"), (b"accept", b"*/*")),
    *((b"content-length", b"1024"), (b"idempotency-key", b"load-12345678-17"), (b"mq-tag", b"single")),
    (b"user-agent", b"bench"),
]
Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class _NoNameServers:
    """No name servers."""

    endpoints = "none"

    async def fetch(self) -> tuple[bytes, Routes]:
        """Never called."""
        raise NotImplementedError


class _Known:
    """Principals that never change."""

    is_ready = is_whole = True

    def __init__(self, table: PrincipalTable) -> None:
        self.table = table

    def follow(self, told: Callable[[], None]) -> None:
        """Register no callback: nothing changes."""


async def _application(scope: Any, receive: Any, send: Any) -> None:
    """Do nothing: the remaining cost is the guard."""


async def _reading(scope: Any, receive: Any, send: Any) -> None:
    """Read the body, so that the guard has to hash it, and do nothing with it."""
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
    return Guard(cast(Application, app), proxy, RouteTable())


async def _us(app: Asgi, scopes: list[dict[str, Any]], receive: Any = None) -> float:
    """Return microseconds of CPU a request: other processes of the machine do not count."""
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


def _made(name: str, costs: list[float], guard: Guard, bar_us: float = BAR_US) -> Figure:
    more = {"bar_us": bar_us, "least_us": round(min(costs), 2), "refused": guard.audit.counts["denied"]}
    value = round(statistics.median(costs), 2)
    return Figure(bench="guard", figure=name, value=value, unit="us of CPU a request", more=more)


# Signed requests ----------------------------------------------------------------------------------
def _signed(path: str, body: bytes) -> dict[str, Any]:
    """Return a request that the SDK has signed."""
    added = _SIGN(Request("POST" if body else "GET", path, (), body), "http://127.0.0.1:8080")
    own = [(name.lower().encode(), value.encode()) for name, value in added]
    headers = _HEADERS if body else [each for each in _HEADERS if each[0] != b"content-length"]
    return _scope(path, [*headers, *own]) | {"method": "POST" if body else "GET"}


def _verify_us(requests: int) -> float:
    """Return microseconds of CPU of bare Ed25519 for each request."""
    public = _PRIVATE.public_key()
    signed = [(_PRIVATE.sign(base), base) for base in (bytes([n % 256]) * BASE_SIZE_BYTES for n in range(requests))]
    began = time.thread_time()
    for signature, base in signed:
        public.verify(signature, base)
    return (time.thread_time() - began) * 1e6 / requests


async def _signed_figures(name: str, path: str, body: bytes) -> list[Figure]:
    """Return the figures: the whole, bare verification, and their difference."""
    app = _reading if body else _application
    guard = _guarded(ClientKey(kid=_KID, public_key=_PRIVATE.public_key().public_bytes_raw()), app)
    whole, floor = [], []
    for _ in range(SIGNED_ROUNDS + 1):
        scopes = [_signed(path, body) for _ in range(SIGNED_REQUESTS)]
        bare = await _us(app, scopes, _body)
        whole.append(await _us(guard, scopes, _body) - bare)
        floor.append(_verify_us(SIGNED_REQUESTS))
    ours = [a - b for a, b in zip(whole[1:], floor[1:], strict=True)]
    return [
        _made(name, whole[1:], guard, SIGNED_BAR_US),
        _made(f"{name}_verify", floor[1:], guard, SIGNED_BAR_US),
        _made(f"{name}_without_verify", ours, guard, SIGNED_BAR_US),
    ]


def _signing_figure(path: str, body: bytes) -> Figure:
    """Return the cost of the SDK's signing."""
    request, costs = Request("POST", path, (), body), []
    for _ in range(SIGNED_ROUNDS + 1):
        began = time.thread_time()
        for _ in range(SIGNED_REQUESTS):
            _SIGN(request, "http://127.0.0.1:8080")
        costs.append((time.thread_time() - began) * 1e6 / SIGNED_REQUESTS)
    more = {"least_us": round(min(costs[1:]), 2)}
    value = round(statistics.median(costs[1:]), 2)
    return Figure(bench="guard", figure="sdk_sign", value=value, unit="us of CPU a request", more=more)


async def figures() -> list[Figure]:
    """Return all figures."""
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
        *await _signed_figures("signed", topics[7], b""),
        *await _signed_figures("signed_with_body", topics[7], _BODY),
        _signing_figure(topics[7], _BODY),
    ]


def main() -> None:
    """Print the figures."""
    for figure in uvloop.run(figures()):
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()
