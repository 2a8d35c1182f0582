"""Lanes gather while two flights are under way and behind flights of several, keep order, and never carry more than their
size but for one large piece."""

import asyncio
import math
from collections.abc import Callable, Sized
from functools import partial
from typing import Any, cast

import orjson
import pytest

from tern_proxy.brokers import lanes
from tern_proxy.brokers.lanes import LANES_IN_FLIGHT
from tern_wire.errors import Overloaded
from tern_wire.limits import LANE_SIZE_MAX_BYTES
from tern_wire.link.requests import RequestCode
from tern_wire.paths import JSON
from tern_wire.records.read import decode_record
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, proxy_mesh

pytestmark = pytest.mark.anyio
ONE = "/v1/topics/orders/messages"


def _has(things: Sized, count: int) -> bool:
    return len(things) == count


async def test_what_arrives_during_two_flights_goes_as_one() -> None:
    """Ten sends behind two flights under way become one request to the broker, each with its own receipt."""
    async with proxy_mesh() as mesh:
        lane = mesh.proxy.groups["broker-a"].sends
        mesh.broker.hold()
        tasks = []
        for number in range(LANES_IN_FLIGHT):
            tasks.append(asyncio.create_task(mesh.post(ONE, b"first")))
            await eventually(partial(_has, mesh.broker.held, number + 1), "a flight at the broker")
        tasks += [asyncio.create_task(mesh.post(ONE, b"later %d" % number)) for number in range(10)]
        await eventually(lambda: lane.waiting == 10, "ten to gather")
        assert mesh.broker.asked[RequestCode.SEND] == LANES_IN_FLIGHT
        mesh.broker.let_go()
        answers = await asyncio.gather(*tasks)
        assert mesh.broker.flights == [1, 1, 10]
        places = [(answer.json()["queue"], answer.json()["offset"]) for answer in answers]
        assert len(set(places)) == 12
        by_place = {
            (f"broker-a:{record.queue}", record.offset): record
            for record in map(decode_record, mesh.broker.records("orders"))
        }
        for answer, place in zip(answers, places, strict=True):
            assert by_place[place].properties["UNIQ_KEY"] == answer.json()["message_id"]


async def test_an_idle_lane_sends_at_once() -> None:
    """One send, one flight: nothing waits for company."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=3)
        assert mesh.broker.flights == [1, 1, 1]


async def test_one_flights_failure_is_not_anothers() -> None:
    """What gathered behind a broken flight is sent and answered."""
    async with proxy_mesh() as mesh:
        mesh.broker.script(RequestCode.SEND, lambda link, _: link.abort("scripted"))
        lost = await mesh.post(ONE, b"lost")
        assert lost.status_code == 504
        assert (await mesh.post(ONE, b"fine")).status_code == 201


async def test_a_large_batch_flies_in_pieces_and_keeps_its_order() -> None:
    """No flight is over the lane's size; offsets follow the input."""
    async with proxy_mesh() as mesh:
        messages = [{"body": f"{number:04d}" + "x" * 250_000} for number in range(12)]
        answer = await mesh.post(f"{ONE}/batch", orjson.dumps({"messages": messages}), content_type=JSON)
        assert [result["offset"] for result in answer.json()["results"]] == list(range(12))
        assert [int(decode_record(record).body[:4]) for record in mesh.broker.records("orders")] == list(range(12))
        assert len(mesh.broker.flights) >= 12 * 250_000 // LANE_SIZE_MAX_BYTES


async def test_a_message_larger_than_a_lane_flies_alone() -> None:
    """4 MiB is a legal message: it is its own flight."""
    async with proxy_mesh(MemoryBroker(KEY, log_segment_bytes=16 << 20)) as mesh:
        assert (await mesh.post(ONE, bytes(4 << 20))).status_code == 201
        assert mesh.broker.flights == [1]


