"""Where topics are born, and how they are moved: what the proxy tells which broker group, in which order, and what becomes of a change that breaks off."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tern_wire.errors import Overloaded, PlacementMoving
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tern_wire.link.requests import RequestCode
from tern_wire.routing.placement import Placement
from tests.support.broker.contents import delete_topic, place_topic, placements
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh

BOTH = ["broker-a", "broker-b"]
PLACEMENT = "/v1/topics/made/placement"


@contextlib.asynccontextmanager
async def grown_mesh() -> AsyncIterator[ProxyMesh]:
    """Topic `made` was born on broker-a; broker-b is here since."""
    second = MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b")
    async with proxy_mesh(MemoryBroker(KEY), second) as mesh:
        mesh.name_server.wiped.add("broker-b")
        await mesh.proxy.cache.refresh()
        settings = {"queues": 3, "type": "FIFO", "attributes": {}}
        assert (await mesh.http.put("/v1/topics/made", json=settings)).status_code == 201
        mesh.name_server.wiped.clear()
        await mesh.proxy.cache.refresh()
        yield mesh


def told(mesh: ProxyMesh) -> list[str]:
    """The placement of topic `made` in each broker group; `-` where it is not."""
    return placements(mesh.brokers, "made")


def let_keys_be_forgotten(mesh: ProxyMesh) -> None:
    """No broker group knows an idempotency key of before the move any more."""
    for broker in mesh.brokers:
        broker.pass_time(IDEMPOTENCY_WINDOW_MS + 1)


async def place(mesh: ProxyMesh, *groups: str) -> httpx.Response:
    """PUT the placement."""
    return await mesh.http.put(PLACEMENT, json={"broker_groups": list(groups)})


async def test_a_topic_is_born_where_it_may_be_written_and_comes_nowhere_else_by_itself() -> None:
    """Not when it is declared again, nor altered."""
    async with grown_mesh() as mesh:
        assert told(mesh) == ["1|broker-a|", "-"]
        assert (await mesh.http.put("/v1/topics/made", json={})).status_code == 200
        assert (await mesh.http.patch("/v1/topics/made", json={"queues": 4})).status_code == 200
        assert told(mesh) == ["1|broker-a|", "-"]
        assert (await mesh.http.put("/v1/topics/newer", json={})).status_code == 201
        assert placements(mesh.brokers, "newer") == ["1|broker-a,broker-b|"] * 2


async def test_a_placement_brings_the_topic_with_its_settings_and_says_what_moves() -> None:
    """First the new broker group has the topic, then the first of the present ones decides."""
    async with grown_mesh() as mesh:
        document = (await place(mesh, *reversed(BOTH))).json()
        assert told(mesh) == ["2|broker-a,broker-b|broker-a"] * 2
        assert (document["changed"], document["is_moving"], document["left"]) == (True, True, "")
        assert (document["broker_groups"], document["before"], document["hosts"]) == (BOTH, ["broker-a"], BOTH)
        made = mesh.brokers[1].topics["made"]
        assert (made.kind, made.queues) == ("FIFO", 3)
        assert (await mesh.http.get(PLACEMENT)).json() == {
            name: value for name, value in document.items() if name not in {"changed", "left"}
        }


async def test_the_same_again_ends_a_move_that_can_end_and_says_what_keeps_another() -> None:
    """All of before let go before anybody is told that it is over."""
    async with grown_mesh() as mesh:
        await place(mesh, *BOTH)
        mesh.brokers[0].script(RequestCode.CREATE_TOPIC, PlacementMoving(topic="made", epoch=2, left="it takes time"))
        kept = (await place(mesh, *BOTH)).json()
        assert (kept["changed"], kept["is_moving"], kept["left"]) == (False, True, "it takes time")
        assert told(mesh) == ["2|broker-a,broker-b|broker-a"] * 2
        let_keys_be_forgotten(mesh)
        over = (await place(mesh, *BOTH)).json()
        assert (over["changed"], over["is_moving"], over["moving_until"]) == (False, False, 0)
        assert told(mesh) == ["3|broker-a,broker-b|"] * 2
        assert (await place(mesh, *BOTH)).json()["epoch"] == 3


async def test_another_change_ends_the_move_before_it_or_is_refused() -> None:
    """Two moves of one topic at once would need three broker groups to be asked."""
    async with grown_mesh() as mesh:
        await place(mesh, *BOTH)
        mesh.brokers[0].script(RequestCode.CREATE_TOPIC, PlacementMoving(topic="made", epoch=2, left="it takes time"))
        refused = await place(mesh, "broker-b")
        assert (refused.status_code, refused.json()["code"]) == (409, "placement-moving")
        assert "ternmq topic place made" in refused.json()["detail"]
        assert told(mesh) == ["2|broker-a,broker-b|broker-a"] * 2
        let_keys_be_forgotten(mesh)
        assert (await place(mesh, "broker-b")).json()["epoch"] == 4
        assert told(mesh) == ["4|broker-b|broker-a,broker-b"] * 2


async def test_a_change_that_broke_off_is_completed_by_the_same_again() -> None:
    """Wherever it broke off: a broker group that was down lacks the news, or the topic."""
    async with grown_mesh() as mesh:
        second = mesh.brokers[1]
        # Its second request: the topic is there, the placement is not.
        second.script(RequestCode.CREATE_TOPIC, _pass(second), Overloaded(what="requests that wait"))
        assert (await place(mesh, *BOTH)).status_code == 503
        assert told(mesh) == ["2|broker-a,broker-b|broker-a", "1|broker-a|"]
        let_keys_be_forgotten(mesh)
        assert (await place(mesh, *BOTH)).json()["is_moving"] is False
        assert told(mesh) == ["3|broker-a,broker-b|"] * 2
        delete_topic(second, "made")
        assert (await place(mesh, *BOTH)).status_code == 200
        assert told(mesh) == ["3|broker-a,broker-b|"] * 2
        delete_topic(second, "made")
        await mesh.proxy.cache.refresh()
        assert (await mesh.http.put("/v1/topics/made", json={})).status_code == 201, "declaring it does so, too"
        assert told(mesh) == ["3|broker-a,broker-b|"] * 2


def _pass(broker: MemoryBroker) -> Any:
    """A scripted answer that is the ordinary one."""

    def answer(link: Any, frame: Any) -> None:
        broker.serve(link, frame)

    return answer


async def test_of_two_changes_at_once_the_second_hears_of_the_first() -> None:
    """The first of the present broker groups has taken another one of the same epoch."""
    async with grown_mesh() as mesh:
        first = mesh.brokers[0]

        def taken(link: Any, frame: Any) -> None:
            placed = Placement(epoch=2, groups=("broker-z",), before=("broker-a",))
            place_topic(first, "made", placed, queues=3)
            _pass(first)(link, frame)

        first.script(RequestCode.CREATE_TOPIC, taken)
        late = await place(mesh, *BOTH)
        assert (late.status_code, late.json()["code"]) == (409, "placement-moving")
        assert told(mesh)[0] == "2|broker-z|broker-a"


async def test_a_topic_that_nobody_has_placed_is_placed_where_it_is_before_it_moves() -> None:
    """Its keys are asked for there first."""
    async with grown_mesh() as mesh:
        mesh.brokers[0].create_topic("old", 2)
        await mesh.proxy.cache.refresh()
        moved = (await mesh.http.put("/v1/topics/old/placement", json={"broker_groups": BOTH})).json()
        assert (moved["epoch"], moved["broker_groups"], moved["before"]) == (2, BOTH, ["broker-a"])


async def test_bad_placements_are_problems() -> None:
    """No broker group, an unknown one, too many, another type, an unknown topic."""
    async with grown_mesh() as mesh:
        for body, code in (
            ({"broker_groups": []}, "invalid-field"),
            ({"broker_groups": ["broker-z"]}, "invalid-field"),
            ({"broker_groups": [f"b{number}" for number in range(65)]}, "invalid-field"),
            ({"broker_groups": "broker-a"}, "invalid-field"),
            ({}, "invalid-field"),
            ({"broker_groups": BOTH, "epoch": 7}, "unknown-field"),
        ):
            refused = await mesh.http.put(PLACEMENT, json=body)
            assert (refused.status_code, refused.json()["code"]) == (400, code), (body, refused.text)
        unknown = await mesh.http.put("/v1/topics/unmade/placement", json={"broker_groups": ["broker-a"]})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "topic-not-found")
        assert told(mesh) == ["1|broker-a|", "-"]
