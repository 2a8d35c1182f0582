"""Consume queues: RocketMQ's 20-byte entries over many files, the times from which they are visible, and what restarts keep."""

import copy
import errno
import os
import random
import struct
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tern_store import ConsumeQueues, StoreError
from tern_store.errors import DerivedDamage
from tern_store.files import REAL_FILES, Buffer, Files
from tern_wire.link.rows import QUEUE_ENTRIES
from tests.support.files.faulty_files import FaultyFiles

DIRECTORY = Path("/data")


def some(first: int, count: int) -> npt.NDArray[Any]:
    entries = np.zeros(count, QUEUE_ENTRIES)
    numbers = np.arange(first, first + count)
    entries["position"], entries["size"], entries["tag"] = numbers * 1000, numbers % 77, -numbers
    return entries


def same(found: npt.NDArray[Any], first: int, count: int) -> bool:
    return found.dtype == QUEUE_ENTRIES and found.tobytes() == some(first, count).tobytes()


def opened(directory: Path, files: Files = REAL_FILES) -> ConsumeQueues:
    return ConsumeQueues.open(directory, entries_per_file=30, buffer_max_bytes=3000, open_files_max=4, files=files)


def damages(queues: ConsumeQueues) -> list[DerivedDamage]:
    return [found for found in queues.verify() if isinstance(found, DerivedDamage)]


# Entries ---------------------------------------------------------------------------------------------------------
def test_an_entry_has_rocketmqs_twenty_bytes(tmp_path: Path) -> None:
    """Position, size, tag hash, big-endian, in a file named by byte position; a row of times has sixteen."""
    queues = ConsumeQueues.open(tmp_path, entries_per_file=2)
    entries = some(0, 3)
    entries[2] = (1 << 40, 513, -2)
    queues.append(7, 1, 0, entries, 1_700_000_000_123)
    queues.flush().run()
    folder = tmp_path / "consumequeue" / "7" / "1"
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{0:020d}",
        f"{0:020d}.crc",
        f"{40:020d}",
        "times",
    ]
    assert (folder / f"{40:020d}").read_bytes() == struct.pack(">qiq", 1 << 40, 513, -2)
    assert (folder / "times" / f"{0:020d}").read_bytes() == struct.pack(">qq", 1_700_000_000_123, 0)


def test_reads_span_files_and_tail_and_end_with_the_queue(tmp_path: Path) -> None:
    """Flush in between, read every range of a queue that has three files and a tail."""
    queues = opened(tmp_path)
    for first in range(0, 80, 4):
        queues.append(1, 0, first, some(first, 4), 5)
        if first == 44:
            queues.flush().run()
    for offset in range(81):
        for count in (0, 1, 5, 37, 100):
            assert same(queues.read(1, 0, offset, count), offset, max(0, min(count, 80 - offset)))
    assert (queues.end(1, 0), queues.end(1, 1), queues.all_keys()) == (80, 0, [(1, 0)])
    assert len(queues.read(1, 1, 0, 5)) == len(queues.read(1, 0, -1, 5)) == 0


def test_what_was_read_does_not_change_with_the_queue(tmp_path: Path) -> None:
    """A copy is returned, and it may be written to."""
    queues = ConsumeQueues.open(tmp_path)
    queues.append(1, 0, 0, some(0, 4), 5)
    found = queues.read(1, 0, 0, 4)
    found["size"] = 0
    queues.append(1, 0, 4, some(4, 1000), 5)
    assert same(queues.read(1, 0, 0, 1004), 0, 1004)


def test_an_offset_that_is_not_the_end_is_refused(tmp_path: Path) -> None:
    """Neither a gap nor a repeat; nor bytes of another layout. Times are left alone as well."""
    queues = ConsumeQueues.open(tmp_path)
    queues.append(1, 0, 0, some(0, 2), 5)
    for offset in (0, 1, 3):
        with pytest.raises(StoreError, match="ends at 2"):
            queues.append(1, 0, offset, some(offset, 1), 6)
    with pytest.raises(StoreError, match="int64"):
        queues.append(1, 0, 2, np.zeros(5, "<i8"), 6)
    queues.append(1, 0, 2, some(2, 0), 6)
    queues.append(1, 0, 2, some(2, 1), 7)
    assert [queues.visible_at(1, 0, offset) for offset in range(3)] == [5, 5, 7]


