"""Power cuts at every operation of a scripted run: what was synced survives, what was cut never comes back."""

import contextlib
import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tern_store import CommitLog, EntryKind, Genesis
from tests.support.files.faulty_disk import Nothing
from tests.support.files.faulty_files import FaultyFiles, PowerCut

GROUP, LONE_GROUP = Genesis(b"g" * 16, ("a", "b", "c"), 4096), Genesis(b"g" * 16, ("a",), 4096)
DIRECTORY = Path("/data")


class Run:
    """A log under a seeded load, and what the log has promised so far."""

    def __init__(self, files: FaultyFiles, seed: int) -> None:
        self.files, self.rng = files, random.Random(seed)
        self.group = GROUP if seed % 2 == 0 else LONE_GROUP
        self.crcs: dict[int, int] = {}  # what the log must hold as far as it reaches
        self.before_cut: dict[int, int] | None = None  # the same before a cut that has not returned yet
        self.in_flight: tuple[int, bytes] | None = None  # an append that has not returned yet
        self.promised = 0
        self.term = 0

    def open(self) -> CommitLog:
        log = CommitLog.open(DIRECTORY, group=self.group, recent_max_bytes=2000, files=self.files)
        self.promised = max(self.promised, log.synced_index)
        self.crcs.setdefault(1, self.group.entry().crc)
        return log

    def play(self, steps: int) -> None:
        log = self.open()
        actions: list[tuple[int, Callable[[CommitLog], CommitLog]]] = [
            (8, self.append),
            (3, self.sync),
            (1, self.cut),
            (1, self.reopen),
            (1, self.preallocate),
        ]
        for _ in range(steps):
            (action,) = self.rng.choices([act for _, act in actions], [weight for weight, _ in actions])
            log = action(log)
        log.close()

    def append(self, log: CommitLog) -> CommitLog:
        body = self.rng.randbytes(self.rng.choice([0, 1, 20, 200, 463, 464, 465, 900, 1500]))
        if len(body) >= 900 and self.rng.random() < 0.5:
            body = body[:9] + bytes(len(body) + 200)
        self.term += self.rng.random() < 0.2
        index = log.end_index + 1
        self.in_flight = (index, body)
        entry = log.append(EntryKind.COMMANDS, index, max(self.term, log.end_term), (body,), 1)
        self.crcs[index], self.in_flight = entry.crc, None
        return log

    def sync(self, log: CommitLog) -> CommitLog:
        job = log.take_sync()
        if job is not None:
            job.run()
            log.mark_synced(job)
            self.promised = log.synced_index
        return log

    def cut(self, log: CommitLog) -> CommitLog:
        index = self.rng.randint(max(2, log.end_index - 4), log.end_index + 1)
        self.before_cut, self.crcs = self.crcs, {at: crc for at, crc in self.crcs.items() if at < index}
        self.promised = min(self.promised, index - 1)
        log.truncate_from(index)
        self.before_cut = None
        self.promised = log.synced_index
        self.term += 1
        return log

    def preallocate(self, log: CommitLog) -> CommitLog:
        job = log.preallocate_next()
        if job is not None:
            job.run()
            log.mark_preallocated(job)
        return log

    def reopen(self, log: CommitLog) -> CommitLog:
        log.close()
        return self.open()

    def check(self, log: CommitLog) -> None:
        found = {index: log.entry(index).crc for index in range(1, log.end_index + 1)}
        assert log.end_index >= self.promised
        assert log.synced_index == log.end_index
        if self.in_flight is not None and self.in_flight[0] in found:
            index, body = self.in_flight
            assert log.entry(index).body == body
            self.crcs[index] = found[index]
        self.in_flight = None
        allowed = [self.crcs] if self.before_cut is None else [self.crcs, self.before_cut]
        assert any(found.items() <= crcs.items() for crcs in allowed)
        self.crcs, self.before_cut, self.promised = found, None, log.end_index


