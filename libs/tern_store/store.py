"""The files of a broker node except votes and lock: the log, and the files derived from it.

Law: the log is the truth. A saved state holds how far each derived file reached at one point of the
log. A start restores the files to that point, and the owner applies the tail again, through the
same calls in the same order. If a derived file is missing or damaged, all of them are made again
from the log's beginning; if the log is damaged, the node is quarantined.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_store import small_files
from tern_store.checking import Checked
from tern_store.delayed import move_timers
from tern_store.errors import DerivedDamage, LogRot, Quarantined
from tern_store.files import REAL_FILES, Files, is_done
from tern_store.index.key_index import TIME_MAX_MS, KeyIndex
from tern_store.index.key_search import Found, find_records
from tern_store.keys.sent_keys import SentKeys
from tern_store.log.commit_log import LOG_FOLDER, CommitLog
from tern_store.log.entry import LogMark, StoredEntry
from tern_store.log.genesis import Genesis
from tern_store.log.log_start import TrimJob, has_log
from tern_store.log.moved_entries import MovedEntries
from tern_store.log.sync_job import SyncJob
from tern_store.opening import open_store
from tern_store.queues.consume_queue import ConsumeQueues
from tern_store.state.saving import Payload, Save, payload_with, split_payload
from tern_store.state.state_file import (
    Boundary,
    SavedState,
    StateSave,
    boundaries,
    drop_boundaries,
    load_boundary,
)
from tern_store.timers.timers import Timers
from tern_wire.array_thresholds import RECORDS_ONE_BY_ONE_MAX
from tern_wire.limits import IDEMPOTENCY_TABLE_KEYS_MAX
from tern_wire.link.rows import MOVED_MESSAGE, MOVED_TIMER, QUEUE_ENTRIES, QueueAppends

Entries = npt.NDArray[Any]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Sizes of files and buffers; tests shrink them together."""

    entry_size_max_bytes: int = 5 << 20
    recent_max_bytes: int = 32 << 20
    queue_entries_per_file: int = 300_000
    index_slots: int = 5_000_000
    index_entries_per_file: int = 20_000_000
    table_keys_max: int = IDEMPOTENCY_TABLE_KEYS_MAX


