"""A broker node reduced to its files: opens a `Store`, applies the entries of `store_entries.py` to it, saves and trims it.

As in a broker, the owner keeps what the store does not know: how far each queue reaches, and the time; both are in its payload.
"""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tern_store import Genesis, LogMark, StateSave, StoredEntry, VoteCorrupt, VoteFile, small_files
from tern_store.log.log_start import TrimJob
from tern_store.needed_records import Needed, find_needed
from tern_store.store import Store, StoreLimits
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.link.key_rows import Receipt
from tern_wire.link.rows import QUEUE_ENTRIES, QueueAppend, QueueAppends
from tern_wire.link.timer_rows import TIMER_ROWS
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.sealed_keys import SealedKeys, fresh_keys
from tests.support.files.store_entries import KEYS, QUEUE_KEYS, TOPICS, Key, Sent, read_entry
from tests.support.files.timer_calls import listed

DIRECTORY = Path("/data")
GROUP = Genesis(b"g" * 16, ("a", "b", "c"), 4096)
# A group of one, whose log waits for its disk.
LONE_GROUP = Genesis(b"g" * 16, ("a",), 4096)
FAR_MS = 1 << 62
TABLES_MAX = 3
TOPIC_NAMES = {topic: f"t{topic}".encode() for topic in range(TOPICS + 1)}
# Small enough that a short run fills files of every kind; the second has files larger than a block.
SMALL = StoreLimits(
    recent_max_bytes=2000, queue_entries_per_file=24, index_slots=16, index_entries_per_file=20, table_keys_max=16
)
LIMITS = (SMALL, replace(SMALL, queue_entries_per_file=100, index_entries_per_file=200))


