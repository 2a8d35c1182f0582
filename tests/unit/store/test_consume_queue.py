"""Consume queues: RocketMQ's 20-byte entries over many files, and what a restart keeps of them."""

import errno
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tern_store import ConsumeQueues, StoreError
from tern_wire.rows import QUEUE_ENTRIES
from tests.support.faulty_files import FaultyFiles

DIRECTORY = Path("/data")


def some(first: int, count: int) -> npt.NDArray[Any]:
    entries = np.zeros(count, QUEUE_ENTRIES)
    numbers = np.arange(first, first + count)
    entries["position"], entries["size"], entries["tag"] = numbers * 1000, numbers % 77, -numbers
    return entries


def same(found: npt.NDArray[Any], first: int, count: int) -> bool:
    return found.dtype == QUEUE_ENTRIES and found.tobytes() == some(first, count).tobytes()


def test_an_entry_has_rocketmqs_twenty_bytes(tmp_path: Path) -> None:
    """Position, size, tag hash, big-endian, in a file named by byte position."""
    queues = ConsumeQueues.open(tmp_path, entries_per_file=2)
    entries = some(0, 3)
    entries[2] = (1 << 40, 513, -2)
    queues.append(7, 1, 0, entries)
    queues.flush().run()
    folder = tmp_path / "consumequeue" / "7" / "1"
    assert sorted(path.name for path in folder.iterdir()) == [f"{0:020d}", f"{40:020d}"]
    assert (folder / f"{40:020d}").read_bytes() == struct.pack(">qiq", 1 << 40, 513, -2)


def test_reads_span_files_and_tail_and_end_with_the_queue(tmp_path: Path) -> None:
    """Flush in between, read every range of a queue that has three files and a tail."""
    queues = ConsumeQueues.open(tmp_path, entries_per_file=10)
    for first in range(0, 40, 4):
        queues.append(1, 0, first, some(first, 4))
        if first == 24:
            queues.flush().run()
    for offset in range(41):
        for count in (0, 1, 5, 17, 100):
            assert same(queues.read(1, 0, offset, count), offset, max(0, min(count, 40 - offset)))
    assert (queues.end(1, 0), queues.end(1, 1)) == (40, 0)
    assert len(queues.read(1, 1, 0, 5)) == len(queues.read(1, 0, -1, 5)) == 0


def test_what_was_read_does_not_change_with_the_queue(tmp_path: Path) -> None:
    """A copy is returned, and it may be written to."""
    queues = ConsumeQueues.open(tmp_path)
    queues.append(1, 0, 0, some(0, 4))
    found = queues.read(1, 0, 0, 4)
    found["size"] = 0
    queues.append(1, 0, 4, some(4, 1000))
    assert same(queues.read(1, 0, 0, 1004), 0, 1004)


def test_an_offset_that_is_not_the_end_is_refused(tmp_path: Path) -> None:
    """Neither a gap nor a repeat; nor bytes of another layout."""
    queues = ConsumeQueues.open(tmp_path)
    queues.append(1, 0, 0, some(0, 2))
    for offset in (0, 1, 3):
        with pytest.raises(StoreError, match="ends at 2"):
            queues.append(1, 0, offset, some(offset, 1))
    with pytest.raises(StoreError):
        queues.append(1, 0, 2, np.zeros(1, "<i8"))


def test_memory_is_bounded_by_writing_the_longest_waiting_tails() -> None:
    """Many queues, a bound of 2,000 bytes: some are in files, none is lost."""
    files = FaultyFiles()
    queues = ConsumeQueues.open(DIRECTORY, buffer_max_bytes=2000, open_files_max=3, entries_per_file=20, files=files)
    ends = [0] * 10
    rng = random.Random(1)
    for _ in range(400):
        queue, count = rng.randrange(10), rng.randint(1, 9)
        queues.append(5, queue, ends[queue], some(ends[queue], count))
        ends[queue] += count
        assert queues._buffered_bytes <= 2000
        assert files.open_count() <= 3
    assert all(same(queues.read(5, queue, 0, 10_000), 0, end) for queue, end in enumerate(ends))
    queues.close()
    assert files.open_count() == 0


