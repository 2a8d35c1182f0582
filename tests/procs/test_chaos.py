"""Chaos in small: the most important scenarios of tests/chaos with a trial or two each; what is lost, not how fast, is judged here."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

SENDERS = "4"


def chaos(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """The report of one run; its progress and the logs of its processes are shown when it fails."""
    seed = str(random.randrange(1 << 31))
    command = [sys.executable, "-m", "tests.chaos", *arguments, "--seed", seed, "--senders", SENDERS, "--no-bars"]
    done = subprocess.run([*command, "--dir", str(tmp_path)], capture_output=True, text=True, timeout=280, check=False)
    print(f"seed {seed}\n{done.stderr}")
    assert done.returncode == 0, done.stdout
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    figures = report["figures"]
    assert figures["read_back"]["read"] == figures["acked"] == figures["consumed"] > 0
    assert figures["violations"] == 0
    assert figures["log_bytes_compared"] > 0
    assert not any(tmp_path.iterdir()), "something was left behind"
    return report


def test_a_killed_leader_loses_nothing(tmp_path: Path) -> None:
    """kill -9 under load: sends go on, everything acknowledged is where its receipt says, the logs are equal byte by byte."""
    report = chaos(tmp_path, "kill-leader", "--trials", "1")
    assert len(report["trials"]) == 1


def test_a_woken_leader_acknowledges_nothing_stale(tmp_path: Path) -> None:
    """SIGSTOP for 2 seconds, with a proxy that still believes in it when both wake."""
    report = chaos(tmp_path, "pause-leader", "--trials", "1", "--fault-s", "2")
    assert report["trials"][0]["stood_s"] > 0


def test_a_leader_alone_refuses_and_the_others_go_on(tmp_path: Path) -> None:
    """Cut off by relays, which need no privileges: another one serves, and healed all are equal again."""
    report = chaos(tmp_path, "partition", "--trials", "1", "--fault-s", "3", "--network", "relays")
    assert report["trials"][0]["next"] != report["trials"][0]["leader"]


def test_money_is_neither_lost_nor_made(tmp_path: Path) -> None:
    """Producers, the txn-checker and the leader are killed while two banks transfer: their books agree, message by message."""
    transfers = chaos(tmp_path, "transfer", "--trials", "1")["figures"]["transfers"]
    assert transfers["debited"] == transfers["messages"] > 0
    assert sum(transfers["producers_killed"].values()) == 2
    assert transfers["checks"] > 0