def test_a_queue_may_begin_at_any_offset(tmp_path: Path) -> None:
    """What a trimmed log yields: the first append says where, in the middle of a file; min and end agree."""
    queues = opened(tmp_path)
    queues.append(1, 0, 1000, some(1000, 5), 9)
    assert (queues.min(1, 0), queues.end(1, 0)) == (1000, 1005)
    queues.flush().run()
    marks = queues.marks()
    queues = opened(tmp_path)
    queues.restore(marks)
    assert same(queues.read(1, 0, 1000, 99), 1000, 5)
    assert (queues.visible_at(1, 0, 1004), queues.offset_at(1, 0, 9), queues.offset_at(1, 0, 10)) == (9, 1000, 1005)


def test_descriptors_are_bounded_for_all_files_together() -> None:
    """Ten queues with entries, checks and times: never more than four are open."""
    files, rng, ends = FaultyFiles(), random.Random(1), [0] * 10
    queues = opened(DIRECTORY, files)
    for now_ms in range(400):
        queue, count = rng.randrange(10), rng.randint(1, 9)
        queues.append(5, queue, ends[queue], some(ends[queue], count), now_ms)
        ends[queue] += count
        assert files.open_count() <= 4
    assert all(same(queues.read(5, queue, 0, 10_000), 0, end) for queue, end in enumerate(ends))
    assert all(queues.visible_at(5, queue, end - 1) for queue, end in enumerate(ends))
    assert files.open_count() <= 4
    queues.close()
    assert files.open_count() == 0


