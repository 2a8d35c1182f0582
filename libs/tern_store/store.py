"""Everything that a broker node keeps below its data directory, but its votes and its lock: the log, and what follows from it.

Law: the log is the truth. A saved state says how far every derived file reached at one point of the log; a start restores them to
that point and the owner applies the tail again, through the same calls in the same order. Where a derived file is missing or damaged,
all of them are made again from the log's beginning; where the log is damaged, the node is quarantined.
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
from tern_wire.link.rows import MOVED_HALF, MOVED_MESSAGE, MOVED_TIMER, QUEUE_ENTRIES, QueueAppends

Entries = npt.NDArray[Any]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Sizes of files and buffers; tests shrink them together. None: as the group's genesis, or the part's own default, says."""

    entry_size_max_bytes: int = 5 << 20
    recent_max_bytes: int = 32 << 20
    queue_entries_per_file: int = 300_000
    index_slots: int = 5_000_000
    index_entries_per_file: int = 20_000_000
    table_keys_max: int = IDEMPOTENCY_TABLE_KEYS_MAX


class Store:
    """One node's files. Owner: the core loop; only the `run` of its jobs may be called elsewhere."""

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
        # Queues that were given messages by reference: (topic id, queue) to the first and last such offset.
        self.references: dict[tuple[int, int], tuple[int, int]] = {}
        # Made again from a state at the log's beginning, and the trim that made it the beginning not yet applied again: timers that
        # were set before are missing. What comes due meanwhile, the log says itself.
        self.timers_are_partial = False
        # The last entry that is to go, by the last trim that was applied.
        self._wanted_start: LogMark | None = None
        self._unsynced: list[SyncJob] = []
        # What the owner saved, and the point it stands for; None: nothing, apply the log from its first entry.
        self.payload: bytes | None = None
        self.applied: LogMark | None = None
        # Why the derived files were made again at this start; empty if they were not.
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
        """Recover what is in *directory*, or begin it. The owner holds the directory's lock.

        *accepts* says whether the owner can use a payload that was saved, *knows* whether it reads its form (another release may have saved it:
        where nothing else is left it is StateOfOtherRelease, not damage), *may_begin* whether there may be no log yet; *on_tear* is called
        before a torn entry is cut. Apply what the log holds behind `applied`. Raises Quarantined or LogRot (the node must not take part until it is rebuilt), WrongGroup, StoreError.
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

    # Apply -----------------------------------------------------------------------------------------------------
    def dispatch(self, entry: StoredEntry, appends: QueueAppends, topics: dict[int, bytes], now_ms: int) -> None:
        """Add what *entry* made visible to its queues, and the keys of its own records to the index. In memory at first.

        *topics*: topic id to name (UTF-8) of all *appends*; *now_ms*: the entry's time.
        """
        self.queues.append_all(appends, now_ms)
        if len(appends.entries) <= RECORDS_ONE_BY_ONE_MAX and self._index_few(entry, appends, topics, now_ms):
            return
        positions = appends.entries["position"].astype(np.int64)
        is_old, end = np.zeros(0, bool), entry.position + len(entry.raw)
        if len(positions) and not entry.position <= positions.min() <= positions.max() < end:
            # Some are delivered by reference: those are in the index since they were stored, or committed (`halves.py`).
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
        """The rest of `dispatch` without arrays; False if not all of the messages are the entry's own."""
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
        """Up to *count* queue entries from *offset* on, as they are now: copies of moved messages instead of what was dropped."""
        entries = self.queues.read(topic_id, queue, offset, count)
        if not self.moved.has(topic_id, queue):
            return entries
        if not len(entries):
            # Held by a group, or not read by it, although the files of its queue begin behind it (or there are none yet), since they were made again
            # from the log: only copies are left, up to where the files begin.
            copies = self.moved.run(topic_id, queue, offset, count)
            left, behind = count - len(copies), offset + len(copies)
            if not left or not len(copies) or behind < self.queues.min(topic_id, queue):
                return copies
            return np.concatenate([copies, self.read_queue(topic_id, queue, behind, left)]).astype(QUEUE_ENTRIES)
        return self.moved.lay_over(topic_id, queue, offset, entries)

    def move(
        self, entry: StoredEntry, rows: Entries, positions: Positions, topics: dict[int, bytes], now_ms: int
    ) -> None:
        """Records of *entry* at *positions* replace older ones, as *rows* (MOVE_ROWS) say; see `needed.py`.

        Where half messages lie the owner keeps, and nobody may find them by key.
        """
        is_message = rows["kind"] == MOVED_MESSAGE
        for row, position in zip(rows[is_message].tolist(), positions[is_message].tolist(), strict=True):
            _, topic_id, queue, size, number, _, tag = row
            self.moved.put(topic_id, queue, number, (position, size, tag))
        is_timer = rows["kind"] == MOVED_TIMER
        move_timers(self.timers, rows[is_timer], positions[is_timer], is_partial=self.timers_are_partial)
        is_found = rows["kind"] != MOVED_HALF
        for topic_id in {int(topic_id) for topic_id in rows["topic"][is_found]}:
            # Under their keys they would be gone with the old segment.
            copies = positions[is_found & (rows["topic"] == topic_id)]
            if topic_id in topics:
                self.keys.add(entry.raw, copies - entry.position, copies, now_ms, topic=topics[topic_id])

    def find(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = TIME_MAX_MS, count: int = 64
    ) -> list[Found]:
        """At most *count* records of *topic* whose message id or one of whose keys is *key*, newest first; times as stored.

        LogRot, DerivedDamage if bytes on the way went bad.
        """
        return find_records(self.keys, self.log, topic, key, begin_ms=begin_ms, end_ms=end_ms, count=count)

    # Save ------------------------------------------------------------------------------------------------------
    def save(self, applied: LogMark, payload: Payload) -> Save:
        """Write what waits in memory (OSError ENOSPC: it stays there) and say what is to be made durable.

        *payload* gives the owner's state after entry *applied*.index; it is called on the job's thread.
        """
        self.log.require_sound()
        for part in (self.queues, self.keys, self.timers):
            # One by one: if the next has no room, what this one wrote is still to be synced by a later save.
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
        """*save* has run and said whether there is a new state: then what only older ones need may go."""
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
        """The state of the place where the segment of *position* begins: *applied* is the last entry before it.

        *ends*: [topic id, [end of queue 0, ...]] of every topic, as of *applied*: the mins once the log begins here.
        """
        boundary = Boundary(position, now_ms)
        section = {"ends": ends, "sent_keys": self.sent_keys.marks()}
        behind = self.sent_keys.written_before(payload_with(section, payload))
        return StateSave(self.directory, applied, behind, self.files, boundary=boundary)

    # Retention -------------------------------------------------------------------------------------------------
    def boundaries(self) -> list[Boundary]:
        """The places behind the log's start where it could begin: where a segment begins and a state was saved, ascending."""
        bases = set(self.log.segment_bases[1:])
        return [boundary for boundary in boundaries(self.directory, self.files) if boundary.position in bases]

    def load_boundary(self, boundary: Boundary) -> tuple[LogMark, dict[str, Any]] | None:
        """The point before *boundary*, and the section saved there; None if that state cannot be read."""
        state = load_boundary(self.directory, boundary, self.files)
        return (state.mark, split_payload(state.payload)[0]) if state is not None else None

    def want_trim(self, last: LogMark, floors: Sequence[tuple[int, int, int]]) -> None:
        """The log is to begin behind the entry *last*, and queues at *floors*: (topic id, queue, offset).

        Everything that is still needed was copied before. Segments go with `wanted_trim`.
        """
        for topic_id, queue, offset in floors:
            if end := self.queues.end(topic_id, queue):
                self.queues.trim(topic_id, queue, min(offset, end))
        if last.index >= self.log.start.index:
            self.timers_are_partial = False
        if self._wanted_start is None or last.index > self._wanted_start.index:
            self._wanted_start = last

    def wanted_trim(self) -> TrimJob | None:
        """What goes of what should; None if nothing does (yet). One job at a time: `trimmed` comes before the next.

        No segment goes before a saved state lies behind it (a start needs one), nor where this node has no state for the log to begin with
        (it was away when the segment began, or had no room): then it keeps more than others, up to the next trim.
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
        """*job* has run."""
        self.log.mark_trimmed(job)
        # What is left goes with the next trim.
        is_done(partial(drop_boundaries, self.directory, self.log.start.position, self.files))

    # Damage ----------------------------------------------------------------------------------------------------
    def verify(self) -> Iterator[Checked | LogRot | DerivedDamage]:
        """Read everything once, in steps of about 1 MiB; the owner may go on in between. Damage is yielded, never raised."""
        yield from self.log.verify()
        for part in (self.queues, self.keys, self.timers, self.sent_keys):
            yield from part.verify()

    def note_damage(self, damage: LogRot | DerivedDamage) -> None:
        """Durable here: the next start quarantines the node, or makes the derived files again. The owner ends this process."""
        if isinstance(damage, LogRot):
            small_files.quarantine(self.directory, damage, self.files)
        else:
            small_files.request_rebuild(self.directory, damage, self.files)

    def close(self) -> None:
        """Close the files. What was not saved is derived from the log by the next start."""
        for part in (self.queues, self.keys, self.timers, self.sent_keys, self.log):
            part.close()

    # Below -----------------------------------------------------------------------------------------------------
    def _has_keys_in_log(self, number: int) -> bool:
        """Whether the sends whose keys are in table *number* are in the log: the state at its start does not name it."""
        start = self.log.start
        found = [item for item in boundaries(self.directory, self.files) if item.position == start.position]
        state = self.load_boundary(found[0]) if found else None
        return not start.index or (state is not None and number not in state[1]["sent_keys"])

    def _forget_dropped(self) -> None:
        """Nothing points before the log's start."""
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
        # The state may be older than a trim that the log has seen through: applying it again drops nothing any more.
        self._forget_dropped()

    def begin_again(self, reason: str, base: SavedState | None) -> None:
        """Forget every derived file; they follow from the log behind *base*, the state of its start (None: its genesis)."""
        for part in (self.queues, self.keys, self.timers):
            part.wipe()
        self.sent_keys.restore(split_payload(base.payload)[0]["sent_keys"] if base is not None else ())
        self.moved, self.references = MovedEntries(), {}
        self.rebuilding = reason
        self.payload, self.applied = None, None
        if base is not None:
            self.payload, self.applied = split_payload(base.payload)[1], base.mark
            self.timers_are_partial = True
            # Queues begin where they ended then: the first append of the replay says where.


def _by_topic(ids: Positions, positions: Positions, wanted: Iterable[int]) -> list[tuple[int, Positions]]:
    """Rising *positions* of each topic, of which *ids* has one for each position, in the order of *wanted*."""
    order = np.lexsort((positions, ids))
    ids, positions = ids[order], positions[order]
    edges = np.flatnonzero(np.diff(ids)) + 1
    found = dict(zip(ids[np.append(0, edges)].tolist(), np.split(positions, edges), strict=True))
    return [(topic_id, found[topic_id]) for topic_id in wanted if topic_id in found]