class Store:
    """The files of one node. Owner: the core loop; only `run` of its jobs may run elsewhere."""

    def __init__(
        self, directory: Path, files: Files, limits: StoreLimits, log: CommitLog, state: SavedState | None
    ) -> None:
        """Use `open`."""
        self.directory, self.files = directory, files
        self.log = log
        self.queues = ConsumeQueues.open(directory, entries_per_file=limits.queue_entries_per_file, files=files)
        self.keys = KeyIndex.open(
            directory, slots=limits.index_slots, entries_per_file=limits.index_entries_per_file, files=files
        )
        self.timers = Timers.open(directory, files=files)
        self.sent_keys = SentKeys.open(directory, table_keys_max=limits.table_keys_max, files=files)
        self.sent_keys.is_derivable = self._has_keys_in_log
        self.moved = MovedEntries()
        # Queues with messages by reference: (topic id, queue) to the first and last such offset.
        self.references: dict[tuple[int, int], tuple[int, int]] = {}
        # Made again from a state at the log's beginning, before the trim that made it the beginning
        # is applied again: timers set before are missing. Entries carry the timers that come due
        # meanwhile.
        self.timers_are_partial = False
        # The last entry to drop, from the last applied trim.
        self._wanted_start: LogMark | None = None
        self._unsynced: list[SyncJob] = []
        # The owner's saved state and its point in the log; None: apply from the first entry.
        self.payload: bytes | None = None
        self.applied: LogMark | None = None
        # Why this start made the derived files again; empty if it did not.
        self.rebuilding = ""
        if state is not None:
            section, self.payload = split_payload(state.payload)
            self.applied = state.mark
            self._restore(section)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        group: Genesis,
        accepts: Callable[[bytes], bool] = lambda _: True,
        knows: Callable[[bytes], bool] = lambda _: True,
        may_begin: bool = True,
        on_tear: Callable[[], None] = lambda: None,
        limits: StoreLimits | None = None,
        files: Files = REAL_FILES,
    ) -> "Store":
        """Recover the files in *directory*, or begin them. The owner holds the directory's lock.
        *accepts*: whether the owner can use a saved payload. *knows*: whether it reads its form;
        where nothing else is left, another release's form is StateOfOtherRelease, not damage.
        *may_begin*: whether the log may be absent. *on_tear*: called before a torn entry is cut.
        Then apply the log behind `applied`. Raises Quarantined or LogRot (no part in the group
        until a rebuild), WrongGroup, StoreError.
        """
        files.makedirs(directory)
        small_files.refuse_quarantined(directory, files)
        if not may_begin and not has_log(directory / LOG_FOLDER, files):
            raise LogRot(directory / LOG_FOLDER, 0, "there are votes but no log: it was lost")
        sizes = limits or StoreLimits()
        bounds = (sizes.entry_size_max_bytes, sizes.recent_max_bytes)
        try:
            return open_store(
                partial(cls, directory, files, sizes), directory, group, accepts, knows, on_tear, bounds, files
            )
        except LogRot as rot:
            if not isinstance(rot, Quarantined):
                small_files.quarantine(directory, rot, files)
            raise

    # Apply ----------------------------------------------------------------------------------------
    def dispatch(self, entry: StoredEntry, appends: QueueAppends, topics: dict[int, bytes], now_ms: int) -> None:
        """Add the messages of *entry* to their queues, and its own records' keys to the index.
        In memory at first. *topics*: id to name (UTF-8); *now_ms*: the entry's time.
        """
        self.queues.append_all(appends, now_ms)
        if len(appends.entries) <= RECORDS_ONE_BY_ONE_MAX and self._index_few(entry, appends, topics, now_ms):
            return
        positions = appends.entries["position"].astype(np.int64)
        is_old, end = np.zeros(0, bool), entry.position + len(entry.raw)
        if len(positions) and not entry.position <= positions.min() <= positions.max() < end:
            # Messages by reference are indexed when stored or committed (`half_message_keys.py`).
            is_old = (positions < entry.position) | (positions >= end)
            self._refer(appends, is_old)
        if len(is_old):
            positions = positions[~is_old]
        if not len(positions):
            return
        if len(appends) == 1:
            runs = [(int(appends.codes[0]) >> 32, positions)]
        else:
            ids = np.repeat(appends.codes >> 32, np.diff(appends.bounds))
            runs = _by_topic(ids[~is_old] if len(is_old) else ids, positions, appends.topic_ids())
        own = [(topics[topic_id], where - entry.position, where) for topic_id, where in runs]
        self.keys.add_runs(entry.raw, own, now_ms)

    def _index_few(self, entry: StoredEntry, appends: QueueAppends, topics: dict[int, bytes], now_ms: int) -> bool:
        """The rest of `dispatch` without arrays; False if a message is not the entry's own."""
        begin, positions = entry.position, appends.entries["position"].tolist()
        if not positions or min(positions) < begin or max(positions) >= begin + len(entry.raw):
            return False
        if len(appends) == 1:
            runs = [(topics[int(appends.codes[0]) >> 32], positions)]
        else:
            own: dict[int, list[int]] = {topic_id: [] for topic_id in appends.topic_ids()}
            bounds = appends.bounds.tolist()
            for number, code in enumerate(appends.codes.tolist()):
                own[code >> 32] += positions[bounds[number] : bounds[number + 1]]
            runs = [(topics[topic_id], sorted(where)) for topic_id, where in own.items()]
        self.keys.add_few(entry.raw, runs, begin, now_ms)
        return True

    def read_queue(self, topic_id: int, queue: int, offset: int, count: int) -> Entries:
        """Up to *count* queue entries from *offset*; moved messages point at their copies."""
        entries = self.queues.read(topic_id, queue, offset, count)
        if not self.moved.has(topic_id, queue):
            return entries
        if not len(entries):
            # A group holds or has not read these messages, and the queue's files begin behind them
            # or do not exist, because they were made again from the log. Only copies are left, up
            # to the files' begin.
            copies = self.moved.run(topic_id, queue, offset, count)
            left, behind = count - len(copies), offset + len(copies)
            if not left or not len(copies) or behind < self.queues.min(topic_id, queue):
                return copies
            return np.concatenate([copies, self.read_queue(topic_id, queue, behind, left)]).astype(QUEUE_ENTRIES)
        return self.moved.lay_over(topic_id, queue, offset, entries)

    def move(
        self, entry: StoredEntry, rows: Entries, positions: Positions, topics: dict[int, bytes], now_ms: int
    ) -> None:
        """Replace older records with those of *entry* at *positions*, as *rows* (MOVE_ROWS) say.
        See `needed_records.py`. The owner keeps the places of half and staged messages.
        """
        is_message = rows["kind"] == MOVED_MESSAGE
        for row, position in zip(rows[is_message].tolist(), positions[is_message].tolist(), strict=True):
            _, topic_id, queue, size, number, _, tag = row
            self.moved.put(topic_id, queue, number, (position, size, tag))
        is_timer = rows["kind"] == MOVED_TIMER
        move_timers(self.timers, rows[is_timer], positions[is_timer], is_partial=self.timers_are_partial)
        is_found = (rows["kind"] == MOVED_MESSAGE) | is_timer
        for topic_id in {int(topic_id) for topic_id in rows["topic"][is_found]}:
            # Their older index entries would go with the old segment.
            copies = positions[is_found & (rows["topic"] == topic_id)]
            if topic_id in topics:
                self.keys.add(entry.raw, copies - entry.position, copies, now_ms, topic=topics[topic_id])

    def find(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = TIME_MAX_MS, count: int = 64
    ) -> list[Found]:
        """At most *count* records of *topic* with *key* as message id or key, newest first.
        Times are those stored. LogRot, DerivedDamage if bytes read on the way are damaged.
        """
        return find_records(self.keys, self.log, topic, key, begin_ms=begin_ms, end_ms=end_ms, count=count)

    # Save -----------------------------------------------------------------------------------------
    def save(self, applied: LogMark, payload: Payload) -> Save:
        """Write the appends that wait in memory and return the job that makes them durable.
        OSError ENOSPC leaves them in memory. *payload* gives the owner's state after entry
        *applied*.index; it is called on the job's thread.
        """
        self.log.require_sound()
        for part in (self.queues, self.keys, self.timers):
            # Part by part: if the next has no room, a later save still syncs what this one wrote.
            self._unsynced.append(part.flush())
        section = {
            "queues": self.queues.marks(),
            "keys": self.keys.marks(),
            "timers": self.timers.marks(),
            "sent_keys": self.sent_keys.begin_save(),
            "moved": self.moved.marks(),
            "partial": self.timers_are_partial,
            "wanted_start": astuple(self._wanted_start) if self._wanted_start is not None else None,
            "references": [[*queue, *offsets] for queue, offsets in self.references.items()],
        }
        behind = self.sent_keys.written_before(payload_with(section, payload))
        state = StateSave(self.directory, applied, behind, self.files)
        return Save(mark=applied, log_sync=self.log.take_sync(), derived_syncs=tuple(self._unsynced), state=state)

    def saved(self, save: Save, *, is_saved: bool) -> None:
        """Record that *save* has run; *is_saved*: drop files that only older states need."""
        if save.log_sync is not None:
            self.log.mark_synced(save.log_sync)
        if not is_saved:
            return
        self._unsynced.clear()
        self.applied = save.mark
        for part in (self.queues, self.keys, self.timers, self.sent_keys):
            part.saved()
        if self.rebuilding and is_done(
            partial(small_files.remove_mark, self.directory, small_files.REBUILD, self.files)
        ):
            self.rebuilding = ""

    def save_boundary(
        self, applied: LogMark, payload: Payload, *, position: int, now_ms: int, ends: Sequence[Sequence[Any]]
    ) -> StateSave:
        """The job that saves the state before the segment at *position*.
        *applied* is the last entry before it. *ends*: [topic id, [end of queue 0, ...]] of every
        topic as of *applied*: the queues' mins once the log begins there.
        """
        boundary = Boundary(position, now_ms)
        section = {"ends": ends, "sent_keys": self.sent_keys.marks()}
        behind = self.sent_keys.written_before(payload_with(section, payload))
        return StateSave(self.directory, applied, behind, self.files, boundary=boundary)

    # Retention ------------------------------------------------------------------------------------
    def boundaries(self) -> list[Boundary]:
        """Places behind the log's start with a segment begin and a saved state, ascending."""
        bases = set(self.log.segment_bases[1:])
        return [boundary for boundary in boundaries(self.directory, self.files) if boundary.position in bases]

    def load_boundary(self, boundary: Boundary) -> tuple[LogMark, dict[str, Any]] | None:
        """The point before *boundary* and its saved section; None if that state cannot be read."""
        state = load_boundary(self.directory, boundary, self.files)
        return (state.mark, split_payload(state.payload)[0]) if state is not None else None

    def want_trim(self, last: LogMark, floors: Sequence[tuple[int, int, int]]) -> None:
        """Set the log's future beginning behind the entry *last*, and queues' mins from *floors*.
        *floors*: (topic id, queue, offset). All needed records are copied; `wanted_trim` follows.
        """
        for topic_id, queue, offset in floors:
            if end := self.queues.end(topic_id, queue):
                self.queues.trim(topic_id, queue, min(offset, end))
        if last.index >= self.log.start.index:
            self.timers_are_partial = False
        if self._wanted_start is None or last.index > self._wanted_start.index:
            self._wanted_start = last

    def wanted_trim(self) -> TrimJob | None:
        """The next job that drops segments, None if none can go yet.
        Call `trimmed` before the next. A segment goes only if a saved state lies behind it, which a
        start needs, and if this node has a state for the log to begin with. It lacks that state if
        it was away or without room when the segment began; it then keeps more than others until the
        next trim.
        """
        wanted = self._wanted_start
        if wanted is None or self.applied is None or not self.log.start.index < wanted.index < self.applied.index:
            return None
        size = self.log.segment_size_bytes
        first_position = -(-wanted.position // size) * size
        for boundary in reversed(self.boundaries()):
            found = self.load_boundary(boundary) if boundary.position <= first_position else None
            if found is not None and self.log.start.index < found[0].index <= wanted.index:
                job, self._wanted_start = self.log.trim(found[0]), found[0]
                if job is not None:
                    self._forget_dropped()
                    return job
        self._wanted_start = None
        return None

    def trimmed(self, job: TrimJob) -> None:
        """Record that *job* has run."""
        self.log.mark_trimmed(job)
        # A refused removal is repeated with the next trim.
        is_done(partial(drop_boundaries, self.directory, self.log.start.position, self.files))

    # Damage ---------------------------------------------------------------------------------------
    def verify(self) -> Iterator[Checked | LogRot | DerivedDamage]:
        """Read everything once, in steps of about 1 MiB. Damage is yielded, never raised."""
        yield from self.log.verify()
        for part in (self.queues, self.keys, self.timers, self.sent_keys):
            yield from part.verify()

    def note_damage(self, damage: LogRot | DerivedDamage) -> None:
        """Durable here: the next start quarantines the node, or makes derived files again."""
        if isinstance(damage, LogRot):
            small_files.quarantine(self.directory, damage, self.files)
        else:
            small_files.request_rebuild(self.directory, damage, self.files)

    def close(self) -> None:
        """Close the files. The next start derives unsaved data from the log."""
        for part in (self.queues, self.keys, self.timers, self.sent_keys, self.log):
            part.close()

    # Below ----------------------------------------------------------------------------------------
    def _has_keys_in_log(self, number: int) -> bool:
        """Whether the log holds the sends of table *number*: its start's state lacks the table."""
        start = self.log.start
        found = [item for item in boundaries(self.directory, self.files) if item.position == start.position]
        state = self.load_boundary(found[0]) if found else None
        return not start.index or (state is not None and number not in state[1]["sent_keys"])

    def _forget_dropped(self) -> None:
        """Drop every reference to positions before the log's start."""
        self.keys.trim(self.log.start.position)
        self.moved.drop_before(self.log.start.position)
        self.references = {
            key: (first, last) for key, (first, last) in self.references.items() if last >= self.queues.min(*key)
        }

    def _refer(self, appends: QueueAppends, is_old: npt.NDArray[np.bool_]) -> None:
        bounds = appends.bounds.tolist()
        for number, (code, first_offset) in enumerate(
            zip(appends.codes.tolist(), appends.firsts.tolist(), strict=True)
        ):
            old = np.flatnonzero(is_old[bounds[number] : bounds[number + 1]]) + first_offset
            if len(old):
                key = (code >> 32, code & 0xFFFFFFFF)
                first, _ = self.references.get(key, (int(old[0]), 0))
                self.references[key] = (first, int(old[-1]))

    def _restore(self, section: dict[str, Any]) -> None:
        self.queues.restore(section["queues"])
        self.keys.restore(section["keys"])
        self.timers.restore(section["timers"])
        self.sent_keys.restore(section["sent_keys"])
        self.moved.restore(section["moved"])
        self.references = {(topic, queue): (first, last) for topic, queue, first, last in section["references"]}
        self.timers_are_partial = bool(section["partial"])
        self._wanted_start = LogMark(*section["wanted_start"]) if section["wanted_start"] else None
        # Repeat a trim that the log may have finished after this state; it drops nothing new.
        self._forget_dropped()

    def begin_again(self, reason: str, base: SavedState | None) -> None:
        """Drop derived files, to derive them behind *base*, the log's start (None: genesis)."""
        for part in (self.queues, self.keys, self.timers):
            part.wipe()
        self.sent_keys.restore(split_payload(base.payload)[0]["sent_keys"] if base is not None else ())
        self.moved, self.references = MovedEntries(), {}
        self.rebuilding = reason
        self.payload, self.applied = None, None
        if base is not None:
            self.payload, self.applied = split_payload(base.payload)[1], base.mark
            self.timers_are_partial = True
            # Queues begin at their ends of that time: the first append of the replay sets them.


def _by_topic(ids: Positions, positions: Positions, wanted: Iterable[int]) -> list[tuple[int, Positions]]:
    """Group ascending *positions* by their topic ids *ids*, in the order of *wanted*."""
    order = np.lexsort((positions, ids))
    ids, positions = ids[order], positions[order]
    edges = np.flatnonzero(np.diff(ids)) + 1
    found = dict(zip(ids[np.append(0, edges)].tolist(), np.split(positions, edges), strict=True))
    return [(topic_id, found[topic_id]) for topic_id in wanted if topic_id in found]
