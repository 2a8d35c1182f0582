"""`python -m tests.sim`: many seeds on all cores, or one seed with its trace. The last line of stdout is JSON.

Exit code 1 when a seed is convicted or stuck, and when the run shows too little: too few operations or faults a seed, or a kind of
fault in fewer than 5 % of the seeds.
"""

import argparse
import json
import logging
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.sim.machines.process import RUNNING
from tests.sim.machines.scheduler import BEGIN_S
from tests.sim.machines.world import product_frames
from tests.sim.seed_run import SeedResult, run_seed
from tests.sim.swarm import KINDS, LACKING_KINDS, SCRIPTS
from tests.support.time_limit import TimeLimit, add_within

CORPUS = Path(__file__).with_name("corpus.json")
OPERATIONS_MIN, FAULTS_MIN, KIND_SHARE_MIN = 1000, 30, 0.05
# Fewer seeds say nothing about averages, or about shares.
JUDGED_FROM_SEEDS = 100
# A witness can be a whole history.
TEXT_MAX, LINE_MAX = 600, 1000
REPORTS_MAX = 30
# A worker is replaced after so many seeds: each leaves some MB of holes in its memory.
SEEDS_PER_WORKER = 20


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description="deterministic simulation of a broker group"
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--corpus", action="store_true", help="the seeds of corpus.json instead: what once was found")
    parser.add_argument("--every", type=int, default=1, help="with --corpus: only each so many-th of them")
    parser.add_argument("--seed", type=int, help="run this one alone and tell what happens")
    parser.add_argument("--quiet", action="store_true", help="with --seed: no trace")
    add_within(parser)
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed, quiet=options.quiet)
    logging.disable(logging.CRITICAL)
    if options.corpus:
        seeds = [case["seed"] for case in json.loads(CORPUS.read_text("utf-8"))]
        return run_many(seeds[:: options.every], options.jobs)
    limit = TimeLimit(options.within)
    return run_many(range(options.first, options.first + options.seeds), options.jobs, limit)


def replay(seed: int, *, quiet: bool) -> int:
    """One seed, told on stdout, with what the nodes themselves log."""
    if quiet:
        logging.disable(logging.CRITICAL)
    else:
        logging.basicConfig(level=logging.INFO, handlers=[_NodeLog()], force=True)
    result = run_seed(seed, trace=None if quiet else _tell)
    _report(result)
    facts = {"seed": seed, "hash": result.hash, "cpu_s": round(result.cpu_s, 3), "events": result.events}
    print(
        json.dumps(
            facts
            | {
                "operations": result.operations,
                "faults": result.faults,
                "nodes": result.nodes,
                "comparisons": result.comparisons,
            }
        )
    )
    return 0 if result.is_good else 1


class _NodeLog(logging.Handler):
    """Records of the node that runs, in one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        machine = RUNNING.process.machine
        facts = {name: value for name, value in vars(record).items() if name not in _USUAL}
        cause = record.exc_info[1] if record.exc_info is not None else None
        error = f" <- {cause!r} [{product_frames(cause)}]" if cause is not None else ""
        text = f"{record.levelname.lower()}: {record.getMessage()} {facts or ''}{error}"
        _tell(f"{machine.scheduler.now_s - BEGIN_S:9.4f}    {machine.name} {text}")


# What every record has; the rest was given by who logged.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message"}


def _tell(line: str) -> None:
    print(line[:LINE_MAX])


def run_many(seeds: Sequence[int], jobs: int, limit: TimeLimit | None = None) -> int:
    """Every seed that *limit* has time for, and what they come to together."""
    limit = limit or TimeLimit(0)
    faults: Counter[str] = Counter()
    seeds_with: Counter[str] = Counter()
    operations = convicted = stuck = comparisons = done = 0
    cpu_s = 0.0
    for done, result in enumerate(limit.taken(results(seeds, jobs)), 1):
        operations += result.operations
        cpu_s += result.cpu_s
        comparisons += result.comparisons
        faults.update(result.faults)
        seeds_with.update(result.faults.keys())
        convicted += bool(result.violations)
        stuck += bool(result.stuck) and not result.violations
        if not result.is_good and convicted + stuck <= REPORTS_MAX:
            _report(result)
        _progress(f"{done}/{len(seeds)} seeds, {convicted} convicted, {stuck} stuck, {cpu_s / done:.2f} CPU s each")
    _progress("", end="\n")
    said = [] if not convicted and not stuck else ["seeds failed"]
    said += shortcomings(done, operations, faults, seeds_with)
    for text in said:
        print(f"FAILED: {text}", flush=True)
    summary = {
        "seeds": done,
        "of": len(seeds),
        "violations": convicted,
        "stuck": stuck,
        "operations": operations,
        "comparisons": comparisons,
        "faults": dict(sorted(faults.items())),
        "seconds": round(limit.elapsed_s, 1),
    }
    print(json.dumps(summary), flush=True)
    return 1 if said else 0


def results(seeds: Sequence[int], jobs: int) -> Iterator[SeedResult]:
    """Results as they come, from *jobs* processes (1: this one)."""
    if jobs <= 1:
        yield from map(run_seed, seeds)
        return
    # This process has one thread and no seed of its own, so a fork of it is as good as a new one, and quicker.
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=SEEDS_PER_WORKER) as pool:
        yield from pool.imap_unordered(run_seed, seeds)


def shortcomings(seeds: int, operations: int, faults: Counter[str], seeds_with: Counter[str]) -> list[str]:
    """Why the run shows too little, if it does."""
    found: list[str] = []
    if seeds < JUDGED_FROM_SEEDS:
        return found
    if operations < OPERATIONS_MIN * seeds:
        found.append(f"{operations / seeds:.0f} operations a seed, at least {OPERATIONS_MIN} are wanted")
    if faults.total() < FAULTS_MIN * seeds:
        found.append(f"{faults.total() / seeds:.1f} faults a seed, at least {FAULTS_MIN} are wanted")
    rare = [kind for kind in (*KINDS, *LACKING_KINDS, *SCRIPTS) if seeds_with[kind] < KIND_SHARE_MIN * seeds]
    found += [f"'{kind}' occurs in {seeds_with[kind]} of {seeds} seeds" for kind in rare]
    return found


def _report(result: SeedResult) -> None:
    told: set[str] = set()
    for checker, text in result.violations:
        if checker not in told:  # the first of each kind; a replay tells all of them
            told.add(checker)
            print(f"seed {result.seed}: {checker}: {text[:TEXT_MAX]}")
    if result.stuck:
        print(f"seed {result.seed}: stuck: {result.stuck}")
    if not result.is_good:
        print(f"replay: .venv/bin/python -m tests.sim --seed {result.seed}", flush=True)


def _progress(text: str, end: str = "") -> None:
    print(f"\r{text:100}", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
