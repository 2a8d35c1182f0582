"""Damage at rest, in every kind of file: found, never served; what follows from the log is made again, a damaged log is quarantined."""

import random
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tern_store import LogRot, StateOfOtherRelease, Store, load_state, small_files
from tests.support.files.damage import KINDS, Damage, Outcome, damage_to, files_by_kind, inflict, kind_of, outcome
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.store_node import DIRECTORY, GROUP, Node
from tests.support.files.store_run import Promise, StoreRun, examine

SEEDS = range(4)
STEPS = 90
# A whole log with delayed messages; one without whose beginning was dropped.
IMAGES = ("whole", "trimmed")
# What is found out by starting, reading and verifying, by kind of file.
EXPECTED = {
    "segment": {"quarantined"},
    "log start": {"quarantined"},
    "entry index": {"unseen"},  # lost rows are found again in the log: `outcome` has read every entry
    "queue rows": {"rebuilt"},
    "queue checks": {"rebuilt"},
    "times": {"rebuilt"},
    "times checks": {"rebuilt"},
    "index": {"rebuilt"},
    "index checks": {"rebuilt"},
    "timers": {"rebuilt"},
    "timers checks": {"rebuilt"},
    "sent keys": {
        "rebuilt",
        "quarantined",
    },  # what the state at the log's beginning names follows from no entry that is left
    "votes": {"refused"},
}


@cache
def image(name: str) -> tuple[FaultyFiles, StoreRun, Promise]:
    """A stopped node's files, all synced, and what it promised; its newest state stands for its last entry."""
    run = StoreRun(FaultyFiles(), 2, delays=name == "whole", trims=name == "trimmed")
    run.play(STEPS)
    node = run.open()
    for _ in range(3):
        run.vote(node)
    run.append(node)
    run.sync(node)
    run.save(node, quietly=True)
    node.close()
    return run.files.fork(), run, run.promise


def result(name: str, damage: Damage, seed: object) -> Outcome:
    """What becomes of a copy of an image after *damage*."""
    files, run, promise = image(name)
    copy = files.fork()
    inflict(copy, damage, random.Random(f"{seed}"))
    return outcome(copy, run, promise)


def is_counted_on(name: str, path: Path) -> bool:
    """Whether the newest state needs a file: files that only the state before needs may go unseen."""
    return result(name, Damage("delete", path, 0, 0), 0).word != "unseen"


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("kind_of_file", EXPECTED)
def test_damage_to_every_kind_of_file_is_found(name: str, kind_of_file: str) -> None:
    """Flip a bit, zero a page, cut, delete, by seed: what is expected of this kind of file, and nothing wrong is served."""
    files, _, _ = image(name)
    paths = files_by_kind(files).get(kind_of_file, [])
    words: Counter[str] = Counter()
    for kind in KINDS:
        for seed in SEEDS if paths else ():
            damage = damage_to(files, paths, kind, f"{seed} {kind_of_file} {kind}")
            if damage is None:
                continue
            print(seed, damage)
            found = result(name, damage, seed)
            words[found.word] += 1
            expected = EXPECTED[kind_of_file]
            assert found.word in expected or (found.word == "unseen" and not is_counted_on(name, damage.path)), found
    print(words)


def test_there_are_enough_cases() -> None:
    """Goal: the test above is not empty. At least 200 cases, and every kind of file is in one of the images."""
    kinds = [set(files_by_kind(image(name)[0])) for name in IMAGES]
    assert EXPECTED.keys() - {"timers checks"} <= kinds[0] | kinds[1]
    assert len(SEEDS) * len(KINDS) * sum(len(found & EXPECTED.keys()) for found in kinds) >= 200


@pytest.mark.parametrize("name", IMAGES)
def test_a_damaged_state_is_passed_over(name: str) -> None:
    """Damage the newest of two states: the older one serves, and the log's tail. Damage both: all is made again."""
    files, run, promise = image(name)
    states = files_by_kind(files)["state"]
    assert len(states) == 2
    for kind in KINDS:
        for seed in SEEDS:
            copy = files.fork()
            rng = random.Random(f"{seed} {kind}")
            for path in reversed(states):
                damage = damage_to(copy, [path], kind, f"{seed} {path}")
                assert damage is not None
                inflict(copy, damage, rng)
                found = outcome(copy.fork(), run, promise)
                assert found.word == "older state", (damage, found)


def test_a_damaged_state_of_a_segments_beginning_is_not_used() -> None:
    """Every damage to every such state: it cannot be loaded; the node itself starts as ever."""
    files, run, promise = image("trimmed")
    for number, path in enumerate(files_by_kind(files)["boundary state"]):
        for kind in KINDS:
            copy = files.fork()
            damage = damage_to(copy, [path], kind, f"{number}")
            assert damage is not None
            inflict(copy, damage, random.Random(number))
            node = Node(copy, run.limits, group=run.group)
            found = [boundary for boundary in node.store.boundaries() if boundary.name == path.name]
            assert not found or node.store.load_boundary(found[0]) is None
            examine(node, run, promise)


