"""The key index: every answer, wherever its entries are, and what a restart keeps of it."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tern_store.checking import Checked
from tern_store.errors import DerivedDamage, StoreError
from tern_store.files import REAL_FILES, Buffer
from tern_store.index.index_file import IndexFile
from tern_store.index.index_folder import OPEN_FILES_MAX, PIECES_MAX, IndexFolder, IndexShape
from tern_store.index.key_index import KeyIndex
from tern_wire.records.index_layout import look_up, read_index_header
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.indexed_records import KEYS, TOPICS, answers, assert_answers, batches

DIRECTORY = Path("/data")
SLOTS = 7


def opened(directory: Path, *, slots: int = SLOTS, entries_per_file: int = 200, tags: bool = False) -> KeyIndex:
    """Files of 199 entries: three whole blocks and a short one; chains of 28 entries on average."""
    return KeyIndex.open(directory, slots=slots, entries_per_file=entries_per_file, tags=tags)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of the index."""
    return {path.name: path.read_bytes() for path in (directory / "index").iterdir()}


@pytest.mark.parametrize("seed", range(3))
def test_every_key_is_found_wherever_its_entries_are(seed: int, tmp_path: Path) -> None:
    """Several files, flushed and not, with colliding hashes; equal to a search of the plain files."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    index, done = opened(tmp_path), batches(rng, 60)
    for number, batch in enumerate(done):
        batch.add_to(index)
        if rng.random() < 0.2:
            index.flush().run()
        if not number % 20:
            assert_answers(index, done[: number + 1])
    assert_answers(index, done)
    index.complete()
    files = [data for name, data in sorted(contents(tmp_path).items(), reverse=True) if not name.endswith(".crc")]
    assert len(files) > 2
    first, last = done[0].stored_ms, done[-1].stored_ms
    for topic in TOPICS:
        for key in KEYS:
            for count in (1, 5, 64):
                assert index.find(topic, key, count=count) == answers(done, topic, key)[:count]
            for _ in range(10):
                begin, end = sorted((rng.randint(first - 999, last + 999), rng.randint(first - 999, last + 999)))
                theirs = look_up(files, topic, key, count=999, begin_ms=begin, end_ms=end, slots=SLOTS)
                assert index.find(topic, key, count=999, begin_ms=begin, end_ms=end) == theirs
    assert index.find("orders", "Aa", count=0) == []


@pytest.mark.parametrize("seed", range(3))
def test_runs_of_several_topics_are_added_as_if_one_by_one(seed: int, tmp_path: Path) -> None:
    """The same bytes, though files fill up within a run, and one of the records is not sound."""
    print(f"seed {seed}")
    rng, found = random.Random(seed), []
    done = batches(rng, 60)
    for name, together in (("one by one", 1), ("together", 7)):
        index = opened(tmp_path / name)
        for first in range(0, len(done), 7):
            own = done[first : first + 7]
            data = bytearray(b"".join(batch.data for batch in own))
            data[int(own[0].starts[-1])] ^= 1
            lengths = [len(batch.data) for batch in own]
            runs = [
                (batch.topic.encode(), batch.starts + sum(lengths[:number]), batch.positions)
                for number, batch in enumerate(own)
            ]
            for at in range(0, len(runs), together):
                index.add_runs(bytes(data), runs[at : at + together], own[0].stored_ms)
        index.complete()
        found.append((index.marks(), contents(tmp_path / name)))
    assert found[0] == found[1]
    assert len(found[0][1]) > 4


def test_a_time_that_falls_back_hides_nothing(tmp_path: Path) -> None:
    """A record stored before the file's begin counts as its begin, and older ones behind newer ones are found."""
    index, done = opened(tmp_path, slots=1), batches(random.Random(1), 3, size_max=1)
    times = [1_000_000, 5_000_000, 10_000]
    for batch, stored_ms in zip(done, times, strict=True):
        index.add(batch.data, batch.starts, batch.positions, stored_ms, topic=b"t")
    keys = [batch.keys[0][0] for batch in done]
    assert [len(index.find("t", key, begin_ms=1_000_000, end_ms=1_000_999)) for key in keys] == [1, 0, 1]
    assert [len(index.find("t", key, begin_ms=1_001_000)) for key in keys] == [0, 1, 0]
    index.flush().run()
    index.restore(index.marks())
    assert [len(index.find("t", key, begin_ms=1_001_000)) for key in keys] == [0, 1, 0]


