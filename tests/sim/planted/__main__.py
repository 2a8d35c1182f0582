"""`python -m tests.sim.planted`: each planted bug must be convicted by the simulator, or its green runs mean little.

Every bug runs alone, seed after seed, until one convicts it: a violation, or a group that does not converge ("stuck"). With --effects the
laws of ghosts.py are silent, so that only harm counts (lost, diverged, two leaders, stuck ...). The last line of stdout is JSON. Exit
code 1 when a bug got away, or when the unchanged product is convicted by a seed that convicted a bug.
"""

import argparse
import json
import multiprocessing
import sys
import time
from dataclasses import dataclass

from tests.sim.laws.ghosts import LAWS
from tests.sim.laws.observers import Observers
from tests.sim.planted.broker import BROKER
from tests.sim.planted.delivery import DELIVERY
from tests.sim.planted.planting import changed, quiet
from tests.sim.planted.publications import PUBLICATIONS
from tests.sim.planted.raft import CONSENSUS, RULES
from tests.sim.planted.storage import STORAGE
from tests.sim.planted.transactions import TRANSACTIONS
from tests.sim.seed_run import run_seed

BUGS = (*RULES, *CONSENSUS, *STORAGE, *BROKER, *DELIVERY, *TRANSACTIONS, *PUBLICATIONS)
SEEDS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of one bug: the first seed that convicted it (-1: none did), by whom and why."""

    bug: str
    seed: int
    by: tuple[str, ...]
    why: str
    cpu_s: float


def convict(name: str, first: int = 0, seeds: int = SEEDS, *, effects: bool = False) -> Trial:
    """Run bug *name* on *seeds* seeds from *first* on, until one convicts it; with *effects* by harm alone."""
    bug = next(bug for bug in BUGS if bug.name == name)
    began_s = time.process_time()
    with quiet(), changed((Observers, "muted", LAWS if effects else frozenset())):
        for seed in range(first, first + seeds):
            with bug.plant():
                result = run_seed(seed, swarm=bug.swarm(seed) if bug.swarm is not None else None)
            assert "nodes at {}" not in result.stuck, f"{name} lets no node live: that shows nothing"
            if not result.is_good:
                by = tuple(dict.fromkeys(checker for checker, _ in result.violations)) or ("stuck",)
                why = result.violations[0][1] if result.violations else result.stuck
                return Trial(bug=name, seed=seed, by=by, why=why, cpu_s=time.process_time() - began_s)
    return Trial(bug=name, seed=-1, by=(), why="", cpu_s=time.process_time() - began_s)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.planted", description=__doc__)
    parser.add_argument("names", nargs="*", help="these bugs (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"at most so many each (default {SEEDS})")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--effects", action="store_true", help="the laws between nodes are silent: only harm convicts")
    options = parser.parse_args()
    names = options.names or [bug.name for bug in BUGS]
    jobs = [(name, options.first, options.seeds, options.effects) for name in names]
    expected = {bug.name: bug.convicts for bug in BUGS}
    trials: list[Trial] = []
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
        for trial in pool.imap_unordered(_convict, jobs):
            trials.append(trial)
            if trial.seed < 0:
                print(f"{trial.bug}: NOT CONVICTED by {options.seeds} seeds, {trial.cpu_s:.1f} CPU s", flush=True)
                continue
            note = (
                ""
                if set(trial.by) & {*expected[trial.bug], *LAWS}
                else f" (expected: {', '.join(expected[trial.bug])})"
            )
            who = ", ".join(trial.by)
            print(
                f"{trial.bug}: seed {trial.seed}, {who}{note}, {trial.cpu_s:.1f} CPU s: {trial.why[:300]}", flush=True
            )
    escaped = sorted(trial.bug for trial in trials if trial.seed < 0)
    seeds = sorted({trial.seed for trial in trials if trial.seed >= 0})
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        false = sorted(seed for seed, is_good in zip(seeds, pool.map(_is_good, seeds), strict=True) if not is_good)
    print(json.dumps({"bugs": len(trials), "escaped": escaped, "convicted_without_a_bug": false}))
    return 1 if escaped or false else 0


def _convict(job: tuple[str, int, int, bool]) -> Trial:
    name, first, seeds, effects = job
    return convict(name, first, seeds, effects=effects)


def _is_good(seed: int) -> bool:
    with quiet():
        return run_seed(seed).is_good


if __name__ == "__main__":
    # A spawned process does not import a package's `__main__`: what runs there has its real name.
    from tests.sim.planted.__main__ import main as run

    sys.exit(run())
