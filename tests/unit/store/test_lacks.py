"""What the kernel refuses (no descriptors, memory, quota, permission) loses nothing and is done again; what the medium loses is final."""

import errno
import os
import random
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from tern_store import EntryKind, LogRot, SyncLost
from tern_store.file_errors import TOLD_S, NotedFiles
from tern_store.files import REAL_FILES, is_done
from tests.support.files import faulty_files
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.store_node import DIRECTORY, Node
from tests.support.files.store_run import examine, require_served
from tests.unit.store.test_disk_full import WRITES, again, go_on

REFUSALS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EDQUOT, errno.EINTR, errno.EACCES)


@pytest.mark.parametrize("write", WRITES)
def test_a_refusal_at_every_kind_of_write_loses_nothing(write: str) -> None:
    """Each open, write and change of a name may be refused: the writer works or says so, all is served, and once it is over it works."""
    words: Counter[str] = Counter()
    for seed in range(4):
        for share in (0.1, 0.4, 1.0):
            print(f"seed {seed}, {share:.0%} refused")
            run, node = again(seed)
            for _ in range(3):
                run.append(node)
            run.files.refuse(random.Random(f"{seed} {share}"), share, REFUSALS)
            for _ in range(4):
                try:
                    WRITES[write](run, node)
                except SyncLost:
                    raise
                except OSError as error:
                    assert error.errno in {*REFUSALS, errno.ENOSPC}  # as the run itself says that a save was not made
                    words["refused"] += 1
                else:
                    words["done"] += 1
            run.files.relent()
            require_served(node, run, run.promise)
            go_on(run, node, write)
    print(words)
    assert words["refused"] or write == "vote" or words["done"]


@pytest.mark.parametrize("call", ["pwrite", "pwritev"])
def test_only_an_error_of_the_medium_condemns_a_write(call: str, tmp_path: Path) -> None:
    """EIO: what was written may be gone. Any other refusal has left it as it was."""
    fd = REAL_FILES.open(tmp_path / "file", create=True)

    def write() -> None:
        if call == "pwrite":
            REAL_FILES.pwrite(fd, b"some", 0)
        else:
            REAL_FILES.pwritev(fd, [b"so", b"me"], 0)

    with patch(f"os.{call}", side_effect=OSError(errno.EIO, "Input/output error")), pytest.raises(SyncLost):
        write()
    for number in (*REFUSALS, errno.ENOSPC):
        with patch(f"os.{call}", side_effect=OSError(number, os.strerror(number))), pytest.raises(OSError) as refused:
            write()
        assert not isinstance(refused.value, SyncLost)
    REAL_FILES.close(fd)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_every_failed_sync_condemns(number: int, tmp_path: Path) -> None:
    """The kernel has marked the pages clean, whatever it says of why. A folder that cannot be opened was not tried."""
    fd = REAL_FILES.open(tmp_path / "file", create=True)
    error = OSError(number, os.strerror(number))
    with patch("os.fdatasync", side_effect=error), pytest.raises(SyncLost):
        is_done(lambda: REAL_FILES.fdatasync(fd))
    with patch("os.fsync", side_effect=error), pytest.raises(SyncLost):
        is_done(lambda: REAL_FILES.fsync_dir(tmp_path))
    with patch("os.open", side_effect=OSError(errno.EMFILE, os.strerror(errno.EMFILE))):
        assert not is_done(lambda: REAL_FILES.fsync_dir(tmp_path))
    REAL_FILES.close(fd)


def test_half_an_entry_that_cannot_be_erased_yet_is_erased_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The write and its undoing are refused: readers see neither, the node goes on, and a start in between finds a sound log."""
    monkeypatch.setattr(faulty_files, "PAGE_SIZE_BYTES", 512)  # segments are 4 KiB here
    halves = 0
    for seed in range(12):
        run, node = again(seed)
        log, end = node.log, node.log.mark(node.log.end_index)
        body = [bytes(range(1, 251)) * (4 + seed)]
        run.files.fail_next("pwrite", errno.ENOMEM)
        run.files.fail_next("pwrite", errno.EINTR)
        with pytest.raises(OSError, match="Cannot allocate memory"):
            log.append(EntryKind.NOOP, log.end_index + 1, log.end_term, body, 1)
        assert log.mark(log.end_index) == end
        segment = DIRECTORY / "commitlog" / f"{log.segment_bases[-1]:020d}"
        halves += any(run.files.peek(segment)[end.position - log.segment_bases[-1] :])
        examine(Node(run.files.fork(), run.limits, group=run.group), run, run.promise)
        run.files._failures.clear()  # the second one, where nothing was left to be undone
        run.append(node)
        run.sync(node)
        require_served(node, run, run.promise)
    assert halves, "none left half an entry"


def test_a_cut_that_is_refused_is_finished_before_anything_is_written() -> None:
    """Its entries are gone for readers at once; what is durable is never more than what is left."""
    for seed in range(4):
        run, node = again(seed)
        for _ in range(3):
            run.append(node)
        log = node.log
        run.sync(node)
        kept = log.end_index - 2
        run.files.fail_next("pwrite", errno.ENOMEM)
        with pytest.raises(OSError, match="Cannot allocate memory"):
            log.truncate_from(kept + 1)
        assert (log.end_index, log.synced_index) == (kept, kept)
        entry = log.append(EntryKind.NOOP, kept + 1, log.end_term, [b"instead"], 1)
        job = log.take_sync()
        assert job is not None
        job.run()
        log.mark_synced(job)
        node.close()
        reopened = Node(run.files, run.limits, group=run.group)
        assert reopened.log.end_index == kept + 1
        assert bytes(reopened.log.entry(kept + 1).body) == bytes(entry.body) == b"instead"


def test_what_the_disk_cannot_read_of_the_log_is_rot() -> None:
    """Never an error that a reader may take for its own, and try again for ever."""
    run, node = again(0)
    run.append(node)
    run.sync(node)
    log = node.log
    segment = next(path for path in run.files.paths() if path.parent.name == "commitlog" and path.name.isdecimal())
    run.files.wear(segment, 0, 1 << 40)
    log.distrust()
    with pytest.raises(LogRot, match="the disk cannot read it"):
        for index in range(log.first_index, log.end_index):
            log.entry(index)


def test_a_node_says_what_it_lacks_for_a_while() -> None:
    """The last refusal with its remedy; nothing of a file that is not there, of a failed sync, or of long ago."""
    files, now_s = FaultyFiles(), [100.0]
    noted = NotedFiles(files, lambda: now_s[0])
    noted.makedirs(Path("/data"))
    fd = noted.open(Path("/data/file"), create=True)
    with pytest.raises(FileNotFoundError):
        noted.open(Path("/data/none"))
    files.fail_next("fdatasync", errno.EIO)
    with pytest.raises(SyncLost):
        noted.fdatasync(fd)
    assert noted.lack() == ""
    files.fail_next("pwrite", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        noted.pwrite(fd, b"some", 0)
    assert noted.lack().startswith("Too many open files: this process has as many open files as its limit allows")
    now_s[0] += TOLD_S / 2
    assert noted.lack()
    now_s[0] += TOLD_S
    assert noted.lack() == ""
