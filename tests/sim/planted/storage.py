"""Planted bugs of files: cuts that are none, logs that lose their end, states ahead of their log, rot that is served."""

from collections.abc import Callable
from typing import Any

import tern_broker.upkeep.trimmer
from tern_broker.core.delivery.fifo import FifoDelivery
from tern_broker.core.sending.idempotency import KeyTable
from tern_broker.engine import Engine
from tern_broker.fatal_stop import Ending
from tern_broker.upkeep.trimmer import Trimmer
from tern_store import SyncLost, small_files
from tern_store.log import segment
from tern_store.log.commit_log import CommitLog
from tern_store.log.dirty_segments import DirtySegments
from tern_store.log.recovery import LogScan
from tern_store.log.segment import Segments
from tern_store.needed_records import Needed, find_needed
from tern_store.state.saving import Save
from tern_store.state.vote_file import VoteFile
from tern_store.store import Store
from tests.sim.planted.planting import PlantedBug, changed
from tests.sim.planted.raft import first_applied
from tests.sim.swarm import short_of_room


def _skip_truncation() -> Any:
    """What conflicts with the leader's log is kept."""
    return changed((CommitLog, "truncate_from", lambda _self, _index: None))


def _cut_without_sync() -> Any:
    """A cut is not synced: after a power cut, what was cut is there again behind what was written since."""

    def erase(self: CommitLog) -> None:
        if not self._broken:
            original(self)

    original = CommitLog._erase
    forgotten = (Segments, "erase_entry", lambda _self, _position: None)
    return changed((CommitLog, "_erase", erase), (DirtySegments, "sync_now", lambda _self: None), forgotten)


def _recovered(change: Callable[[CommitLog, Any], None]) -> Any:
    original = CommitLog._recover

    def recover(self: CommitLog, start: Any, *arguments: Any) -> None:
        original(self, start, *arguments)
        change(self, start)

    return changed((CommitLog, "_recover", recover))


def _lose_last_entry() -> Any:
    """Every restart drops the last entry, unless a saved state counts it."""

    def drop(log: CommitLog, start: Any) -> None:
        if log.end_index > max(log.first_index, start.index if start is not None else 0):
            log.truncate_from(log.end_index)

    return _recovered(drop)


def _trust_unsynced() -> Any:
    """What recovery finds counts as durable without a sync.

    Both of its syncs are left out: that of all segments, and that of the last one, with which what lies behind the end is erased.
    """
    recover, erase = CommitLog._recover, Segments.erase_behind

    def erased(self: Segments, position: int) -> list[int]:
        with changed((type(self._files), "fdatasync", lambda *_: None)):
            return erase(self, position)

    def recovered(self: CommitLog, *arguments: Any) -> None:
        with changed((Segments, "sync", lambda _self: None), (Segments, "erase_behind", erased)):
            recover(self, *arguments)

    return changed((CommitLog, "_recover", recovered))


def _rot_is_a_tear() -> Any:
    """Whatever is wrong in the log is cut off, and nobody is told."""

    def torn(self: LogScan, *_: Any) -> None:
        self.torn = True

    return changed((LogScan, "_require_torn", torn), (VoteFile, "doubt", lambda _self: None))


def _zeros_are_a_tear() -> Any:
    """Rot in an entry that holds a sector of zeros is cut off as if a crash had torn it, whatever lies behind."""
    return changed((LogScan, "_require_last", lambda *_: None))


def _serve_quarantined() -> Any:
    """The note that says "damaged" is not read, and rot is cut off: the node takes part, and serves."""

    def torn(self: LogScan, *_: Any) -> None:
        self.torn = True

    return changed(
        (small_files, "refuse_quarantined", lambda _directory, _files: None),
        (LogScan, "_require_torn", torn),
        (VoteFile, "doubt", lambda _self: None),
    )


def _state_ahead_of_log() -> Any:
    """A state is saved before the entries that made it are synced."""
    original = Store.save

    def save(self: Store, *arguments: Any) -> Save:
        with changed((CommitLog, "take_sync", lambda _log: None)):
            return original(self, *arguments)

    return changed((Store, "save", save))


def _apply_twice() -> Any:
    """A restart applies the last entry of its saved state once more."""
    return first_applied(lambda applied: applied - 1)


