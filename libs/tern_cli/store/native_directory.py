"""A node's data directory for the offline commands: its parts, opened for reading, in any state.

Law: nothing below the directory changes, not even `lock`. Files are opened read-only, so a copy on
a read-only disk serves too.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from tern_cli.failures import CommandFailed
from tern_store import small_files
from tern_store.checks.log_check import LogFiles
from tern_store.checks.queue_check import QueueReader
from tern_store.checks.small_files_check import topic_names
from tern_store.errors import DerivedDamage, LogRot, StoreError
from tern_store.files import Files, RealFiles
from tern_store.log.commit_log import INDEX_FOLDER, LOG_FOLDER
from tern_store.log.entry import LogMark
from tern_store.log.entry_index import EntryIndex
from tern_store.offline import UnchangingFiles
from tern_store.queues.consume_queue import ConsumeQueues
from tern_store.state.saving import split_payload
from tern_store.state.state_file import SavedState, load_states
from tern_store.timers.timers import Timers
from tern_wire.records.layout import BLANK, VERSIONS

_LOCK = "lock"
# A running node may replace its saved states during a read.
_STATE_TRIES = 3


class ReadingFiles(RealFiles):
    """The kernel's files, opened for reading only."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open *path* for reading; *create* is ignored, and a missing file is an error."""
        del create
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


READING_FILES: Files = ReadingFiles()


class NodeDirectory:
    """One data directory. Owner: the command. Each part is opened at its first use."""

    def __init__(self, path: Path) -> None:
        """CommandFailed (exit 2) unless *path* is the data directory of a node."""
        self.path, self.files = path, UnchangingFiles(READING_FILES)
        if not path.is_dir() or not any((path / LOG_FOLDER).glob("[0-9]" * 20)):
            detail = f"{path} has no {LOG_FOLDER}/ with segments. Nodes of `ternmq up` have theirs below .tern/data/."
            raise CommandFailed("Not the data directory of a node", detail, exit_code=2)
        first = min((path / LOG_FOLDER).glob("[0-9]" * 20))
        with first.open("rb") as file:
            size_and_magic = file.read(BLANK.size).ljust(BLANK.size, b"\0")
        if BLANK.unpack(size_and_magic)[1] in VERSIONS:
            detail = f"{first} begins with a record of RocketMQ's. `ternmq store dump --format rocketmq FILE...` shows such files."
            raise CommandFailed("Not the data directory of a node", detail, exit_code=2)
        self.is_clean = not (path / small_files.ABORT).exists()
        # Damage at the beginning of the log, if any.
        self.rot: list[LogRot] = []

    @cached_property
    def log(self) -> LogFiles:
        """Return the segments of the log."""
        return LogFiles(self.path, self.files, self.rot.append)

    @cached_property
    def entry_index(self) -> EntryIndex:
        """Return the index of the entries' positions."""
        return EntryIndex(self.path / INDEX_FOLDER, self.files)

    @cached_property
    def states(self) -> list[SavedState]:
        """Return the readable saved states, newest first."""
        for _ in range(_STATE_TRIES - 1):
            try:
                return list(load_states(self.path, self.files))
            except FileNotFoundError:
                continue
        return list(load_states(self.path, self.files))

    @cached_property
    def section(self) -> dict[str, Any]:
        """Return the newest saved state's section on derived files; empty if there is none."""
        try:
            return split_payload(self.states[0].payload)[0] if self.states else {}
        except StoreError:
            return {}

    @cached_property
    def topics(self) -> dict[int, str]:
        """Return the known names of topics by id."""
        try:
            return {topic_id: name.decode() for topic_id, name in topic_names(self.path, self.files).items()}
        except (ValueError, AttributeError):
            return {}

    def mark_behind(self, index: int) -> LogMark:
        """Return the point behind entry *index*, or the nearest earlier one in the entry index.
        A scan begins there.
        """
        first = self.log.first
        for number in range(min(index, self.entry_index.count), first.index, -1):
            row = self.entry_index.find(number)
            if row is not None:
                return row.mark
        return first

    def mark_before(self, position: int) -> LogMark:
        """Return a point at or before *position*, close to it if the entry index is whole."""
        low, high = self.log.first.index + 1, self.entry_index.count + 1
        while low < high:
            middle = (low + high) // 2
            row = self.entry_index.find(middle)
            if row is not None and row.mark.position <= position:
                low = middle + 1
            else:
                high = middle
        return self.mark_behind(low - 1)

    @cached_property
    def queues(self) -> QueueReader:
        """Return the consume queues of the newest saved state; CommandFailed if unreadable."""
        marks = self._marks("queues", "consume queues")
        queues = ConsumeQueues.open(self.path, files=self.files)
        self._restore(queues, marks)
        return QueueReader(self.path, queues, self.section)

    @cached_property
    def timers(self) -> Timers:
        """Return the timers of the newest saved state; CommandFailed if unreadable."""
        marks = self._marks("timers", "timers")
        timers = Timers.open(self.path, files=self.files)
        self._restore(timers, marks)
        return timers

    @cached_property
    def index_marks(self) -> list[Any]:
        """Return the key index's marks in the newest saved state, as in `KeyIndex.marks`."""
        marks: list[Any] = self._marks("keys", "key index")
        return marks

    @cached_property
    def sent_keys_marks(self) -> list[int]:
        """Return the numbers of the idempotency key tables, as in `SentKeys.marks`."""
        marks: list[int] = self._marks("sent_keys", "tables of idempotency keys")
        return marks

    def _marks(self, name: str, what: str) -> Any:
        if name not in self.section:
            detail = f"{self.path} has no saved state that says how far they reach. Start the node and stop it once."
            raise CommandFailed(f"The {what} cannot be read", detail)
        return self.section[name]

    def _restore(self, part: ConsumeQueues | Timers, marks: Any) -> None:
        try:
            part.restore(marks)
        except DerivedDamage as damage:
            raise CommandFailed("A derived file is damaged", str(damage)) from damage


def running_node(directory: Path) -> str | None:
    """Return the process id of the node that has *directory* open, from its lock, or None."""
    fd, owner = _try_hold(directory)
    if fd is not None:
        READING_FILES.close(fd)
    return owner


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep nodes from starting in *directory* during the block. Writes nothing.
    CommandFailed, with the process id, if a node runs there.
    """
    fd, owner = _try_hold(directory)
    if owner is not None:
        detail = (
            f"Process {owner} has {directory} open. Stop it first (`ternmq down`), or look at a copy of the directory."
        )
        raise CommandFailed("The node is running", detail)
    try:
        yield
    finally:
        if fd is not None:
            READING_FILES.close(fd)


def _try_hold(directory: Path) -> tuple[int | None, str | None]:
    """Return the held lock's descriptor and None, or None and the owner of the lock.
    Both are None when no node was ever started in the directory, which may be a copy.
    """
    try:
        fd = READING_FILES.open(directory / _LOCK)
    except FileNotFoundError:
        return None, None
    if READING_FILES.try_lock(fd):
        return fd, None
    owner = READING_FILES.pread(fd, 32, 0).decode("ascii", "replace").strip()
    READING_FILES.close(fd)
    return None, owner or "unknown"
