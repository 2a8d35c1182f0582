"""What is open when a key, a grant or a principal goes: every kind of wait, every body, every answer x every way to lose one's rights.

Which routes wait is taken from the API document, which routes have a body or hand something over from the table of requirements: a route that
is new to either is here without being named.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tern_proxy import routes
from tern_proxy.core.access.requirements import Rule
from tern_proxy.routes.table import RULES
from tern_wire.limits import CHECK_AFTER_DEFAULT_MS
from tern_wire.link.requests import RequestCode
from tern_wire.principals.principals import Principal
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.loops import eventually
from tests.support.proxy.api_document import OPERATIONS, codes
from tests.support.proxy.guarded_mesh import EVERYTHING, OWN, ROOT_KEY, GuardedMesh, grant, guarded_mesh
from tests.support.proxy.proxy_mesh import RawExchange
from tests.support.proxy.route_samples import NAMES, sample
from tests.support.proxy.transaction_requests import declare

pytestmark = pytest.mark.anyio
TIMES_OUT_S = 10.0
# Everything, but by names, so that all of it can be taken away.
GRANTS = (*OWN, "allow DESCRIBE cluster *", "allow ADMIN cluster *", "allow AUDIT cluster *")


# How rights are lost ----------------------------------------------------------------------------------------------
def revoke(mesh: GuardedMesh, name: str) -> None:
    """The principal has no key any more."""
    mesh.known.revoke(name)


def remove_grants(mesh: GuardedMesh, name: str) -> None:
    """The principal has no grants any more."""
    mesh.known.put(name)


def deny(mesh: GuardedMesh, name: str) -> None:
    """A denial beside all the grants."""
    kinds = ("topic", "group", "producer-group", "cluster")
    mesh.known.put(name, (*GRANTS, *(f"deny ALL {kind} *" for kind in kinds)))


def delete(mesh: GuardedMesh, name: str) -> None:
    """The principal is gone."""
    mesh.known.delete(name)


def expire(mesh: GuardedMesh, name: str) -> None:
    """Its key's time is over, as a colleague has just said."""
    mesh.known.put(name, GRANTS, key={"expires_ms": NOW_MS})


CHANGES: dict[str, tuple[Callable[[GuardedMesh, str], None], int]] = {
    "key revoked": (revoke, 401),
    "grants removed": (remove_grants, 403),
    "denied": (deny, 403),
    "principal deleted": (delete, 401),
    "key expired": (expire, 401),
}


# What waits -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Wait:
    """How a route is made to wait, which question to the broker that is, and what makes it end with something."""

    query: str
    asked: RequestCode
    give: Callable[[GuardedMesh], Any]


async def send(mesh: GuardedMesh) -> None:
    """A message for whoever waits for one."""
    other = mesh.known.put("other", EVERYTHING)
    path = f"/v1/topics/orders/messages?queue={NAMES['queue']}"
    answer = await mesh.ask("POST", path, other, content=b"secret")
    assert answer.status_code == 201, answer.text


async def reply(mesh: GuardedMesh) -> None:
    """The reply to the request that waits for it."""
    address = mesh.proxy.principals.table.principals["waiting"]
    query = {"correlation_id": "invoice-7", "reply_to": f"broker-a:{client_of(mesh, address)}"}
    other = mesh.known.put("other", EVERYTHING)
    answer = await mesh.ask("POST", "/v1/topics/orders/replies", other, content=b"secret", params=query)
    assert answer.status_code == 201, answer.text


def client_of(mesh: GuardedMesh, principal: Principal) -> str:
    """Under which name replies to *principal* are kept."""
    return mesh.guard._authenticator._accesses[principal.name].client("shop-7")


async def check(mesh: GuardedMesh) -> None:
    """A transaction of shop is to be checked."""
    other = mesh.known.put("other", EVERYTHING)
    path = "/v1/topics/orders/transactions?producer_group=shop"
    begun = await mesh.ask("POST", path, other, content=b"secret")
    assert begun.status_code == 201, begun.text
    mesh.broker.pass_time(CHECK_AFTER_DEFAULT_MS)