def _apply_one_less() -> Any:
    """A restart skips the first entry behind its saved state."""
    return first_applied(lambda applied: applied + 1 if applied > 1 else 1)


def _forget_keys() -> Any:
    """Idempotency keys do not outlive a restart."""
    return changed((KeyTable, "restore", lambda _self, _facts, _packed: None))


def _trim_without_copies() -> Any:
    """Retention drops what leases, retries and young queues still need."""
    original = find_needed

    def nothing(*arguments: Any, **named: Any) -> Needed:
        found = original(*arguments, **named)
        return Needed(found.rows[:0], found.positions[:0])

    return changed((tern_broker.upkeep.trimmer, "find_needed", nothing))


def _room_takes_unread() -> Any:
    """A full disk drops its oldest messages, whoever has yet to read them."""
    return changed((Trimmer, "_mins", lambda _self, _plan, ends: (ends, [])))


def _parked_passes_for_read() -> Any:
    """What was looked at counts as read, also what waits behind an earlier message of its message group."""
    return changed((FifoDelivery, "unread_from", lambda self: self.cursor))


def _dispatch_on_leaders_alone() -> Any:
    """Followers apply, but do not make queues of it."""
    original = Engine._apply

    def apply(self: Engine, entry: Any) -> None:
        if not self.raft.is_leader:
            with changed((Store, "dispatch", lambda *_: None)):
                original(self, entry)
        else:
            original(self, entry)

    return changed((Engine, "_apply", apply))


def _refusals_condemn() -> Any:
    """Whatever the kernel refuses passes for a failed sync: the node condemns what it has."""

    def fail(self: Ending, error: Exception) -> None:
        original(self, SyncLost(*error.args) if isinstance(error, OSError) else error)

    original = Ending.fail
    return changed((Ending, "fail", fail))


def _unreadable_is_a_lack() -> Any:
    """What the disk cannot read of the log is asked for again and again."""
    return changed((segment, "unreadable", lambda error, _path, _position: error))


STORAGE = (
    PlantedBug("skip_truncation", "conflicts stay", ("stuck", "convergence", "unhandled"), _skip_truncation),
    PlantedBug("cut_without_sync", "cuts are not durable", ("start", "quarantine", "lost"), _cut_without_sync),
    PlantedBug("lose_last_entry", "a restart loses the last entry", ("lost", "log_agreement"), _lose_last_entry),
    PlantedBug("trust_unsynced", "what was found is called durable", ("lost", "quarantine"), _trust_unsynced),
    PlantedBug("rot_is_a_tear", "rot is cut like a torn write", ("lost", "log_agreement", "start"), _rot_is_a_tear),
    PlantedBug("zeros_are_a_tear", "rot beside zeros is cut like a torn write", ("lost",), _zeros_are_a_tear),
    PlantedBug("serve_quarantined", "a damaged node serves", ("quarantine", "lost", "reads"), _serve_quarantined),
    PlantedBug("state_ahead_of_log", "a saved state knows too much", ("quarantine", "start"), _state_ahead_of_log),
    PlantedBug("apply_twice", "a restart applies an entry twice", ("state_digest", "unhandled"), _apply_twice),
    PlantedBug("apply_one_less", "a restart skips an entry", ("state_digest", "unhandled"), _apply_one_less),
    PlantedBug("forget_keys", "a restart forgets idempotency keys", ("duplicates", "state_digest"), _forget_keys),
    PlantedBug("trim_without_copies", "retention drops what is needed", ("unhandled", "reads"), _trim_without_copies),
    PlantedBug("room_takes_unread", "a full disk drops what is unread", ("unread",), _room_takes_unread, short_of_room),
    PlantedBug(
        "parked_passes_for_read", "what is parked counts as read", ("unread",), _parked_passes_for_read, short_of_room
    ),
    PlantedBug(
        "refusals_condemn", "a refusal of the kernel is a failed sync", ("quarantine", "stuck"), _refusals_condemn
    ),
    PlantedBug("unreadable_is_a_lack", "a bad sector is read for ever", ("stuck", "unhandled"), _unreadable_is_a_lack),
    PlantedBug("dispatch_on_leaders_alone", "no queues on followers", ("reads",), _dispatch_on_leaders_alone),
)
