"""Files damaged under real processes: a node with a damaged log leaves its group and says why, derived files are made again."""

import json
from pathlib import Path

import pytest

from tests.support.files.shared_log import shared_parts
from tests.support.mesh.mesh import Mesh, eventually, running_mesh

MESSAGES = 200


def filled(mesh: Mesh) -> dict[tuple[str, int], str]:
    """A topic with messages, each as it was acknowledged."""
    mesh.create("damage", group="readers", queues=2)
    sent: dict[tuple[str, int], str] = {}
    for batch in range(MESSAGES // 20):
        messages = [{"body": f"{batch}-{number}" * 40, "idempotency_key": f"{batch}-{number}"} for number in range(20)]
        reply = mesh.patient("POST", "/v1/topics/damage/messages/batch", json={"messages": messages})
        for message, result in zip(messages, reply.json()["results"], strict=True):
            sent[result["queue"], result["offset"]] = message["body"]
    return sent


def read_all(mesh: Mesh) -> dict[tuple[str, int], str]:
    """Everything in the topic."""
    found: dict[tuple[str, int], str] = {}
    for queue in mesh.settled("GET", "/v1/topics/damage/offsets").json()["queues"]:
        at = queue["min_offset"]
        while at < queue["max_offset"]:
            path = f"/v1/topics/damage/queues/{queue['queue']}/messages?offset={at}&max_messages=1000"
            page = mesh.settled("GET", path, within_s=30)
            for message in page.json()["messages"]:
                found[message["queue"], message["offset"]] = message["body"]
            at = int(page.headers["mq-next-offset"])
    return found


def flip(path: Path, position: int) -> None:
    """One bit, in a file that nobody has open."""
    content = bytearray(path.read_bytes()[: position + 1])
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes([content[position] ^ 1]))


@pytest.mark.parametrize("leads", [True, False])
def test_a_node_with_a_damaged_log_leaves_the_group_and_comes_back_with_a_whole_one(
    tmp_path: Path, leads: bool
) -> None:
    """One flipped bit far before the saved state, in the leader's log or in a follower's: found without being read, copied anew."""
    with running_mesh(tmp_path, "--brokers", "3") as mesh:
        sent = filled(mesh)
        leader = mesh.leader()
        node = leader if leads else next(name for name in mesh.brokers() if name != leader)
        mesh.down()
        segment = tmp_path / "data" / node / "commitlog" / f"{0:020d}"
        flip(segment, 20_000)
        mesh.up()
        log = tmp_path / "logs" / f"{node}.log"
        eventually(lambda: "the log of this node is damaged" in log.read_text(), within_s=40, what="it is found")
        (found,) = [line for line in log.read_text().splitlines() if "the log of this node is damaged" in line]
        assert json.loads(found)["file"] == str(segment)
        assert json.loads(found)["position"] <= 20_000
        assert read_all(mesh) == sent

        def is_back() -> bool:
            status, lead = mesh.broker(node), mesh.broker(mesh.leader())
            return status.get("standing") == "member" and status["applied_index"] >= lead["commit_index"]

        eventually(is_back, within_s=40, what=f"{node} is a member again")
        mesh.settled("POST", "/v1/topics/damage/messages", content=b"after")
        mesh.down()
        logs = [tmp_path / "data" / name / "commitlog" / segment.name for name in mesh_names()]
        contents = {b"".join(shared_parts(path, segment.stat().st_size)) for path in logs}
        assert len(contents) == 1, "the logs differ"


def mesh_names() -> list[str]:
    """The brokers of a mesh of three."""
    return [f"broker-a-{number}" for number in range(3)]


def test_a_damaged_consume_queue_is_made_again(tmp_path: Path) -> None:
    """One node, so that nobody else has it: found by the reader or by the verification, mended by a restart."""
    with running_mesh(tmp_path, "--brokers", "1") as mesh:
        sent = filled(mesh)
        (node,) = mesh.brokers()
        mesh.down()
        damaged = next(
            path
            for path in sorted((tmp_path / "data" / node / "consumequeue").rglob("0" * 20))
            if path.parent.name != "times" and path.stat().st_size > 1280
        )
        flip(damaged, 40)
        mesh.up()
        log = tmp_path / "logs" / f"{node}.log"
        eventually(
            lambda: "making queues, index and timers again" in log.read_text(),
            within_s=30,
            what="the node begins again",
        )
        assert read_all(mesh) == sent
        assert mesh.broker(node)["role"] == "leader"
