"""More than a thousand hostile requests, raw over sockets, at every HTTP door of a real mesh: none is taken, and it goes on serving.

Smuggling, traversal, bombs and slow clients (tests/support/mesh/hostile_requests.py). One mesh for all of them; after each family a message goes
in and comes out, and in the end nothing is stored that was not sent, no process has died, and no log has a traceback.
"""

import asyncio
import random
from collections.abc import Iterator

import pytest

from tests.support.mesh.hostile_client import throw_all
from tests.support.mesh.hostile_requests import FAMILIES_OF_ALL, FAMILIES_OF_PROXY, TOPIC, slow
from tests.support.mesh.mesh import Mesh

DOORS = ("proxy", "namesrv", "broker", "checker")
CASES_MIN = 500


@pytest.fixture(scope="module")
def mesh(standing_mesh: Mesh) -> Iterator[Mesh]:
    """The standing mesh, whose processes and logs are looked at in the end."""
    standing_mesh.wait_until_whole()
    standing_mesh.create(TOPIC, "hostile-readers")
    sizes = standing_mesh.log_sizes()
    before = {process["name"]: process["pid"] for process in standing_mesh.processes()}
    yield standing_mesh
    assert before == {process["name"]: process["pid"] for process in standing_mesh.processes()}
    for name, text in standing_mesh.logged_since(sizes).items():
        assert "Traceback" not in text, name
        assert "failed unexpectedly" not in text, name


def port_of(mesh: Mesh, door: str) -> int:
    """Where *door* listens for HTTP."""
    process = next(process for process in mesh.processes() if process["role"].endswith(door))
    ports: dict[str, int] = process["ports"]
    return ports.get("http") or next(iter(ports.values()))


def sent_and_received(mesh: Mesh, body: str) -> bool:
    """A message goes in and comes out; and nothing else does."""
    assert mesh.settled("POST", f"/v1/topics/{TOPIC}/messages", content=body.encode()).status_code == 201
    got = mesh.settled("POST", f"/v1/topics/{TOPIC}/groups/hostile-readers/receive", json={"wait": "5s"}).json()[
        "messages"
    ]
    handles = [message["receipt_handle"] for message in got]
    assert mesh.settled(
        "POST", f"/v1/topics/{TOPIC}/groups/hostile-readers/ack", json={"receipt_handles": handles}
    ).is_success
    return [body] == [message["body"] for message in got]


def topics(mesh: Mesh) -> list[str]:
    """All names."""
    return [topic["topic"] for topic in mesh.settled("GET", "/v1/topics").json()["topics"]]


FAMILIES = [(family, "proxy") for family in FAMILIES_OF_PROXY] + [
    (family, door) for door in DOORS[1:] for family in FAMILIES_OF_ALL
]


@pytest.mark.parametrize(("family", "door"), FAMILIES, ids=[f"{family.__name__}-{door}" for family, door in FAMILIES])
def test_no_hostile_request_is_taken_and_the_mesh_goes_on_serving(mesh: Mesh, family, door: str) -> None:  # type: ignore[no-untyped-def]
    """Each gets one 4xx or a closed connection, and what stands behind it is never read as a request."""
    known = topics(mesh)
    cases = family()
    random.Random(8).shuffle(cases)
    assert asyncio.run(throw_all(port_of(mesh, door), cases)) == []
    assert sent_and_received(mesh, f"after {family.__name__} at {door}")
    assert topics(mesh) == known


def test_slow_clients_are_let_go_at_every_door_while_others_are_served(mesh: Mesh) -> None:
    """Silent, stuck and dripping ones, all at the same time; each within its deadline."""

    async def all_doors() -> list[str]:
        working = asyncio.create_task(asyncio.to_thread(sent_and_received, mesh, "among slow clients"))
        found = await asyncio.gather(*(throw_all(port_of(mesh, door), slow()) for door in DOORS))
        assert await working
        return [f"{door}: {trouble}" for door, troubles in zip(DOORS, found, strict=True) for trouble in troubles]

    assert asyncio.run(all_doors()) == []
    assert sent_and_received(mesh, "after slow clients")


def test_there_are_as_many_cases_as_were_promised() -> None:
    """Different ones, of every family."""
    cases = [case for family in (*FAMILIES_OF_PROXY, slow) for case in family()]
    assert len({case.parts for case in cases}) >= 2 * CASES_MIN
    assert len({case.name for case in cases}) == len(cases)