def test_a_hot_key_is_not_walked_past_the_time_that_is_asked_for(tmp_path: Path) -> None:
    """The older entries are never looked at: damage there goes unnoticed, and is noticed without the time."""
    index, done = KeyIndex.open(tmp_path), [*batches(random.Random(2), 20), *batches(random.Random(3), 20)]
    middle = done[20].stored_ms + 10_000_000
    for batch in done[:20]:
        batch.add_to(index)
    for batch in done[20:]:
        index.add(batch.data, batch.starts, batch.positions + done[19].end, middle, topic=batch.topic.encode())
    index.flush().run()
    path = tmp_path / "index" / f"{100:020d}"
    raw = bytearray(path.read_bytes())
    raw[20_000_040 + 25] ^= 1
    path.write_bytes(raw)
    assert len(index.find("orders", "Aa", begin_ms=middle - 1000, count=999)) > 5
    with pytest.raises(DerivedDamage):
        index.find("orders", "Aa", count=999)


def test_records_that_are_not_sound_cost_the_others_nothing(tmp_path: Path) -> None:
    """A committed entry is applied whatever it holds: every third record has a size that cannot be."""
    index, done = opened(tmp_path), batches(random.Random(1), 3)
    for batch in done:
        data = bytearray(batch.data)
        for start in batch.starts.tolist()[::3]:
            data[start + 87] ^= 1
        index.add(data, batch.starts, batch.positions, batch.stored_ms, topic=batch.topic.encode())
    missing = {position for batch in done for position in batch.positions.tolist()[::3]}
    for batch in done:
        for key in {key for keys in batch.keys for key in keys}:
            right = [found for found in answers(done, batch.topic, key) if found not in missing]
            assert index.find(batch.topic, key, count=999) == right


