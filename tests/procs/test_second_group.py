"""A second broker group joins a running mesh, and a topic moves there, under load: nothing is stored twice, lost or overtaken."""

import random
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.mesh.mesh import Mesh, eventually, running_mesh
from tests.support.mesh.second_group import BROKER_GROUP, second_group

MESSAGE_GROUPS, SENDERS = 24, 3


class Load:
    """Keyed messages, some of them sent again through the other proxy, and ordered messages, one after the other in each message group."""

    def __init__(self, mesh: Mesh, topic: str, seed: int) -> None:
        self.mesh, self.topic, self.rng = mesh, topic, random.Random(seed)
        # Senders end with the first, receivers with the second.
        self.stop, self.is_over = threading.Event(), threading.Event()
        # Key -> where its first receipt says that it is.
        self.receipts: dict[str, tuple[str, int]] = {}
        self.twice: list[str] = []
        self.sent: dict[str, int] = defaultdict(int)
        self.received: dict[str, list[int]] = defaultdict(list)
        # Of ordered messages.
        self.places: dict[str, set[str]] = defaultdict(set)
        self.lock = threading.Lock()

    def keyed(self, number: int) -> None:
        """Until stopped: a new key, and an old one again."""
        with httpx.Client(timeout=30, trust_env=False) as client:
            for n in count():
                if self.stop.is_set():
                    return
                for key in (f"key-{number}-{n}", f"key-{number}-{self.rng.randrange(max(0, n - 300), n + 1)}"):
                    self._take(key, self._send(client, self.rng.randrange(2), headers={"Idempotency-Key": key}))

    def ordered(self, number: int) -> None:
        """Until stopped: the next message of each of this sender's message groups."""
        names = [f"group-{each}" for each in range(MESSAGE_GROUPS) if each % SENDERS == number]
        with httpx.Client(timeout=30, trust_env=False) as client:
            while not self.stop.is_set():
                for name in names:
                    # With a key, so that one whose outcome is not known is sent again.
                    headers = {"MQ-Message-Group": name, "Idempotency-Key": f"{name}-{self.sent[name]}"}
                    body = f"{name} {self.sent[name]}"
                    receipt = self._send(client, self.rng.randrange(2), headers=headers, body=body)
                    self.places[name].add(receipt["queue"].partition(":")[0])
                    self.sent[name] += 1

    def receive(self) -> None:
        """Until stopped and drained: what the group gets, in the order in which it gets it."""
        path = f"{self.mesh.endpoint}/v1/topics/{self.topic}/groups/readers"
        with httpx.Client(timeout=30, trust_env=False) as client:
            while not self.is_over.is_set():
                answer = client.post(f"{path}/receive", json={"max_messages": 32, "wait": "200ms"})
                messages = answer.json()["messages"] if answer.status_code == 200 else []
                for message in messages:
                    if message.get("message_group"):
                        name, number = str(message["body"]).split()
                        self.received[name].append(int(number))
                if messages:
                    handles = [message["receipt_handle"] for message in messages]
                    client.post(f"{path}/ack", json={"receipt_handles": handles})

    def is_drained(self) -> bool:
        """Whether every ordered message was received."""
        return all(len(set(self.received[name])) >= sent for name, sent in self.sent.items())

    def _send(self, client: httpx.Client, proxy: int, *, headers: dict[str, str], body: str = "x") -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.mesh.port_base + proxy}/v1/topics/{self.topic}/messages"

        refused: list[str] = []

        def attempt() -> dict[str, Any] | None:
            answer = client.post(url, content=body.encode(), headers=headers)
            assert answer.status_code in {200, 201, 503, 504}, answer.text
            refused.append(answer.text)
            return answer.json() if answer.status_code < 300 else None

        try:
            receipt: dict[str, Any] = eventually(attempt, within_s=20, what=f"{headers} stored")
        except AssertionError as error:
            raise AssertionError(f"{error}: {refused[-1]}") from error
        return receipt

    def _take(self, key: str, receipt: dict[str, Any]) -> None:
        place = (receipt["queue"], receipt["offset"])
        with self.lock:
            if self.receipts.setdefault(key, place) != place:
                self.twice.append(f"{key}: {self.receipts[key]} and {place}")


@contextmanager
def load(mesh: Mesh, topic: str) -> Iterator[Load]:
    """It runs for the length of a block, and is drained at its end."""
    mesh.create(topic, "readers", queues=4)
    mesh.settled("PATCH", "/v1/groups/readers", json={"fifo": True})
    running = Load(mesh, topic, seed=11)
    with ThreadPoolExecutor(2 * SENDERS + 1) as pool:
        senders = [pool.submit(work, number) for number in range(SENDERS) for work in (running.keyed, running.ordered)]
        receiver = pool.submit(running.receive)
        try:
            yield running
            running.stop.set()
            for task in senders:
                task.result(timeout=60)
            eventually(running.is_drained, within_s=60, what="all ordered messages received")
        finally:
            running.stop.set()
            running.is_over.set()
            # What a thread has met says more than what the block missed because of it.
            for task in (*senders, receiver):
                task.result(timeout=60)


def _has_moved(running: Load, broker_group: str) -> bool:
    keyed = sum(queue.startswith(broker_group) for queue, _ in list(running.receipts.values()))
    ordered = sum(broker_group in places for places in list(running.places.values()))
    return keyed >= 40 and ordered >= MESSAGE_GROUPS // 4


def command(mesh: Mesh, *arguments: str) -> None:
    """`ternmq ARGUMENTS` for this mesh, which succeeds."""
    line = [sys.executable, "-m", "tern_cli", *arguments, "--endpoint", mesh.endpoint]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("broker-group join broker-b", ["broker-a", "broker-b"]),
        ("topic place orders --broker-group broker-b", ["broker-b"]),
    ],
    ids=["grows", "moves"],
)
def test_a_topic_goes_to_a_second_broker_group_under_load(tmp_path: Path, line: str, wanted: list[str]) -> None:
    """Every key has one place, every message group its order, also those that were sent again or went over in the middle."""
    with (
        running_mesh(tmp_path, "--proxies", "2") as mesh,
        second_group(mesh) as second,
        load(mesh, "orders") as running,
    ):
        eventually(lambda: len(running.receipts) > 100, within_s=30, what="load")
        assert {queue.partition(":")[0] for queue, _ in running.receipts.values()} == {"broker-a"}
        second.start()
        before = mesh.settled("GET", "/v1/topics/orders/placement").json()
        assert (before["broker_groups"], before["hosts"]) == (["broker-a"], ["broker-a"]), "it grows when told to"
        command(mesh, *line.split())
        placed = mesh.settled("GET", "/v1/topics/orders/placement").json()
        assert (placed["broker_groups"], placed["is_moving"], placed["before"]) == (wanted, True, ["broker-a"])
        assert mesh.settled("GET", "/v1/groups/readers").json()["fifo"], "it came with its settings"
        again = mesh.settled("PUT", "/v1/topics/orders/placement", json={"broker_groups": wanted}).json()
        assert (again["changed"], again["is_moving"]) == (False, True)
        assert "idempotency keys" in again["left"]
        eventually(partial(_has_moved, running, BROKER_GROUP), within_s=60, what="keys and message groups went over")
    assert not running.twice
    for group, numbers in running.received.items():
        assert sorted(set(numbers)) == list(range(running.sent[group])), f"{group} lost some"
        firsts = list(dict.fromkeys(numbers))
        assert firsts == sorted(firsts), f"{group} was overtaken: {firsts}"