class Node:
    """One node. Owner: one test."""

    def __init__(self, files: FaultyFiles, limits: StoreLimits = SMALL, *, group: Genesis = GROUP) -> None:
        """Recover what is on *files*, and apply what the saved state does not cover."""
        self.files = files
        self.votes = VoteFile.open(DIRECTORY, bootstrap=True, group=group, files=files)
        if self.votes.replaced:
            # A broker would wait until its group takes it back; alone it is out.
            raise VoteCorrupt(self.votes.replaced)
        self.store = Store.open(DIRECTORY, group=group, limits=limits, files=files)
        self.log = self.store.log
        self.ends: dict[Key, int] = {}
        self.now_ms = 0
        # Tables of idempotency keys, by number: the checksum of the entry that sealed it stands for its keys.
        self.tables: dict[int, int] = {}
        if self.store.payload is not None:
            payload: dict[str, Any] = decode_msgpack(self.store.payload)
            self.ends = {(topic, queue): end for topic, queue, end in payload["ends"]}
            self.now_ms = payload["now"]
            self.tables = dict(payload["tables"])
        self.state_index = self.store.applied.index if self.store.applied is not None else 0
        # States of segments' beginnings, to be made durable behind the next sync of the log; trims to be run.
        self.boundaries: list[tuple[int, StateSave]] = []
        self.trims: list[TrimJob] = []
        self.before = small_files.write_abort(DIRECTORY, 1, files)
        for index in range(max(self.state_index + 1, self.log.first_index), self.log.end_index + 1):
            self.apply(self.log.entry(index))

    def payload(self) -> bytes:
        """What the owner keeps."""
        ends = [[*key, end] for key, end in self.ends.items()]
        return encode_msgpack(
            {"ends": ends, "now": self.now_ms, "tables": [list(item) for item in self.tables.items()]}
        )

    # Apply -----------------------------------------------------------------------------------------------------
    def apply(self, entry: StoredEntry) -> None:
        """What follows from an entry."""
        command = read_entry(entry)
        if entry.position and entry.position % GROUP.segment_size_bytes == 0:
            self._begin_segment(entry)
        self.now_ms = max(self.now_ms, command.now_ms)
        appends: dict[Key, list[tuple[int, int, int]]] = {}
        # As a broker does: the leader's entry carries the rows that are due, so that apply depends on no file.
        fired = command.head.get("fire", [])
        for _, _, position, size, topic, queue, tag in fired:
            appends.setdefault((topic, queue), []).append((position, size, tag))
        rows = np.array([(*row[:6], 0, row[6]) for row in fired], TIMER_ROWS)
        for at in range(0, len(rows), 3):
            missing = self.store.timers.take(rows[at : at + 3], command.now_ms)
            assert not missing or self.store.timers_are_partial, "other timers came due than the leader's"
        assert not len(self.store.timers.peek(command.now_ms, 1)) or self.store.timers_are_partial, "more came due"
        for sent in command.sent:
            if not sent.deliver_ms:
                appends.setdefault((sent.topic, sent.queue), []).append((sent.position, sent.size, sent.tag))
        self._dispatch(entry, appends, command.now_ms)
        self._delay(entry, [sent for sent in command.sent if sent.deliver_ms], command.now_ms)
        for deliver_ms, timer_id in command.head.get("cancel", []):
            self.store.timers.cancel(deliver_ms, timer_id)
        for key in command.head.get("remove", []):
            self.store.queues.remove(*key)
            self.ends.pop(tuple(key), None)
        if len(command.moves):
            self.store.move(entry, command.moves, command.moved, TOPIC_NAMES, command.now_ms)
        if entry.index % 4 == 0:
            self._seal(entry)
        if "drop" in command.head:
            self.store.want_trim(LogMark(*command.head["drop"]), command.head["floors"])
            job = self.store.wanted_trim()
            if job is not None:
                self.trims.append(job)

    def _seal(self, entry: StoredEntry) -> None:
        self.tables[entry.index] = entry.crc
        self.store.sent_keys.add(entry.index, SealedKeys(_keys_of(entry.crc)), self.now_ms)
        while len(self.tables) > TABLES_MAX:
            oldest = next(iter(self.tables))
            del self.tables[oldest]
            self.store.sent_keys.drop(oldest)

    def _begin_segment(self, entry: StoredEntry) -> None:
        applied = self.log.mark(entry.index - 1) if entry.index > self.log.first_index else self.log.start
        packed = self.payload()
        ends = [[*key, end] for key, end in self.ends.items()]
        job = self.store.save_boundary(
            applied, lambda: [packed], position=entry.position, now_ms=self.now_ms, ends=ends
        )
        self.boundaries.append((entry.index, job))

    def _dispatch(self, entry: StoredEntry, appends: dict[Key, list[tuple[int, int, int]]], now_ms: int) -> None:
        found = []
        for key, rows in appends.items():
            first = self.ends.get(key, 0)
            self.ends[key] = first + len(rows)
            found.append(QueueAppend(*key, first, np.array(rows, QUEUE_ENTRIES)))
        self.store.dispatch(entry, QueueAppends.of(found), TOPIC_NAMES, now_ms)

    def _delay(self, entry: StoredEntry, sent: list[Sent], now_ms: int) -> None:
        for topic, name in TOPIC_NAMES.items():
            starts = np.array([one.start for one in sent if one.topic == topic], np.int64)
            if len(starts):
                self.store.keys.add(entry.raw, starts, starts + entry.position, now_ms, topic=name)
        for one in sent:
            row = (one.deliver_ms, one.timer_id, one.position, one.size, one.topic, one.queue, 0, one.tag)
            self.store.timers.add(np.array([row], TIMER_ROWS))

    # Retention -------------------------------------------------------------------------------------------------
    def droppable(self) -> list[tuple[LogMark, int, list[list[int]]]]:
        """Where the log could begin: the last entry that would go, the position, and where queues would begin."""
        found = []
        for boundary in self.store.boundaries():
            loaded = self.store.load_boundary(boundary)
            assert loaded is not None, f"the state at {boundary.position} cannot be read"
            mark, section = loaded
            if self.state_index > mark.index > self.log.start.index:
                found.append((mark, boundary.position, section["ends"]))
        return found

    def needed(self, position: int, floors: list[list[int]]) -> Needed:
        """What must be copied before the log can begin at *position*."""
        ends = {(topic, queue): end for topic, queue, end in floors}
        return find_needed(self.store, position, ends=ends, held=[])

    # Look ------------------------------------------------------------------------------------------------------
    def facts(self) -> dict[str, Any]:
        """All that a reader can see of what follows from the log."""
        return {
            "queues": self._queue_facts(),
            "keys": self._key_facts(),
            "timers": self._timer_facts(),
            "sent_keys": self._sent_key_facts(),
        }

    def _sent_key_facts(self) -> dict[int, int]:
        keys = {key: receipt for crc in self.tables.values() for key, receipt in _keys_of(crc).items()}
        found = self.store.sent_keys.find(b"".join(keys))
        assert found == dict(enumerate(keys.values())), "sent keys are not those of the log"
        assert self.store.sent_keys.numbers() == list(self.tables)
        return self.tables

    def _queue_facts(self) -> dict[Key, Any]:
        queues = self.store.queues
        facts: dict[Key, Any] = {}
        for key in QUEUE_KEYS:
            first, end = queues.min(*key), queues.end(*key)
            if not end:
                continue
            rows = self.store.read_queue(*key, first, end)
            assert not len(queues.read(*key, 0, first)) or not first, "a queue is read below its begin"
            self._require_records(key, rows)
            times = []
            for offset in [] if first == end else sorted({first, (first + end) // 2, end - 1}):
                visible_ms = queues.visible_at(*key, offset)
                times.append((visible_ms, queues.offset_at(*key, visible_ms)))
            facts[key] = (first, end, rows.tolist(), times)
        return facts

    def _require_records(self, key: Key, rows: Any) -> None:
        """Every row of a queue points at a record of that topic, whole."""
        data = self.log.read_records(rows["position"].astype(np.int64), rows["size"].astype(np.int64))
        at = 0
        for size in rows["size"].tolist():
            assert int.from_bytes(data[at : at + 4], "big") == size, f"a row of queue {key} points at something else"
            at += size

    def _key_facts(self) -> dict[tuple[int, str], list[int]]:
        found = {
            (topic, f"k{number}"): self.store.keys.find(f"t{topic}", f"k{number}", count=10_000)
            for topic in TOPIC_NAMES
            for number in range(KEYS)
        }
        return {key: positions for key, positions in found.items() if positions}

    def _timer_facts(self) -> list[tuple[int, ...]]:
        rows = listed(self.store.timers, 0, FAR_MS, 10_000)
        assert len(rows) == self.store.timers.pending, "pending timers are those that are listed"
        return sorted((row[0], row[1], row[2], row[3], row[4], row[5], row[7]) for row in rows.tolist())

    def close(self) -> None:
        """Close everything, save nothing."""
        self.store.close()
        self.votes.close()


def _keys_of(crc: int) -> dict[bytes, Receipt]:
    return fresh_keys(random.Random(crc), 12)
