"""The key index on bad days: power cuts, a full disk, damage in every byte."""

import errno
import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tern_store.checking import Checked
from tern_store.errors import DerivedDamage
from tern_store.index.key_index import KeyIndex
from tests.support.files.faulty_files import FaultyFiles, PowerCut
from tests.support.files.indexed_records import Batch, answers, assert_answers, batches, questions

DIRECTORY = Path("/data")
# Three whole blocks and a short one; two pages of header and slots.
SLOTS, ENTRIES = 1100, 200


def opened(files: FaultyFiles) -> KeyIndex:
    return KeyIndex.open(DIRECTORY, slots=SLOTS, entries_per_file=ENTRIES, files=files)


@pytest.mark.parametrize("seed", range(16))
def test_what_a_saved_state_covers_survives_every_power_cut(seed: int) -> None:
    """Add, trim, save and lose power at any operation; restore the last state or the one before; replay; nothing is missing."""
    print(f"seed {seed}")
    rng, files = random.Random(seed), FaultyFiles()
    log = batches(rng, 150)
    index, done, trimmed = opened(files), 0, 0
    # What was saved, newest last: marks, batches, trimmed.
    states: list[tuple[list[Any], int, int]] = [(index.marks(), 0, 0)]
    cuts = 0
    files.cut_at = rng.randint(1, 60)
    while done < len(log):
        try:
            log[done].add_to(index)
            done += 1
            if rng.random() < 0.05:
                trimmed = max(trimmed, int(log[rng.randint(max(0, done - 60), done - 1)].positions[0]))
                index.trim(trimmed)
            if rng.random() < 0.15:
                job, marks, state = index.flush(), index.marks(), (done, trimmed)
                job.run()
                states = [*states, (marks, *state)][-2:]
                index.saved()
        except PowerCut:
            cuts += 1
            files.crash(rng)
            # Now and then the newest state turns out to be unreadable.
            if rng.random() < 0.2:
                states = states[:1]
            index = opened(files)
            index.restore(states[-1][0])
            done, trimmed = states[-1][1:]
            assert_answers(index, log[:done], trimmed)
            if cuts < 6:
                files.cut_at = rng.randint(1, 60)
    files.cut_at = None
    assert cuts > 1
    assert_answers(index, log, trimmed)
    index.flush().run()
    assert all(isinstance(step, Checked) for step in index.verify())


@pytest.mark.parametrize("seed", range(6))
def test_a_full_disk_keeps_entries_in_memory_and_loses_none(seed: int) -> None:
    """ENOSPC at any write, sealing included: adds go on, everything is found, a later flush writes it all."""
    print(f"seed {seed}")
    rng, files = random.Random(seed), FaultyFiles()
    index, done, refused = opened(files), batches(random.Random(seed), 120), 0
    for number, batch in enumerate(done):
        if rng.random() < 0.4:
            files.fail_next("pwrite", errno.ENOSPC)
        batch.add_to(index)
        if rng.random() < 0.15:
            try:
                index.flush().run()
            except OSError as error:
                assert error.errno == errno.ENOSPC
                refused += 1
        if not number % 30:
            assert_answers(index, done[: number + 1])
    assert refused
    for _ in range(200):
        try:
            index.flush().run()
            break
        except OSError:
            continue
    assert_answers(index, done)
    marks = index.marks()
    files.crash(rng)
    again = opened(files)
    again.restore(marks)
    assert_answers(again, done)
    assert [file.is_sealed for file in again._files] == [True] * (len(again._files) - 1) + [False]