def test_a_state_at_the_log_s_begin_that_this_release_does_not_read_is_refused_and_nothing_is_touched() -> None:
    """It was put back to an older release: that is no damage, so the node is not quarantined, and the right release starts as if nothing had been."""
    files, run, promise = image("trimmed")
    copy = files.fork()
    with pytest.raises(StateOfOtherRelease, match="Start this node with the release that it ran before"):
        Store.open(
            DIRECTORY, group=GROUP, accepts=lambda _: False, knows=lambda _: False, limits=run.limits, files=copy
        )
    examine(Node(copy, run.limits, group=run.group), run, promise)
    # What is of a known form, and is not what was saved, is damage: another node's copy helps.
    with pytest.raises(LogRot, match="not what was saved"):
        Store.open(DIRECTORY, group=GROUP, accepts=lambda _: False, limits=run.limits, files=files.fork())


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("kind", ["flip", "zero", "cut"])
def test_rot_in_the_very_last_entry_is_not_taken_for_a_tear(name: str, kind: str) -> None:
    """Damage each sector of the last entry, which a saved state counts: the node is quarantined, the entry is not cut away."""
    files, run, _ = image(name)
    node = Node(files.fork(), run.limits, group=run.group)
    last = node.log.entry(node.log.end_index)
    base = last.position // node.log.segment_size_bytes * node.log.segment_size_bytes
    path, start, stop = DIRECTORY / "commitlog" / f"{base:020d}", last.position - base, last.mark.position - base
    for at in sorted({start, *range((start // 512 + 1) * 512, stop, 512), stop - 1}):
        size = 1 if kind == "flip" else min((at // 512 + 1) * 512, stop) - at
        found = result(name, Damage(kind, path, at, size), at)
        assert found.word == "quarantined", (at, found)


def test_a_stale_entry_behind_a_cut_is_neither_a_tear_nor_read_again() -> None:
    """Put the bytes of entries that were cut back behind what was written since: erased or rot, never entries again."""
    words: Counter[str] = Counter()
    for seed in range(12):
        run = StoreRun(FaultyFiles(), 100 + seed, delays=False, trims=False)
        node = run.open()
        for _ in range(8):
            run.append(node)
        run.sync(node)
        cut = random.Random(seed).randint(3, node.log.end_index - 2)
        stale = [node.log.entry(index) for index in range(cut, node.log.end_index + 1)]
        node = run.cut(node, cut)
        run.append(node)
        run.sync(node)
        end = node.log.end_position
        node.close()
        copy = run.files.fork()
        for entry in stale:
            base = entry.position // 4096 * 4096
            path = DIRECTORY / "commitlog" / f"{base:020d}"
            if entry.position >= end and path in copy.paths(DIRECTORY / "commitlog"):
                copy.content(path)[entry.position - base : entry.mark.position - base] = entry.raw
        words[outcome(copy, run, run.promise).word] += 1
    print(words)
    assert words.keys() <= {"quarantined", "unseen"}
    assert sum(words.values()) == 12


def test_a_quarantined_node_stays_so_whatever_is_read_later() -> None:
    """Damage the log, start, put the bytes back: still quarantined, with what was found."""
    files, run, _ = image("whole")
    copy = files.fork()
    content = copy.content(DIRECTORY / "commitlog" / f"{0:020d}")
    content[60] ^= 1
    with pytest.raises(LogRot) as first:
        Node(copy, run.limits, group=run.group)
    copy.content(DIRECTORY / "commitlog" / f"{0:020d}")[60] ^= 1
    with pytest.raises(LogRot) as second:
        Node(copy, run.limits, group=run.group)
    assert (second.value.file, second.value.reason) == (first.value.file, first.value.reason)


def test_what_waited_for_delivery_where_the_log_begins_is_made_again_too() -> None:
    """A trimmed log with delayed messages: make all derived files again; every queue has every message at its offset."""
    for seed in range(4):
        print(f"seed {seed}")
        run = StoreRun(FaultyFiles(), 300 + seed)
        run.play(STEPS)
        node = run.open()
        run.sync(node)
        run.save(node, quietly=True)
        node.close()
        copy = run.files.fork()
        small_files.write_mark(DIRECTORY, small_files.REBUILD, {"reason": "a test asks for it"}, copy)
        again = Node(copy, run.limits, group=run.group)
        assert again.store.rebuilding
        examine(again, run, run.promise, is_damaged=True)


def test_every_kind_of_file_has_a_name() -> None:
    """Goal: nothing is left out above. `kind_of` knows each file of both images; the newest state is readable."""
    for name in IMAGES:
        files, _, promise = image(name)
        assert {kind_of(path) for path in files.paths(DIRECTORY)} <= EXPECTED.keys() | {
            "state",
            "boundary state",
            "small",
            "spare",
        }
        state = load_state(DIRECTORY, files=files)
        assert state is not None
        assert state.mark.index == promise.state_index
