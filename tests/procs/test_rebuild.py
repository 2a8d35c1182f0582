"""Nodes that lose their data under load, or find it damaged, copy it from their leader and are members again; nobody notices."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tern_store import Genesis, Store
from tests.support.files.shared_log import shared
from tests.support.mesh.mesh import SEGMENT_SIZE_BYTES, Mesh, eventually, running_mesh

# More than a segment's worth, so that one is closed.
FIRST_BATCHES, BATCH, BODY_SIZE_BYTES = 24, 200, 4_000
READ_PAGE = 500


def body_of(number: int) -> str:
    """A body that says which message it is."""
    return f"{number:08d}" * (BODY_SIZE_BYTES // 8)


class Sender:
    """Sends batches and remembers what was acknowledged. Owner: one thread."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self.acked: dict[tuple[str, int], int] = {}
        self._next = 0

    def send(self) -> None:
        """One batch; what is not acknowledged is not counted."""
        numbers = range(self._next, self._next + BATCH)
        self._next += BATCH
        messages = [{"body": body_of(number)} for number in numbers]
        try:
            reply = self._mesh.call("POST", "/v1/topics/rebuild/messages/batch", json={"messages": messages})
        except httpx.TransportError:
            return
        if reply.status_code not in (200, 201, 207):
            return
        for number, result in zip(numbers, reply.json()["results"], strict=True):
            if "offset" in result:
                self.acked[result["queue"], result["offset"]] = number

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Batches all the time, on a thread."""
        done = threading.Event()

        def work() -> None:
            while not done.is_set():
                self.send()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def filled(mesh: Mesh) -> Sender:
    """A topic with more than a segment of messages."""
    mesh.create("rebuild", queues=2)
    sender = Sender(mesh)
    for _ in range(FIRST_BATCHES):
        sender.send()
    assert len(sender.acked) == FIRST_BATCHES * BATCH
    return sender


def require_read(mesh: Mesh, sender: Sender) -> None:
    """Everything that was acknowledged is read where it was said to be, with its own bytes."""
    found: dict[tuple[str, int], str] = {}
    for queue in mesh.settled("GET", "/v1/topics/rebuild/offsets").json()["queues"]:
        at = queue["min_offset"]
        while at < queue["max_offset"]:
            path = f"/v1/topics/rebuild/queues/{queue['queue']}/messages?offset={at}&max_messages={READ_PAGE}"
            page = mesh.settled("GET", path, within_s=30)
            found |= {(message["queue"], message["offset"]): message["body"] for message in page.json()["messages"]}
            at = int(page.headers["mq-next-offset"])
    assert {place: found.get(place) for place in sender.acked} == {
        place: body_of(number) for place, number in sender.acked.items()
    }


def has_caught_up(mesh: Mesh, node: str) -> dict[str, Any]:
    """The node's status once it follows and has applied what its leader had just before: sends go on."""
    leader = mesh.broker(mesh.leader())
    status = mesh.broker(node)
    is_member = status.get("role") == "follower" and status.get("leader") == leader.get("node")
    return status if is_member and status["applied_index"] >= leader.get("commit_index", 1 << 62) else {}


def entries(mesh: Mesh, node: str) -> dict[int, bytes]:
    """What lies in a stopped node's log."""
    cluster = {name: mesh.directory / "data" / name for name in ("broker-a-0", "broker-a-1", "broker-a-2")}
    first = (cluster[node] / "commitlog" / f"{0:020d}").read_bytes()[:4096]
    size = int.from_bytes(first[4:8], "big")
    group = Genesis.decode(first[48:size])
    store = Store.open(cluster[node], group=group, may_begin=False)
    found = {
        index: shared(store.log.entry(index).raw) for index in range(store.log.first_index, store.log.end_index + 1)
    }
    store.close()
    return found


def require_equal_logs(mesh: Mesh) -> None:
    """All nodes have the same entries, as far as the shortest goes, which is not far behind."""
    logs = [entries(mesh, f"broker-a-{number}") for number in range(3)]
    shortest = min(map(len, logs))
    assert max(map(len, logs)) - shortest <= 10
    for index in range(1, shortest + 1):
        assert logs[0][index] == logs[1][index] == logs[2][index], f"entry {index}"


def follower(mesh: Mesh) -> str:
    """One that does not lead."""
    leader = mesh.leader()
    return next(name for name in mesh.brokers() if name != leader)


def test_a_wiped_follower_is_back_while_sends_go_on(tmp_path: Path) -> None:
    """Its directory is gone under load: sends go on, nothing acknowledged is lost, and its log is that of the others."""
    with running_mesh(tmp_path, "--brokers", "3") as mesh:
        sender = filled(mesh)
        node = follower(mesh)
        with sender.sending():
            before = len(sender.acked)
            (tmp_path / "data" / node).rename(tmp_path / "gone")
            mesh.kill(node)
            eventually(lambda: has_caught_up(mesh, node), within_s=60, what=f"{node} is a member again")
            eventually(lambda: len(sender.acked) > before, within_s=30, what="sends went on")
        shutil.rmtree(tmp_path / "gone")
        require_read(mesh, sender)
        eventually(lambda: has_caught_up(mesh, node), within_s=20, what=f"{node} has everything")
        assert "the leader's log is copied" in (tmp_path / "logs" / f"{node}.log").read_text()
        mesh.down()
        require_equal_logs(mesh)


def test_a_flipped_bit_in_a_closed_segment_of_a_follower_is_found_and_mended(tmp_path: Path) -> None:
    """Nobody reads it before: the verification finds it, the node copies the log, and no wrong byte is served."""
    position = SEGMENT_SIZE_BYTES // 2
    with running_mesh(tmp_path, "--brokers", "3") as mesh:
        sender = filled(mesh)
        node = follower(mesh)
        mesh.down()
        segment = tmp_path / "data" / node / "commitlog" / f"{0:020d}"
        with segment.open("r+b") as file:
            file.seek(position)
            bad = file.read(1)[0] ^ 16
            file.seek(position)
            file.write(bytes([bad]))
        mesh.up()
        log = tmp_path / "logs" / f"{node}.log"
        eventually(lambda: "the leader's log is copied" in log.read_text(), within_s=60, what="the log is copied")
        eventually(lambda: has_caught_up(mesh, node), within_s=30, what=f"{node} is a member again")
        require_read(mesh, sender)
        mesh.down()
        require_equal_logs(mesh)
        assert segment.read_bytes()[position] != bad
