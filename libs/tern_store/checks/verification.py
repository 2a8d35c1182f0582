"""Offline check of a node's data directory: one read of everything, no change, every damage named.

It covers segments, entries and their chain, records and their rows, the entry index, derived files
with their checks and against their records, saved states, votes, the log's begin, and config. The
effects of a crash, which the next start repairs, are not damage: only after a clean stop (no
`abort`) must everything be whole.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tern_store.checking import Checked
from tern_store.checks.finding import Finding, FindingKind, Findings
from tern_store.checks.log_check import LogCheck
from tern_store.checks.queue_check import QueueCheck, QueueReader
from tern_store.checks.record_check import RecordCheck, RecordPlaces
from tern_store.checks.small_files_check import SmallFilesCheck
from tern_store.checks.timer_check import TimerCheck
from tern_store.errors import DerivedDamage, LogRot, StoreError
from tern_store.files import Files
from tern_store.index.key_index import KeyIndex
from tern_store.keys.sent_key_file import KeyFile
from tern_store.keys.sent_keys import FOLDER as KEYS_FOLDER
from tern_store.keys.sent_keys import file_name
from tern_store.log.commit_log import INDEX_FOLDER, LOG_FOLDER
from tern_store.log.entry import LogMark
from tern_store.offline import UnchangingFiles
from tern_store.queues.consume_queue import FOLDER as QUEUE_FOLDER
from tern_store.queues.consume_queue import ConsumeQueues
from tern_store.small_files import ABORT
from tern_store.state.saving import split_payload
from tern_store.state.state_file import STATE_FOLDER, SavedState, boundaries, load_boundary, load_states
from tern_store.state.vote_file import FILE_NAME as VOTES
from tern_store.timers.timers import Timers

_STATE_NAME = re.compile(r"state-\d{20}\.bin")
_BAD_STATE = "its checksum is wrong, or it is cut off"

Progress = Callable[[int, int], None]


def verify_directory(directory: Path, files: Files, progress: Progress = lambda done, total: None) -> list[Finding]:
    """Check *directory*, which no node has open: the caller holds its lock. Returns the findings.
    *progress* receives the bytes read so far and in total. At most FINDINGS_MAX findings, in order.
    StoreError if this is not the data directory of a node.
    """
    return _Verification(directory, UnchangingFiles(files), progress).run()


class _Verification:
    """One check. Owner: `verify_directory`."""

    def __init__(self, directory: Path, files: Files, progress: Progress) -> None:
        self._directory, self._files, self._progress = directory, files, progress
        if not files.listdir(directory / LOG_FOLDER) and not {VOTES, STATE_FOLDER} & set(files.listdir(directory)):
            raise StoreError(f"{directory} is not the data directory of a node: it has no log, no votes and no state.")
        self._is_clean = ABORT not in files.listdir(directory)
        self._findings = Findings()
        # The newest saved state's timers, during the pass over the log.
        self._timers: Timers | None = None
        self._total_bytes = self._data_size(directory)
        self._done_bytes = 0

    def run(self) -> list[Finding]:
        """Check everything, smallest first: a state and the config describe the rest."""
        states = self._check_states()
        small = SmallFilesCheck(self._directory, self._files, self._findings, self._read)
        small.check_notes()
        small.check_checkpoint()
        topics = small.check_config()
        log = LogCheck(
            self._directory,
            self._files,
            self._findings,
            durable_index=max((state.mark.index for state in states), default=0),
            is_clean=self._is_clean,
            on_read=self._read,
            is_copy=self._is_copy(),
        )
        try:
            small.check_votes(log.log.genesis)
            queues = self._check_derived(states)
            self._check_log(log, states, topics, queues)
            small.check_backup(log.end)
            if queues is not None:
                queues.close()
        finally:
            if self._timers is not None:
                self._timers.close()
            log.close()
        return self._findings.found

    def _is_copy(self) -> bool:
        """Whether nothing is derived from this log yet: a backup, or a copied log before the first
        start.
        """
        saved = any(_STATE_NAME.fullmatch(name) for name in self._files.listdir(self._directory / STATE_FOLDER))
        return not saved and not any(
            self._files.listdir(self._directory / name) for name in (INDEX_FOLDER, QUEUE_FOLDER)
        )

    # The log and references into it ---------------------------------------------------------------
    def _check_log(
        self, log: LogCheck, states: list[SavedState], topics: dict[int, bytes], queues: QueueReader | None
    ) -> None:
        records = RecordCheck(self._findings, log.log.place, topics)

        def read_again(mark: LogMark, stop: int) -> Iterator[RecordPlaces]:
            # The first pass has reported the damage of these records.
            again = RecordCheck(Findings(), log.log.place, dict(topics))
            with suppress(LogRot):
                for span in log.log.spans(mark, stop):
                    yield again.check(span)

        entries = None
        if queues is not None:
            entries = QueueCheck(queues, self._findings, read_again, topics)
        expected = {state.mark.index: state for state in states}
        for span in log.spans():
            begin = span.headers[0].index
            for index in [index for index in expected if begin <= index <= span.headers[-1].index]:
                self._compare_mark(expected.pop(index), span.headers[index - begin].mark)
            places = records.check(span)
            if entries is not None:
                entries.add(span, places)
        first = log.log.first
        for state in expected.values():
            if state.mark.index < first.index:
                self._add_state(state.mark.index, f"it stands for entry {state.mark.index}, but the log begins later")
        if first.index and first.position not in {item.position for item in boundaries(self._directory, self._files)}:
            reason = f"the state of the log's start at position {first.position} is missing: derived files cannot be made again"
            self._findings.add(FindingKind.STATE, self._directory / STATE_FOLDER, 0, reason)
        if entries is not None:
            entries.finish(log.gaps)
            if self._timers is not None:
                TimerCheck(self._timers, self._directory, self._findings, read_again).run(entries.parts(), log.gaps)

    def _compare_mark(self, state: SavedState, found: LogMark) -> None:
        if state.mark != found:
            self._add_state(state.mark.index, f"it stands for {state.mark}, but the log has {found}")

    # Derived files --------------------------------------------------------------------------------
    def _check_derived(self, states: list[SavedState]) -> QueueReader | None:
        """Check the derived files at the newest saved state; return the queues if they are
        readable.
        """
        if not states:
            return None
        try:
            section = split_payload(states[0].payload)[0]
        except StoreError as error:
            reason = f"{error}: derived files were not checked"
            self._add_state(states[0].mark.index, reason, is_damage=False)
            return None
        if section.get("timers"):
            timers = Timers.open(self._directory, files=self._files)
            if self._check_part(timers, section["timers"]):
                self._timers = timers
            else:
                timers.close()
        if section.get("keys"):
            slots, entries_per_file, tags = section["keys"][:3]
            keys = KeyIndex.open(
                self._directory, slots=slots, entries_per_file=entries_per_file, tags=bool(tags), files=self._files
            )
            self._check_part(keys, section["keys"])
            keys.close()
        self._check_sent_keys(section.get("sent_keys", ()))
        queues = ConsumeQueues.open(self._directory, files=self._files)
        if not self._check_part(queues, section["queues"]):
            queues.close()
            return None
        return QueueReader(self._directory, queues, section)

    def _check_sent_keys(self, marks: Sequence[int]) -> None:
        for number in marks:
            try:
                file, _ = KeyFile.open(self._directory / KEYS_FOLDER / file_name(number), self._files)
            except DerivedDamage as damage:
                self._add_damage(damage)
                continue
            for found in file.verify():
                if isinstance(found, Checked):
                    self._read(found.size_bytes)
                else:
                    self._add_damage(found)
            file.close()

    def _check_part(self, part: ConsumeQueues | KeyIndex | Timers, marks: Any) -> bool:
        """Restore *part* to *marks* and read all of it; False if it could not be restored."""
        try:
            part.restore(marks)
        except DerivedDamage as damage:
            self._add_damage(damage, "; nothing else of its kind was checked")
            return False
        for found in part.verify():
            if isinstance(found, Checked):
                self._read(found.size_bytes)
            else:
                self._add_damage(found)
        return True

    def _add_damage(self, damage: DerivedDamage, more: str = "") -> None:
        self._findings.add(FindingKind.DERIVED, damage.file, damage.position, damage.reason + more)

    # Saved states ---------------------------------------------------------------------------------
    def _check_states(self) -> list[SavedState]:
        """The readable states, newest first."""
        folder = self._directory / STATE_FOLDER
        names = [name for name in self._files.listdir(folder) if _STATE_NAME.fullmatch(name)]
        states = list(load_states(self._directory, self._files))
        readable = {f"state-{state.mark.index:020d}.bin" for state in states}
        for name in names:
            self._read(self._size(folder / name))
            if name not in readable:
                self._add_state(int(name[6:26]), _BAD_STATE)
        for boundary in boundaries(self._directory, self._files):
            path = folder / boundary.name
            self._read(self._size(path))
            if load_boundary(self._directory, boundary, self._files) is None:
                self._findings.add(FindingKind.STATE, path, 0, _BAD_STATE)
        if not states and not names and self._files.listdir(self._directory / QUEUE_FOLDER):
            reason = "there is no saved state, so the extent of the derived files is unknown: they were not checked"
            self._findings.add(FindingKind.STATE, folder, 0, reason, is_damage=self._is_clean)
        return states

    # Below ----------------------------------------------------------------------------------------
    def _read(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        self._progress(self._done_bytes, max(self._total_bytes, self._done_bytes))

    def _size(self, path: Path) -> int:
        fd = self._files.open(path)
        try:
            return self._files.size(fd)
        finally:
            self._files.close(fd)

    def _data_size(self, folder: Path) -> int:
        """Bytes in all files below *folder*, without preallocated space."""
        total = 0
        for name in self._files.listdir(folder):
            try:
                total += self._data_size(folder / name)
            except NotADirectoryError:
                fd = self._files.open(folder / name)
                total += sum(end - begin for begin, end in self._files.data_extents(fd, 0))
                self._files.close(fd)
        return total

    def _add_state(self, index: int, reason: str, *, is_damage: bool = True) -> None:
        path = self._directory / STATE_FOLDER / f"state-{index:020d}.bin"
        self._findings.add(FindingKind.STATE, path, 0, reason, is_damage=is_damage)
