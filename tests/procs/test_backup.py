"""Backups of real brokers under load, restored elsewhere: the log at the cut, and everything that follows from it."""

import json
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tern_store.backup_note import BackupNote, read_backup, read_under_way
from tern_store.files import REAL_FILES
from tests.support.files.shared_log import shared_parts
from tests.support.mesh.mesh import SEGMENT_SIZE_BYTES, Mesh, eventually, free_port_base, kept_up, running_mesh

TOPIC = "ledger"
BATCH, BODY_SIZE_BYTES, FIRST_BATCHES = 100, 4_000, 50
READ_PAGE = 500
MEMBERS = [f"broker-a-{number}" for number in range(3)]


def keyed(number: int) -> dict[str, Any]:
    """A message that says which one it is, and is stored once."""
    return {"body": f"{number:08d}" * (BODY_SIZE_BYTES // 8), "idempotency_key": f"once-{number}"}


class Sender:
    """Sends keyed batches and remembers what was acknowledged. Owner: one thread at a time."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh, self._next = mesh, 0
        # Queue and offset -> number of the message.
        self.acked: dict[tuple[str, int], int] = {}

    def send(self) -> None:
        """One batch; what is not acknowledged is not counted."""
        numbers = range(self._next, self._next + BATCH)
        self._next += BATCH
        try:
            reply = self._mesh.call(
                "POST", f"/v1/topics/{TOPIC}/messages/batch", json={"messages": [keyed(number) for number in numbers]}
            )
        except httpx.TransportError:
            return
        if reply.status_code in (200, 201, 207):
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


def stored(mesh: Mesh) -> dict[tuple[str, int], str]:
    """Every body in the topic, by queue and offset."""
    found: dict[tuple[str, int], str] = {}
    for queue in mesh.settled("GET", f"/v1/topics/{TOPIC}/offsets").json()["queues"]:
        at = queue["min_offset"]
        while at < queue["max_offset"]:
            path = f"/v1/topics/{TOPIC}/queues/{queue['queue']}/messages?offset={at}&max_messages={READ_PAGE}"
            page = mesh.settled("GET", path, within_s=30)
            found |= {(message["queue"], message["offset"]): message["body"] for message in page.json()["messages"]}
            at = int(page.headers["mq-next-offset"])
    return found


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`ternmq ARGUMENTS`."""
    command = [sys.executable, "-m", "tern_cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def require_clean(directory: Path) -> None:
    """`ternmq store verify` finds nothing in *directory*."""
    assert json.loads(run("store", "verify", "--data-dir", str(directory), "-o", "json").stdout)["findings"] == []


def log_bytes(directory: Path, note: BackupNote) -> bytes:
    """The log in *directory* from the beginning of the backup up to its cut."""
    size, found = note.group.segment_size_bytes, b""
    for base in range(note.manifest.start.position, note.cut.position, size):
        segment = directory / "commitlog" / f"{base:020d}"
        found += b"".join(shared_parts(segment, min(size, note.cut.position - base)))
    return found


@contextmanager
def restored_mesh(backup: Path, directory: Path) -> Iterator[Mesh]:
    """The backup in a mesh of its own; the one that it was made of is down."""
    again = Mesh(directory, port_base=free_port_base(random.Random()))
    done = run("restore", str(backup), "--dir", str(directory), "-o", "json")
    restored = json.loads(done.stdout)
    assert sorted(restored["nodes"]) == MEMBERS
    require_clean(directory / "data" / MEMBERS[-1])
    with kept_up(again):
        yield again


def test_a_backup_under_load_is_the_log_at_its_cut_and_serves_elsewhere(tmp_path: Path) -> None:
    """All that was acknowledged before it began is in it; the restored mesh serves it, takes more, and knows the keys of before."""
    with running_mesh(tmp_path / "mesh", "--brokers", "3") as mesh:
        mesh.create(TOPIC, queues=2)
        sender = Sender(mesh)
        for _ in range(FIRST_BATCHES):
            sender.send()
        with sender.sending():
            before = dict(sender.acked)
            done = mesh.run("backup", str(tmp_path / "backup"), "--rate-max-mib-s", "16", "-o", "json")
            eventually(lambda: len(sender.acked) > len(before), within_s=30, what="sends went on")
        facts = json.loads(done.stdout)
        leader = mesh.leader()
        behind = mesh.broker(leader)["last_index"]
        mesh.down()
        note = read_backup(tmp_path / "backup", REAL_FILES)
        assert facts["cut"] == [note.cut.index, note.cut.position, note.cut.crc, note.cut.term]
        assert behind > note.cut.index, "the log grew while it was copied, and the cut did not"
        require_clean(tmp_path / "backup")
        expected = log_bytes(tmp_path / "mesh" / "data" / leader, note)
        assert expected and log_bytes(tmp_path / "backup", note) == expected

        with restored_mesh(tmp_path / "backup", tmp_path / "again") as again:
            assert log_bytes(tmp_path / "again" / "data" / MEMBERS[0], note) == expected
            found = stored(again)
            assert {place: found.get(place) for place in before} == {
                place: keyed(number)["body"] for place, number in before.items()
            }
            (place, number) = next(iter(before.items()))
            path = f"/v1/topics/{TOPIC}/messages/batch"
            replayed, new = again.settled("POST", path, json={"messages": [keyed(number), {"body": "new"}]}).json()[
                "results"
            ]
            assert ((replayed["queue"], replayed["offset"]), replayed["replayed"]) == (place, True)
            assert (new["queue"], new["offset"]) not in found
            members = eventually(
                lambda: [again.broker(name)["standing"] for name in MEMBERS] if all(map(again.broker, MEMBERS)) else [],
                within_s=30,
                what="all answer",
            )
            assert members == ["member"] * 3


def test_a_leader_that_dies_under_a_backup_changes_neither_its_cut_nor_what_is_in_it(tmp_path: Path) -> None:
    """The command goes on at the next leader, where it was."""
    with running_mesh(tmp_path / "mesh", "--brokers", "3") as mesh:
        mesh.create(TOPIC, queues=2)
        sender = Sender(mesh)
        for _ in range(FIRST_BATCHES):
            sender.send()
        leader, backup = mesh.leader(), tmp_path / "backup"
        words = ["backup", str(backup), "--rate-max-mib-s", "4", "--data-dir", str(tmp_path / "mesh")]
        with subprocess.Popen([sys.executable, "-m", "tern_cli", *words], stdout=subprocess.PIPE) as command:
            eventually(lambda: [*backup.glob("commitlog/*.incoming")], within_s=20, what="the copy has begun")
            begun = read_under_way(backup, REAL_FILES)
            assert begun is not None
            mesh.kill(leader)
            with sender.sending():
                assert command.wait(60) == 0
        note = read_backup(backup, REAL_FILES)
        assert note.cut == begun.cut
        eventually(lambda: mesh.broker(leader).get("applied_index", 0) > note.cut.index, within_s=30, what="it is back")
        mesh.down()
        require_clean(backup)
        for name in MEMBERS:
            assert log_bytes(backup, note) == log_bytes(tmp_path / "mesh" / "data" / name, note)


def test_a_log_without_its_beginning_is_restored_with_all_that_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made before the part that retention has dropped is in the state at the log's start, and in tables beside it."""
    monkeypatch.setenv("TERN_BROKER_RETENTION_BYTES", str(SEGMENT_SIZE_BYTES))
    with running_mesh(tmp_path / "mesh", "--brokers", "3") as mesh:
        mesh.create(TOPIC, group="readers", queues=1)
        headers = {"Idempotency-Key": "the first"}
        first = mesh.settled("POST", f"/v1/topics/{TOPIC}/messages", content=b"first", headers=headers).json()
        got = mesh.settled(
            "POST", f"/v1/topics/{TOPIC}/groups/readers/receive", json={"max_messages": 1, "wait": "5s"}
        ).json()["messages"]
        handles = {"receipt_handles": [message["receipt_handle"] for message in got]}
        assert mesh.settled("POST", f"/v1/topics/{TOPIC}/groups/readers/ack", json=handles).json()["failed"] == 0
        mesh.settled("POST", f"/v1/topics/{TOPIC}/messages?delay=1h", content=b"later")
        grant = {"effect": "allow", "kind": "topic", "pattern": TOPIC, "actions": ["PUB"]}
        assert mesh.settled("PUT", "/v1/principals/shop", json={"grants": [grant]}).status_code == 201
        opened = mesh.settled(
            "POST", f"/v1/topics/{TOPIC}/transactions", content=b"half", headers={"MQ-Producer-Group": "shop"}
        )
        assert opened.status_code == 201, opened.text
        messages = [{"body": "x" * 60_000} for _ in range(20)]
        for _ in range(4 * SEGMENT_SIZE_BYTES // (60_000 * 20)):
            mesh.settled("POST", f"/v1/topics/{TOPIC}/messages/batch", json={"messages": messages})
        mesh.client.post(mesh.broker_http(mesh.leader()) + "/v1/broker/trim")
        eventually(lambda: mesh.broker(mesh.leader())["log_first_index"] > 1, within_s=30, what="the log is trimmed")
        offsets_path = f"/v1/groups/readers/offsets?topic={TOPIC}"
        offsets = mesh.settled("GET", offsets_path).json()
        mesh.run("backup", str(tmp_path / "backup"), "--rate-max-mib-s", "512")
        mesh.down()
        note = read_backup(tmp_path / "backup", REAL_FILES)
        assert note.manifest.start.index > 1
        require_clean(tmp_path / "backup")
        # Transaction ids and receipt handles are sealed with it, and a backup does not hold it.
        (tmp_path / "again").mkdir()
        shutil.copy(tmp_path / "mesh" / "cluster.key", tmp_path / "again")

        with restored_mesh(tmp_path / "backup", tmp_path / "again") as again:
            repeated = again.settled("POST", f"/v1/topics/{TOPIC}/messages", content=b"first", headers=headers)
            assert (repeated.headers["Idempotency-Replayed"], repeated.json()["offset"]) == ("true", first["offset"])
            scheduled = again.settled("GET", f"/v1/topics/{TOPIC}/scheduled").json()
            assert len(scheduled["messages"]) == 1
            assert again.settled("GET", offsets_path).json() == offsets
            assert again.settled("GET", "/v1/principals/shop").json()["grants"] == [grant]
            transaction = opened.json()["transaction_id"]
            found = again.settled("GET", f"/v1/transactions/{transaction}").json()
            assert found.get("state") == "open", found
            committed = again.settled("POST", f"/v1/transactions/{transaction}/commit")
            assert committed.status_code == 200, committed.text
