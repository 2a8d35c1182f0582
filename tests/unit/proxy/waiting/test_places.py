"""Of the requests that a proxy works on at a time, one principal has a share: its own are refused beyond it, and others find places."""

import asyncio
from collections import Counter

import httpx
import pytest

from tern_wire.limits import REQUESTS_MAX, WHOLE_REQUESTS_MAX
from tern_wire.limits_requests import SHARE_OF_FREE
from tests.support.loops import eventually
from tests.support.proxy.guarded_mesh import OWN, GuardedMesh, guarded_mesh
from tests.support.proxy.transaction_requests import code_of

pytestmark = pytest.mark.anyio
PLACES = 40
# What one has when nobody else has any: twice what is free.
SHARE = -(-SHARE_OF_FREE * PLACES // (SHARE_OF_FREE + 1))


def send(mesh: GuardedMesh, key: str) -> "asyncio.Task[httpx.Response]":
    """A send that the broker does not answer."""
    return asyncio.create_task(mesh.ask("POST", "/v1/topics/orders/messages", key, content=b"x"))


async def arrived(mesh: GuardedMesh, tasks: "list[asyncio.Task[httpx.Response]]") -> None:
    """Until each of *tasks* is answered or open."""
    await eventually(lambda: len(mesh.guard.open) + sum(task.done() for task in tasks) == len(tasks), "all are there")


async def test_one_principal_takes_its_share_and_another_finds_a_place() -> None:
    """429 that says so; nothing of it is done, and when its own requests end it goes on."""
    async with guarded_mesh() as mesh:
        # Sends come whole, with a key that is known, and have places of that kind.
        mesh.guard.open._places = mesh.guard.open._whole_places = PLACES
        greedy, other = mesh.known.put("greedy", OWN), mesh.known.put("other", OWN)
        assert (await mesh.ask("POST", "/v1/topics/orders/messages", greedy, content=b"x")).status_code == 201
        mesh.brokers[0].hold()
        tasks = [send(mesh, greedy) for _ in range(PLACES + 10)]
        await arrived(mesh, tasks)
        assert len(mesh.guard.open) == SHARE
        refused = [task.result() for task in tasks if task.done()]
        assert {code_of(answer) for answer in refused} == {(429, "share-exceeded")}
        assert all(answer.json()["retry_after_ms"] > 0 for answer in refused)
        assert all("requests at a time" in answer.text for answer in refused)
        tasks.append(send(mesh, other))
        await arrived(mesh, tasks)
        assert len(mesh.guard.open) == SHARE + 1
        mesh.brokers[0].let_go()
        answers = Counter([(await task).status_code for task in tasks])
        assert answers == {201: SHARE + 1, 429: len(tasks) - SHARE - 1}
        assert (await mesh.ask("POST", "/v1/topics/orders/messages", greedy, content=b"x")).status_code == 201
        assert not mesh.guard.open._by_principal


async def test_polls_that_wait_take_no_places() -> None:
    """They have bounds of their own."""
    async with guarded_mesh() as mesh:
        mesh.guard.open._places = PLACES
        key = mesh.known.put("greedy", OWN)
        path = "/v1/topics/orders/groups/billing/receive"
        polls = [asyncio.create_task(mesh.ask("POST", path, key, json={"wait": "20s"})) for _ in range(2 * PLACES)]
        await eventually(lambda: len(mesh.proxy.parking) == len(polls), "all wait")
        assert (await mesh.ask("POST", "/v1/topics/orders/messages", key, content=b"x")).status_code == 201
        mesh.proxy.stop_waiting()
        assert {(await poll).status_code for poll in polls} == {200}


def test_the_share_is_of_what_the_listener_takes() -> None:
    """A single tenant has two thirds of it."""
    assert SHARE_OF_FREE * REQUESTS_MAX // (SHARE_OF_FREE + 1) == 341
    assert SHARE_OF_FREE * WHOLE_REQUESTS_MAX // (SHARE_OF_FREE + 1) == 2_730
