"""A small language of log entries for tests of the store, and what must follow from them: queues, keys, timers.

An entry's body: | head size 4 | head: MessagePack map | records ... |. The head says, in this order of effect:

    now      logical time, ms: what is due by then is delivered first
    send     [[topic, queue, deliver_ms or 0, timer id] ...], one for each record, in their order; 0: visible at once
    cancel   [[deliver_ms, timer id] ...]
    remove   [[topic, queue] ...]
    move     MOVE_ROWS, one for each record behind those that are sent: where retention copied a needed record to
    drop     [index, position, crc, term] of the last entry that goes
    floors   [[topic, queue, first offset] ...]

Law: `Expected` knows nothing of files; it is what a reader would see who had applied every entry in plain Python.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_store import HEADER_SIZE_BYTES, EntryKind, StoredEntry
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.link.rows import MOVE_ROWS, MOVED_MESSAGE
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.properties import encode_properties
from tern_wire.records.read import decode_record
from tern_wire.records.write import encode_record

TOPICS, QUEUES, KEYS = 2, 2, 5
# Queues of one more topic are removed; a number that was removed never comes back, as ids of topics do not.
MORTAL_TOPIC, MORTAL_QUEUES = TOPICS, 8
QUEUE_KEYS = [(topic, queue) for topic in range(TOPICS) for queue in range(QUEUES)]
QUEUE_KEYS += [(MORTAL_TOPIC, queue) for queue in range(MORTAL_QUEUES)]
Key = tuple[int, int]
# position, size, tag hash, visible time
Row = tuple[int, int, int, int]
# deliver time, timer id, position, size, topic, queue, tag hash
Timer = tuple[int, int, int, int, int, int, int]


def record(topic: int, queue: int, body: bytes, number: int) -> bytes:
    """A record with a tag and a key, which follow from its *number*."""
    properties = [("UNIQ_KEY", f"{number:032X}"), ("KEYS", f"k{number % KEYS}"), ("TAGS", f"tag{number % 3}")]
    return encode_record(f"t{topic}".encode(), queue, body, encode_properties(properties), born_ms=5)


def entry_body(head: dict[str, Any], records: list[bytes]) -> list[bytes]:
    """The parts of an entry's body."""
    packed = encode_msgpack(head)
    return [len(packed).to_bytes(4, "big"), packed, *records]


@dataclass(frozen=True, slots=True)
class Sent:
    """One record of an entry: where it begins in the entry, and what its head said of it."""

    start: int
    size: int
    position: int
    topic: int
    queue: int
    deliver_ms: int
    timer_id: int
    tag: int
    key: str


@dataclass(frozen=True, slots=True)
class Command:
    """An entry's body, read. *moved* are the positions of the records that *moves* (MOVE_ROWS) describe."""

    now_ms: int
    sent: tuple[Sent, ...] = ()
    head: dict[str, Any] = field(default_factory=dict)
    moves: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, MOVE_ROWS))
    moved: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


