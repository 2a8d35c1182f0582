"""Offline check of queue entries against their records, in one pass over the log.

The log's records come in windows of ascending positions. Each queue has a cursor, and most of its
entries ascend as well, so a window takes from every queue the entries that point into it. Entries
that point back (a message delivered late points at an old record) are kept aside and looked up
together later, in one more pass over the parts of the log involved.

Law: memory is bounded by the window, the cursors and the entries kept aside, whatever the sizes of
log and queues.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_store.checks.finding import FindingKind, Findings
from tern_store.checks.log_check import BEHIND_ALL, LogSpan
from tern_store.checks.record_check import RecordPlaces, joined
from tern_store.errors import DerivedDamage
from tern_store.log.entry import LogMark
from tern_store.log.moved_entries import MovedEntries
from tern_store.queues.consume_queue import ENTRY_SIZE_BYTES, FOLDER, ConsumeQueues, QueueKey
from tern_wire.dead_letters import ORIGINALS_QUEUE, is_dead_topic

# Key in a saved state's section of entries that retention has moved.
MOVED = "moved"
# Key in a saved state's section of queues and offsets by reference to older records.
REFERENCES = "references"
ENTRIES_PER_FILE = 300_000
# 40 bytes each: together about 30 MiB.
WINDOW_RECORDS = 1 << 18
KEPT_ASIDE_MAX = 1 << 18
# Entries read ahead by all cursors together.
_READ_AHEAD_ENTRIES = 1 << 20
_READ_MIN_ENTRIES, _READ_MAX_ENTRIES = 64, 16_384
# Distance between the places at which a second pass may begin.
_STRIDE_BYTES = 16 << 20

# Entries that await their records: number of the queue, offset in it, and the entry's fields.
_CLAIMS = np.dtype([("key", "<i8"), ("offset", "<i8"), ("position", "<i8"), ("size", "<i8"), ("tag", "<i8")])
Claims = npt.NDArray[np.void]


class QueueReader:
    """The queues of a directory as its node's readers see them. Owner: a check or a command."""

    def __init__(self, directory: Path, queues: ConsumeQueues, section: Mapping[str, Any]) -> None:
        """*queues* are restored to the marks of *section*, the saved state's."""
        self._directory, self._queues = directory, queues
        self._moved = MovedEntries()
        self._moved.restore(section.get(MOVED, []))
        self._references = {(row[0], row[1]): (row[2], row[3]) for row in section.get(REFERENCES, [])}

    def all_keys(self) -> list[QueueKey]:
        """(topic id, queue) of every queue that ever had a message, ascending."""
        return sorted(key for key in self._queues.all_keys() if self._queues.end(*key))

    def min(self, key: QueueKey) -> int:
        """The first kept offset."""
        return self._queues.min(*key)

    def end(self, key: QueueKey) -> int:
        """The next message's offset."""
        return self._queues.end(*key)

    def read(self, key: QueueKey, offset: int, count: int) -> npt.NDArray[np.void]:
        """Entries from *offset* on, including those that retention has moved; DerivedDamage."""
        return self._moved.lay_over(*key, offset, self._queues.read(*key, offset, count))

    def visible_at(self, key: QueueKey, offset: int) -> int:
        """The time in ms at which the message at *offset* became visible; DerivedDamage."""
        return self._queues.visible_at(*key, offset)

    def place(self, key: QueueKey, offset: int) -> tuple[Path, int]:
        """The file and the byte of an entry."""
        file, row = divmod(offset, ENTRIES_PER_FILE)
        folder = self._directory / FOLDER / str(key[0]) / str(key[1])
        return folder / f"{file * ENTRIES_PER_FILE * ENTRY_SIZE_BYTES:020d}", row * ENTRY_SIZE_BYTES

    def references(self, key: QueueKey) -> tuple[int, int]:
        """The first and last offset by reference to an older record; (0, -1) if there is none."""
        return self._references.get(key, (0, -1))

    def close(self) -> None:
        """Close the files."""
        self._queues.close()


@dataclass(slots=True)
class _Cursor:
    """One queue: entries from *offset* on are not compared yet; *entries* are those already
    read.
    """

    key: QueueKey
    number: int
    offset: int
    end: int
    entries: Claims = field(default_factory=lambda: np.zeros(0, _CLAIMS))