def test_another_error_of_the_disk_is_not_swallowed() -> None:
    """EIO while writing."""
    files = FaultyFiles()
    index = opened(files)
    files.fail_next("pwrite", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        for batch in batches(random.Random(1), 60):
            batch.add_to(index)


# Damage ---------------------------------------------------------------------------------------------------------
def flushed(count: int = 55) -> tuple[FaultyFiles, list[Any], list[Batch]]:
    """Files on disk, sealed and growing, the marks of them, and what they hold."""
    files = FaultyFiles()
    index, done = opened(files), batches(random.Random(9), count)
    for batch in done:
        batch.add_to(index)
    index.flush().run()
    return files, index.marks(), done


def outcome(files: FaultyFiles, marks: list[Any], done: list[Batch]) -> Counter[str]:
    """What a node notices of the files as they are: at restore, in how many look-ups, in how many steps of a verification.

    Whatever is answered is right: that is the law.
    """
    index, seen = opened(files), Counter[str]()
    try:
        index.restore(marks)
    except DerivedDamage:
        seen["restore"] += 1
        index.close()
        return seen
    for topic, key in questions(done):
        try:
            assert index.find(topic, key, count=1 << 20) == answers(done, topic, key)
        except DerivedDamage:
            seen["find"] += 1
    seen["verify"] = sum(isinstance(step, DerivedDamage) for step in index.verify())
    index.close()
    return seen


def test_sound_files_are_found_sound() -> None:
    """Otherwise the tests below would prove nothing; a verification reads every byte that counts."""
    files, marks, done = flushed()
    assert len(marks[4]) > 1
    assert outcome(files, marks, done).total() == 0
    index = opened(files)
    index.restore(marks)
    read = sum(step.size_bytes for step in index.verify() if isinstance(step, Checked))
    growing = marks[4][-1]
    assert read == (len(marks[4]) - 1) * (40 + 4 * SLOTS + ENTRIES * 20) + growing[1] * 20


@pytest.mark.parametrize("suffix", ["", ".crc"])
def test_every_damaged_byte_of_a_sealed_file_is_noticed(suffix: str) -> None:
    """Every 7th byte of data and checks: a verification names it, and no look-up answers wrongly; what it touches, it refuses."""
    files, marks, done = flushed(30)
    content = files.content(DIRECTORY / "index" / f"{marks[4][0][0]:020d}{suffix}")
    found = Counter[str]()
    for at in range(0, len(content), 7 if suffix else 61):
        content[at] ^= 1 << at % 8
        seen = outcome(files, marks, done)
        assert seen["restore"] or seen["verify"] == 1
        found.update(seen.keys() if seen["find"] else {"verify"})
        content[at] ^= 1 << at % 8
    assert found["find"] > 3


@pytest.mark.parametrize("suffix", ["", ".crc"])
def test_every_damaged_byte_of_a_growing_file_is_noticed_by_a_restart(suffix: str) -> None:
    """The entries that count, whole blocks and the last one; not the header and slots, which nobody reads."""
    files, marks, done = flushed()
    base, next_entry = marks[4][-1][:2]
    assert next_entry > 65, "there must be a whole block and an incomplete one"
    content = files.content(DIRECTORY / "index" / f"{base:020d}{suffix}")
    first, end = (0, next_entry // 64 * 4) if suffix else (40 + 4 * SLOTS, 40 + 4 * SLOTS + next_entry * 20)
    for at in range(first, end, 3 if suffix else 11):
        content[at] ^= 1 << at % 8
        assert outcome(files, marks, done) == {"restore": 1}
        content[at] ^= 1 << at % 8
    assert outcome(files, marks, done).total() == 0


def test_damage_under_a_running_node_is_found_by_its_verification() -> None:
    """A growing file: whole blocks, checks and the incomplete block on disk; look-ups of its tail come from memory."""
    files, done = FaultyFiles(), batches(random.Random(9), 55)
    index = opened(files)
    for batch in done:
        batch.add_to(index)
    index.flush().run()
    base, next_entry = index.marks()[4][-1][:2]
    data = files.content(DIRECTORY / "index" / f"{base:020d}")
    checks = files.content(DIRECTORY / "index" / f"{base:020d}.crc")
    entries = 40 + 4 * SLOTS
    for content, at in ((data, entries + 30), (data, entries + next_entry * 20 - 1), (checks, 1)):
        content[at] ^= 4
        damage = [step for step in index.verify() if isinstance(step, DerivedDamage)]
        assert [found.file.name for found in damage] == [f"{base:020d}"]
        content[at] ^= 4
    data[entries + next_entry * 20 - 1] ^= 4
    assert_answers(index, done)


@pytest.mark.parametrize("suffix", ["", ".crc"])
@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("kept", [None, 0, 3, -1])
def test_a_missing_or_short_file_is_damage(suffix: str, which: int, kept: int | None) -> None:
    """Sealed or growing, data or checks, cut at any place: a restart says so; so does a verification of a running node."""
    files, marks, done = flushed()
    running = opened(files)
    running.restore(marks)
    path = DIRECTORY / "index" / f"{marks[4][which][0]:020d}{suffix}"
    if kept is None:
        running._folder.close()
        files.unlink(path)
    else:
        del files.content(path)[kept:]
    assert outcome(files, marks, done) == {"restore": 1}
    damage = [step for step in running.verify() if isinstance(step, DerivedDamage)]
    assert damage
    assert {found.file.stem for found in damage} == {path.stem}


def test_a_sound_file_in_the_place_of_another_is_damage() -> None:
    """Two sealed files and their checks exchanged, as a careless copy does it."""
    files, marks, done = flushed()
    for suffix in ("", ".crc"):
        first, second = (files.content(DIRECTORY / "index" / f"{mark[0]:020d}{suffix}") for mark in marks[4][:2])
        first[:], second[:] = bytes(second), bytes(first)
    assert outcome(files, marks, done) == {"restore": 1}


def test_a_disk_that_cannot_read_is_damage() -> None:
    """EIO, as a worn sector gives it."""
    files, marks, done = flushed()
    index = opened(files)
    index.restore(marks)
    real = files.pread

    def worn(fd: int, size: int, position: int) -> bytes:
        raise OSError(errno.EIO, "worn")

    files.pread = worn  # type: ignore[method-assign]
    with pytest.raises(DerivedDamage, match="cannot read"):
        index.find("orders", "Aa", count=1 << 20)
    files.pread = real  # type: ignore[method-assign]
    assert_answers(index, done)


def test_a_verification_goes_on_while_the_index_changes() -> None:
    """Entries are added, files sealed and trimmed between its steps: no false alarm, no read of what is gone."""
    files, done = FaultyFiles(), batches(random.Random(9), 120)
    index = opened(files)
    for batch in done[:60]:
        batch.add_to(index)
    index.flush().run()
    steps, rest, read = index.verify(), iter(done[60:]), 0
    for step in steps:
        assert isinstance(step, Checked)
        read += step.size_bytes
        for more in islice(rest, 10):
            more.add_to(index)
        index.trim(int(done[30].positions[0]))
        index.flush().run()
        index.saved()
    assert read > 0
