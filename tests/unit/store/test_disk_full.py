"""A full disk at every kind of write, and a failed sync: a clear error, reads go on, nothing is lost; with space, writes go on."""

import ctypes
import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tern_store import CommitLog, EntryKind, Genesis, StoreError, SyncLost, small_files
from tern_store.store import Store
from tests.support.campaigns import campaign, cases
from tests.support.files.crash_states import VARIANTS, crashed
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.store_node import DIRECTORY, GROUP, Node
from tests.support.files.store_run import StoreRun, examine, require_served

END = 1 << 60
# Space that is left: nothing, half a write, one file but not the next.
ROOM_BYTES = (0, 1, 100, 700, 3000, 4200, 6000, 9000)


@cache
def filled(seed: int) -> StoreRun:
    """A run that has come to its end; its files are not touched again."""
    run = StoreRun(FaultyFiles(), seed, delays=seed % 2 == 0, trims=seed % 2 == 1)
    run.play(60)
    return run


def again(seed: int) -> tuple[StoreRun, Node]:
    """The same run in its next life, on files of its own."""
    before = filled(seed)
    run = StoreRun(before.files.fork(), seed + 1000, (before, END), delays=seed % 2 == 0, trims=seed % 2 == 1)
    return run, run.open()


def fill_a_segment(run: StoreRun, node: Node) -> None:
    """Append until the log has gone on to the next segment."""
    base = node.log.segment_bases[-1]
    while node.log.segment_bases[-1] == base:
        run.append(node)


def config(run: StoreRun, _node: Node) -> None:
    """A JSON file, twice: the one before stays."""
    for version in range(2):
        small_files.write_config(DIRECTORY, "topics.json", {"version": version}, run.files)


def reserve(_run: StoreRun, node: Node) -> None:
    """The emergency segment."""
    job = node.log.preallocate_reserve()
    if job is not None:
        job.run()
        node.log.mark_preallocated(job)


WRITES: dict[str, Callable[[StoreRun, Node], None]] = {
    "append": lambda run, node: run.append(node),
    "roll": fill_a_segment,
    "sync": lambda run, node: run.sync(node),
    "save": lambda run, node: run.save(node, quietly=True),
    "trim": lambda run, node: run.trim(node),
    "preallocate": lambda run, node: run.preallocate(node),
    "reserve": reserve,
    "vote": lambda run, node: run.vote(node),
    "checkpoint": lambda run, node: run.checkpoint(node),
    "config": config,
}


def go_on(run: StoreRun, node: Node, write: str) -> None:
    """What was refused works now, and so does all else; a restart has everything."""
    WRITES[write](run, node)
    run.append(node)
    run.sync(node)
    run.save(node, quietly=True)
    require_served(node, run, run.promise)
    node.close()
    examine(Node(run.files, run.limits, group=run.group), run, run.promise)


@campaign
@pytest.mark.parametrize("write", WRITES)
def test_a_full_disk_at_every_kind_of_write(write: str) -> None:
    """With little room: it works or says ENOSPC, all is still served; with room again it works, and a restart has everything."""
    words: Counter[str] = Counter()
    for seed in range(cases(4, 2)):
        for room in ROOM_BYTES:
            print(f"seed {seed}, {room} bytes left")
            run, node = again(seed)
            for _ in range(3):
                run.append(node)
            run.files.capacity_bytes = run.files.used_bytes + room
            try:
                WRITES[write](run, node)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                words["full"] += 1
            else:
                words["done"] += 1
            require_served(node, run, run.promise)
            run.files.capacity_bytes = None
            go_on(run, node, write)
    print(words)


@campaign
@pytest.mark.parametrize("write", WRITES)
def test_a_full_disk_and_then_no_power(write: str) -> None:
    """The same, but the power goes while the disk is full: a start on the full disk says so or works, and nothing is lost."""
    words: Counter[str] = Counter()
    for seed in range(cases(3, 1)):
        for room in ROOM_BYTES:
            print(f"seed {seed}, {room} bytes left")
            run, node = again(seed)
            run.files.capacity_bytes = run.files.used_bytes + room
            try:
                WRITES[write](run, node)
            except OSError as error:
                assert error.errno == errno.ENOSPC
            files = crashed(run.files, random.Random(f"{seed} {room}").choice(VARIANTS))
            files.capacity_bytes = files.used_bytes
            try:
                node = Node(files, run.limits, group=run.group)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                words["a start needs room"] += 1
            else:
                words["started"] += 1
                examine(node, run, run.promise)
            files.capacity_bytes = None
            examine(Node(crashed(files, "dropped"), run.limits, group=run.group), run, run.promise)
    print(words)


def test_writes_are_refused_at_some_point() -> None:
    """Goal: the tests above are not empty. Each kind of write that takes space meets a disk without room."""
    for write in ("append", "roll", "save", "preallocate", "reserve", "config"):
        full = 0
        for seed in range(4):
            run, node = again(seed)
            for _ in range(3):
                run.append(node)
            run.files.capacity_bytes = run.files.used_bytes
            try:
                for _ in range(8):
                    WRITES[write](run, node)
            except OSError:
                full += 1
        assert full, write


