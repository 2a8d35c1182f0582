"""What a proxy knows of principals: asked of every broker group, joined, published as one table, and told to those that lack it.

Brokers are scripted around the real part of the state machine; the interval between two polls is the test's.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tern_proxy.access.principals_cache import NOT_READY_INTERVAL_MS, PrincipalsCache
from tern_wire.errors import NoLeader
from tern_wire.limits import (
    DELETED_PRINCIPAL_KEPT_MS,
    PRINCIPALS_ANSWER_MS,
    PRINCIPALS_INTERVAL_MS,
    PRINCIPALS_WHOLE_INTERVAL_MS,
)
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode, body_parts
from tern_wire.principals.client_keys import ClientKey
from tern_wire.principals.documents import PrincipalDocument, addition, deletion, joined, revocation, settings_change
from tern_wire.principals.principals import read_grant
from tests.support.broker.contents import forget_principals
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
GRANT = read_grant("allow", ["PUB"], "topic", "orders")
KID = "k" * 16


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker group that answers is waited for, on however slow a machine."""
    monkeypatch.setattr("tern_proxy.access.principals_cache.PRINCIPALS_ANSWER_MS", 60_000)


def principal(name: str = "shop") -> PrincipalDocument:
    """A principal with a grant and a key."""
    made = settings_change(PrincipalDocument(name=name), grants=[GRANT])
    return joined(made, addition(made, ClientKey(kid=KID, digest=bytes(32)), 0))


def tell(broker: MemoryBroker, document: PrincipalDocument) -> None:
    """*document* is in the log of that broker group, without this proxy."""
    head = {"document": document.packed(), "base": -1, "is_repair": True}
    broker.propose(CommandKind.PUT_PRINCIPAL, head)


def known(broker: MemoryBroker, name: str = "shop") -> PrincipalDocument | None:
    """What that broker group knows."""
    return broker.engine.state.principals.get(name)


@asynccontextmanager
async def two_groups() -> AsyncIterator[tuple[ProxyMesh, PrincipalsCache, MemoryBroker, MemoryBroker]]:
    """A proxy with both leaders linked; it polls when it is told to."""
    brokers = MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b")
    async with proxy_mesh(*brokers) as mesh:
        await linked(mesh, 2)
        yield mesh, mesh.proxy.principals, *brokers


async def linked(mesh: ProxyMesh, count: int) -> None:
    """So many broker groups have a leader."""
    groups = mesh.proxy.groups
    await eventually(lambda: sum(group.link.has_leader for group in groups.values()) == count, "leaders")


async def test_the_table_has_whose_each_key_is_and_what_did_not_change_is_the_same_object() -> None:
    """A change makes a new table; an answer without news does not."""
    async with two_groups() as (_, cache, one, other):
        assert (cache.is_ready, cache.table.version) == (False, 0)
        for broker in (one, other):
            tell(broker, principal())
            tell(broker, settings_change(PrincipalDocument(name="till")))
        await cache.refresh()
        assert (cache.is_ready, cache.is_whole) == (True, True)
        first = cache.table
        found = first.find(KID)
        assert found is not None
        assert (found[0].name, found[0].grants, set(first.principals)) == ("shop", (GRANT,), {"shop", "till"})
        await cache.refresh()
        assert cache.table is first
        for broker in (one, other):
            tell(broker, settings_change(first_document(cache, "till"), bytes_per_s=5))
        await cache.refresh()
        assert cache.table is not first
        assert cache.table.version > first.version
        assert cache.table.principals["shop"] is first.principals["shop"]
        assert cache.table.principals["till"].bytes_per_s == 5


def first_document(cache: PrincipalsCache, name: str) -> PrincipalDocument:
    """What the cache knows of *name*."""
    found = cache.document(name)
    assert found is not None
    return found