def test_a_long_tail_is_written_without_being_asked(tmp_path: Path) -> None:
    """More than 64 KiB in one queue."""
    queues = ConsumeQueues.open(tmp_path)
    queues.append(1, 0, 0, some(0, 4000))
    assert (tmp_path / "consumequeue" / "1" / "0" / f"{0:020d}").stat().st_size == 80_000
    assert same(queues.read(1, 0, 3999, 5), 3999, 1)


def test_a_full_disk_keeps_tails_in_memory() -> None:
    """ENOSPC: append and read go on, flush says so, a later flush writes everything."""
    files = FaultyFiles()
    queues = ConsumeQueues.open(DIRECTORY, files=files)
    files.fail_next("pwrite", errno.ENOSPC)
    queues.append(1, 0, 0, some(0, 4000))
    assert same(queues.read(1, 0, 0, 4000), 0, 4000)
    files.fail_next("pwrite", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        queues.flush()
    queues.flush().run()
    files.crash(random.Random(0))
    again = ConsumeQueues.open(DIRECTORY, files=files)
    again.restore({(1, 0): 4000})
    assert same(again.read(1, 0, 0, 4000), 0, 4000)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_flush_covered_survives_a_power_cut(seed: int) -> None:
    """Append, flush at random, cut the power, restore to the last flush, replay the rest."""
    print(f"seed {seed}")
    rng, files = random.Random(seed), FaultyFiles()
    ends: dict[tuple[int, int], int] = {}
    saved: dict[tuple[int, int], int] = {}
    queues = ConsumeQueues.open(DIRECTORY, entries_per_file=30, buffer_max_bytes=3000, files=files)
    for _ in range(120):
        key, count = (rng.randrange(2), rng.randrange(3)), rng.randint(1, 25)
        queues.append(*key, ends.get(key, 0), some(ends.get(key, 0), count))
        ends[key] = ends.get(key, 0) + count
        if rng.random() < 0.05:
            queues.flush().run()
            saved = dict(ends)
        if rng.random() < 0.05:
            files.crash(rng)
            queues = ConsumeQueues.open(DIRECTORY, entries_per_file=30, buffer_max_bytes=3000, files=files)
            queues.restore(saved)
            ends = dict(saved)
        for (topic_id, queue), end in ends.items():
            assert same(queues.read(topic_id, queue, 0, 10_000), 0, end)


def test_restoring_forgets_what_the_saved_state_did_not_know(tmp_path: Path) -> None:
    """Later entries, later files and unknown queues are gone; the rest goes on."""
    queues = ConsumeQueues.open(tmp_path, entries_per_file=10)
    queues.append(1, 0, 0, some(0, 35))
    queues.append(2, 0, 0, some(0, 5))
    queues.append(3, 3, 0, some(0, 5))
    queues.flush().run()
    queues.restore({(1, 0): 12, (3, 3): 0})
    assert (queues.end(1, 0), queues.end(2, 0), queues.end(3, 3)) == (12, 0, 0)
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert files == [f"consumequeue/1/0/{0:020d}", f"consumequeue/1/0/{200:020d}"]
    assert (tmp_path / files[1]).stat().st_size == 40
    queues.append(1, 0, 12, some(12, 3))
    assert same(queues.read(1, 0, 0, 99), 0, 15)


def test_restoring_without_the_files_says_what_to_do(tmp_path: Path) -> None:
    """A missing file, a short file: StoreError names it."""
    queues = ConsumeQueues.open(tmp_path, entries_per_file=10)
    queues.append(1, 0, 0, some(0, 35))
    queues.flush().run()
    first = tmp_path / "consumequeue" / "1" / "0" / f"{0:020d}"
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(StoreError, match="199 bytes"):
        queues.restore({(1, 0): 35})
    first.unlink()
    with pytest.raises(StoreError, match="is missing"):
        queues.restore({(1, 0): 35})
    with pytest.raises(StoreError, match="is missing"):
        queues.restore({(9, 9): 1})
