"""The simulator on every commit: seeds that once found something, a number of fresh ones, and that a seed means the same everywhere.

TERN_SIM_SEEDS sets how many fresh seeds run, TERN_SIM_FIRST the first of them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.campaigns import campaign, cases

ROOT = Path(__file__).resolve().parents[2]
SEEDS = int(os.environ.get("TERN_SIM_SEEDS", str(cases(20, 8))))
# One of so many seeds of the corpus.
CORPUS_EVERY = cases(1, 3)
FIRST = int(os.environ.get("TERN_SIM_FIRST", "1000"))
# A seed takes about a second of a core: this is a hang, on however slow and busy a machine.
TIMEOUT_S = 300 + 15 * SEEDS


def simulate(*options: object, hash_seed: int = 0) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own."""
    command = [sys.executable, "-m", "tests.sim", *map(str, options)]
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@campaign
@pytest.mark.timeout(TIMEOUT_S)
def test_seeds_that_once_found_something_find_nothing_now() -> None:
    """Past failures stay past: corpus.json says what each of them was."""
    done = simulate("--corpus", "--every", CORPUS_EVERY)
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-2000:]}"


@campaign
@pytest.mark.timeout(TIMEOUT_S)
def test_nothing_is_lost_reordered_doubled_or_stuck_in_many_worlds() -> None:
    """Fresh seeds: no violation, none stuck, enough operations and faults of every kind; the last line says so as JSON."""
    done = simulate("--first", FIRST, "--seeds", SEEDS)
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-2000:]}"
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["seeds"], summary["violations"], summary["stuck"]) == (SEEDS, 0, 0)


@pytest.mark.parametrize("seed", [15, 27])
def test_a_seed_means_the_same_in_two_processes(seed: int) -> None:
    """The hash of everything that was asked, answered and broken is equal, whatever salt strings are hashed with."""
    found = []
    for hash_seed in (1, 2):
        done = simulate("--seed", seed, "--quiet", hash_seed=hash_seed)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    one, two = ({name: facts[name] for name in ("hash", "events", "operations", "faults")} for facts in found)
    assert one == two
    assert one["operations"] > 500, "a run in which nothing happens is the same everywhere"