@pytest.mark.parametrize("seed", range(6))
def test_what_was_synced_survives_a_power_cut_at_every_operation(seed: int) -> None:
    """Play a script, cut the power at each of its operations, recover, and compare with what was promised."""
    print(f"seed {seed}")
    whole = Run(FaultyFiles(), seed)
    whole.play(40)
    for cut_at in range(1, whole.files.operations + 1):
        files = FaultyFiles()
        run = Run(files, seed)
        files.cut_at = cut_at
        with pytest.raises(PowerCut):
            run.play(40)
        rng = random.Random(seed * 100_003 + cut_at)
        files.crash(rng)
        files.cut_at = rng.randint(1, 8)  # recovery may lose power, too
        with contextlib.suppress(PowerCut):
            run.open().close()
        files.crash(rng)
        log = run.open()
        run.check(log)
        log = run.sync(run.append(run.append(log)))
        files.crash(rng)
        run.check(run.open())


def test_the_script_reaches_what_it_is_meant_to_reach() -> None:
    """Goal: the test above is not empty. Seeds roll over segments, cut, and leave torn tails to recovery."""
    torn = 0
    for seed in range(60):
        files = FaultyFiles()
        run = Run(files, seed)
        log = run.open()
        for _ in range(12):
            run.append(log)
        assert log.end_position > 0
        files.crash(random.Random(seed))
        torn += run.open().was_torn
    assert torn > 5


def filled(files: FaultyFiles, count: int, size: int) -> CommitLog:
    log = CommitLog.open(DIRECTORY, group=GROUP, files=files)
    for _ in range(count):
        log.append(EntryKind.COMMANDS, log.end_index + 1, 1, (bytes([1]) * size,), 1)
    return log


def test_a_cut_that_returned_is_durable_and_so_is_what_it_kept() -> None:
    """Cut a log of many unsynced segments, lose power: it ends exactly at the cut, and the later files are gone."""
    for seed in range(20):
        files = FaultyFiles()
        filled(files, 20, 1000).truncate_from(9)
        files.crash(random.Random(seed))
        assert files.listdir(DIRECTORY / "commitlog") == [f"{0:020d}", f"{4096:020d}", f"{8192:020d}"]
        assert CommitLog.open(DIRECTORY, group=GROUP, files=files).end_index == 8


def test_what_is_written_while_a_sync_runs_is_not_taken_for_synced() -> None:
    """Append to the same segment between take and run, note the first job, sync again, lose power: both are there."""
    for seed in range(20):
        files = FaultyFiles()
        log = filled(files, 1, 1000)
        job = log.take_sync()
        assert job is not None
        job.run()
        log.append(EntryKind.COMMANDS, 3, 1, (bytes([2]) * 1000,), 1)
        log.mark_synced(job)
        assert log.synced_index == 2
        job = log.take_sync()
        assert job is not None
        job.run()
        log.mark_synced(job)
        files.crash(random.Random(seed))
        assert CommitLog.open(DIRECTORY, group=GROUP, files=files).end_index == 3


def test_rows_of_cut_entries_do_not_come_back_with_the_power() -> None:
    """Rows in files, a cut, other entries at the same indexes; lose the unsynced rows; every entry is the new one."""
    for seed in range(5):
        files = FaultyFiles()
        filled(files, 3000, 1).close()
        files.content(DIRECTORY / "entryindex" / f"{1:020d}")  # long ago written back by the kernel
        log = CommitLog.open(DIRECTORY, group=GROUP, files=files, start=None)
        log.truncate_from(100)
        new = [log.append(EntryKind.COMMANDS, index, 2, (bytes([2]),), 1) for index in range(100, 2900)]
        job = log.take_sync()
        assert job is not None
        job.run()
        files.crash(random.Random(seed))
        again = CommitLog.open(DIRECTORY, group=GROUP, files=files, start=new[-1].mark)
        assert [again.entry(entry.index) for entry in new] == new


def test_an_entry_whose_sync_failed_in_a_process_that_died_unnoted_is_written_again_when_it_is_promised() -> None:
    """Fail a sync, kill the process before it can note that, open twice, lose power: what the second one promised is there."""
    files = FaultyFiles()
    log = filled(files, 8, 1000)
    job = log.take_sync()
    assert job is not None
    files.fail_next("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        job.run()
    files.end_process()
    promised = CommitLog.open(DIRECTORY, group=GROUP, files=files).synced_index
    assert promised > 8
    assert CommitLog.open(DIRECTORY, group=GROUP, files=files.after_crash(Nothing())).end_index == promised