async def test_a_revocation_that_one_broker_group_knows_counts_and_reaches_the_other() -> None:
    """Whichever it is; the other one is told after the second look, and no sooner: it may be being told just now."""
    async with two_groups() as (mesh, cache, one, other):
        for broker in (one, other):
            tell(broker, principal())
        await cache.refresh()
        tell(other, revocation("shop", principal().keys))
        await cache.refresh()
        assert cache.table.find(KID) is None
        # Whatever had been sent before this would have arrived before it.
        await mesh.proxy.groups["broker-a"].link.statuses()
        assert one.asked[RequestCode.PUT_PRINCIPAL] == 0
        await cache.refresh()
        await eventually(lambda: cache.repairs == 1, "the other one is told")
        assert known(one) == known(other)
        await cache.refresh()
        await cache.refresh()
        assert one.asked[RequestCode.PUT_PRINCIPAL] == 1


async def test_a_group_without_a_leader_keeps_nothing_waiting_and_gets_the_rest_later() -> None:
    """A proxy is ready when those with a leader have answered; a key that is not known may be known to the other."""
    one = MemoryBroker(KEY)
    other = MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b", leads=False)
    async with proxy_mesh(one, other) as mesh:
        cache = mesh.proxy.principals
        await linked(mesh, 1)
        tell(one, principal())
        await cache.refresh()
        assert (cache.is_ready, cache.is_whole) == (True, False)
        assert cache.table.find(KID) is not None
        other.lead(2)
        await linked(mesh, 2)
        await cache.refresh()
        assert cache.is_whole
        await cache.refresh()
        await eventually(lambda: known(other) == known(one), "the new leader is told")


async def test_nobody_is_ready_before_a_leader_has_answered_and_routes_are_warm() -> None:
    """No leader, a leader that refuses, a cold name server: none of them is an answer."""
    one = MemoryBroker(KEY, leads=False)
    async with proxy_mesh(one) as mesh:
        cache = mesh.proxy.principals
        await cache.refresh()
        assert not cache.is_ready
        one.lead(2)
        await linked(mesh, 1)
        one.script(RequestCode.LIST_PRINCIPALS, NoLeader(broker_group="broker-a"))
        mesh.name_server.is_warm = False
        await mesh.proxy.cache.refresh()
        await cache.refresh()
        assert not cache.is_ready
        mesh.name_server.is_warm = True
        await mesh.proxy.cache.refresh()
        await cache.refresh()
        assert cache.is_ready