async def test_settles_gather_as_sends_do() -> None:
    """Eight acks behind two flights under way become one request."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=10)
        messages = (await mesh.receive(max_messages=10)).json()["messages"]
        mesh.broker.hold()
        path = "/v1/topics/orders/groups/billing/ack"
        tasks = []
        for number, message in enumerate(messages):
            tasks.append(asyncio.create_task(mesh.http.post(f"{path}?receipt_handle={message['receipt_handle']}")))
            if number < LANES_IN_FLIGHT:
                await eventually(partial(_has, mesh.broker.held, number + 1), "a flight at the broker")
        await eventually(lambda: mesh.proxy.groups["broker-a"].settles.waiting == 8, "eight to gather")
        mesh.broker.let_go()
        assert {answer.status_code for answer in await asyncio.gather(*tasks)} == {200}
        assert [head["rows"] for code, head in mesh.broker.heads if code == RequestCode.SETTLE] == [1, 1, 8]


async def test_an_overloaded_broker_is_passed_on_by_both_lanes_and_repeated_by_neither() -> None:
    """503 with a pause for sends, with and without key, and for settles; the next ones go through."""
    async with proxy_mesh() as mesh:
        await mesh.send()
        (message,) = (await mesh.receive()).json()["messages"]
        ack = f"/v1/topics/orders/groups/billing/ack?receipt_handle={message['receipt_handle']}"
        for code, path in ((RequestCode.SEND, ONE), (RequestCode.SEND, f"{ONE}?key=k"), (RequestCode.SETTLE, ack)):
            asked = mesh.broker.asked[code]
            mesh.broker.script(code, Overloaded(what="requests that wait in broker group 'broker-a'"))
            answer = await mesh.http.post(path, headers={"Idempotency-Key": path})
            problem = answer.json()
            assert (answer.status_code, problem["code"], problem["retryable"]) == (503, "overloaded", True)
            assert problem["what"] == "requests that wait in broker group 'broker-a'"
            assert (answer.headers["retry-after"], 500 <= problem["retry_after_ms"] < 750) == ("1", True)
            assert mesh.broker.asked[code] == asked + 1
            assert (await mesh.http.post(path)).status_code in {200, 201}


async def test_a_link_with_too_much_on_its_way_is_overload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent, and the answer names the link."""
    async with proxy_mesh() as mesh:
        assert (await mesh.post(ONE, b"x")).status_code == 201
        (link,) = mesh.proxy.groups["broker-a"].link._links_up().values()
        monkeypatch.setattr(link, "_in_flight_max", 0)
        problem = (await mesh.post(ONE, b"x")).json()
        assert (problem["code"], problem["what"]) == ("overloaded", "requests on their way to broker group 'broker-a'")
        assert mesh.broker.asked[RequestCode.SEND] == 1
        monkeypatch.undo()
        assert (await mesh.post(ONE, b"x")).status_code == 201


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flights gather until all are there, however long that takes."""
    monkeypatch.setattr(lanes, "GATHER_SHARE", 1e9)
    monkeypatch.setattr(lanes, "GATHER_MAX_S", 600.0)


class _Piece:
    size_bytes = 1


class _CountedLink:
    flushes = 0

    def flush(self) -> None:
        self.flushes += 1


class _OpenLane(lanes.Lane[_Piece, int]):
    """A lane whose flights land when the test says so, in any order."""

    def __init__(self) -> None:
        super().__init__(cast(Any, _CountedLink()))
        self.flying: list[tuple[int, asyncio.Future[None]]] = []

    async def _carry(self, cargo: list[_Piece], early: Callable[[int, int], None]) -> list[int]:
        landing = asyncio.get_running_loop().create_future()
        self.flying.append((len(cargo), landing))
        await landing
        return [0] * len(cargo)

    async def send(self, *flights: int) -> None:
        """Submit pieces for one flight after the other, each of which leaves in a turn of its own."""
        for pieces in flights:
            before = len(self.flying)
            for _ in range(pieces):
                self.submit(_Piece())
            await eventually(partial(_has, self.flying, before + 1), "a flight")

    async def land(self, number: int) -> None:
        """End the flight that left as *number*."""
        landed = self.landed
        self.flying[number][1].set_result(None)
        await eventually(lambda: self.landed > landed, "its end")

    @property
    def carried_in(self) -> list[int]:
        """Pieces of each flight so far."""
        return [pieces for pieces, _ in self.flying]


async def _some_turns() -> None:
    """Whatever a lane does without waiting is done after these."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_behind_a_flight_of_several_as_many_gather(patient: None) -> None:
    """The first three of four answered clients wait for the fourth, and one flight takes all."""
    lane = _OpenLane()
    await lane.send(4)
    await lane.land(0)
    for _ in range(3):
        lane.submit(_Piece())
        await _some_turns()
    assert (lane.carried_in, lane.waiting) == ([4], 3)
    assert lane.crowded_at_s > 0
    lane.submit(_Piece())
    await eventually(lambda: len(lane.flying) == 2, "a flight of all")
    assert lane.carried_in == [4, 4]


