"""Three real checkers, two of them killed with SIGKILL while producers answer: nothing is left open, and no attempt is asked more than twice."""

import itertools
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx

from tern_wire.paths import CHECKER_PATH
from tests.support.checker.counting_producer import CountingProducer
from tests.support.checker.scripted_producer import SECRET
from tests.support.mesh.mesh import Mesh, eventually, running_mesh

# The slack is what a busy machine may add; a claim that nobody takes over after a checker's death would cost a minute.
CHECK_AFTER_S, INTERVAL_S, SLACK_S = 3, 3, 15
CLAIM_MS, TIMEOUT_MS = 2_000, 800
TRANSACTIONS, PRODUCERS, CHECKERS = 240, 3, 3
ANSWER_S = 0.1
# A process, and the address of its HTTP port.
Running = tuple[subprocess.Popen[bytes], str]


@contextmanager
def checkers(mesh: Mesh) -> Iterator[list[Running]]:
    """CHECKERS processes that nobody restarts, each with the address of its HTTP port; they have found the leader."""
    running: list[Running] = []
    try:
        running += [_checker(mesh, number) for number in range(CHECKERS)]
        for _, address in running:
            eventually(partial(_status, address), within_s=20, what=f"{address} has found the leader")
        yield running
    finally:
        for process, _ in running:
            process.kill()
            process.wait()


def _checker(mesh: Mesh, number: int) -> Running:
    port = mesh.port_base + 80 + number
    options = {
        "namesrv": mesh.namesrv,
        "cluster": "tern",
        "cluster-key-file": str(mesh.directory / "cluster.key"),
        "port": str(port),
        "name": f"own-{number}",
        "check-hosts": "127.0.0.1",
        "claim-ms": str(CLAIM_MS),
        "route-interval-ms": "1000",
    }
    flat = itertools.chain.from_iterable((f"--{name}", value) for name, value in options.items())
    log = (mesh.directory / "logs" / f"own-checker-{number}.log").open("wb")
    with log:
        process = subprocess.Popen([sys.executable, "-P", "-m", "tern_txn_checker", *flat], stdout=log, stderr=log)
    return process, f"http://127.0.0.1:{port}"


def _status(address: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = httpx.get(address + CHECKER_PATH, timeout=2, trust_env=False).json()
    except (httpx.TransportError, json.JSONDecodeError):
        return {}
    return found if all(found["leaders"].values()) else {}


def begin(mesh: Mesh, urls: list[str]) -> list[str]:
    """TRANSACTIONS open ones, whose producer groups are asked at *urls* in turn; their ids."""
    mesh.create("checked", "checked")
    mesh.settled("PUT", "/v1/topics/checked-tx", json={"queues": 4, "type": "TRANSACTION"})
    for number, url in enumerate(urls):
        settings = {
            "check_url": url,
            "check_secret": SECRET,
            "timeout": f"{TIMEOUT_MS}ms",
            "check_after": f"{CHECK_AFTER_S}s",
            "check_interval": f"{INTERVAL_S}s",
        }
        assert mesh.settled("PUT", f"/v1/producer-groups/app-{number}", json=settings).status_code == 201

    def begin_one(number: int) -> str:
        headers = {"MQ-Producer-Group": f"app-{number % len(urls)}", "Idempotency-Key": f"checked-{number}"}
        answer = mesh.settled("POST", "/v1/topics/checked-tx/transactions", content=b"%d" % number, headers=headers)
        assert answer.status_code in {200, 201}, answer.text
        return str(answer.json()["transaction_id"])

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(begin_one, range(TRANSACTIONS)))


def is_unsure(transaction_id: str, attempt: int) -> bool:
    """Whether a producer cannot say yet: one transaction in four, when it is asked first."""
    return attempt == 1 and crc32(transaction_id.encode()) % 4 == 0


def two_that_hold(running: list[Running]) -> list[tuple[Running, int]]:
    """Two of them that hold checks and have called, and how many they hold; nothing while there are no two."""
    held = [(one, _status(one[1])) for one in running]
    found = [(one, int(status["held"])) for one, status in held if status.get("held") and status.get("under_way")]
    return found[:2] if len(found) >= 2 else []


def test_two_of_three_checkers_die_in_the_middle_of_their_checks(tmp_path: Path) -> None:
    """Every transaction is resolved within its time, an interval and some seconds, those that were unknown when they were asked first one interval later."""
    producer = CountingProducer(
        lambda data: "unknown" if is_unsure(data["transaction_id"], data["attempt"]) else "commit", delay_s=ANSWER_S
    )
    with (
        running_mesh(tmp_path / "tern", "--checkers", "0") as mesh,
        producer.serving(PRODUCERS) as urls,
        checkers(mesh) as running,
    ):
        begun = begin(mesh, urls)
        chosen = eventually(lambda: two_that_hold(running), within_s=30, what="two have checks")
        for (process, _), _ in chosen:
            process.send_signal(signal.SIGKILL)
        dying = producer.under_way
        assert all(process.wait() == -signal.SIGKILL for (process, _), _ in chosen)

        def open_ones() -> int:
            answers = [mesh.settled("GET", f"/v1/producer-groups/app-{n}").json() for n in range(PRODUCERS)]
            return sum(answer["stats"]["open"] for answer in answers)

        eventually(lambda: open_ones() == 0, within_s=60, what="all are resolved")
        found = [mesh.settled("GET", f"/v1/transactions/{one}").json() for one in begun]
    assert Counter(one["state"] for one in found) == {"committed": TRANSACTIONS}
    took_s = {one["transaction_id"]: (one["ended_at"] - one["begun_at"]) / 1_000 for one in found}
    unsure_s = sorted(took for one, took in took_s.items() if is_unsure(one, 1))
    sure_s = sorted(took for one, took in took_s.items() if not is_unsure(one, 1))
    bar_s = CHECK_AFTER_S + INTERVAL_S + SLACK_S
    twice = sum(count == 2 for count in producer.asked.values())
    figures = {
        "held_by_the_killed": [held for _, held in chosen],
        "callbacks_under_way": dying,
        "callbacks": producer.asked.total(),
        "attempts": len(producer.asked),
        "asked_twice": twice,
        "callbacks_of_one_attempt_max": max(producer.asked.values()),
        "resolved_after_s": {"p50": sure_s[len(sure_s) // 2], "max": sure_s[-1], "bar": bar_s},
        "unsure_resolved_after_s": {
            "p50": unsure_s[len(unsure_s) // 2],
            "max": unsure_s[-1],
            "bar": bar_s + INTERVAL_S,
        },
    }
    print(json.dumps(figures))
    assert max(producer.asked.values()) <= 2
    assert sure_s[-1] <= bar_s
    assert unsure_s[-1] <= bar_s + INTERVAL_S
