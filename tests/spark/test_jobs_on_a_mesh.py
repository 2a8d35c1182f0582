"""Every job against a mesh of real processes, without Spark: what their inputs really look like."""

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the spark extra is not installed")

from typer.testing import CliRunner

from tern_cli.app import app
from tern_client import (
    BlockingAdmin,
    BlockingProducer,
    BlockingTransactionProducer,
    HalfMessage,
    OutgoingMessage,
)
from tests.support.client.job_runs import Ended, run
from tests.support.client.record_server import Script
from tests.support.mesh.mesh import Mesh, running_mesh

pytestmark = pytest.mark.timeout(300)
MESSAGES = 3_000


def post(url: str, document: object) -> Any:
    """POST JSON."""
    request = urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """3,000 messages with tags in four queues, five dead letters, and an open transaction."""
    with running_mesh(tmp_path_factory.mktemp("mesh") / "mesh", "--wait", "80") as made:
        with BlockingAdmin(made.endpoint) as admin, BlockingProducer(made.endpoint) as producer:
            admin.create_topic("orders", 4, type="MIXED")
            admin.create_group("billing")
            for first in range(0, MESSAGES, 1_000):
                producer.send_batch(
                    "orders",
                    [
                        OutgoingMessage(body=b"order %d" % at, tag=("red", "blue")[at % 2], properties={"at": str(at)})
                        for at in range(first, first + 1_000)
                    ],
                )
            of_group = f"{made.endpoint}/v1/topics/orders/groups/billing"
            got = post(f"{of_group}/receive", {"max_messages": 5, "wait": "10s"})["messages"]
            entries = [
                {"receipt_handle": one["receipt_handle"], "action": "dead_letter", "reason": "no such shop"}
                for one in got
            ]
            post(f"{of_group}/settle", {"entries": entries})
            deadline = time.monotonic() + 30
            while len(admin.dead_letters("billing")["messages"]) < len(got) and time.monotonic() < deadline:
                time.sleep(0.05)
        with BlockingTransactionProducer(made.endpoint, "shop") as paying:
            paying.begin(HalfMessage(topic="orders", body=b"paid"))
        yield made


def ended(mesh: Mesh, name: str, *arguments: str) -> Ended:
    """A job against the mesh."""
    return run(name, Script(queues={}, url=mesh.endpoint), *arguments)


def test_an_archive_of_a_real_topic_holds(mesh: Mesh, tmp_path: Path) -> None:
    """Half messages are in no queue, so the archive has exactly what was sent, and a second run finds nothing new."""
    to = str(tmp_path / "archive")
    written = ended(mesh, "archive", "--topics", "orders", "--to", to, "--rows-per-file", "500")
    assert (written.code, written.facts["rows"]) == (0, MESSAGES), written.stderr
    proof = ended(mesh, "verify", "--archive", to)
    assert (proof.code, proof.facts["compared rows"]) == (0, MESSAGES), proof.faults
    assert ended(mesh, "archive", "--topics", "orders", "--to", to).facts["rows"] == 0


def test_a_replay_has_the_same_messages_again(mesh: Mesh, tmp_path: Path) -> None:
    """From the archive in small batches, and from the brokers by tag; the archive of what it wrote is equal. Run again, it
    sends nothing.
    """
    with BlockingAdmin(mesh.endpoint) as admin:
        admin.create_topic("orders-again", 3)
        admin.create_topic("red-again", 2)
    to, copy = str(tmp_path / "archive"), str(tmp_path / "copy")
    assert ended(mesh, "archive", "--topics", "orders", "--to", to, "--rows-per-file", "400").code == 0
    given = ("--archive", to, "--to", "orders-again", "--batch-rows", "700")
    done = ended(mesh, "replay", *given)
    assert (done.code, done.facts["rows"], done.facts["batches"]) == (0, MESSAGES, 5), done.stderr
    assert ended(mesh, "replay", *given).facts["rows"] == 0
    assert ended(mesh, "archive", "--topics", "orders-again", "--to", copy).facts["rows"] == MESSAGES
    proof = ended(mesh, "verify", "--archive", to, "--copy", copy)
    assert (proof.code, proof.faults) == (0, []), proof.stderr

    from_brokers = ("--from-topics", "orders", "--filter", "red", "--state", str(tmp_path), "--to", "red-again")
    chosen = ended(mesh, "replay", *from_brokers)
    assert (chosen.code, chosen.facts["rows"]) == (0, MESSAGES // 2), chosen.stderr
    assert ended(mesh, "replay", *from_brokers).facts["rows"] == 0
    later = str(int(time.time() * 1_000) + 3_600_000)
    none = ended(mesh, "replay", *from_brokers[:-2], "--since", later, "--to", "red-again")
    assert (none.code, none.facts["rows"]) == (0, 0), none.stderr


def test_a_rollup_counts_every_message_by_tag(mesh: Mesh) -> None:
    """Half of them red."""
    found = ended(mesh, "rollup", "--topics", "orders")
    rows = found.result["tables"][0]["rows"]
    assert found.code == 0
    assert sum(row["messages"] for row in rows if row["tag"] == "red") == MESSAGES // 2
    assert all(0 <= row["p50 ms"] <= row["p99 ms"] <= row["max ms"] for row in rows)


def test_lag_is_that_of_the_group(mesh: Mesh) -> None:
    """Five of the messages are settled; two samples; too far behind for a limit of 10."""
    found = ended(mesh, "lag", "--samples", "2", "--every", "100ms")
    assert found.code == 0, found.stderr
    (row,) = [row for row in found.result["tables"][0]["rows"] if row["group"] == "billing"]
    assert (row["topic"], row["queues"], row["lag"], row["in per s"]) == ("orders", 4, MESSAGES - 5, 0.0)
    assert found.facts["dead letters"] == 5
    assert ended(mesh, "lag", "--groups", "billing", "--samples", "1", "--lag-max", "10").code == 1


def test_dead_letters_have_their_cause_and_can_be_redriven_by_the_list(mesh: Mesh, tmp_path: Path) -> None:
    """One row of five letters; the command takes the file."""
    file = tmp_path / "letters.ndjson"
    found = ended(mesh, "dlq", "--groups", "billing", "--redrive", str(file), "--letters-max", "4")
    assert found.code == 1, found.stderr
    (row,) = found.result["tables"][0]["rows"]
    assert (row["cause"], row["topic"], row["reason"], row["letters"]) == ("rejected", "orders", "no such shop", 5)
    assert row["sample"].startswith("order ")
    command = ["ternmq", "dlq", "redrive", "--file", str(file), "--endpoint", mesh.endpoint, "-o", "json"]
    with BlockingAdmin(mesh.endpoint) as admin:
        for flags, left in ((["--dry-run"], 5), ([], 0)):
            told = CliRunner().invoke(app, [*command[1:], *flags])
            assert told.exit_code == 0, told.output
            task = json.loads(told.stdout)
            assert (task["state"], task["total"], task["dry_run"]) == ("done", 5, bool(left))
            assert len(admin.dead_letters("billing")["messages"]) == left


def test_an_open_transaction_is_listed_under_its_producer_group(mesh: Mesh) -> None:
    """Open, and slow where 0 ms are."""
    found = ended(mesh, "transactions", "--slow", "0ms")
    assert (found.code, found.facts) == (0, {"open": 1, "slow": 1, "expired": 0}), found.stderr
    assert found.result["tables"][0]["rows"][0]["producer group"] == "shop"
    assert ended(mesh, "transactions", "--slow", "0ms", "--slow-max", "0").code == 1