# Times -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rows", [1, 2, 63, 64, 65, 300])
def test_times_and_offsets_are_found_in_each_other(tmp_path: Path, rows: int) -> None:
    """Every offset and every time around them, against plain lists; before and after trims, restored in between."""
    rng = random.Random(rows)
    queues = opened(tmp_path)
    visible: list[int] = []
    now_ms = 100
    for _ in range(rows):
        now_ms += rng.choice([0, 1, 3])
        count = rng.randint(1, 3)
        queues.append(1, 0, len(visible), some(len(visible), count), now_ms)
        visible.extend([now_ms] * count)
    for first in (0, 1, len(visible) // 2, len(visible) - 1, len(visible)):
        queues.trim(1, 0, first)
        queues.flush().run()
        marks = queues.marks()
        queues = opened(tmp_path)
        queues.restore(marks)
        assert (queues.min(1, 0), queues.end(1, 0)) == (first, len(visible))
        for wanted_ms in range(98, now_ms + 3):
            assert queues.offset_at(1, 0, wanted_ms) == max(first, bisect_left(visible, wanted_ms))
        for offset in range(first, len(visible)):
            assert queues.visible_at(1, 0, offset) == visible[offset]
        for offset in (first - 1, len(visible)):
            with pytest.raises(StoreError, match="no offset"):
                queues.visible_at(1, 0, offset)
    queues.append(1, 0, len(visible), some(len(visible), 1), now_ms + 1)
    assert queues.visible_at(1, 0, len(visible)) == now_ms + 1


def test_a_time_that_falls_is_held_at_the_one_before(tmp_path: Path) -> None:
    """Also right after a restart: the last time is known again, wherever its row lies."""
    for rows in (1, 29, 30, 31, 64, 65):
        queues = opened(tmp_path / str(rows))
        for row in range(rows):
            queues.append(1, 0, row, some(row, 1), 1000 + row)
        queues.flush().run()
        marks = queues.marks()
        queues = opened(tmp_path / str(rows))
        queues.restore(marks)
        queues.append(1, 0, rows, some(rows, 1), 5)
        assert queues.visible_at(1, 0, rows) == 1000 + rows - 1
        assert queues.offset_at(1, 0, 1000 + rows) == rows + 1


def test_a_removed_queue_begins_anew(tmp_path: Path) -> None:
    """Neither its offsets nor its times are known any more; before and after its files went."""
    queues = opened(tmp_path)
    for _ in range(5):
        queues.append(1, 0, 0, some(0, 70), 500)
        queues.append(1, 0, 70, some(70, 1), 501)
        queues.flush().run()
        queues.marks()
        queues.saved()
        queues.remove(1, 0)
        assert (queues.end(1, 0), queues.all_keys(), queues.offset_at(1, 0, 3)) == (0, [], 0)
        queues.append(1, 0, 0, some(5, 2), 3)
        assert queues.visible_at(1, 0, 1) == 3
        assert same(queues.read(1, 0, 0, 9), 5, 2)
        queues.remove(1, 0)
    for _ in range(3):
        queues.flush().run()
        queues.saved()
    assert not [path for path in tmp_path.rglob("0*0") if path.is_file()]


# Faults ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("writes", range(17))
def test_a_full_disk_loses_nothing_that_a_flush_promised(writes: int) -> None:
    """The disk is full after some writes of a flush, of entries or of times: the next flush's job covers these too."""

    class NearlyFull(FaultyFiles):
        room = writes

        def pwrite(self, fd: int, data: Buffer, position: int) -> None:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.room -= 1
            super().pwrite(fd, data, position)

    files = NearlyFull()
    queues = opened(DIRECTORY, files)
    for queue in range(8):
        queues.append(1, queue, 0, some(0, 5), 7)
    if writes < 16:  # one for each queue's entries, one for its times
        with pytest.raises(OSError, match="No space"):
            queues.flush()
    queues.append(1, 0, 5, some(5, 1), 7)
    files.room = -1
    job, marks = queues.flush(), queues.marks()
    job.run()
    files.crash(random.Random(writes))
    queues = opened(DIRECTORY, files)
    queues.restore(marks)
    assert all(same(queues.read(1, queue, 0, 99), 0, 5 if queue else 6) for queue in range(8))
    assert [queues.visible_at(1, queue, 4) for queue in range(8)] == [7] * 8
    assert not damages(queues)


def test_damaged_times_are_told_and_leave_no_half_restored_queues(tmp_path: Path) -> None:
    """A bit of a whole block: reads of it refuse, entries are served. The last row, a missing file: restore refuses all."""
    queues = opened(tmp_path)
    for row in range(94):
        queues.append(1, 0, row, some(row, 1), 1000 + row)
    queues.flush().run()
    marks = queues.marks()
    folder = tmp_path / "consumequeue" / "1" / "0" / "times"
    for file, at in ((0, 5), (1, 479), (3, 0)):
        one = folder / f"{file * 480:020d}"
        whole = one.read_bytes()
        one.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        again = opened(tmp_path)
        if file == 3:
            with pytest.raises(DerivedDamage):
                again.restore(marks)
            assert (again.all_keys(), again.end(1, 0), again.marks()[0][1]) == ([], 0, [])
        else:
            again.restore(marks)
            assert [damage.file for damage in damages(again)] == [one]
            with pytest.raises(DerivedDamage):
                again.visible_at(1, 0, file * 30)
            assert same(again.read(1, 0, 0, 99), 0, 94)
        one.write_bytes(whole)
    one.unlink()
    with pytest.raises(DerivedDamage, match="missing"):
        again.restore(marks)
    again.wipe()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("seed", range(20))
def test_what_a_save_covered_survives_a_power_cut(seed: int) -> None:
    """Append, trim, remove, save at random, cut the power, restore to the last save: entries and times are those of then."""
    print(f"seed {seed}")
    rng, files = random.Random(seed), FaultyFiles()
    # Of each queue: its min, and the visible time of each offset from 0 on.
    model: dict[tuple[int, int], tuple[int, list[int]]] = {}
    queues = opened(DIRECTORY, files)
    queues.flush().run()
    marks, saved = queues.marks(), copy.deepcopy(model)
    for now_ms in range(200):
        key, count, chance = (rng.randrange(2), rng.randrange(3)), rng.randint(1, 25), rng.random()
        if chance < 0.8:
            first, visible = model.setdefault(key, (0, []))
            queues.append(*key, len(visible), some(len(visible), count), now_ms // 2)
            visible.extend([now_ms // 2] * count)
        elif chance < 0.85 and key in model:
            first = rng.randint(model[key][0], len(model[key][1]))
            model[key] = (first, model[key][1])
            queues.trim(*key, first)
        elif chance < 0.87:
            queues.remove(*key)
            model.pop(key, None)
        elif chance < 0.94:
            queues.flush().run()
            marks, saved = queues.marks(), copy.deepcopy(model)
            queues.saved()
        else:
            files.crash(rng)
            queues = opened(DIRECTORY, files)
            queues.restore(marks)
            model = copy.deepcopy(saved)
            assert not damages(queues)
        assert set(queues.all_keys()) == set(model)
        for key, (first, visible) in model.items():
            assert (queues.min(*key), queues.end(*key)) == (first, len(visible))
            assert same(queues.read(*key, first, 10_000), first, len(visible) - first)
            offset, wanted_ms = rng.randint(0, len(visible)), rng.randint(0, 101)
            if first <= offset < len(visible):
                assert queues.visible_at(*key, offset) == visible[offset]
            assert queues.offset_at(*key, wanted_ms) == max(first, bisect_left(visible, wanted_ms))
            assert queues.offset_at(*key, wanted_ms + 1) == max(first, bisect_right(visible, wanted_ms))
