"""Recovers a store from every crash state of scripted runs: `make crash-states`, and the small set of `make test`.

One seed is one run (`store_run.py`) of two lives: the second begins on a crash state of the first. Every cut of both lives, in every
variant, is recovered and compared with what was promised by then. Of some states, by chance, more is asked:

    again        what the recovered store serves survives the loss of everything unsynced
    interrupted  the power goes during the recovery, at any of its operations
    goes on      an entry that is synced after the recovery stays

A failure is printed with the command that repeats it.
"""

import argparse
import contextlib
import multiprocessing
import random
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tests.support.files.crash_states import VARIANTS, CrashState, crash_states, crashed
from tests.support.files.faulty_disk import Effect
from tests.support.files.faulty_files import FaultyFiles, PowerCut
from tests.support.files.store_node import Node
from tests.support.files.store_run import StoreRun, examine, write_one_more
from tests.support.time_limit import TimeLimit, add_within

LIVES = (1, 2)
STEPS = 40
RANDOM_VARIANTS = tuple(f"random-{number}" for number in range(4))
# One in so many states is asked more than whether it recovers.
SHARE = 4
# Lives are enumerated in so many parts, each of them one task of a process.
PARTS = 8
NEVER = 1 << 60


@dataclass(slots=True)
class Life:
    """A recorded run: where it began, what it did to the disk."""

    seed: int
    number: int
    start: FaultyFiles
    run: StoreRun
    tape: list[Effect]

    def chance(self, state: CrashState, check: str) -> random.Random:
        """The same for the same state and check, whichever others there are."""
        return random.Random(f"{self.seed} {self.number} {state.cut} {state.variant} {check}")


@dataclass(slots=True)
class Tally:
    """What was done; *failures* are (life, cut, variant, what happened)."""

    effects: int = 0
    states: int = 0
    recoveries: int = 0
    failures: list[tuple[int, int, str, str]] = field(default_factory=list)


def live(seed: int, steps: int = STEPS) -> Iterator[Life]:
    """The lives of one seed, recorded."""
    start, before = FaultyFiles(), None
    for number in LIVES:
        run = StoreRun(start.fork(), seed * 10 + number, before)
        run.play(steps)
        life = Life(seed, number, start, run, run.tape)
        yield life
        rng = random.Random(f"{seed} {number}")
        cut, variant = rng.randint(len(run.tape) // 2, len(run.tape)), rng.choice(VARIANTS)
        (state,) = crash_states(start, run.tape, (variant,), (cut,))
        start, before = state.files, (run, cut)


def recover(life: Life, state: CrashState, share: int = 1) -> int:
    """Recover from *state* and ask one in *share* of everything more; AssertionError, or whatever the store raised.

    Returns the recoveries.
    """
    run, promise = life.run, life.run.promise_at(state.cut)
    untouched = state.files.fork()
    node = Node(state.files, run.limits, group=run.group)
    operations = state.files.operations
    facts = examine(node, run, promise)
    recoveries = 1
    if life.chance(state, "again").randrange(share) == 0:
        again = Node(crashed(state.files, "dropped"), run.limits, group=run.group)
        assert examine(again, run, promise) == facts, "a second recovery finds something else than the first"
        recoveries += 1
    if (rng := life.chance(state, "interrupted")).randrange(share) == 0:
        untouched.cut_at = rng.randint(1, max(1, operations))
        with contextlib.suppress(PowerCut):
            Node(untouched, run.limits, group=run.group)
        examine(Node(crashed(untouched, rng.choice(VARIANTS)), run.limits, group=run.group), run, promise)
        recoveries += 2
    if (rng := life.chance(state, "goes on")).randrange(share) == 0:
        promise = write_one_more(node, run, promise, rng)
        examine(Node(crashed(node.files, rng.choice(VARIANTS)), run.limits, group=run.group), run, promise)
        recoveries += 1
    return recoveries


def enumerate_life(life: Life, variants: Iterable[str], cuts: Iterable[int] | None = None, share: int = 1) -> Tally:
    """Recover every state of *life*; the first failure ends it."""
    tally = Tally(effects=len(life.tape))
    for state in crash_states(life.start, life.tape, variants, cuts):
        tally.states += 1
        try:
            tally.recoveries += recover(life, state, share)
        except Exception:
            tally.failures.append((life.number, state.cut, state.variant, traceback.format_exc()))
            break
    return tally


def repeat_command(seed: int, steps: int, life: int, cut: int, variant: str) -> str:
    """What repeats one state."""
    return (
        "python -m tests.crash.enumerate_states "
        f"--seed {seed} --steps {steps} --life {life} --cut {cut} --variant {variant}"
    )


def _enumerate_part(task: tuple[int, int, int]) -> tuple[tuple[int, int, int], Tally]:
    """Every PARTS-th cut of one life."""
    seed, number, part = task
    life = next(life for life in live(seed) if life.number == number)
    cuts = range(part, len(life.tape) + 1, PARTS)
    tally = enumerate_life(life, (*VARIANTS, *RANDOM_VARIANTS), cuts, SHARE)
    return task, replace(tally, effects=len(cuts))


def enumerate_seeds(seeds: Sequence[int], processes: int, limit: TimeLimit) -> int:
    """All states of *seeds*, or parts of them as *limit* has time for, with a line for each part; 1 if any failed."""
    total = Tally()
    tasks = [(seed, number, part) for seed in seeds for number in LIVES for part in range(PARTS)]
    random.Random(seeds[0]).shuffle(tasks)  # parts of all lives, should time be short
    done = 0
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done, (task, tally) in enumerate(limit.taken(pool.imap_unordered(_enumerate_part, tasks)), 1):
            seed, number, _ = task
            total.effects += tally.effects
            total.states += tally.states
            total.recoveries += tally.recoveries
            total.failures += tally.failures
            for _, cut, variant, text in tally.failures:
                print(f"FAILED {repeat_command(seed, STEPS, number, cut, variant)}\n{text}")
            progress = f"{done} of {len(tasks)} parts, {total.recoveries} recoveries, {limit.elapsed_s:.0f} s"
            print(f"seed {seed}, life {number}: {progress}", flush=True)
    print(
        f"crash-states: {total.states} states of {total.effects} file operations, {total.recoveries} recoveries, "
        f"{len(total.failures)} failed; {done} of {len(tasks)} parts of seeds {seeds[0]} to {seeds[-1]}, "
        f"{limit.elapsed_s:.0f} s"
    )
    return 1 if total.failures else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Recover the store from every crash state of scripted runs.")
    parser.add_argument("--seeds", type=int, default=4, help="how many runs")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seed", type=int, help="one run only, for a state that failed")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each life of --seed")
    parser.add_argument("--life", type=int, default=1)
    parser.add_argument("--cut", type=int)
    parser.add_argument("--variant")
    add_within(parser)
    options = parser.parse_args()
    if options.seed is None:
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        return enumerate_seeds(seeds, options.processes, TimeLimit(options.within))
    life = next(life for life in live(options.seed, options.steps) if life.number == options.life)
    variants = (options.variant,) if options.variant else (*VARIANTS, *RANDOM_VARIANTS)
    tally = enumerate_life(life, variants, None if options.cut is None else (options.cut,))
    for number, cut, variant, text in tally.failures:
        print(f"FAILED {repeat_command(options.seed, options.steps, number, cut, variant)}\n{text}")
    print(f"{tally.states} states, {tally.recoveries} recoveries, {len(tally.failures)} failed")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
