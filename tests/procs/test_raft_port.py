"""Strangers at the Raft ports of a real mesh: counted and closed, while the group goes on as if nobody had come."""

import asyncio
import contextlib
import json
import socket
from typing import Any

import pytest

from tern_broker.upkeep.saver import SAVE_AFTER_BYTES
from tern_remoting import LinkError, dial, encode_frame
from tern_remoting.handshake import HELLO
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES
from tests.support.mesh.mesh import Mesh, eventually
from tests.support.mesh.strangers import Flood, lowered_limit, ports_of

# Everybody dials the member with the smallest name.
VICTIM = "broker-a-0"
WIDE_QUEUES = 40
LARGE_SIZE_BYTES = MESSAGE_BODY_SIZE_MAX_BYTES


@pytest.fixture
def mesh(mesh: Mesh) -> Mesh:
    """With a topic; what a test takes away it gives back."""
    mesh.create("port")
    return mesh


def raft_port(mesh: Mesh, name: str) -> int:
    """Where *name* listens for its peers."""
    return int(next(process["ports"]["raft"] for process in mesh.processes() if process["name"] == name))


def refusals(mesh: Mesh, name: str) -> dict[str, int]:
    """What its Raft port has refused, by reason."""
    found: dict[str, int] = mesh.broker(name).get("refusals", {}).get("raft", {})
    return found


def group_id(mesh: Mesh) -> str:
    """The broker group's, which its members share."""
    return str(json.loads((mesh.directory / "cluster.json").read_text())["group_id"])


async def come(port: int, **who: Any) -> None:
    """Greet as *who* and say a little; however that ends."""
    with contextlib.suppress(LinkError, OSError):
        link = await dial("127.0.0.1", port, on_frame=lambda *_: None, frame_size_max_bytes=1 << 20, **who)
        link.post(900, [b"\x00\x00\x00\x00"])
        await link.gone()


def knock(port: int, data: bytes) -> None:
    """Send *data* on a connection of its own and wait for its end."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as probe:
        probe.sendall(data)
        with contextlib.suppress(ConnectionError):
            while probe.recv(4096):
                pass


@pytest.mark.timeout(450)
def test_strangers_are_counted_by_what_they_did_and_the_group_does_not_notice(mesh: Mesh) -> None:
    """Same leader, same term, no restart, no traceback; each reason once at each node."""
    key, group, sizes = (mesh.directory / "cluster.key").read_bytes(), group_id(mesh), mesh.log_sizes()
    leader = mesh.leader()
    before = {name: (mesh.pid(name), mesh.broker(name)["term"]) for name in mesh.brokers()}
    counted = {name: refusals(mesh, name) for name in mesh.brokers()}
    for name in mesh.brokers():
        port = raft_port(mesh, name)
        knock(port, b"\x00\x00\x00\x02no")
        knock(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        knock(port, b"".join(encode_frame(HELLO, 0, 0, [b"\x01"])))
        knock(port, b"".join(encode_frame(900, 0, 2, [b"a Raft message"])))
        for who in (
            {"key": key, "role": "broker", "name": "broker-a-9", "group_id": group},
            {"key": key, "role": "proxy", "name": "proxy-0", "group_id": group},
            {"key": key, "role": "broker", "name": "broker-a-2", "group_id": "0" * 32},
        ):
            asyncio.run(come(port, **who))
    # In the name of a peer: refused while that is heard, believed if it is silent; what it says then is no message.
    asyncio.run(come(raft_port(mesh, VICTIM), key=key, role="broker", name="broker-a-2", group_id=group))
    wanted = {"garbage": 1, "oversized": 1, "greeting": 2, "stranger": 2, "group": 1}
    for name in mesh.brokers():
        now = refusals(mesh, name)
        assert {reason: now[reason] - counted[name][reason] for reason in wanted} == wanted, name
    now = refusals(mesh, VICTIM)
    assert sum(now[reason] - counted[VICTIM][reason] for reason in ("second", "malformed")) == 1
    assert mesh.leader() == leader
    assert {name: (mesh.pid(name), mesh.broker(name)["term"]) for name in mesh.brokers()} == before
    assert mesh.settled("POST", "/v1/topics/port/messages", content=b"after").status_code == 201
    for name, text in mesh.logged_since(sizes).items():
        assert "Traceback" not in text, name


@pytest.mark.timeout(450)
def test_a_flood_takes_no_descriptor_from_a_save_or_a_peer(mesh: Mesh) -> None:
    """Strangers come as fast as they are closed, at all ports of a node that may open 40 more: it saves its state, serves, and lets in a peer
    that was killed, all while they come."""
    pid = mesh.pid(VICTIM)
    state = mesh.directory / "data" / VICTIM / "state"
    process = next(process for process in mesh.processes() if process["name"] == VICTIM)

    def saved() -> set[str]:
        """The states that are complete."""
        return {path.name for path in state.glob("state-*.bin")}

    # Rows for many files, of which a save writes all: other tests' queues may be among them, so there are not 64.
    mesh.create("port-wide", queues=WIDE_QUEUES)
    for _ in range(WIDE_QUEUES):
        assert mesh.settled("POST", "/v1/topics/port-wide/messages", content=b"a row").status_code == 201
    counted, before = refusals(mesh, VICTIM), saved()
    with lowered_limit(pid, 40), Flood(ports_of(process), held_max=150, opened_per_s=200) as flood:
        eventually(lambda: flood.opened > 400, within_s=30, what="they crowd")
        for _ in range(SAVE_AFTER_BYTES // LARGE_SIZE_BYTES + 1):
            sent = mesh.settled("POST", "/v1/topics/port/messages", content=bytes(LARGE_SIZE_BYTES))
            assert sent.status_code == 201
        eventually(lambda: saved() != before, within_s=30, what="a state is saved")
        killed = mesh.kill("broker-a-2")

        def is_back() -> bool:
            # Its own word: an answer of the flooded node waits behind 150 strangers, on a slow machine longer than a question does.
            peers = mesh.broker("broker-a-2").get("peers", [])
            met = any(peer["node"] == VICTIM and peer["connected"] for peer in peers)
            return met and mesh.pid("broker-a-2") not in {0, killed}

        eventually(is_back, within_s=30, what="broker-a-2 is let in again")
        assert mesh.settled("POST", "/v1/topics/port/messages", content=b"meanwhile").status_code == 201
    assert flood.closed > 150
    # What is left of the crowd in the kernel's queue may be in front of the first question.
    eventually(
        lambda: refusals(mesh, VICTIM).get("crowded", 0) > counted["crowded"], within_s=30, what="they were counted"
    )
    assert mesh.pid(VICTIM) == pid
    assert not [name for name in ("quarantine", "rebuild") if (state.parent / name).exists()]
    assert mesh.settled("POST", "/v1/topics/port/messages", content=b"after").status_code == 201