def test_a_record_with_more_keys_than_a_file_goes_on_in_the_next(tmp_path: Path) -> None:
    """Files get names of their own although they begin in the same record."""
    index = KeyIndex.open(tmp_path, slots=3, entries_per_file=3)
    done = batches(random.Random(5), 12, size_max=3)
    for batch in done:
        batch.add_to(index)
    assert_answers(index, done)
    index.flush().run()
    names = {int(name) for name in contents(tmp_path) if not name.endswith(".crc")}
    assert len(names) == -(-sum(len(keys) for batch in done for keys in batch.keys) // 2)
    assert not names <= {position for batch in done for position in batch.positions.tolist()}
    index.restore(index.marks())
    assert_answers(index, done)


# Restart --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(6))
def test_a_restored_index_goes_on_as_if_nothing_had_been(seed: int, tmp_path: Path) -> None:
    """Marks after any flush, more entries, restore to the marks, the same entries again: the same files and answers."""
    print(f"seed {seed}")
    rng, done = random.Random(seed), batches(random.Random(seed), 40)
    marked = rng.randrange(40)
    through = opened(tmp_path / "through")
    index = opened(tmp_path / "restored")
    marks: list[Any] = []
    for number, batch in enumerate(done):
        batch.add_to(through)
        batch.add_to(index)
        if number == marked or rng.random() < 0.2:
            index.flush().run()
            marks = index.marks() if number == marked else marks
    if seed % 2:
        index.flush().run()
    for _ in range(2):
        index = opened(tmp_path / "restored")
        index.restore(marks)
        assert index.marks() == marks
        assert_answers(index, done[: marked + 1])
        for batch in done[marked + 1 :]:
            batch.add_to(index)
        assert_answers(index, done)
    for each in (through, index):
        each.complete()
    assert contents(tmp_path / "through") == contents(tmp_path / "restored")


def test_restoring_derives_the_slots_of_many_entries_in_steps(tmp_path: Path) -> None:
    """More than two steps of blocks, shared slots across and within them."""
    shape = IndexShape(50_000, 200_000)
    file = IndexFile(IndexFolder(tmp_path, shape, REAL_FILES), 7)
    rng = np.random.default_rng(1)
    for _ in range(30):
        file.add(rng.integers(0, 60_000, 5000).astype(np.int32), rng.integers(7, 1 << 40, 5000), 1000)
    file.flush()
    again = IndexFile.restored(IndexFolder(tmp_path, shape, REAL_FILES), file.mark())
    assert file._table is not None
    assert again._table is not None
    assert np.array_equal(file._table, again._table)
    assert again.mark() == file.mark()


def test_restoring_to_nothing_forgets_all_files(tmp_path: Path) -> None:
    """Marks of an empty index."""
    index = opened(tmp_path)
    index.flush().run()
    empty, done = index.marks(), batches(random.Random(1), 30)
    for batch in done:
        batch.add_to(index)
    index.flush().run()
    index.restore(empty)
    assert contents(tmp_path) == {}
    assert index.find("orders", "Aa") == []
    assert index.marks() == empty


def test_marks_are_taken_of_what_was_flushed_only(tmp_path: Path) -> None:
    """Entries in memory would be counted and not be there."""
    index = KeyIndex.open(tmp_path)
    batches(random.Random(1), 1)[0].add_to(index)
    with pytest.raises(StoreError, match="not flushed"):
        index.marks()


def test_an_index_of_other_settings_is_not_taken_for_this_one(tmp_path: Path) -> None:
    """Slots, entries, tags: each changes the bytes."""
    index = opened(tmp_path)
    batches(random.Random(1), 1)[0].add_to(index)
    index.flush().run()
    others = (opened(tmp_path, slots=8), opened(tmp_path, entries_per_file=201), opened(tmp_path, tags=True))
    for other in others:
        with pytest.raises(DerivedDamage, match="settings"):
            other.restore(index.marks())
        other.close()


# Trim -----------------------------------------------------------------------------------------------------------
def test_trimmed_files_go_when_neither_of_two_saved_states_needs_them(tmp_path: Path) -> None:
    """Gone for readers at once, from the disk after the second saved state; the older state restores until then."""
    index, done = opened(tmp_path), batches(random.Random(3), 60)
    for batch in done:
        batch.add_to(index)
    index.flush().run()
    before = index.marks()
    index.saved()
    full = contents(tmp_path)
    index.trim(done[40].positions[0])
    assert_answers(index, done, int(done[40].positions[0]))
    index.saved()
    assert contents(tmp_path) == full, "the state that was told of still needs them"
    index.flush().run()
    after = index.marks()
    index.saved()
    assert contents(tmp_path) == full, "the state before it may still be needed"
    older = opened(tmp_path)
    older.restore(before)
    assert_answers(older, done)
    newer = opened(tmp_path)
    newer.restore(after)
    assert_answers(newer, done, int(done[40].positions[0]))
    assert contents(tmp_path) == full, "after a restart the older state is still there"
    for one in (index, newer):
        one.flush().run()
        one.saved()
        assert sorted(contents(tmp_path)) == [f"{mark[0]:020d}{end}" for mark in after[4] for end in ("", ".crc")]
        assert_answers(one, done, int(done[40].positions[0]))


def test_a_state_that_is_being_saved_keeps_its_files(tmp_path: Path) -> None:
    """Trimmed between the flush and the news that the state is durable: its files did not exist before."""
    index, done = opened(tmp_path), batches(random.Random(3), 60)
    for batch in done:
        batch.add_to(index)
    index.flush().run()
    marks = index.marks()
    index.trim(done[59].end)
    index.saved()
    index.restore(marks)
    assert_answers(index, done)


def test_the_state_of_a_restart_keeps_its_files_until_two_others_are_saved(tmp_path: Path) -> None:
    """It is the older of two when the next one is saved."""
    index, done = opened(tmp_path), batches(random.Random(3), 60)
    for batch in done:
        batch.add_to(index)
    index.flush().run()
    marks = index.marks()
    index.restore(marks)
    index.trim(done[59].end)
    index.flush().run()
    index.saved()
    again = opened(tmp_path)
    again.restore(marks)
    assert_answers(again, done)
    index.flush().run()
    index.saved()
    assert contents(tmp_path) == {}


def test_a_growing_file_is_trimmed_too_and_the_next_begins_behind_it(tmp_path: Path) -> None:
    """Everything is expired; what comes next is found, at once and after a restart."""
    index, done = opened(tmp_path), batches(random.Random(3), 30)
    for batch in done[:20]:
        batch.add_to(index)
    index.trim(done[19].end)
    assert_answers(index, done[:20], done[19].end)
    index.flush().run()
    emptied = index.marks()
    assert emptied[4] == []
    for batch in done[20:]:
        batch.add_to(index)
    index.flush().run()
    marks = index.marks()
    for _ in range(2):
        index.saved()
        index.flush().run()
    index.saved()
    assert sorted(contents(tmp_path)) == [f"{mark[0]:020d}{end}" for mark in marks[4] for end in ("", ".crc")]
    index.restore(marks)
    assert_answers(index, done, done[19].end)
    index.restore(emptied)
    assert_answers(index, done[:20], done[19].end)


# Bounds ---------------------------------------------------------------------------------------------------------
def test_open_files_and_verified_bytes_are_bounded() -> None:
    """Dozens of files asked for every key: few descriptors, none after closing."""
    files = FaultyFiles()
    index, done = KeyIndex.open(DIRECTORY, slots=7, entries_per_file=70, files=files), batches(random.Random(3), 150)
    for batch in done:
        batch.add_to(index)
        assert files.open_count() <= OPEN_FILES_MAX
    index.flush().run()
    assert len(index._files) > OPEN_FILES_MAX
    assert_answers(index, done)
    assert files.open_count() <= OPEN_FILES_MAX
    assert len(index._folder._pieces) <= PIECES_MAX
    index.close()
    assert files.open_count() == 0


def test_a_key_costs_its_entry_and_a_share_of_a_check(tmp_path: Path) -> None:
    """20.1 bytes while a file grows; its slots are written once, when it is sealed."""
    index = KeyIndex.open(tmp_path, slots=5000, entries_per_file=20_000)
    written = 0
    put = index._folder.write

    def counted(path: Path, data: Buffer, position: int) -> None:
        nonlocal written
        written += len(data)
        put(path, data, position)

    index._folder.write = counted  # type: ignore[method-assign]
    done = batches(random.Random(1), 900, size_max=30)
    keys = 0
    for batch in done:
        batch.add_to(index)
        keys += sum(len(one) for one in batch.keys)
    assert 19_999 < keys < 3 * 19_999
    sealed = keys // 19_999
    assert written < keys * 20.07 + sealed * (40 + 5000 * 4 * 1.001) + 2000


def test_wiping_removes_everything_and_the_index_is_made_again(tmp_path: Path) -> None:
    """As a node does that found damage."""
    index, done = opened(tmp_path), batches(random.Random(4), 30)
    for batch in done:
        batch.add_to(index)
    index.flush().run()
    full, marks = contents(tmp_path), index.marks()
    index.wipe()
    assert contents(tmp_path) == {}
    assert index.find("orders", "Aa") == []
    with pytest.raises(DerivedDamage, match="missing"):
        index.restore(marks)
    index.wipe()
    for batch in done:
        batch.add_to(index)
    index.flush().run()
    assert contents(tmp_path) == full
    assert all(isinstance(step, Checked) for step in index.verify())
    assert_answers(index, done)
    index.wipe()
    others = batches(random.Random(5), 30)
    for batch in others:
        batch.add_to(index)
    assert_answers(index, others)


def test_a_header_says_what_the_file_holds(tmp_path: Path) -> None:
    """Of a sealed file and of one that was completed: times, positions, slots, entries."""
    index, done = opened(tmp_path), batches(random.Random(4), 30)
    for batch in done:
        batch.add_to(index)
    index.complete()
    headers = [
        read_index_header(data) for name, data in sorted(contents(tmp_path).items()) if not name.endswith(".crc")
    ]
    assert (headers[0].begin_ms, headers[0].begin_position) == (done[0].stored_ms, 100)
    assert (headers[-1].end_ms, headers[-1].end_position) == (done[-1].stored_ms, done[-1].positions[-1])
    assert [header.next_entry for header in headers[:-1]] == [200] * (len(headers) - 1)
    assert {header.used_slots for header in headers[:-1]} == {7}