async def test_a_gathering_flight_leaves_in_time_without_those_who_stay_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four clients two stop: the others' pieces leave in the end, and the next flight gathers two alone."""
    monkeypatch.setattr(lanes, "GATHER_SHARE", 1e9)
    monkeypatch.setattr(lanes, "GATHER_MAX_S", 0.05)
    lane = _OpenLane()
    await lane.send(4)
    await lane.land(0)
    await lane.send(2)
    monkeypatch.setattr(lanes, "GATHER_MAX_S", 600.0)
    await lane.land(1)
    await lane.send(2)
    assert lane.carried_in == [4, 2, 2]


async def test_one_client_never_waits_for_others(patient: None) -> None:
    """Behind a flight of one piece the next one leaves at once, however long a flight may gather."""
    lane = _OpenLane()
    for number in range(3):
        lane.submit(_Piece())
        await _some_turns()
        assert lane.carried_in == [1] * (number + 1)
        await lane.land(number)
    assert lane.crowded_at_s == -math.inf


async def test_a_second_flight_in_the_air_does_not_end_the_gathering(patient: None) -> None:
    """Two flights of three; behind the first three gather, although only one is in flight."""
    lane = _OpenLane()
    await lane.send(3, 3)
    await lane.land(0)
    lane.submit(_Piece())
    lane.submit(_Piece())
    await _some_turns()
    assert lane.carried_in == [3, 3]
    await lane.send(1)
    assert lane.carried_in == [3, 3, 3]


async def test_half_of_all_that_is_under_way_leaves_in_the_middle_of_a_turn(patient: None) -> None:
    """Behind a flight of 64 pieces two of 32 fly, so that one is stored while the proxy reads the other."""
    lane = _OpenLane()
    await lane.send(64)
    await lane.land(0)
    carried = []
    for _ in range(64):
        lane.submit(_Piece())
        carried.append(lane.carried_in)
    assert carried == [[64]] * 31 + [[64, 32]] * 32 + [[64, 32, 32]]
    await lane.land(1)
    for _ in range(32):
        lane.submit(_Piece())
    assert lane.carried_in == [64, 32, 32, 32]


async def test_a_few_pieces_are_worth_one_entry(patient: None) -> None:
    """Half of them would not be worth a second entry of its own."""
    lane = _OpenLane()
    pieces = 2 * lanes.HALF_FLIGHT_WORK - 2
    await lane.send(pieces)
    await lane.land(0)
    await lane.send(pieces)
    assert lane.carried_in == [pieces, pieces]


async def test_pieces_that_are_more_work_are_split_when_they_are_fewer(
    patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight receives with acks of 32 messages are as much work as fifty sends."""
    monkeypatch.setattr(_OpenLane, "work_of", lambda _self, _piece: 6)
    lane = _OpenLane()
    await lane.send(8)
    await lane.land(0)
    await lane.send(4, 4)
    assert lane.carried_in == [8, 4, 4]


async def test_an_urgent_flight_does_not_wait_for_the_end_of_the_turn() -> None:
    """The link is flushed once a flight; other lanes' requests leave together at the end of the turn."""
    for is_urgent in (False, True):
        lane, link = _OpenLane(), _CountedLink()
        lane.link, lane.is_urgent = cast(Any, link), is_urgent  # type: ignore[misc]
        await lane.send(2, 3)
        assert link.flushes == (2 if is_urgent else 0)
