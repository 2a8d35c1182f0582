"""A rebuild that crashes, is killed, finds no space or fails to sync: taken up again, and never opened before it is whole."""

import errno
import random

import pytest

from tern_store import (
    Quarantined,
    Store,
    StoreError,
    finish_swap,
)
from tests.support.files.crash_states import crashed
from tests.support.files.faulty_files import FaultyFiles, PowerCut
from tests.support.files.store_node import DIRECTORY, GROUP, SMALL
from tests.support.raft.rebuilding import (
    LOG,
    Leader,
    copy,
    copy_reason,
    new_node,
    rebuild,
    require_equal,
    sink_of,
    with_old_log,
)


def open_as_it_is(files: FaultyFiles) -> int | None:
    """The end of the log that a start which asks for nothing finds, None if it finds none."""
    try:
        store = Store.open(DIRECTORY, group=GROUP, may_begin=False, limits=SMALL, files=files)
    except StoreError:
        return None
    end = store.log.end_index
    store.close()
    return end


@pytest.mark.parametrize("is_trimmed", [False, True])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_power_cut_at_every_operation_only_interrupts(is_trimmed: bool, is_new: bool) -> None:
    """Goal: whatever a crash leaves, no start takes half a copy for a log, and the next rebuild brings it to its end."""
    leader = Leader(11, is_trimmed=is_trimmed, entries=14)
    start = new_node() if is_new else with_old_log(leader)
    whole = start.fork()
    rebuild(leader, whole)
    interrupted = 0
    for cut in range(1, whole.operations + 1):
        files = start.fork()
        files.cut_at = cut
        with pytest.raises(PowerCut):
            rebuild(leader, files)
        files.crash(random.Random(f"{cut} {is_new}"))
        assert open_as_it_is(files.fork()) in {None, leader.node.log.end_index}, f"cut {cut}"
        names = {path.name: path.suffix for path in files.paths(DIRECTORY)}
        assert "swap" not in names or ".incoming" not in names.values() or "quarantine" in names, f"cut {cut}"
        # And once more, while the first interruption is mended.
        files.cut_at = 1 + cut % 23
        try:
            rebuild(leader, files)
        except PowerCut:
            interrupted += 1
            files.crash(random.Random(cut))
        files.cut_at = None
        rebuild(leader, files)
        require_equal(leader, files)
    assert interrupted > whole.operations // 2


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_a_process_killed_at_any_operation_leaves_nothing_that_is_only_in_memory(is_trimmed: bool) -> None:
    """Goal: the next process reads what the killed one wrote; before it counts on it, it makes it durable."""
    leader, whole = Leader(11, is_trimmed=is_trimmed, entries=14), new_node()
    rebuild(leader, whole)
    for cut in range(1, whole.operations + 1):
        files = new_node()
        files.cut_at = cut
        with pytest.raises(PowerCut):
            rebuild(leader, files)
        files.end_process()
        rebuild(leader, files)
        files = crashed(files, "dropped")
        finish_swap(DIRECTORY, files)
        require_equal(leader, files)


def full_disk(leader: Leader) -> FaultyFiles:
    """Room for what is there and a bit more, but not for a second log."""
    files = with_old_log(leader)
    files.capacity_bytes = files.used_bytes + leader.node.log.end_position // 4096 * 4096
    return files


def test_without_room_for_both_the_old_log_goes_first_and_is_never_opened() -> None:
    """Goal: a full disk does not keep a node from being rebuilt; until that is done the node stays quarantined."""
    leader = Leader(7, is_trimmed=False)
    files = full_disk(leader)
    sink = sink_of(files)
    sink.begin(leader.manifest())
    assert sink.cleared_early
    assert f"{0:020d}" not in files.listdir(LOG)
    with pytest.raises(Quarantined):
        Store.open(DIRECTORY, group=GROUP, limits=SMALL, files=files.fork())
    copy(leader.source, sink)
    files.capacity_bytes = None
    sink.finish()
    require_equal(leader, files)


def test_a_disk_without_room_for_the_copy_alone_is_said_and_tried_again() -> None:
    """Goal: ENOSPC leaves the copy as it was, and it goes on when there is room."""
    leader, files = Leader(7, is_trimmed=False), new_node()
    sink = sink_of(files)
    sink.begin(leader.manifest())
    files.capacity_bytes = files.used_bytes + 2 * 4096 + 100
    with pytest.raises(OSError, match="No space") as full:
        copy(leader.source, sink)
    assert full.value.errno == errno.ENOSPC
    assert sink.copied_bytes == 2 * 4096
    files.capacity_bytes = None
    copy(leader.source, sink)
    sink.finish()
    require_equal(leader, files)


@pytest.mark.parametrize("after", range(7))
def test_what_a_failed_sync_may_have_lost_is_copied_again(after: int) -> None:
    """Goal: the kernel marks lost pages clean; the next process must not read them and take them for stored."""
    leader, files = Leader(7, is_trimmed=True), new_node()
    sink = sink_of(files)
    sink.begin(leader.manifest())
    files.fail_next("fdatasync", errno.EIO, after=after)
    with pytest.raises(OSError, match="Input/output"):
        copy(leader.source, sink)
    files.end_process()
    rebuild(leader, files)
    files.crash(random.Random(after))
    require_equal(leader, files)


def test_a_swap_whose_note_went_bad_is_a_rebuild_from_the_beginning() -> None:
    """Goal: nobody guesses how far a swap was."""
    leader = Leader(7, is_trimmed=True)
    files = with_old_log(leader)
    sink = sink_of(files)
    sink.begin(leader.manifest())
    copy(leader.source, sink)
    reached = files.operations
    whole = files.fork()
    sink.finish()
    count = files.operations - reached
    for cut in range(5, count - 2):
        files = whole.fork()
        files.cut_at = cut
        sink = sink_of(files)
        with pytest.raises(PowerCut):
            sink.begin(leader.manifest())
            sink.finish()
        files.crash(random.Random(cut))
        if "swap" not in files.listdir(DIRECTORY):
            continue
        files.content(DIRECTORY / "swap")[:10] = b"\0" * 10
        if copy_reason(DIRECTORY, files):
            rebuild(leader, files)
        require_equal_after_note(leader, files)


def require_equal_after_note(leader: Leader, files: FaultyFiles) -> None:
    """As `require_equal`; a bad note that nobody needs any more may stay."""
    if "swap" in files.listdir(DIRECTORY):
        files.unlink(DIRECTORY / "swap")
    require_equal(leader, files)
