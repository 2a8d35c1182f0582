"""How often one principal or address may make topics and groups: a burst, then a rate; what is there already costs nothing."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tern_proxy.auto_create import AutoCreate
from tern_proxy.core.access.creations import Creations
from tern_wire.errors import QuotaExceeded
from tern_wire.limits_namespaces import CREATORS_KEPT_MAX
from tests.support.proxy.guarded_mesh import guarded_mesh
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh
from tests.support.proxy.transaction_requests import code_of

pytestmark = pytest.mark.anyio
LIMITS: dict[str, Any] = {"creations_per_s": 2, "creations_burst": 3}


class Watch:
    """A clock."""

    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def make(creations: Creations, owner: str, *, is_new: bool = True) -> int:
    """One creation; 0, or when to come again."""
    try:
        with creations.one(owner) as creation:
            creation.is_new = is_new
    except QuotaExceeded as error:
        return int(error.fields["retry_after_ms"])
    return 0


def test_a_burst_then_a_rate_for_each_owner() -> None:
    """Who waits as long as it is told is let in, and not a millisecond before; another owner has its own burst."""
    watch = Watch()
    creations = Creations(per_s=2, burst=3, now_ms=watch)
    assert [make(creations, "a") for _ in range(3)] == [0, 0, 0]
    wait_ms = make(creations, "a")
    assert 500 <= wait_ms <= 502
    assert make(creations, "b") == 0
    watch.now_ms += wait_ms - 2
    assert make(creations, "a") > 0
    watch.now_ms += 2
    assert make(creations, "a") == 0
    assert make(creations, "a") > 0
    watch.now_ms += 3_600_000
    assert [make(creations, "a") > 0 for _ in range(4)] == [False, False, False, True]


def test_what_was_there_costs_nothing_and_what_broke_off_costs_as_if_it_was_new() -> None:
    """Nobody knows whether a request that broke off has made something."""
    creations = Creations(per_s=1, burst=2, now_ms=Watch())
    assert [make(creations, "a", is_new=False) for _ in range(10)] == [0] * 10
    assert len(creations) == 0
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), creations.one("a"):
            _ = 1 // 0
    assert make(creations, "a", is_new=False) > 0


def test_without_a_rate_nobody_waits_and_nothing_is_kept() -> None:
    """0 is none."""
    creations = Creations(per_s=0, burst=1, now_ms=Watch())
    assert [make(creations, "a") for _ in range(5)] == [0] * 5
    assert len(creations) == 0


def test_who_made_something_lately_is_bounded_and_the_oldest_is_forgotten() -> None:
    """It begins with a whole burst again."""
    creations = Creations(per_s=1, burst=1, now_ms=Watch())
    for number in range(CREATORS_KEPT_MAX + 5):
        assert make(creations, str(number)) == 0
    assert len(creations) == CREATORS_KEPT_MAX
    assert make(creations, str(CREATORS_KEPT_MAX)) > 0
    assert make(creations, "0") == 0


DECLARED = (
    "/v1/topics/{}",
    "/v1/groups/{}",
    "/v1/producer-groups/{}",
)


@pytest.mark.parametrize("path", DECLARED)
async def test_every_declaration_of_something_new_counts_and_of_something_known_does_not(path: str) -> None:
    """429 with a time that is short; what is there is declared and altered all the same."""
    async with proxy_mesh(**LIMITS) as mesh:
        for number in range(3):
            assert (await mesh.http.put(path.format(f"new{number}"), json={})).status_code == 201
            assert (await mesh.http.put(path.format(f"new{number}"), json={})).status_code == 200
        answer = await mesh.http.put(path.format("more"), json={})
        assert code_of(answer) == (429, "quota-exceeded")
        assert 0 < answer.json()["retry_after_ms"] <= 501
        mesh.proxy.clock.ms += 500  # type: ignore[attr-defined]
        assert (await mesh.http.put(path.format("more"), json={})).status_code == 201


async def send(mesh: ProxyMesh, name: str) -> tuple[int, str]:
    """A send to *name*."""
    return code_of(await mesh.http.post(f"/v1/topics/{name}/messages", content=b"x"))


async def receive(mesh: ProxyMesh, name: str) -> tuple[int, str]:
    """A receive of the group *name*."""
    return code_of(await mesh.http.post(f"/v1/topics/orders/groups/{name}/receive", json={}))


async def claim(mesh: ProxyMesh, name: str) -> tuple[int, str]:
    """A claim of checks of the producer group *name*."""
    return code_of(await mesh.http.post(f"/v1/producer-groups/{name}/checks/receive", json={}))


@pytest.mark.parametrize("use", [send, receive, claim])
async def test_a_first_use_counts_as_a_declaration(use: Callable[[ProxyMesh, str], Awaitable[tuple[int, str]]]) -> None:
    """Of each of the three kinds."""
    async with proxy_mesh(auto_create=AutoCreate(topics=True, groups=True), **LIMITS) as mesh:
        found = [await use(mesh, f"first{number}") for number in range(5)]
        assert [status for status, _ in found[:3]] in ([200] * 3, [201] * 3)
        assert found[3:] == [(429, "quota-exceeded")] * 2
        assert (await use(mesh, "first0"))[0] in {200, 201}


async def test_each_principal_has_its_own() -> None:
    """One that makes topics in a loop leaves another's burst alone."""
    async with guarded_mesh(**LIMITS) as mesh:
        loop, other = (mesh.known.put(name, ["allow ALL topic *"]) for name in ("loop", "other"))
        made = [(await mesh.ask("PUT", f"/v1/topics/t{number}", loop, json={})).status_code for number in range(5)]
        assert made == [201, 201, 201, 429, 429]
        assert (await mesh.ask("PUT", "/v1/topics/mine", other, json={})).status_code == 201
