"""Who reads a backlog waits for a turn while sends wait; who keeps up does not, and nobody waits for long."""

import asyncio
import math

import pytest
from httpx import Response

from tern_proxy.brokers.lanes import LANES_IN_FLIGHT
from tern_proxy.waiting import reading_turns
from tern_proxy.waiting.reading_turns import LITTLE_MAX_MESSAGES, READERS_KEPT_MAX, ReadingTurns, _Waiting
from tern_remoting import Frame, Link
from tern_wire.errors import Overloaded
from tern_wire.limits import READING_BESIDE_SENDS_MAX_MESSAGES, READING_TURN_WAIT_MAX_MS
from tern_wire.link.requests import RequestCode
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
FAR, NEAR = ("orders", "far"), ("orders", "near")
FULL = 32
AT_ONCE = READING_BESIDE_SENDS_MAX_MESSAGES // FULL


@pytest.fixture(autouse=True)
def _slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn comes, and no lane is calm, because a busy machine took its time."""
    monkeypatch.setattr(reading_turns, "READING_TURN_WAIT_MAX_MS", 600_000)
    monkeypatch.setattr(reading_turns, "CALM_AFTER_S", 600.0)


class _Sends:
    def __init__(self) -> None:
        self.are_waiting = True

    @property
    def crowded_at_s(self) -> float:
        return asyncio.get_running_loop().time() if self.are_waiting else -math.inf


async def _far_behind(sends: _Sends) -> ReadingTurns:
    """Turns that know FAR as a group that finds much."""
    turns = ReadingTurns(sends)
    turns.give_back(FAR, await turns.take(FAR), FULL)
    return turns


async def _fill(turns: ReadingTurns) -> None:
    for _ in range(AT_ONCE):
        assert await turns.take(FAR) == FULL


async def _rest() -> None:
    """Everything that can go on has gone on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_readers_of_a_backlog_go_one_after_the_other_while_sends_wait() -> None:
    """So many at once, the others first in first out, one for each that is over."""
    turns = await _far_behind(_Sends())
    await _fill(turns)
    order: list[int] = []

    async def read(number: int) -> None:
        await turns.take(FAR)
        order.append(number)

    tasks = [asyncio.create_task(read(number)) for number in range(3)]
    await _rest()
    assert (order, turns.waiting, turns.held) == ([], 3, 3)
    for over in range(1, 4):
        turns.give_back(FAR, FULL, FULL)
        await _rest()
        assert order == list(range(over))
    await asyncio.gather(*tasks)
    assert turns.under_way == AT_ONCE * FULL


async def test_nobody_waits_while_no_send_does() -> None:
    """And who waits already goes on with the next that is over when sends do not wait any more."""
    sends = _Sends()
    sends.are_waiting = False
    turns = await _far_behind(sends)
    for _ in range(3 * AT_ONCE):
        await turns.take(FAR)
    assert turns.held == 0
    sends.are_waiting = True
    tasks = [asyncio.create_task(turns.take(FAR)) for _ in range(4)]
    await _rest()
    assert turns.waiting == 4
    sends.are_waiting = False
    turns.give_back(FAR, FULL, FULL)
    await asyncio.gather(*tasks)
    assert turns.waiting == 0


async def test_who_keeps_up_never_waits() -> None:
    """A group that found little last time, or nothing, or that nobody knows, goes past those that are far behind."""
    turns = await _far_behind(_Sends())
    await _fill(turns)
    waiting = asyncio.create_task(turns.take(FAR))
    await _rest()
    for found in (None, 0, LITTLE_MAX_MESSAGES):
        taken = await turns.take(NEAR)
        assert taken == 1
        turns.give_back(NEAR, taken, found)
    assert await turns.take(NEAR) == LITTLE_MAX_MESSAGES
    assert turns.waiting == 1
    turns.give_back(FAR, FULL, None)
    assert await waiting == FULL