ASKING = "timeout=30s&correlation_id=invoice-7&client=shop-7"
WAITS = {
    ("POST", "/v1/topics/{topic}/groups/{group}/receive"): Wait("wait=30s", RequestCode.RECEIVE, send),
    ("GET", "/v1/topics/{topic}/queues/{queue}/messages"): Wait("wait=30s&offset=0", RequestCode.PULL, send),
    ("POST", "/v1/topics/{topic}/requests"): Wait(ASKING, RequestCode.AWAIT_REPLY, reply),
    ("GET", "/v1/topics/{topic}/requests/{correlation_id}"): Wait(
        "wait=30s&client=shop-7", RequestCode.AWAIT_REPLY, reply
    ),
    ("POST", "/v1/producer-groups/{producer_group}/checks/receive"): Wait("wait=30s", RequestCode.CLAIM_CHECKS, check),
}
WAITING = sorted(WAITS)


def rule_of(method: str, path: str) -> Rule:
    """The rule of that route."""
    (rule,) = (rule for rule in RULES if (rule.method, rule.path) == (method, path))
    return rule


def opened(mesh: GuardedMesh, key: str, method: str, path: str, body: bytes | None = b"", **more: Any) -> RawExchange:
    """A request of that key; *body*: None if the test sends it."""
    exchange = mesh.raw(method, path, {"Authorization": f"Bearer {key}", **more})
    if body is not None:
        exchange.push(body)
    return exchange


async def waiting(mesh: GuardedMesh, method: str, path: str, key: str) -> RawExchange:
    """A request to that route which waits."""
    asked = sample(rule_of(method, path))
    exchange = opened(mesh, key, method, f"{asked.path}?{WAITS[method, path].query}")
    await eventually(lambda: len(mesh.proxy.parking) == 1 or exchange.status, "the request to wait")
    assert not exchange.status, (exchange.status, exchange.sent)
    return exchange


def body_of(exchange: RawExchange) -> bytes:
    """Its answer's body."""
    return b"".join(message.get("body", b"") for message in exchange.sent)


def status_of(exchange: RawExchange) -> int:
    """Its answer's status, 0 while there is none."""
    return exchange.status


def is_begun(exchange: RawExchange) -> bool:
    """Whether the proxy has read what there is of its body, or has answered."""
    return exchange.taken == 1 or exchange.status > 0


def is_asked(mesh: GuardedMesh, answer: "asyncio.Task[Any]") -> bool:
    """Whether the paused broker was asked, or nobody asks it."""
    return bool(mesh.broker.frozen) or answer.done()


async def rest(mesh: GuardedMesh) -> list[dict[str, Any]]:
    """All messages of orders that group billing gets now."""
    path = "/v1/topics/orders/groups/billing/receive"
    answer = await mesh.ask("POST", path, mesh.known.put("other", EVERYTHING), json={"max_messages": 32})
    found: list[dict[str, Any]] = answer.json()["messages"]
    return found


def test_every_route_that_can_wait_is_in_the_table() -> None:
    """A route waits if its wait can be out of range, as the API document says of all errors; and no other asks for a place to wait."""
    documented = {
        (method.upper(), path)
        for name, (method, path, _) in OPERATIONS.items()
        if {"illegal-wait", "illegal-timeout"} & {code for _, code in codes(name)}
    }
    assert documented == set(WAITS)


def test_no_handler_listens_for_its_client_by_itself() -> None:
    """Who waits for a disconnect alone does not hear of rights that are gone: `HotRequest.interrupt` is for both."""
    folder = Path(routes.__file__).parent
    listening = [path.name for path in folder.rglob("*.py") if re.search(r"request\.receive\b", path.read_text())]
    assert listening == []


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("route", WAITING, ids=" ".join)
async def test_a_wait_ends_with_its_rights(route: tuple[str, str], change: str) -> None:
    """At once and with 401 or 403; what comes then is not for it, and is not lost to others."""
    lose, status = CHANGES[change]
    async with guarded_mesh() as mesh:
        declare(mesh)
        key = mesh.known.put("waiting", GRANTS)
        exchange = await waiting(mesh, *route, key)
        lose(mesh, "waiting")
        await asyncio.wait_for(exchange.task, TIMES_OUT_S)
        assert exchange.status == status, body_of(exchange)
        assert (len(mesh.proxy.parking), len(mesh.guard.open)) == (0, 0)
        assert b"connection" not in exchange.headers, "its body was read: the connection can go on"
        if WAITS[route].asked == RequestCode.RECEIVE:
            await send(mesh)
            assert [message["attempt"] for message in await rest(mesh)] == [1]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("route", WAITING, ids=" ".join)
