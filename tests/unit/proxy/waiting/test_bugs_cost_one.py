"""A bug behind those who wait together: each of them is answered 500 with its place, and whoever comes next is served."""

import asyncio
from typing import Any

import pytest

from tern_proxy.access.authorization import OPEN
from tern_proxy.access.principals_cache import PrincipalsCache
from tern_proxy.brokers.lanes import Lane
from tern_proxy.waiting.check_polls import CheckPoll, CheckPollQueue
from tern_proxy.waiting.interrupts import Interrupt
from tern_proxy.waiting.parking import ParkedPoll, ParkedPolls
from tern_tasks import KeptTasks
from tern_wire.errors import TernError
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import FixedClock, proxy_mesh

pytestmark = pytest.mark.anyio
ONE = "/v1/topics/orders/messages"


def bug(*_: Any, **__: Any) -> Any:
    """What no test of ours has met yet."""
    raise IndexError("no such row")


async def never() -> Any:
    """The client stays."""
    await asyncio.Event().wait()


async def test_a_flight_that_fails_answers_everybody_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would wait for as long as their clients do; the next flight goes."""
    async with proxy_mesh() as mesh:
        with monkeypatch.context() as patch:
            patch.setattr(type(mesh.proxy.groups["broker-a"].sends), "_carry", bug)
            async with asyncio.timeout(30):
                answers = await asyncio.gather(*(mesh.post(ONE, b"m") for _ in range(3)))
        assert [answer.status_code for answer in answers] == [500] * 3
        assert {answer.json()["code"] for answer in answers} == {"internal"}
        assert (await mesh.post(ONE, b"fine")).status_code == 201


async def test_what_was_known_before_the_bug_stays_said() -> None:
    """A piece that had its answer early keeps it."""

    class Piece:
        size_bytes = 1

    class EarlyLane(Lane[Any, Any]):
        async def _carry(self, cargo: list[Any], early: Any) -> list[Any]:
            early(0, "stored")
            return bug()  # type: ignore[no-any-return]

    lane = EarlyLane(None)  # type: ignore[arg-type]
    first, second = lane.submit(Piece()), lane.submit(Piece())
    assert await first == "stored"
    with pytest.raises(TernError) as refused:
        await second
    assert refused.value.fields["bug"].startswith("IndexError at test_bugs_cost_one.py")


async def test_polls_whose_question_fails_hear_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at their deadline, as if there were no messages; the next ones are parked as ever."""
    asked = asyncio.Event()

    class Broken:
        broker_group = "broker-a"

        async def ask(self, *_: Any, **__: Any) -> Any:
            await asked.wait()
            raise IndexError("no such row")

    lot, loop = ParkedPolls(), asyncio.get_running_loop()
    link: Any = Broken()
    gone = Interrupt(never, OPEN)
    waits = [
        asyncio.create_task(lot.wait([link], "t", "g", loop.time() + 60, gone=gone, again=False)) for _ in range(3)
    ]
    await eventually(lambda: len(lot) == 3, "three polls to park")
    asked.set()
    async with asyncio.timeout(30):
        errors = await asyncio.gather(*waits, return_exceptions=True)
    assert [getattr(error, "code", error) for error in errors] == ["internal"] * 3
    assert (len(lot), lot._poll_queues) == (0, {})


async def test_a_poll_that_has_failed_may_be_cancelled() -> None:
    """Its client went in the same moment."""
    poll = ParkedPoll(0.0, Interrupt(never, OPEN))
    poll.fail(TernError())
    poll.fail(TernError())
    poll.end()
    with pytest.raises(TernError):
        await poll.future


async def test_polls_for_checks_whose_question_fails_hear_of_it() -> None:
    """The error of the last broker group that could serve them is theirs."""
    lot, loop = ParkedPolls(), asyncio.get_running_loop()
    idle: list[CheckPollQueue] = []
    claim: Any = bug
    poll_queue = CheckPollQueue(claim, lambda _: None, idle.append)
    polls = [CheckPoll(lot.enter(loop.time() + 60, Interrupt(never, OPEN)), 1) for _ in range(3)]
    for poll in polls:
        poll_queue.park(poll)
    async with asyncio.timeout(30):
        await asyncio.gather(*(poll.parked.future for poll in polls))
    assert [poll.error.code if poll.error is not None else "" for poll in polls] == ["internal"] * 3
    assert idle == [poll_queue]


async def test_routes_are_polled_again_after_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waited for that poll hears of it, and not that its topic is not there."""
    async with proxy_mesh(route_interval_ms=60_000) as mesh:
        with monkeypatch.context() as patch:
            patch.setattr(mesh.name_server, "fetch", bug)
            async with asyncio.timeout(30):
                answers = await asyncio.gather(*(mesh.http.post("/v1/topics/nope/messages") for _ in range(2)))
        assert [answer.status_code for answer in answers] == [500, 500]
        async with asyncio.timeout(30):
            assert (await mesh.http.post("/v1/topics/nope/messages")).status_code == 404


async def test_principals_are_asked_for_again_after_a_bug() -> None:
    """A revocation would be heard of by nobody."""
    rounds = asyncio.Event()
    asked: list[int] = []

    async def sleep(_seconds: float) -> None:
        await asyncio.sleep(0)
        if len(asked) > 1:
            rounds.set()
            await asyncio.Event().wait()

    def links() -> Any:
        asked.append(1)
        return bug()

    tasks = KeptTasks(sleep=sleep)
    cache = PrincipalsCache(links, has_routes=lambda: True, clock=FixedClock(), tasks=tasks)
    cache.start()
    async with asyncio.timeout(30):
        await rounds.wait()
    assert tasks.down().keys() == {"principals"}
    await cache.stop()
    assert len(asked) > 1