class QueueCheck:
    """Compares queue entries with records.
    Owner: a directory's check; `add` per span, then `finish`.
    """

    def __init__(
        self,
        queues: QueueReader,
        findings: Findings,
        read_again: Callable[[LogMark, int], Iterator[RecordPlaces]],
        topics: Mapping[int, bytes],
    ) -> None:
        """*read_again*: the records from a mark to a log position; *topics*: known names by id."""
        self._queues, self._findings, self._read_again = queues, findings, read_again
        self._topics = topics
        keys = queues.all_keys()
        self._cursors = [_Cursor(key, number, queues.min(key), queues.end(key)) for number, key in enumerate(keys)]
        size = _READ_AHEAD_ENTRIES // max(1, len(keys))
        self._read_size = min(_READ_MAX_ENTRIES, max(_READ_MIN_ENTRIES, size))
        # The position of each queue's next entry; BEHIND_ALL if there is none.
        self._next = np.full(len(keys), BEHIND_ALL, np.int64)
        for cursor in self._cursors:
            self._read(cursor)
        self._window: list[RecordPlaces] = []
        self._window_count = self._window_first = 0
        self._aside: list[Claims] = []
        self._aside_count = 0
        self._strides: list[LogMark] = []
        self._next_index = 0
        self._gaps: list[tuple[int, int]] = []
        self.entry_count = 0

    def add(self, span: LogSpan, places: RecordPlaces) -> None:
        """Add the next records of the log."""
        first = span.headers[0]
        # Behind damage as well: a second pass cannot skip it.
        if first.index != self._next_index or span.position >= self._strides[-1].position + _STRIDE_BYTES:
            self._strides.append(LogMark(first.index - 1, first.position, first.previous_crc, first.term))
        self._next_index = span.headers[-1].index + 1
        self._window.append(places)
        self._window_count += len(places.positions)
        if self._window_count >= WINDOW_RECORDS:
            self._compare_window(span.position + len(span.data))

    def finish(self, gaps: list[tuple[int, int]]) -> None:
        """End the pass. Entries that point into the unreadable *gaps* are skipped."""
        self._gaps = gaps
        self._compare_window(BEHIND_ALL)
        self._compare_aside()

    def parts(self) -> list[tuple[LogMark, int]]:
        """Parts of the log that can be read alone: the mark before each, and its end."""
        stops = [mark.position for mark in self._strides[1:]]
        return list(zip(self._strides, [*stops, BEHIND_ALL], strict=True)) if self._strides else []

    # Cursors --------------------------------------------------------------------------------------
    def _read(self, cursor: _Cursor) -> None:
        """Read the next entries of a queue whose earlier ones are all taken."""
        cursor.entries = np.zeros(0, _CLAIMS)
        self._next[cursor.number] = BEHIND_ALL
        while cursor.offset < cursor.end and not len(cursor.entries) and not self._findings.is_full:
            try:
                entries = self._queues.read(cursor.key, cursor.offset, self._read_size)
            except DerivedDamage:
                # The verification of the queues names the bytes; this check continues behind them.
                cursor.offset += self._read_size
                continue
            if not len(entries):
                return
            cursor.entries = np.zeros(len(entries), _CLAIMS)
            cursor.entries["key"] = cursor.number
            cursor.entries["offset"] = np.arange(cursor.offset, cursor.offset + len(entries))
            for name in ("position", "size", "tag"):
                cursor.entries[name] = entries[name]
            self._next[cursor.number] = cursor.entries["position"][0]

    def _take(self, cursor: _Cursor, stop: int) -> Claims:
        """The next entries of a queue that point before *stop*, at least one."""
        behind = np.flatnonzero(cursor.entries["position"] >= stop)
        count = int(behind[0]) if len(behind) else len(cursor.entries)
        taken, cursor.entries = cursor.entries[:count], cursor.entries[count:]
        cursor.offset += count
        if len(cursor.entries):
            self._next[cursor.number] = cursor.entries["position"][0]
        else:
            self._read(cursor)
        return taken

    # Comparing ------------------------------------------------------------------------------------
    def _compare_window(self, stop: int) -> None:
        places = joined(self._window)
        waiting: list[Claims] = []
        count = 0
        for number in np.flatnonzero(self._next < stop).tolist():
            while self._next[number] < stop:
                waiting.append(self._take(self._cursors[number], stop))
                count += len(waiting[-1])
                if count >= WINDOW_RECORDS:
                    self._split(np.concatenate(waiting), places)
                    waiting, count = [], 0
        if waiting:
            self._split(np.concatenate(waiting), places)
        self._window, self._window_count, self._window_first = [], 0, stop

    def _split(self, claims: Claims, places: RecordPlaces) -> None:
        self.entry_count += len(claims)
        is_old = claims["position"] < self._window_first
        self._compare(claims[~is_old], places)
        if is_old.any():
            self._aside.append(claims[is_old])
            self._aside_count += len(self._aside[-1])
            if self._aside_count >= KEPT_ASIDE_MAX:
                self._compare_aside()

    def _compare_aside(self) -> None:
        """Read the records of the entries kept aside: each part of the log at most once."""
        if not self._aside:
            return
        claims = np.concatenate(self._aside)
        self._aside, self._aside_count = [], 0
        claims = claims[np.argsort(claims["position"], kind="stable")]
        starts = [mark.position for mark in self._strides]
        cuts = [0, *np.searchsorted(claims["position"], starts[1:]).tolist(), len(claims)]
        for number, (mark, stop) in enumerate(self.parts()):
            part = claims[cuts[number] : cuts[number + 1]]
            if len(part):
                self._compare(part, joined(list(self._read_again(mark, stop))))

    def _compare(self, claims: Claims, places: RecordPlaces) -> None:
        """Report every one of *claims* that does not fit its record."""
        found = np.searchsorted(places.positions, claims["position"])
        known = found < len(places.positions)
        known[known] = places.positions[found[known]] == claims["position"][known]
        for first, stop in self._gaps:
            unknowable = (claims["position"] >= first) & (claims["position"] < stop)
            claims, found, known = claims[~unknowable], found[~unknowable], known[~unknowable]
        self._note(claims[~known & ~self._is_dropped(claims)], "no record begins there")
        claims, found = claims[known], found[known]
        keys = np.array([cursor.key for cursor in self._cursors], np.int64).reshape(-1, 2)[claims["key"]]
        for is_wrong, what in (
            (places.sizes[found] != claims["size"], "the record there has another size"),
            (places.tags[found] != claims["tag"], "the record there has another tag"),
            (
                ((places.topics[found] != keys[:, 0]) | (places.queues[found] != keys[:, 1])) & ~self._is_dead(claims),
                "it is of another queue",
            ),
        ):
            self._note(claims[is_wrong], what)

    def _is_dropped(self, claims: Claims) -> npt.NDArray[np.bool_]:
        """Which of *claims* point before the log's begin, where that is no damage.
        Settled messages behind one that a group still holds do: the held one was copied, and its
        queue begins with it. Existing messages by reference have been copied too.
        """
        if not self._strides:
            return np.zeros(len(claims), np.bool_)
        is_dropped: npt.NDArray[np.bool_] = claims["position"] < self._strides[0].position
        for number in np.unique(claims["key"][is_dropped]).tolist():
            first, last = self._queues.references(self._cursors[number].key)
            is_dropped &= ~((claims["key"] == number) & (claims["offset"] >= first) & (claims["offset"] <= last))
        return is_dropped

    def _is_dead(self, claims: Claims) -> npt.NDArray[np.bool_]:
        """Which of *claims* are dead letters, which point at a record of their original queue."""
        is_dead = np.zeros(len(claims), np.bool_)
        for number in np.unique(claims["key"]).tolist():
            key = self._cursors[number].key
            first, last = self._queues.references(key)
            name = self._topics.get(key[0])
            if first <= last and key[1] == ORIGINALS_QUEUE and (name is None or is_dead_topic(name)):
                offsets = claims["offset"]
                is_dead |= (claims["key"] == number) & (offsets >= first) & (offsets <= last)
        return is_dead

    def _note(self, claims: Claims, what: str) -> None:
        """Add one finding for each run of adjacent offsets of a queue."""
        if not len(claims):
            return
        claims = claims[np.lexsort((claims["offset"], claims["key"]))]
        breaks = np.flatnonzero((np.diff(claims["offset"]) != 1) | (np.diff(claims["key"]) != 0)) + 1
        for first, stop in zip([0, *breaks.tolist()], [*breaks.tolist(), len(claims)], strict=True):
            offset, last, position, size = (
                *(int(claims["offset"][at]) for at in (first, stop - 1)),
                *(int(claims[name][first]) for name in ("position", "size")),
            )
            who = (
                f"the entry of offset {offset} points"
                if last == offset
                else f"the entries of offsets {offset} to {last} point"
            )
            reason = f"{who} at position {position}, size {size}, of the log: {what}"
            file, at = self._queues.place(self._cursors[int(claims["key"][first])].key, offset)
            self._findings.add(FindingKind.DERIVED, file, at, reason)