async def test_what_a_broker_hands_out_meanwhile_is_not_handed_on(
    route: tuple[str, str], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rights go when the broker's answer is in the proxy's hands: nothing of it reaches the client, and others get it uncounted."""
    lose, status = CHANGES[change]
    wait = WAITS[route]
    async with guarded_mesh() as mesh:
        declare(mesh)
        key = mesh.known.put("waiting", GRANTS)
        link = mesh.proxy.groups["broker-a"].link
        ask_at_link = type(link).ask
        crossed: list[int] = []

        async def crossing(self: Any, request: Any, *arguments: Any, **keywords: Any) -> Any:
            answer, raw = await ask_at_link(self, request, *arguments, **keywords)
            if request.code == wait.asked and len(raw) and not crossed:
                crossed.append(len(raw))
                lose(mesh, "waiting")
            return answer, raw

        monkeypatch.setattr(type(link), "ask", crossing)
        exchange = await waiting(mesh, *route, key)
        await wait.give(mesh)
        await asyncio.wait_for(exchange.task, TIMES_OUT_S)
        assert crossed
        assert exchange.status == status, body_of(exchange)
        assert b"secret" not in body_of(exchange)
        if wait.asked == RequestCode.RECEIVE:
            assert [message["attempt"] for message in await rest(mesh)] == [1]
        if wait.asked == RequestCode.CLAIM_CHECKS:
            path = "/v1/producer-groups/shop/checks/receive"
            answer = await mesh.ask("POST", path, mesh.known.put("other", EVERYTHING), json={})
            assert [each["attempt"] for each in answer.json()["checks"]] == [1]


async def test_a_key_that_expires_ends_its_wait() -> None:
    """Nobody says so: it is the time."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("waiting", GRANTS, key={"expires_ms": NOW_MS + 50})
        route = ("POST", "/v1/topics/{topic}/groups/{group}/receive")
        exchange = await waiting(mesh, *route, key)
        mesh.clock.ms = NOW_MS + 50
        await asyncio.wait_for(exchange.task, TIMES_OUT_S)
        assert exchange.status == 401


# Bodies -----------------------------------------------------------------------------------------------------------
BODIES = [rule for rule in RULES if {"content", "json"} & sample(rule).more.keys()]


@pytest.mark.parametrize("change", CHANGES)
async def test_no_body_becomes_whole_without_its_rights(change: str) -> None:
    """On every route that takes one: refused at once, before the rest of it has come, and nothing is asked of a broker for it."""
    lose, status = CHANGES[change]
    wrong = []
    async with guarded_mesh() as mesh:
        declare(mesh)
        for number, rule in enumerate(BODIES):
            asked, name = sample(rule), f"app{number}"
            request = mesh.http.build_request(asked.method, asked.path, **asked.more)
            path = request.url.raw_path.decode()
            kind = request.headers.get("content-type", "text/plain")
            sizes = {"Content-Type": kind, "Content-Length": str(len(request.content))}
            exchange = opened(mesh, mesh.known.put(name, GRANTS), rule.method, path, None, **sizes)
            exchange.push(request.content[:1], more=True)
            await eventually(partial(is_begun, exchange), "the body to be read")
            before = mesh.broker.asked.copy()
            lose(mesh, name)
            # Without a name in its path, what it asks for is in the body: it is refused once that is whole (400: the sample's id is none).
            is_late = status == 403 and not rule.in_front
            if is_late:
                exchange.push(request.content[1:])
            await eventually(partial(status_of, exchange), f"{rule.method} {rule.path} to be refused")
            asked_since = +(mesh.broker.asked - before)
            asked_since.pop(RequestCode.STATUS, 0)
            if exchange.status not in ({400, 403, 404} if is_late else {status}) or asked_since:
                wrong.append(f"{rule.method} {rule.path}: {exchange.status}, {dict(asked_since)}")
            elif not is_late and exchange.headers.get(b"connection") != b"close":
                wrong.append(f"{rule.method} {rule.path}: the rest of the body would be the next request's head")
    assert wrong == []


# Answers ----------------------------------------------------------------------------------------------------------
READING = [rule for rule in RULES if rule.method == "GET" and not rule.is_anonymous]


@pytest.mark.parametrize("change", CHANGES)
async def test_no_answer_is_read_without_its_rights(change: str) -> None:
    """On every route that reads: a broker answers when the rights are gone, and nothing of it is handed over."""
    lose, status = CHANGES[change]
    wrong, crossed = [], []
    async with guarded_mesh() as mesh:
        declare(mesh)
        for number, rule in enumerate(READING):
            asked, name = sample(rule), f"app{number}"
            key = mesh.known.put(name, GRANTS)
            mesh.broker.is_paused = True
            answer = asyncio.create_task(mesh.ask(asked.method, asked.path, key, **asked.more))
            await eventually(partial(is_asked, mesh, answer), "a question to the broker")
            if not answer.done():
                crossed.append(rule)
                lose(mesh, name)
            mesh.broker.wake()
            got = (await asyncio.wait_for(answer, TIMES_OUT_S)).status_code
            # Who has asked for nothing by name is shown what it may see, which is nothing.
            asks = any(each.is_in_front for each in rule.requirements) or status == 401
            if rule in crossed and asks and got != status:
                wrong.append(f"{rule.method} {rule.path}: {got}")
    assert wrong == []
    assert len(crossed) >= 15


async def test_what_was_done_is_answered_as_done() -> None:
    """Who takes away one's own key, or sends a message that is stored before the key goes, hears so."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("app", GRANTS)
        mesh.broker.hold()
        exchange = opened(mesh, key, "POST", "/v1/topics/orders/messages", b"x")
        await eventually(lambda: mesh.broker.held, "the message to be with the broker")
        mesh.known.revoke("app")
        mesh.broker.let_go()
        await asyncio.wait_for(exchange.task, TIMES_OUT_S)
        assert exchange.status == 201
        assert len(mesh.broker.records("orders")) == 1


async def test_a_change_that_takes_nothing_ends_nothing() -> None:
    """Another grant, another principal, another key of the same one: what waits, waits on, and gets its message."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("waiting", GRANTS)
        exchange = await waiting(mesh, "POST", "/v1/topics/{topic}/groups/{group}/receive", key)
        mesh.known.put("waiting", (*GRANTS, "allow PUB topic more"))
        mesh.known.put("waiting", tuple(each for each in GRANTS if "cluster" not in each), requests_per_s=9)
        mesh.known.put("another", GRANTS)
        mesh.known.revoke("another")
        await send(mesh)
        await asyncio.wait_for(exchange.task, TIMES_OUT_S)
        assert exchange.status == 200
        assert b"secret" in body_of(exchange)


async def test_a_right_that_only_the_handler_has_asked_for_counts_as_well() -> None:
    """A poll that settles needs ACK, which its path does not show."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("waiting", ("allow SUB topic orders", "allow SUB,ACK group billing"))
        await send(mesh)
        (message,) = await rest(mesh)
        asked = {"wait": "30s", "settle": [{"receipt_handle": message["receipt_handle"]}]}
        request = mesh.http.build_request("POST", "/v1/topics/orders/groups/billing/receive", json=asked)
        path = "/v1/topics/orders/groups/billing/receive"
        exchange = opened(mesh, key, "POST", path, request.content)
        await eventually(lambda: len(mesh.proxy.parking) == 1, "the poll to park")
        mesh.known.put("waiting", ("allow SUB topic orders", "allow SUB group billing"))
        await asyncio.wait_for(exchange.task, TIMES_OUT_S)
        assert exchange.status == 403
        assert b"ACK of group 'billing'" in body_of(exchange)


async def test_root_waits_for_nobody_but_is_not_revoked_either() -> None:
    """The root key is in no table; a change of the table leaves what is open with it alone."""
    async with guarded_mesh() as mesh:
        mesh.broker.is_paused = True
        answer = asyncio.create_task(mesh.ask("GET", "/v1/topics/orders", ROOT_KEY))
        await eventually(lambda: mesh.broker.frozen, "a question to the broker")
        mesh.known.put("anybody", GRANTS)
        mesh.broker.wake()
        assert (await asyncio.wait_for(answer, TIMES_OUT_S)).status_code == 200
        assert NAMES["topic"] == "orders"
        assert grant(GRANTS[0]).pattern == "orders*"