async def test_a_turn_comes_in_the_end_though_nobody_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers are slowed and never stopped, whatever became of the others."""
    monkeypatch.setattr(reading_turns, "READING_TURN_WAIT_MAX_MS", READING_TURN_WAIT_MAX_MS)
    turns = await _far_behind(_Sends())
    await _fill(turns)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async with asyncio.timeout(30):
        assert list(await asyncio.gather(turns.take(FAR), turns.take(FAR))) == [FULL, FULL]
    assert loop.time() - began_s >= READING_TURN_WAIT_MAX_MS / 1_000 * 0.9
    assert (turns.waiting, turns.under_way) == (0, (AT_ONCE + 2) * FULL)


async def test_who_goes_away_leaves_no_turn_behind() -> None:
    """Cancelled while it waits, and cancelled in the moment in which its turn comes."""
    turns = await _far_behind(_Sends())
    await _fill(turns)
    gone, lucky = (asyncio.create_task(turns.take(FAR)) for _ in range(2))
    await _rest()
    gone.cancel()
    await _rest()
    assert turns.waiting == 1
    turns.give_back(FAR, FULL, FULL)
    lucky.cancel()
    await asyncio.gather(gone, lucky, return_exceptions=True)
    assert gone.cancelled()
    assert lucky.cancelled()
    assert (turns.waiting, turns.under_way) == (0, (AT_ONCE - 1) * FULL)


async def test_a_turn_that_comes_to_who_has_just_gone_away_goes_to_the_next() -> None:
    """Nobody else hears of it, whether somebody is done or the time is over in that moment."""
    turns = await _far_behind(_Sends())
    await _fill(turns)
    gone, late, following = (asyncio.create_task(turns.take(FAR)) for _ in range(3))
    await _rest()
    gone.cancel()
    late.cancel()
    turns._waited_enough(turns._waiting[1])
    turns.give_back(FAR, FULL, FULL)
    turns._waited_enough(_Waiting(turn=_done(), messages=FULL))
    assert await following == FULL
    await asyncio.gather(gone, late, return_exceptions=True)
    assert (turns.waiting, turns.under_way) == (0, AT_ONCE * FULL)


def _done() -> asyncio.Future[None]:
    turn = asyncio.get_running_loop().create_future()
    turn.set_result(None)
    return turn


async def test_what_is_known_of_readers_is_bounded() -> None:
    """Forgotten together; then each is taken for one that keeps up, once."""
    turns = ReadingTurns(_Sends())
    for number in range(READERS_KEPT_MAX + 1):
        reader = ("orders", f"group-{number}")
        turns.give_back(reader, await turns.take(reader), FULL)
    assert len(turns._found) == 1


# Through the proxy -------------------------------------------------------------------------------------------------
async def _with_sends_waiting(mesh: ProxyMesh) -> list[asyncio.Task[object]]:
    """The broker holds what it is asked; two flights are there, and a send waits for the third."""
    mesh.broker.hold()
    tasks: list[asyncio.Task[object]] = []
    for number in range(LANES_IN_FLIGHT):
        tasks.append(asyncio.create_task(mesh.send()))
        await eventually(lambda number=number: len(mesh.broker.held) > number, "a flight at the broker")  # type: ignore[misc]
    lane = mesh.proxy.groups["broker-a"].sends
    assert lane.crowded_at_s == -math.inf
    tasks.append(asyncio.create_task(mesh.send()))
    await eventually(lambda: lane.waiting == 1, "a send that waits")
    assert lane.crowded_at_s > 0
    return tasks


async def _handles(mesh: ProxyMesh) -> list[list[dict[str, str]]]:
    """One receive found much; an ack each for the next."""
    messages = (await mesh.receive(max_messages=FULL)).json()["messages"]
    return [[{"receipt_handle": message["receipt_handle"]}] for message in messages]


async def _all_came(mesh: ProxyMesh, tasks: list[asyncio.Task[Response]], sends: list[asyncio.Task[object]]) -> None:
    """All receives are full, nothing of the turns is left over, and two had to wait."""
    mesh.broker.let_go()
    assert [len(answer.json()["messages"]) for answer in await asyncio.gather(*tasks)] == [FULL] * len(tasks)
    await asyncio.gather(*sends)
    turns = mesh.proxy.groups["broker-a"].turns
    assert (turns.waiting, turns.under_way, turns.held) == (0, 0, 2)


async def test_receives_of_a_backlog_wait_beside_sends() -> None:
    """Those that have a turn are at the broker, the others not before one of them is answered."""
    async with proxy_mesh() as mesh:
        turns, broker = mesh.proxy.groups["broker-a"].turns, mesh.broker
        await mesh.send(count=9 * FULL)
        await _handles(mesh)
        sends = await _with_sends_waiting(mesh)
        kept: list[tuple[Link, Frame]] = []
        broker.script(RequestCode.RECEIVE, *[lambda link, frame: kept.append((link, frame))] * AT_ONCE)
        tasks = [asyncio.create_task(mesh.receive(max_messages=FULL)) for _ in range(AT_ONCE + 2)]
        await eventually(lambda: len(kept) == AT_ONCE and turns.waiting == 2, "two that wait")
        assert broker.asked[RequestCode.RECEIVE] == 1 + AT_ONCE
        for link, frame in kept:
            broker.serve(link, frame)
        await _all_came(mesh, tasks, sends)


async def test_acks_that_come_along_share_the_turn() -> None:
    """Acks and the look beside them travel together, so they wait together; the turn is over when both are."""
    async with proxy_mesh() as mesh:
        turns, broker = mesh.proxy.groups["broker-a"].turns, mesh.broker
        await mesh.send(count=9 * FULL)
        handles = await _handles(mesh)
        sends = await _with_sends_waiting(mesh)
        tasks = [
            asyncio.create_task(mesh.receive(max_messages=FULL, settle=handle)) for handle in handles[: AT_ONCE + 2]
        ]
        await eventually(lambda: broker.asked[RequestCode.RECEIVE] == 1 + AT_ONCE, "looks with a turn")
        assert turns.waiting == 2
        await _all_came(mesh, tasks, sends)


async def test_a_receive_that_fails_gives_its_turn_back() -> None:
    """Alone, and beside acks."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=2 * FULL)
        (handle, *_) = await _handles(mesh)
        mesh.broker.script(RequestCode.RECEIVE, *[Overloaded(what="leases of")] * 3)
        assert (await mesh.receive()).status_code == 503
        assert (await mesh.receive(settle=handle)).status_code == 503
        assert mesh.proxy.groups["broker-a"].turns.under_way == 0
