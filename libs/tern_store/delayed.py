"""Timer changes made by applying a log entry: schedule, fire, recall, move by retention.

Law: the log is the truth. If an entry refers to a timer that is missing here, the files below
`timers/` are damaged and are made again. The exception is a store made again from a log that begins
behind the timer's own entry: the timer's copy comes with a later entry.
"""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tern_store.errors import DerivedDamage
from tern_store.index.key_index import KeyIndex
from tern_store.log.entry import StoredEntry
from tern_store.timers.buckets import FOLDER, TimerRows
from tern_store.timers.timers import Timers
from tern_wire.array_thresholds import RECORDS_ONE_BY_ONE_MAX
from tern_wire.link.timer_rows import TIMER_ROWS

# Columns that the rows of moves and timers have in common.
_SHARED = ("deliver_ms", "size", "queue", "tag")


class Delaying(Protocol):
    """The parts of the store that timer changes use."""

    directory: Path
    timers: Timers
    keys: KeyIndex
    timers_are_partial: bool


def schedule(store: Delaying, entry: StoredEntry, rows: TimerRows, topics: dict[int, bytes], now_ms: int) -> None:
    """Let records of *entry* wait for their delivery time, as *rows* (TIMER_ROWS), and index their
    keys.
    *topics*: id to name (UTF-8) of every topic in *rows*; *now_ms*: the entry's time. Records of
    earlier entries wait as well; their owner indexes their keys.
    """
    store.timers.add(rows)
    if int(rows["position"].min(initial=entry.position)) < entry.position:
        rows = rows[rows["position"] >= entry.position]
    if len(rows) <= RECORDS_ONE_BY_ONE_MAX:
        columns = rows["topic_id"].tolist(), rows["position"].tolist()
        own: dict[int, list[int]] = {topic_id: [] for topic_id in sorted(set(columns[0]))}
        for topic_id, position in zip(*columns, strict=True):
            own[topic_id].append(position)
        runs = [(topics[topic_id], positions) for topic_id, positions in own.items()]
        store.keys.add_few(entry.raw, runs, entry.position, now_ms)
        return
    for topic_id in np.unique(rows["topic_id"]).tolist():
        positions = rows["position"][rows["topic_id"] == topic_id].astype(np.int64)
        store.keys.add(entry.raw, positions - entry.position, positions, now_ms, topic=topics[topic_id])


def fire(store: Delaying, rows: TimerRows, now_ms: int) -> None:
    """Remove timers that were due at *now_ms* on the leader. DerivedDamage if one is missing."""
    _require(store, store.timers.take(rows, now_ms), "came due")


def recall(store: Delaying, rows: TimerRows) -> None:
    """Cancel the timers of *rows*, found by id and time alone. DerivedDamage as in `fire`."""
    missing = sum(not store.timers.cancel(row[0], row[1]) for row in rows[["deliver_ms", "timer_id"]].tolist())
    _require(store, missing, "were recalled")


def move_timers(timers: Timers, rows: npt.NDArray[Any], positions: npt.NDArray[np.int64], *, is_partial: bool) -> None:
    """Point the timers of *rows* (MOVE_ROWS of MOVED_TIMER) at *positions*.
    Timers that fired since the copy was made are left out. *is_partial*: timers that were set
    before the log's beginning are missing here, and their copies add them.
    """
    moved = np.zeros(len(rows), TIMER_ROWS)
    for name, column in (("timer_id", "number"), ("topic_id", "topic"), *((name, name) for name in _SHARED)):
        moved[name] = rows[column]
    moved["position"] = positions
    was_pending = timers.cancel_all(moved)
    timers.add(moved if is_partial else moved[was_pending])


def _require(store: Delaying, missing: int, what: str) -> None:
    if missing and not store.timers_are_partial:
        raise DerivedDamage(store.directory / FOLDER, 0, f"{missing} timers {what} that are not there")
