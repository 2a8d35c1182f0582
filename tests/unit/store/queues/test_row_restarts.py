"""RowFiles over restarts: what marks bring back, which files may go when, and a model of everything under power cuts."""

import contextlib
import copy
import errno
import random
from pathlib import Path
from typing import Any

import pytest

from tern_store.errors import DerivedDamage
from tern_store.files import REAL_FILES, Files, RealFiles
from tern_store.queues.row_files import RowFiles
from tern_store.queues.row_folders import Key
from tests.support.files.faulty_files import FaultyFiles, PowerCut

DIRECTORY = Path("/data")
KEY = (7, 1)
SIZE, PER_FILE, BLOCK = 4, 10, 4


def opened(
    directory: Path = DIRECTORY,
    files: Files = REAL_FILES,
    *,
    buffer_max_bytes: int = 1 << 20,
    rows_per_file: int = PER_FILE,
) -> RowFiles:
    return RowFiles.open(
        directory,
        row_size_bytes=SIZE,
        rows_per_file=rows_per_file,
        block_rows=BLOCK,
        buffer_max_bytes=buffer_max_bytes,
        open_files_max=5,
        files=files,
    )


class UnsyncedFiles(RealFiles):
    """Where nothing loses power, and thousands of files are made: they are not waited for."""

    def fdatasync(self, fd: int) -> None: ...
    def fsync_dir(self, path: Path) -> None: ...


def some(first: int, count: int, salt: int = 0) -> bytes:
    return b"".join((row * 1000 + salt).to_bytes(SIZE, "big") for row in range(first, first + count))


