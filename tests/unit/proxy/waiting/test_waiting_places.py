"""Polls of one principal that may wait at a proxy: bounded, given back, and told with a pause."""

import asyncio
from typing import Any

import httpx
import pytest

from tern_proxy.access.authorization import ADMISSION
from tern_proxy.exchange import FlightBudget, HotRequest
from tern_proxy.waiting.parking import ParkedPolls
from tern_wire.errors import Overloaded
from tern_wire.limits import PARKED_POLLS_PER_PRINCIPAL_MAX
from tests.support.proxy.proxy_mesh import proxy_mesh
from tests.unit.proxy.reading.test_receive import parked


class Known:
    """As the guard's admission: who asks."""

    def __init__(self, principal: str) -> None:
        self.principal = principal


async def never() -> Any:
    """Nothing comes."""
    await asyncio.Event().wait()


def request_of(host: str, principal: str = "") -> HotRequest:
    """A request from *host*, and of *principal* if that is known."""
    scope: dict[str, Any] = {"type": "http", "headers": [], "client": (host, 1)}
    if principal:
        scope[ADMISSION] = Known(principal)
    return HotRequest(scope, never, FlightBudget())


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        (("192.0.2.1", ""), ("192.0.2.2", "")),
        (("127.0.0.1", "ann"), ("127.0.0.1", "bob")),
        (("192.0.2.1", "ann"), ("192.0.2.1", "bob")),
    ],
)
async def test_one_principal_takes_no_more_than_its_share(mine: tuple[str, str], other: tuple[str, str]) -> None:
    """By principal where there is one, by address where not; what ends gives its place back, and asking twice takes one place."""
    lot = ParkedPolls(polls_per_principal_max=2)
    first, second, third = (request_of(*mine) for _ in range(3))
    for request in (first, second, first, request_of(*other)):
        assert request.may_wait(lot)
    with pytest.raises(Overloaded) as refused:
        third.may_wait(lot)
    assert refused.value.fields["limit"] == 2
    assert "one principal" in refused.value.detail
    third.release()  # it has no place to give back
    with pytest.raises(Overloaded):
        third.may_wait(lot)
    first.release()
    assert third.may_wait(lot)


async def test_loopback_without_credentials_has_no_share() -> None:
    """One machine, one user: only the proxy's own number of places bounds it."""
    lot = ParkedPolls(polls_per_principal_max=1)
    requests = [request_of("127.0.0.1") for _ in range(3)]
    assert all(request.may_wait(lot) for request in requests)


async def test_a_poll_too_many_is_told_to_come_back_and_does_nothing() -> None:
    """503 with Retry-After; the poll that has its place keeps it; without a wait there is nothing to refuse."""
    async with proxy_mesh() as mesh:
        mesh.proxy.parking = lot = ParkedPolls(polls_per_principal_max=1)
        mesh.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(mesh.app, client=("192.0.2.1", 1)), base_url="http://proxy", timeout=30
        )
        (task,) = await parked(mesh, 1)
        refused = await mesh.receive(wait="30s")
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert refused.json()["limit"] == 1
        assert int(refused.headers["retry-after"]) >= 1
        assert (await mesh.receive()).status_code == 200
        await mesh.send()
        assert len((await task).json()["messages"]) == 1
        await mesh.send()
        assert len((await mesh.receive(wait="30s")).json()["messages"]) == 1
        lot.claim("192.0.2.1")  # nothing was left behind


def test_the_share_is_what_was_decided() -> None:
    """4,096."""
    assert PARKED_POLLS_PER_PRINCIPAL_MAX == 4_096
