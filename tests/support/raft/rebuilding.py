"""A leader whose log is copied, and nodes that lack one: for tests of the rebuild."""

from pathlib import Path
from typing import Any

from tern_store import (
    REAL_FILES,
    EntryKind,
    Files,
    LogRot,
    RebuildSink,
    RebuildSource,
    VoteFile,
    finish_swap,
)
from tern_store.backup.backup_directory import BackupDirectory
from tern_store.log.log_start import has_log
from tern_store.small_files import quarantine, refuse_quarantined, write_mark
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.store_node import DIRECTORY, GROUP, SMALL, Node
from tests.support.files.store_run import StoreRun

CHUNK_SIZE_BYTES = 700
LOG = DIRECTORY / "commitlog"
NOTES = {"swap", "quarantine", "rebuild"}


def copy_reason(directory: Path, files: Files = REAL_FILES) -> str:
    """Why the node of *directory* needs a copy of its group's log before it can open its own; empty if it does not.

    To be asked behind `finish_swap`.
    """
    try:
        refuse_quarantined(directory, files)
    except LogRot as rot:
        return str(rot)
    return "" if has_log(directory / "commitlog", files) else f"{directory} holds no log"


class Leader:
    """A node with some segments, the first of them dropped if *is_trimmed*."""

    def __init__(self, seed: int, *, is_trimmed: bool, entries: int = 30) -> None:
        self.files = FaultyFiles()
        self.run = StoreRun(self.files, seed, group=GROUP)  # a group of one has nobody to be copied to
        self.run.limits = SMALL
        self.node = self.run.open()
        self.grow(entries)
        if is_trimmed:
            self.trim()
        self.source = RebuildSource(self.node.store)

    def grow(self, entries: int) -> None:
        for _ in range(entries):
            self.run.append(self.node)
        self.sync()

    def trim(self) -> None:
        before = self.node.log.start.index
        while self.node.log.start.index == before:
            self.grow(4)
            self.run.save(self.node, quietly=True)
            self.run.trim(self.node)
            self.sync()

    def sync(self) -> None:
        while self.node.log.synced_index < self.node.log.end_index:
            self.run.sync(self.node)

    def manifest(self) -> dict[str, Any]:
        return self.source.manifest(self.node.log.end_index)


def new_node() -> FaultyFiles:
    """The files of a node that has votes (it may be that it has just forgotten older ones), but no log."""
    files = FaultyFiles()
    VoteFile.open(DIRECTORY, bootstrap=True, group=GROUP, files=files).close()
    return files.fork()


def sink_of(files: FaultyFiles) -> RebuildSink:
    return RebuildSink(DIRECTORY, GROUP, files, chunk_size_bytes=CHUNK_SIZE_BYTES)


def copy(source: RebuildSource, sink: RebuildSink | BackupDirectory) -> int:
    """Everything that is wanted; how many bytes that was."""
    copied = 0
    while (piece := sink.wanted()) is not None:
        data = source.read(*piece)
        sink.write(piece.name, piece.position, data)
        copied += len(data)
    return copied


def rebuild(leader: Leader, files: FaultyFiles) -> None:
    """What a node does that needs a copy, after a crash as at first."""
    finish_swap(DIRECTORY, files)
    if copy_reason(DIRECTORY, files):
        sink = sink_of(files)
        sink.begin(leader.manifest())
        copy(leader.source, sink)
        sink.finish()


def require_equal(leader: Leader, files: FaultyFiles) -> None:
    """A node that opens *files* has the leader's log, and what follows from it."""
    node, log = Node(files), leader.node.log
    assert (node.log.start, node.log.end_index, node.log.was_torn) == (log.start, log.end_index, False)
    for index in range(log.first_index, log.end_index + 1):
        assert node.log.entry(index).raw == log.entry(index).raw
    assert node.facts() == leader.node.facts()
    node.close()
    assert files.open_count() == 0
    assert not [path for path in files.paths(DIRECTORY) if path.suffix == ".incoming" or path.name in NOTES]


def with_old_log(leader: Leader) -> FaultyFiles:
    """The files of a quarantined node that has the beginning of the leader's log, and behind it what no other has, far beyond."""
    files = FaultyFiles()
    node = Node(files)
    for index in range(2, 8):
        node.log.append_stored(leader.run.entries[leader.run.promise.crcs[index]].raw)
        node.apply(node.log.entry(index))
    for index in range(8, 30):
        node.log.append(EntryKind.NOOP, index, 99, [bytes(2000)], 1)
    job = node.log.take_sync()
    assert job is not None
    job.run()
    node.log.mark_synced(job)
    save = node.store.save(node.log.mark(7), lambda: [node.payload()])
    node.store.saved(save, is_saved=save.run())
    write_mark(DIRECTORY, "rebuild", {"reason": "a queue was damaged"}, files)
    node.close()
    quarantine(DIRECTORY, LogRot(LOG / f"{0:020d}", 4000, "a bit flipped"), files)
    return files