def numbers(directory: Path, key: Key = KEY, rows_per_file: int = PER_FILE) -> list[int]:
    """The files of rows that exist, by number."""
    names = REAL_FILES.listdir(directory.joinpath(*map(str, key)))
    assert {name[:20] for name in names if name.endswith(".crc")} <= set(names), "checks without rows"
    return [int(name) // (rows_per_file * SIZE) for name in names if len(name) == 20]


def damages(rows: RowFiles) -> list[DerivedDamage]:
    return [found for found in rows.verify() if isinstance(found, DerivedDamage)]


def save(rows: RowFiles, *, is_saved: bool = True) -> list[Any]:
    rows.flush().run()
    marks = rows.marks()
    if is_saved:
        rows.saved()
    return marks


# When files go ---------------------------------------------------------------------------------------------------
def test_trimmed_files_stay_while_one_of_two_saved_states_needs_them(tmp_path: Path) -> None:
    """The law of row_folders.py, step by step, with a save that fails; each state that is kept can be restored."""
    rows = opened(tmp_path)
    rows.append(KEY, 0, some(0, 45))
    first = save(rows)
    rows.trim(KEY, 25)
    assert (rows.read(KEY, 24, 1), rows.read(KEY, 25, 2)) == (b"", some(25, 2))
    assert numbers(tmp_path) == [0, 1, 2, 3, 4]
    second = save(rows)
    rows.saved()  # told twice
    assert numbers(tmp_path) == [0, 1, 2, 3, 4], "the first state needs them"
    save(rows, is_saved=False)
    rows.saved()  # of the same flush, told late
    assert numbers(tmp_path) == [2, 3, 4], "the states of flushes 3 and 2 are kept, and neither needs them"
    again = opened(tmp_path)
    again.restore(second)
    assert again.read(KEY, 25, 99) == some(25, 20)
    with pytest.raises(DerivedDamage):
        again.restore(first)


def test_a_save_that_fails_frees_nothing(tmp_path: Path) -> None:
    """Flushes without `saved` count no generation: the two states of before are still the newest two."""
    rows = opened(tmp_path)
    rows.append(KEY, 0, some(0, 45))
    first = save(rows)
    second = save(rows)
    rows.trim(KEY, 25)
    for _ in range(5):
        save(rows, is_saved=False)
    assert numbers(tmp_path) == [0, 1, 2, 3, 4]
    for marks in (second, first):
        opened(tmp_path).restore(marks)
    save(rows)
    save(rows)
    assert numbers(tmp_path) == [2, 3, 4]


def test_what_is_trimmed_while_a_save_is_under_way_waits_one_save_longer(tmp_path: Path) -> None:
    """Trim between flush and saved: the state that is being saved still needs the files."""
    rows = opened(tmp_path)
    rows.append(KEY, 0, some(0, 45))
    save(rows)
    rows.flush().run()
    marks = rows.marks()
    rows.trim(KEY, 25)
    rows.saved()
    save(rows)
    assert numbers(tmp_path) == [0, 1, 2, 3, 4]
    opened(tmp_path).restore(marks)
    save(rows)
    assert numbers(tmp_path) == [2, 3, 4]


def test_a_removed_sequence_goes_as_trimmed_files_do(tmp_path: Path) -> None:
    """Its files stay for two saves, then they are gone; so are those that never were saved."""
    rows = opened(tmp_path)
    rows.append(KEY, 0, some(0, 45))
    rows.append((8,), 0, some(0, 5))
    marks = save(rows)
    rows.remove(KEY)
    assert (rows.read(KEY, 0, 9), rows.keys()) == (b"", [(8,)])
    save(rows)
    again = opened(tmp_path)
    again.restore(marks)
    assert again.read(KEY, 0, 99) == some(0, 45)
    rows.append(KEY, 0, b"")
    rows.remove(KEY)
    save(rows)
    save(rows)
    assert (numbers(tmp_path), numbers(tmp_path, (8,))) == ([], [0])


def test_after_a_restart_the_older_state_keeps_its_files_for_one_save(tmp_path: Path) -> None:
    """Trimmed and removed between two states, restarted from the newer: a fall back to the older must still be possible."""
    rows = opened(tmp_path)
    rows.append(KEY, 0, some(0, 45))
    rows.append((8,), 0, some(0, 25))
    older = save(rows)
    rows.trim(KEY, 25)
    rows.remove((8,))
    newer = save(rows)
    rows = opened(tmp_path)
    rows.restore(newer)
    again = opened(tmp_path)
    again.restore(older)
    assert again.read(KEY, 0, 99) == some(0, 45)
    assert again.read((8,), 0, 99) == some(0, 25)
    rows.append(KEY, 45, some(45, 1))
    save(rows)
    assert (numbers(tmp_path), numbers(tmp_path, (8,))) == ([2, 3, 4], [])


def test_a_removed_sequence_that_begins_again_leaves_the_files_of_the_earlier_one_alone(tmp_path: Path) -> None:
    """The same key, the same file names, other rows: each state that is kept has its own; the new files come when the old go."""
    rows = opened(tmp_path, rows_per_file=3000)
    rows.append(KEY, 0, some(0, 20))
    first = save(rows)
    rows.remove(KEY)
    for end in range(0, 17_000, 1000):
        rows.append(KEY, end, some(end, 1000, salt=1))
    second = save(rows)
    assert numbers(tmp_path, rows_per_file=3000) == [0]
    for marks, expected in ((second, some(0, 17_000, salt=1)), (first, some(0, 20))):
        again = opened(tmp_path, rows_per_file=3000)
        again.restore(marks)
        assert again.read(KEY, 0, 99_999) == expected
        again.close()
    third = save(rows)
    assert (numbers(tmp_path, rows_per_file=3000), len(third[1][0][-1])) == ([], 17_000 * SIZE)
    marks = save(rows)
    assert len(marks[1][0][-1]) == 0
    again = opened(tmp_path, rows_per_file=3000)
    again.restore(marks)
    assert again.read(KEY, 0, 99_999) == some(0, 17_000, salt=1)
    assert not damages(again)


def test_rows_of_another_life_are_damage(tmp_path: Path) -> None:
    """A state that should not be there any more, and files of its sequence's name and size that a later one wrote."""
    rows = opened(tmp_path)
    rows.append(KEY, 0, some(0, 20))
    stale = save(rows)
    rows.wipe()
    rows.append(KEY, 0, some(0, 20, salt=1))
    save(rows)
    again = opened(tmp_path)
    again.restore(stale)
    with pytest.raises(DerivedDamage, match="disagree"):
        again.read(KEY, 0, 1)


def test_no_life_is_given_twice_even_if_the_newest_state_could_not_be_restored(tmp_path: Path) -> None:
    """The older state is taken: a sequence that begins now must not be taken for one that the newer state knows."""
    rows = opened(tmp_path)
    rows.append(KEY, 0, some(0, 20))
    older = save(rows)
    rows.append((8,), 0, some(0, 20))
    newer = save(rows)
    (tmp_path / "8" / f"{0:020d}").unlink()
    rows = opened(tmp_path)
    with pytest.raises(DerivedDamage):
        rows.restore(newer)
    rows.restore(older)
    rows.append((9,), 0, some(0, 20))
    lives = [mark[-2] for mark in save(rows)[1]]
    assert len({*lives, *(mark[-2] for mark in newer[1])}) == 3


def test_rows_that_are_trimmed_before_they_were_written_never_are(tmp_path: Path) -> None:
    """All but the last two of 25 rows: no file of theirs appears, then or at a later flush."""
    rows = opened(tmp_path)
    rows.append(KEY, 0, some(0, 25))
    rows.trim(KEY, 23)
    marks = save(rows)
    assert numbers(tmp_path) == [2]
    rows = opened(tmp_path)
    rows.restore(marks)
    assert (rows.first(KEY), rows.read(KEY, 23, 9)) == (23, some(23, 2))
    rows.append(KEY, 25, some(25, 10))
    rows.trim(KEY, 35)
    marks = save(rows)
    assert not damages(rows)
    rows = opened(tmp_path)
    rows.restore(marks)
    assert (rows.first(KEY), rows.end(KEY), rows.read(KEY, 35, 9)) == (35, 35, b"")
    rows.append(KEY, 35, some(35, 30))
    assert rows.read(KEY, 35, 99) == some(35, 30)


# What a restart brings back --------------------------------------------------------------------------------------
def test_what_lies_behind_the_marks_is_never_read(tmp_path: Path) -> None:
    """Stale rows in the last file, stale files behind it, unknown sequences: other rows take their place."""
    rows = opened(tmp_path)
    rows.append(KEY, 0, some(0, 13))
    marks = save(rows)
    rows.append(KEY, 13, some(13, 40, salt=1))
    rows.append((8,), 0, some(0, 40, salt=1))
    rows.flush().run()
    rows = opened(tmp_path)
    rows.restore(marks)
    assert (rows.end(KEY), rows.end((8,)), rows.keys()) == (13, 0, [KEY])
    assert rows.read(KEY, 0, 99) == some(0, 13)
    for end in range(13, 30):
        rows.append(KEY, end, some(end, 1))
        rows.append((8,), end - 13, some(end - 13, 1))
        marks = save(rows)
        assert max(numbers(tmp_path)) <= max(1, end // PER_FILE), "the stale files are gone"
        again = opened(tmp_path)
        again.restore(marks)
        assert again.read(KEY, 0, 99) == some(0, end + 1)
        assert again.read((8,), 0, 99) == some(0, end - 12)
        assert not damages(again)


def test_a_name_that_only_a_kill_made_visible_is_synced_before_a_state_counts_on_it() -> None:
    """Written, killed without a power cut before any sync, restored, written again, saved: a power cut now takes nothing."""
    for seed in range(20):
        files = FaultyFiles()
        rows = opened(DIRECTORY, files)
        rows.append(KEY, 0, some(0, 3))  # no whole block: there are no checks yet
        marks = save(rows)
        rows.append(KEY, 3, some(3, 43))
        rows.append((8,), 0, some(0, 40))
        rows.flush()  # its job never ran
        rows = opened(DIRECTORY, files)
        rows.restore(marks)
        rows.append(KEY, 3, some(3, 5))
        rows.append((8,), 0, some(0, 40))
        marks = save(rows)
        files.crash(random.Random(seed))
        rows = opened(DIRECTORY, files)
        rows.restore(marks)
        assert (rows.read(KEY, 0, 99), rows.read((8,), 0, 99)) == (some(0, 8), some(0, 40))


def test_thousands_of_sequences_come_back(tmp_path: Path) -> None:
    """2,000 of them, of every length from 0 to 30, half of them in files, half with the marks; then all go."""
    rows = opened(tmp_path, UnsyncedFiles(), buffer_max_bytes=100_000, rows_per_file=100)
    lengths = {(number // 10, number % 10): number % 31 for number in range(2000)}
    for key, count in lengths.items():
        rows.begin(key, 0)
        rows.append(key, 0, some(0, count, salt=count))
    marks = save(rows)
    rows.close()
    rows = opened(tmp_path, UnsyncedFiles(), buffer_max_bytes=100_000, rows_per_file=100)
    rows.restore(marks)
    assert rows.keys() == list(lengths)
    assert all(rows.read(key, 0, 99) == some(0, count, salt=count) for key, count in lengths.items())
    for key in lengths:
        rows.remove(key)
    for _ in range(3):
        save(rows)
    assert not [found for found in tmp_path.rglob("*") if found.is_file()]


# Everything at once ----------------------------------------------------------------------------------------------
class Model:
    """What sequences hold, as plain lists. A copy of it stands for a saved state."""

    def __init__(self) -> None:
        self.rows: dict[Key, list[bytes]] = {}
        self.firsts: dict[Key, int] = {}

    def check(self, rows: RowFiles, keys: list[Key]) -> None:
        assert set(rows.keys()) == set(self.rows)
        for key in keys:
            first, end = self.firsts.get(key, 0), self.firsts.get(key, 0) + len(self.rows.get(key, []))
            assert (rows.first(key), rows.end(key)) == (first, end)
            assert rows.read(key, first, 10_000) == b"".join(self.rows.get(key, []))
            assert rows.read(key, first - 1, 3) == b""
        waiting = {key: one.end - one.written for key, one in rows._sequences.items() if one.written < one.end}
        assert (rows._buffered_bytes, set(rows._waiting)) == (sum(waiting.values()) * SIZE, set(waiting))


@pytest.mark.parametrize("keys", [3, 90])
@pytest.mark.parametrize("seed", range(25))
def test_a_model_agrees_under_power_cuts_kills_and_full_disks(seed: int, keys: int) -> None:
    """Append, trim, remove, save, fail to save, lose power anywhere: after each restart, the state that was saved, exactly.

    Sometimes the newest state is lost, and the older one is taken: exactly too.
    """
    print(f"seed {seed}, {keys} keys")
    rng, files = random.Random(seed * 1000 + keys), FaultyFiles()
    buffer_max_bytes = rng.choice([200, 2000, 20_000])
    everyone: list[Key] = [(number % 7, number) for number in range(keys)]
    rows, model = opened(DIRECTORY, files, buffer_max_bytes=buffer_max_bytes), Model()
    states: list[tuple[list[Any], Model]] = []  # the newest last, at most two

    def step() -> None:
        key, chance = rng.choice(everyone), rng.random()
        if chance < 0.6:
            if key not in model.rows and rng.random() < 0.3:
                model.firsts[key] = rng.randrange(30)
            first = model.firsts.setdefault(key, 0)
            held = model.rows.setdefault(key, [])
            more = [rng.randbytes(SIZE) for _ in range(rng.choice([1, 1, 3, 20]))]
            end = first + len(held)
            held.extend(more)
            rows.append(key, end, b"".join(more))
        elif chance < 0.7 and key in model.rows:
            count = rng.choice([rng.randint(0, len(model.rows[key])), len(model.rows[key])])
            model.firsts[key] += count
            del model.rows[key][:count]
            rows.trim(key, model.firsts[key])
        elif chance < 0.74:
            if model.rows.pop(key, None) is not None:
                del model.firsts[key]
            rows.remove(key)
        elif chance < 0.8:
            files.fail_next(rng.choice(["pwrite", "open"]), errno.ENOSPC)
        elif chance < 0.9:
            try:
                job = rows.flush()
            except OSError as error:
                assert error.errno == errno.ENOSPC
                return
            marks, now = rows.marks(), copy.deepcopy(model)
            job.run()
            if rng.random() < 0.8:
                states[:] = [*states[-1:], (marks, now)]
                rows.saved()
        elif chance < 0.92:
            assert not damages(rows)
        model.check(rows, [key])

    for _ in range(12):
        files.cut_at = files.operations + rng.randint(1, 400)
        with contextlib.suppress(PowerCut):
            for _ in range(60):
                step()
            files.cut_at = None
            model.check(rows, everyone)
        files._failures.clear()
        if files.cut_at is not None or rng.random() < 0.5:
            files.crash(rng)
        rows = opened(DIRECTORY, files, buffer_max_bytes=buffer_max_bytes)
        if len(states) == 2 and rng.random() < 0.3:
            del states[1]
        if states:
            marks, saved = states[-1]
            model = copy.deepcopy(saved)
            rows.restore(marks)
        else:
            rows.wipe()
            model = Model()
        model.check(rows, everyone)
        assert not damages(rows)
