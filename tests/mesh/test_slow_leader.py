"""A leader that gets nothing committed: what waits for too long makes further sends `overloaded`; what was taken is stored, what was refused is not."""

import itertools
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.mesh.mesh import Mesh, eventually, running_mesh

# An entry is a MiB, and so is a flight of a proxy, of which each has two.
BODY_SIZE_BYTES = 900 << 10
BUSY_PROXIES, SENDERS = (0, 1), 4
FRESH_PROXY = 2
# Longer than the queue may be old, much shorter than the leader believes in itself.
PATIENCE_S = 0.4
LAST = 99_999_999
SEND = "/v1/topics/slow/messages"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """Its leader believes in itself for four seconds without its followers, so that nothing but the age of the queue can refuse a send."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TERN_BROKER_ELECTION_MIN_MS", "4000")
        environment.setenv("TERN_BROKER_ELECTION_MAX_MS", "5000")
        with running_mesh(tmp_path_factory.mktemp("mesh") / "tern", "--proxies", "3", "--wait", "60") as running:
            yield running


def send(mesh: Mesh, number: int, proxy: int, timeout_s: float) -> httpx.Response | None:
    """One large message; None when there is no answer in time."""
    try:
        with httpx.Client(timeout=timeout_s, trust_env=False) as client:
            url = f"http://127.0.0.1:{mesh.port_base + proxy}{SEND}"
            return client.post(url, content=b"%08d" % number + b"x" * BODY_SIZE_BYTES)
    except httpx.TimeoutException:
        return None


def are_waiting(mesh: Mesh) -> bool:
    """Whether every busy proxy has sends behind its flights."""
    metrics = [
        mesh.client.get(f"http://127.0.0.1:{mesh.port_base + proxy}/metrics").text.splitlines()
        for proxy in BUSY_PROXIES
    ]
    lane = 'ternmq_proxy_lane_waiting{of="broker-a/send"} '
    return all(any(line.startswith(lane) and float(line[len(lane) :]) > 0 for line in lines) for lines in metrics)


class Course:
    """One test's sends: which were accepted, and of which nobody knows."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._numbers = itertools.count()
        self.accepted: set[int] = set()
        self.unknown: set[int] = set()

    def send(self, proxy: int, timeout_s: float) -> httpx.Response | None:
        """One message of the next number."""
        number = next(self._numbers)
        answer = send(self._mesh, number, proxy, timeout_s)
        if answer is not None and answer.status_code == 201:
            self.accepted.add(number)
        elif answer is None or answer.status_code == 504:
            self.unknown.add(number)
        else:
            assert answer.status_code == 503, answer.text
        return answer

    def hang(self) -> httpx.Response | None:
        """The followers hang while proxies send, until another proxy has sent twice; the answer to its second send, if it is in time."""
        mesh, leader = self._mesh, self._mesh.leader()
        followers = [mesh.pid(name) for name in mesh.brokers() if name != leader]
        with ThreadPoolExecutor(len(BUSY_PROXIES) * SENDERS) as pool:
            for pid in followers:
                os.kill(pid, signal.SIGSTOP)
            try:
                busy = [pool.submit(self.send, proxy, 60) for proxy in BUSY_PROXIES for _ in range(SENDERS)]
                eventually(
                    lambda: are_waiting(mesh) or all(sent.done() for sent in busy), within_s=60, what="sends that wait"
                )
                # Too soon to be refused, perhaps: it waits as well, and by then the queue is too old.
                self.send(FRESH_PROXY, PATIENCE_S)
                answer = self.send(FRESH_PROXY, PATIENCE_S)
            finally:
                for pid in followers:
                    os.kill(pid, signal.SIGCONT)
            for sent in busy:
                sent.result(timeout=60)
        return answer if answer is not None and answer.json()["code"] == "overloaded" else None


@pytest.mark.calm
def test_sends_behind_a_queue_that_is_too_old_are_overloaded_with_a_pause(mesh: Mesh) -> None:
    """503 with Retry-After while the followers hang; awake again they take what waited, and each answer was true."""
    mesh.create("slow", queues=1)
    course = Course(mesh)
    # On a machine that is slower than four seconds the leader gives up before anybody is refused: once more.
    refused: httpx.Response = eventually(course.hang, within_s=100, what="a send that is refused")
    assert (refused.status_code, refused.json()["retryable"]) == (503, True)
    assert "the time that sends wait in broker group 'broker-a'" in refused.json()["detail"]
    assert int(refused.headers["retry-after"]) >= 1
    assert mesh.patient("POST", SEND, content=b"%08d" % LAST).status_code == 201
    stored: list[int] = []
    while LAST not in stored:
        page = mesh.patient("GET", f"/v1/topics/slow/queues/broker-a:0/messages?offset={len(stored)}").json()
        stored += [int(message["body"][:8]) for message in page["messages"]]
    assert course.accepted <= set(stored) <= course.accepted | course.unknown | {LAST}
    assert len(stored) == len(set(stored))
