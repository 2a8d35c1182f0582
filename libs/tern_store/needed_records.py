"""Records in old segments that retention must copy forward before it drops the segments.

Age counts from visibility. A record is needed while a timer waits to deliver it, its transaction is
open, a lease or a retry holds it, or its queue entry is at or above the queue's new min. The last
case is a record older than its queue entry, delivered by reference: delayed, committed, retried or
dead-lettered. Entries that consumers can reach therefore never point at dropped records.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tern_store.unread import STEP_ENTRIES, Found, Numbers, message_rows
from tern_wire.link.rows import MOVE_ROWS, MOVED_TIMER

if TYPE_CHECKING:
    from tern_store.store import Store


@dataclass(frozen=True, slots=True)
class Needed:
    """Needed records at *positions*, shape (n,), and their rows in a COPY (MOVE_ROWS)."""

    rows: npt.NDArray[Any]
    positions: Numbers

    def share(self, begin: int, end: int) -> float:
        """Share of the log's bytes [*begin*, *end*) that is needed, 0 to 1."""
        inside = (self.positions >= begin) & (self.positions < end)
        _, first = np.unique(self.positions[inside], return_index=True)  # two rows may need the same record
        return float(self.rows["size"][inside][first].astype(np.int64).sum()) / (end - begin)


def find_needed(
    store: "Store",
    position: int,
    *,
    ends: dict[tuple[int, int], int],
    held: Iterable[tuple[int, int, Numbers]],
    halves: Found | None = None,
    unread: Iterable[Found] = (),
) -> Needed:
    """Find the needed records below *position* of the log.
    *ends*: (topic id, queue) to the queue's end when the log reached *position*; every offset below
    may go by age. *held*: (topic id, queue, offsets) of leases and retries. *halves*: rows
    (MOVE_ROWS) and positions of half messages in open transactions; only the caller has them, since
    no file of the store does. *unread*: messages kept for groups (`UnreadScan`). DerivedDamage if a
    derived file cannot be read.
    """
    found = [
        *_by_reference(store, position, ends),
        *_held(store, position, held),
        *_timers(store, position),
        *unread,
    ]
    needed = [_each_once(*(np.concatenate(parts) for parts in zip(*found, strict=True)))] if found else []
    if halves is not None and len(halves[0]):
        # Each half message is listed once and is nothing else: 100,000 of them need no comparison.
        needed.append(halves)
    if not needed:
        return Needed(np.empty(0, MOVE_ROWS), np.empty(0, np.int64))
    rows, positions = (np.concatenate(parts) for parts in zip(*needed, strict=True))
    return Needed(rows.astype(MOVE_ROWS), positions)


def _each_once(rows: npt.NDArray[Any], positions: Numbers) -> Found:
    """Remove duplicates: one message may be both held and young."""
    names = np.stack([rows[name].astype(np.int64) for name in ("kind", "topic", "queue", "number", "deliver_ms")])
    _, first = np.unique(names, axis=1, return_index=True)
    order = np.sort(first)
    return rows[order], positions[order]


def _by_reference(store: "Store", position: int, ends: dict[tuple[int, int], int]) -> Iterator[Found]:
    """Yield messages with records older than their queue entry; the store lists the queues with
    any.
    """
    for (topic_id, queue), (first, last) in store.references.items():
        offset = max(first, ends.get((topic_id, queue), 0), store.queues.min(topic_id, queue))
        while offset <= last:
            entries = store.read_queue(topic_id, queue, offset, min(STEP_ENTRIES, last + 1 - offset))
            if not len(entries):
                break
            old = np.flatnonzero(entries["position"] < position)
            if len(old):
                yield message_rows(topic_id, queue, old + offset, entries[old])
            offset += len(entries)


def _held(store: "Store", position: int, held: Iterable[tuple[int, int, Numbers]]) -> Iterator[Found]:
    for topic_id, queue, offsets in held:
        at = 0
        while at < len(offsets):
            # Offsets come in runs: one read per run.
            entries = store.read_queue(
                topic_id, queue, int(offsets[at]), min(STEP_ENTRIES, int(offsets[-1] - offsets[at]) + 1)
            )
            inside = offsets[at:][offsets[at:] < offsets[at] + len(entries)]
            if not len(inside):
                break
            chosen = entries[inside - offsets[at]]
            old = np.flatnonzero(chosen["position"] < position)
            if len(old):
                yield message_rows(topic_id, queue, inside[old], chosen[old])
            at += len(inside)


def _timers(store: "Store", position: int) -> Iterator[Found]:
    for timers in store.timers.needed_below(position):
        rows = np.zeros(len(timers), MOVE_ROWS)
        rows["kind"], rows["topic"], rows["queue"] = MOVED_TIMER, timers["topic_id"], timers["queue"]
        rows["size"], rows["number"] = timers["size"], timers["timer_id"]
        rows["deliver_ms"], rows["tag"] = timers["deliver_ms"], timers["tag"]
        yield rows, timers["position"].astype(np.int64)