def test_on_a_full_disk_what_frees_space_still_goes() -> None:
    """No room for messages, the emergency segment is there: an urgent entry is taken, others are refused; with room all are."""
    run, node = again(1)
    reserve(run, node)
    run.files.capacity_bytes = run.files.used_bytes
    log = node.log
    with pytest.raises(OSError, match="No space"):
        for _ in range(100):
            log.append(EntryKind.COMMANDS, log.end_index + 1, log.end_term, [bytes([1]) * 300], 1)
    before = log.end_index
    urgent = [
        log.append(EntryKind.COMMANDS, log.end_index + 1, log.end_term, [b"ack" * 20], 1, urgent=True) for _ in range(5)
    ]
    assert log.is_on_reserve
    with pytest.raises(OSError, match="No space"):
        log.append(EntryKind.COMMANDS, log.end_index + 1, log.end_term, [b"message"], 1)
    assert [log.entry(entry.index).raw for entry in urgent] == [entry.raw for entry in urgent]
    run.files.capacity_bytes = None
    log.append(EntryKind.COMMANDS, log.end_index + 1, log.end_term, [b"message"], 1)
    assert (log.end_index, log.is_on_reserve) == (before + 6, False)
    job = log.take_sync()
    assert job is not None
    job.run()
    log.mark_synced(job)
    again_log = CommitLog.open(DIRECTORY, group=GROUP, files=crashed(run.files, "dropped"))
    assert again_log.end_index == before + 6


# A sync that fails -------------------------------------------------------------------------------------------------
def test_after_a_failed_sync_everything_is_refused_and_said_why() -> None:
    """EIO from fdatasync: appends, cuts, trims and saves are refused with the reason; reads go on; acknowledged entries survive."""
    for seed in range(4):
        run, node = again(seed)
        run.append(node)
        log = node.log
        job = log.take_sync()
        assert job is not None
        run.files.fail_next("fdatasync", errno.EIO)
        with pytest.raises(SyncLost, match="Input/output error") as failed:
            job.run()
        log.fail(failed.value)
        packed, mark = node.payload(), log.mark(log.end_index)
        refused: list[Callable[[], object]] = [
            lambda log=log: log.append(EntryKind.NOOP, log.end_index + 1, log.end_term, [], 1),  # type: ignore[misc]
            lambda log=log: log.truncate_from(log.end_index),  # type: ignore[misc]
            lambda log=log, mark=mark: log.trim(mark),  # type: ignore[misc]
            lambda node=node, mark=mark, packed=packed: node.store.save(mark, lambda: [packed]).run(),  # type: ignore[misc]
        ]
        for number, write in enumerate(refused):
            print(f"write {number}")
            with pytest.raises(StoreError, match=r"a sync of the log failed \(Input/output error\)"):
                write()
        require_served(node, run, run.promise)
        for variant in VARIANTS:
            examine(Node(crashed(run.files, variant), run.limits, group=run.group), run, run.promise)


@campaign
def test_a_failed_sync_of_what_follows_from_the_log_makes_no_state() -> None:
    """EIO from each fdatasync of a save: the save fails, and the next start has the state before."""
    for after in range(60):
        run, node = again(2)
        run.append(node)
        run.sync(node)
        promise = run.promise
        run.files.fail_next("fdatasync", errno.EIO, after=after)
        try:
            run.save(node, quietly=True)
        except OSError as error:
            assert error.errno == errno.EIO
        else:
            break
        for variant in random.Random(after).sample(VARIANTS, cases(len(VARIANTS), 2)):
            examine(Node(crashed(run.files, variant), run.limits, group=run.group), run, promise)
    assert 3 <= after < 59


# A real disk -------------------------------------------------------------------------------------------------------
LIBC = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    if LIBC.mount(b"tmpfs", bytes(tmp_path), b"tmpfs", 0, b"size=2m") != 0:
        pytest.skip(f"cannot mount a file system here: {os.strerror(ctypes.get_errno())}")
    try:
        yield tmp_path
    finally:
        assert LIBC.umount2(bytes(tmp_path), 2) == 0


def test_a_real_disk_of_two_mebibytes(small_disk: Path) -> None:
    """Fill it with entries: ENOSPC, all are read; remove something else, and it goes on; a restart has everything."""
    group = Genesis(b"g" * 16, ("a",), 1 << 16)
    other = small_disk / "something else"
    other.write_bytes(bytes(700_000))
    store = Store.open(small_disk / "node", group=group)
    entries = []
    random_bytes = random.Random(1).randbytes

    def append() -> None:
        index = store.log.end_index + 1
        entries.append(store.log.append(EntryKind.COMMANDS, index, 1, [random_bytes(3000)], 1))

    with pytest.raises(OSError, match="No space left") as full:
        for _ in range(1000):
            append()
    assert full.value.errno == errno.ENOSPC
    assert 100 < len(entries) < 1000
    for entry in entries:
        assert store.log.entry(entry.index).raw == entry.raw
    with pytest.raises(OSError, match="No space left"):
        append()
    other.unlink()
    for _ in range(20):
        append()
    job = store.log.take_sync()
    assert job is not None
    job.run()
    store.log.mark_synced(job)
    store.close()
    again_store = Store.open(small_disk / "node", group=group)
    assert [again_store.log.entry(entry.index).raw for entry in entries] == [entry.raw for entry in entries]
    again_store.close()
