"""Whatever a power cut leaves of a store: it recovers, has all that it acknowledged, and serves nothing that was never written."""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.crash.enumerate_states import NEVER, Life, enumerate_life, live, repeat_command
from tests.support.campaigns import campaign, cases
from tests.support.files.faulty_disk import REMOVED, Effect
from tests.support.files.store_node import DIRECTORY

# Chosen because it does everything within so few operations: see the test that says so.
SEED, STEPS = 346, 38
KINDS = (
    *("commitlog", "entryindex", "consumequeue", "index", "timers", "sentkeys", "state"),
    *("votes", "checkpoint", "abort"),
)


# At every cut; `make crash-states` has all variants.
FEW_VARIANTS = (
    *("kept", "dropped", "names-lost", "grown"),
    *("torn-head", "torn-tail", "late-writes", "files-even"),
)


@cache
def first_life() -> Life:
    return next(live(SEED, STEPS))


def paths_of(tape: list[Effect]) -> dict[int, Path]:
    """The first name of every file on a tape, by number."""
    paths: dict[int, Path] = {}
    for kind, *arguments in tape:
        if kind == "name":
            directory, step = arguments
            for name, number in step:
                paths.setdefault(number, directory / name)
    return paths


def without(tape: list[Effect], kind: str, place: str) -> list[Effect]:
    """The tape of a store that forgot all effects of *kind* ("sync", "sync_names") on files of *place*."""
    paths = paths_of(tape)

    def is_forgotten(effect: Effect) -> bool:
        if effect[0] != kind:
            return False
        return place in (paths[effect[1]] if kind == "sync" else effect[1]).parts

    return [("skip",) if is_forgotten(effect) else effect for effect in tape]


@campaign
@pytest.mark.parametrize("part", range(4))
def test_every_crash_state_of_a_run_is_recovered(part: int) -> None:
    """One run, every cut (in a campaign; else every third), every variant, in four parts: at least 600 recoveries of at least 75 operations each."""
    life = first_life()
    cuts = range(part, len(life.tape) + 1, cases(4, 12))
    tally = enumerate_life(life, FEW_VARIANTS, cuts, share=8)
    print(f"{len(cuts)} cuts, {tally.states} states, {tally.recoveries} recoveries")
    for number, cut, variant, text in tally.failures:
        pytest.fail(f"{repeat_command(SEED, STEPS, number, cut, variant)}\n{text}")
    assert len(cuts) >= cases(75, 25)
    assert tally.states >= cases(600, 200)


def done_by(life: Life) -> Counter[tuple[str, str]]:
    """How often each kind of effect befell each kind of file: ("put", "index"), ("removed", "commitlog") ..."""
    paths = paths_of(life.tape)
    done: Counter[tuple[str, str]] = Counter()
    for kind, *arguments in life.tape:
        if kind in {"put", "sync"}:
            done[kind, paths[arguments[0]].relative_to(DIRECTORY).parts[0].removesuffix(".new")] += 1
        elif kind == "name" and arguments[0] != DIRECTORY.parent:
            for name, number in arguments[1]:
                place = (arguments[0] / name).relative_to(DIRECTORY).parts[0]
                done["removed" if number == REMOVED and len(arguments[1]) == 1 else "named", place] += 1
    return done


def test_the_run_does_everything_that_a_store_does() -> None:
    """Goal: the test above is not empty. Every kind of file is written, and all but the entry index are synced; segments, states
    and what follows from the log are removed; the log rolls, is cut and trimmed with copies."""
    life = first_life()
    done, counts = done_by(life), life.run.counts
    print(done, counts)
    assert len(life.tape) >= 300
    for place in KINDS:
        assert done["put", place], place
        assert done["sync", place] or place == "entryindex", place
    for place in ("commitlog", "state", "consumequeue", "index", "timers", "sentkeys"):
        assert done["removed", place], place
    assert counts.keys() >= {"append", "sync", "save", "trim", "drop", "_cut", "vote", "preallocate", "_reopen"}


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("sync", "commitlog"),
        ("sync", "consumequeue"),
        ("sync", "state"),
        ("sync", "index"),
        ("sync", "timers"),
        ("sync", "sentkeys"),
        ("sync", "votes.new"),
        ("sync", "start.new"),
        ("sync_names", "commitlog"),
        ("sync_names", "consumequeue"),
        ("sync_names", "index"),
        ("sync_names", "timers"),
        ("sync_names", "sentkeys"),
        ("sync_names", "state"),
    ],
)
def test_a_store_that_forgets_a_sync_is_convicted(kind: str, place: str) -> None:
    """Goal: the tests above can fail. The same run without one kind of sync: some state of it is not recovered."""
    life = first_life()
    mutant = replace(life, tape=without(life.tape, kind, place))
    forgotten = [at for at, effect in enumerate(mutant.tape) if effect == ("skip",)]
    assert forgotten
    cuts = range(forgotten[0], len(life.tape) + 1)
    assert enumerate_life(mutant, ("dropped", "names-lost", "grown"), cuts, share=NEVER).failures