def read_entry(entry: StoredEntry) -> Command:
    """What an entry says; nothing if it is none of ours (the genesis)."""
    if entry.kind is not EntryKind.COMMANDS:
        return Command(0)
    at = HEADER_SIZE_BYTES + 4 + int.from_bytes(entry.body[:4], "big")
    head: dict[str, Any] = decode_msgpack(bytes(entry.raw[HEADER_SIZE_BYTES + 4 : at]))
    sent = []
    for topic, queue, deliver_ms, timer_id in head.get("send", []):
        found = decode_record(entry.raw, at)
        size = int.from_bytes(entry.raw[at : at + 4], "big")
        tag = tag_hash(found.properties["TAGS"])
        where = (at, size, entry.position + at)
        sent.append(Sent(*where, topic, queue, deliver_ms, timer_id, tag, found.properties["KEYS"]))
        at += size
    moves = np.frombuffer(head.get("move", b""), MOVE_ROWS)
    sizes = moves["size"].astype(np.int64)
    return Command(head["now"], tuple(sent), head, moves, np.cumsum(sizes) - sizes + entry.position + at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is seen behind one entry. A value: `after` yields the next."""

    crc: int
    now_ms: int = 0
    firsts: dict[Key, int] = field(default_factory=dict)
    queues: dict[Key, list[Row]] = field(default_factory=dict)  # whole, what was trimmed included
    keys: dict[tuple[int, str], list[int]] = field(default_factory=dict)  # positions in the order of adding
    names: dict[int, tuple[int, str]] = field(default_factory=dict)  # by position: topic and key of the record there
    timers: tuple[tuple[bool, Timer], ...] = ()  # in the order of adding; True: added late
    delivered_ms: int = -(1 << 62)

    def after(self, entry: StoredEntry) -> "Expected":
        """Behind *entry*, too."""
        command = read_entry(entry)
        head = command.head
        queues = {key: list(rows) for key, rows in self.queues.items()}
        firsts, keys = dict(self.firsts), {key: list(found) for key, found in self.keys.items()}
        due, timers, delivered_ms = self._due(command.now_ms)
        for _, _, position, size, topic, queue, tag in due:
            queues.setdefault((topic, queue), []).append((position, size, tag, command.now_ms))
        names = dict(self.names)
        for sent in sorted(command.sent, key=lambda sent: bool(sent.deliver_ms)):
            names[sent.position] = (sent.topic, sent.key)
            keys.setdefault((sent.topic, sent.key), []).append(sent.position)
            if sent.deliver_ms:
                place = (sent.position, sent.size, sent.topic, sent.queue, sent.tag)
                timers = (*timers, (sent.deliver_ms < delivered_ms, (sent.deliver_ms, sent.timer_id, *place)))
            else:
                row = (sent.position, sent.size, sent.tag, command.now_ms)
                queues.setdefault((sent.topic, sent.queue), []).append(row)
        cancelled = {(deliver_ms, timer_id) for deliver_ms, timer_id in head.get("cancel", [])}
        timers = tuple(timer for timer in timers if timer[1][:2] not in cancelled)
        for topic, queue in head.get("remove", []):
            queues.pop((topic, queue), None)
            firsts.pop((topic, queue), None)
        for move, position in zip(command.moves.tolist(), command.moved.tolist(), strict=True):
            kind, topic, queue, size, number, deliver_ms, tag = move
            if kind == MOVED_MESSAGE:
                old, _, _, visible_ms = queues[topic, queue][number]
                queues[topic, queue][number] = (position, size, tag, visible_ms)
            else:
                (old,) = (timer[2] for _, timer in timers if timer[:2] == (deliver_ms, number))
                timers = tuple(timer for timer in timers if timer[1][:2] != (deliver_ms, number))
                moved = (deliver_ms, number, position, size, topic, queue, tag)
                timers = (*timers, (deliver_ms < delivered_ms, moved))
            names[position] = names[old]
        for topic in sorted({topic for topic, *_ in command.moves[["topic"]].tolist()}):
            for position in command.moved[command.moves["topic"] == topic].tolist():
                keys.setdefault(names[position], []).append(position)
        for topic, queue, floor in head.get("floors", []):
            end = len(queues.get((topic, queue), []))
            firsts[topic, queue] = max(min(floor, end), firsts.get((topic, queue), 0))
        return replace(
            self,
            crc=entry.crc,
            now_ms=max(self.now_ms, command.now_ms),
            queues=queues,
            firsts=firsts,
            keys=keys,
            names=names,
            timers=timers,
            delivered_ms=delivered_ms,
        )

    def due_at(self, now_ms: int) -> list[list[int]]:
        """What a leader proposes to deliver with an entry of *now_ms*: rows (deliver_ms, id, position, size, topic, queue, tag)."""
        return [list(timer) for timer in self._due(now_ms)[0]]

    def _due(self, now_ms: int) -> tuple[list[Timer], tuple[tuple[bool, Timer], ...], int]:
        """What is handed out at *now_ms*, what stays, and when the last one in time was due."""
        due = [timer for timer in self.timers if timer[1][0] <= now_ms]
        late = sorted((timer for is_late, timer in due if is_late), key=lambda timer: timer[0])
        in_time = sorted((timer for is_late, timer in due if not is_late), key=lambda timer: timer[0])
        rest = tuple(timer for timer in self.timers if timer[1][0] > now_ms)
        return late + in_time, rest, in_time[-1][0] if in_time else self.delivered_ms

    def queue_facts(self) -> dict[Key, Any]:
        """By queue: first offset, end, rows, and for some offsets the visible time and the first offset that has it."""
        facts: dict[Key, Any] = {}
        for key, rows in self.queues.items():
            first = self.firsts.get(key, 0)
            seen = [row[3] for row in rows]
            asked = [] if first == len(rows) else sorted({first, (first + len(rows)) // 2, len(rows) - 1})
            times = [(seen[offset], max(first, seen.index(seen[offset]))) for offset in asked]
            facts[key] = (first, len(rows), [row[:3] for row in rows[first:]], times)
        return facts

    def key_facts(self, begin: int) -> dict[tuple[int, str], list[int]]:
        """By topic and key: positions, newest first, of a log that begins at the position *begin*."""
        return {
            key: found[::-1]
            for key, all_of_it in self.keys.items()
            if (found := [position for position in all_of_it if position >= begin])
        }

    def timer_facts(self) -> list[Timer]:
        """What is pending, by time and id."""
        return sorted(timer for _, timer in self.timers)
