"""When routes are asked for: coalesced, told once when nobody answers, and again after a failure to follow them."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from tern_routing import route_polls
from tern_routing.name_servers import GroupRoutes
from tern_routing.route_polls import RoutePolls
from tern_wire.errors import NoNameServer
from tern_wire.routing.route import BrokerGroupRoute, NodeRoute
from tests.support.loops import eventually

pytestmark = pytest.mark.anyio

NODES = {"a-0": NodeRoute(link="127.0.0.1:1", http="127.0.0.1:2")}
COMPLETE = GroupRoutes(warm=True, broker_groups={"a": BrokerGroupRoute(nodes=NODES, leader="a-0", term=1)})


class Said:
    """Name servers that answer so, or not at all."""

    endpoints = "scripted"

    def __init__(self, answer: GroupRoutes | None) -> None:
        self.answer, self.asked = answer, 0

    async def fetch(self) -> tuple[bytes, GroupRoutes]:
        """As Routing."""
        self.asked += 1
        if self.answer is None:
            raise NoNameServer(endpoints=self.endpoints)
        return b"", self.answer


@contextlib.asynccontextmanager
async def polling(
    said: Said, on_routes: Callable[[bytes, GroupRoutes], None] = lambda *_: None
) -> AsyncIterator[RoutePolls[GroupRoutes]]:
    """Polls that are a minute apart, unless they are wanted or routes are incomplete."""

    async def at_once(_: float) -> None:
        await asyncio.sleep(0)

    polls = RoutePolls(said, interval_ms=60_000, on_routes=on_routes, sleep=at_once)
    await polls.start()
    try:
        yield polls
    finally:
        await polls.stop()


async def test_those_who_want_routes_at_one_time_share_a_poll() -> None:
    """Whoever waits has an answer that is no older than the wish."""
    said = Said(COMPLETE)
    async with polling(said) as polls:
        await asyncio.gather(*(polls.refresh() for _ in range(20)))
        assert said.asked == 2
        polls.refresh_soon()
        await eventually(lambda: said.asked == 3, "another poll")


async def test_that_nobody_answers_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """And that somebody does again."""
    said = Said(None)
    caplog.set_level(logging.INFO, "tern_routing.route_polls")
    async with polling(said) as polls:
        for _ in range(3):
            await polls.refresh()
        assert not polls.is_reachable
        said.answer = COMPLETE
        await polls.refresh()
        assert polls.is_reachable
        said.answer = None
        await polls.refresh()
    told = [record.message for record in caplog.records]
    assert told == ["no name server answers", "a name server answers", "no name server answers"]


async def test_routes_that_cannot_be_followed_are_told_to_those_who_wait(caplog: pytest.LogCaptureFixture) -> None:
    """They are in the log besides, and the next poll comes all the same."""
    failures = [RuntimeError("a bug")]

    def on_routes(_: bytes, __: GroupRoutes) -> None:
        if failures:
            raise failures[0]

    said = Said(COMPLETE)
    async with polling(said, on_routes) as polls:
        with pytest.raises(Exception, match=r".+"):
            await polls.refresh()
        assert "routes cannot be followed" in caplog.text
        failures.clear()
        await polls.refresh()


@pytest.mark.parametrize(
    "incomplete",
    [
        None,
        GroupRoutes(warm=True),
        GroupRoutes(warm=False, broker_groups=COMPLETE.broker_groups),
        GroupRoutes(warm=True, broker_groups={"a": BrokerGroupRoute(nodes=NODES, leader="", term=1)}),
    ],
    ids=["none", "empty", "cold", "not led"],
)
async def test_incomplete_routes_are_soon_asked_for_again(
    incomplete: GroupRoutes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the interval: until they are complete."""
    monkeypatch.setattr(route_polls, "INCOMPLETE_INTERVAL_S", 0.001)
    said = Said(incomplete)
    async with polling(said) as polls:
        await eventually(lambda: said.asked > 3, "polls")
        said.answer = COMPLETE
        await polls.refresh()
        asked = said.asked
        until_s = asyncio.get_running_loop().time() + 0.05
        while asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(0.005)
            assert said.asked == asked


async def test_incomplete_routes_are_asked_for_at_once_at_first_and_then_less_often() -> None:
    """A mesh that starts is soon complete; a name server that is down for long is not flooded."""
    said = Said(None)
    async with polling(said) as polls:
        pauses_s = [polls._next_interval_s() for _ in range(20)]
        assert pauses_s == sorted(pauses_s)
        assert sum(pauses_s[:4]) < 0.2
        assert pauses_s[-1] == route_polls.INCOMPLETE_INTERVAL_S
        said.answer = COMPLETE
        await polls.refresh()
        assert polls._next_interval_s() == 60
        said.answer = None
        await polls.refresh()
        assert polls._next_interval_s() == route_polls.INCOMPLETE_FIRST_S