async def test_a_leader_that_does_not_answer_keeps_no_other_groups_news_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the one says counts while the other is silent, and a poll ends in time."""
    async with two_groups() as (_, cache, one, other):
        await cache.refresh()
        one.is_paused = True
        tell(other, principal())
        refreshing = asyncio.create_task(cache.refresh())
        await eventually(lambda: cache.table.find(KID) is not None, "news of the other group")
        assert not refreshing.done()
        one.wake()
        await refreshing
        one.is_paused = True
        monkeypatch.setattr("tern_proxy.access.principals_cache.PRINCIPALS_ANSWER_MS", 50)
        await asyncio.wait_for(cache.refresh(), 10)
        assert cache.is_ready


async def test_it_asks_again_and_again_sooner_while_it_knows_nothing() -> None:
    """100 ms until the first complete answer, then every two seconds: a revocation is known in less than five."""
    slept: list[float] = []
    gates: asyncio.Queue[None] = asyncio.Queue()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await gates.get()

    one = MemoryBroker(KEY, leads=False)
    async with proxy_mesh(one) as mesh:
        groups = mesh.proxy.groups
        cache = PrincipalsCache(
            lambda: {name: group.link for name, group in groups.items()},
            has_routes=lambda: True,
            clock=mesh.proxy.clock,
            sleep=sleep,
        )
        cache.start()
        await eventually(lambda: slept, "the first poll")
        one.lead(2)
        await linked(mesh, 1)
        tell(one, principal())
        gates.put_nowait(None)
        await eventually(lambda: cache.table.find(KID), "the second poll")
        await eventually(lambda: len(slept) == 2, "its end")
        tell(one, revocation("shop", principal().keys))
        gates.put_nowait(None)
        await eventually(lambda: cache.table.find(KID) is None, "the third poll")
        await cache.stop()
    assert slept[:2] == [NOT_READY_INTERVAL_MS / 1_000, PRINCIPALS_INTERVAL_MS / 1_000]
    assert PRINCIPALS_INTERVAL_MS + PRINCIPALS_ANSWER_MS < 5_000


async def test_only_news_is_asked_for_and_everything_once_in_a_while() -> None:
    """A broker group whose log was lost says less than before: it is found, and told again."""
    async with two_groups() as (mesh, cache, one, other):
        for broker in (one, other):
            tell(broker, principal())
        await cache.refresh()
        await cache.refresh()
        asked = [head["after"] for code, head in one.heads if code == RequestCode.LIST_PRINCIPALS]
        assert asked == [0, 1]
        # As many changes as before, and others.
        forget_principals(one)
        tell(one, settings_change(PrincipalDocument(name="till")))
        await cache.refresh()
        assert "till" not in cache.table.principals
        mesh.proxy.clock.ms += PRINCIPALS_WHOLE_INTERVAL_MS  # type: ignore[attr-defined]
        await cache.refresh()
        assert set(cache.table.principals) == {"shop", "till"}
        await cache.refresh()
        await eventually(lambda: known(one) == known(other), "told again")


async def test_a_group_that_was_made_anew_is_read_from_the_begin() -> None:
    """Its revisions are lower than what the proxy has seen."""
    async with two_groups() as (_, cache, one, other):
        for name in ("shop", "till"):
            for broker in (one, other):
                tell(broker, settings_change(PrincipalDocument(name=name)))
        await cache.refresh()
        forget_principals(one)
        for _ in range(2):
            await cache.refresh()
        await eventually(lambda: len(one.engine.state.principals) == 2, "told what it had forgotten")


async def test_many_pages_are_read_and_many_groups_told_a_part_at_a_time() -> None:
    """A broker group that is added to a running mesh gets all principals."""
    async with two_groups() as (_, cache, one, other):
        for number in range(300):
            tell(one, settings_change(PrincipalDocument(name=f"p{number}")))
        await cache.refresh()
        assert len(cache.table.principals) == 300
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 30
        while len(other.engine.state.principals) < 300:
            assert loop.time() < deadline
            before = cache.repairs
            await cache.refresh()
            while cache.repairs == before and len(other.engine.state.principals) < 300 and loop.time() < deadline:
                await asyncio.sleep(0.002)
        assert known(other, "p299") == known(one, "p299")


async def test_what_was_deleted_long_ago_is_told_to_nobody() -> None:
    """Each broker group forgets it in its own time: proxies do not remind it."""
    async with two_groups() as (mesh, cache, one, other):
        now_ms = mesh.proxy.clock.now_ms()
        tell(one, deletion(principal("old"), now_ms - DELETED_PRINCIPAL_KEPT_MS))
        tell(one, deletion(principal("young"), now_ms))
        for _ in range(3):
            await cache.refresh()
        await eventually(lambda: known(other, "young"), "the young one is told")
        assert known(other, "old") is None


async def test_a_broker_that_talks_nonsense_is_no_answer() -> None:
    """The poll goes on, with what is known."""
    async with two_groups() as (_, cache, one, other):
        for broker in (one, other):
            tell(broker, principal())
        await cache.refresh()
        wrong_ones: tuple[dict[str, Any], ...] = (
            {},
            {"principals": [[1]], "revision": 1, "more": False},
            {"principals": [[5, b"\x80"]], "revision": 5},
        )
        for wrong in wrong_ones:
            one.script(
                RequestCode.LIST_PRINCIPALS,
                lambda link, frame, wrong=wrong: link.reply(frame.opaque, 0, body_parts(wrong)),  # type: ignore[misc]
            )
            await cache.refresh()
            assert cache.table.find(KID) is not None
        tell(one, revocation("shop", principal().keys))
        await cache.refresh()
        assert cache.table.find(KID) is None
