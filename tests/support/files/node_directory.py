"""A stopped node's data directory with every kind of file, made by the store itself; and what was put into it.

Two topics in three queues, messages of one entry in one or several queues, delayed ones that were delivered late (queue entries that
point back) or still wait as timers, two saved states, votes, config, checkpoint. The log fills several segments.
"""

import hashlib
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_store import small_files
from tern_store.files import REAL_FILES
from tern_store.log.entry import HEADER_SIZE_BYTES, EntryKind, StoredEntry
from tern_store.log.genesis import Genesis
from tern_store.state.state_file import Boundary
from tern_store.state.vote_file import VoteFile
from tern_store.store import Store, StoreLimits
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import COMMAND_HEAD, ENTRY_HEAD, SEND_HEAD, CommandKind, entry_parts
from tern_wire.link.rows import MOVE_ROWS, MOVED_MESSAGE, NO_KEY, QUEUE_ENTRIES, SEND_ROW, QueueAppend, QueueAppends
from tern_wire.link.timer_rows import TIMER_ROWS
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.properties import KEYS, MESSAGE_ID, TAGS, encode_properties
from tern_wire.records.write import encode_record
from tests.support.files.sealed_keys import SealedKeys, fresh_keys

GROUP = Genesis(bytes(range(16)), ("broker-a-0",), 1 << 16)
BORN_MS = 1_795_000_000_000
TOPIC_IDS = {"orders": 1, "audit": 2}
QUEUES = [("orders", 0), ("orders", 1), ("audit", 0)]
LIMITS = StoreLimits(index_slots=16, index_entries_per_file=200)
QueueEntries = npt.NDArray[Any]
TAGS_SENT = ("", "red", "blau-grün")


@dataclass(frozen=True, slots=True)
class Sent:
    """One message, where it lies, and what it says."""

    topic: str
    queue: int
    position: int
    size: int
    tag: str
    body: bytes
    key: str


@dataclass(slots=True)
class NodeDirectory:
    """A directory being filled. `save` may be called more than once; `close` ends it."""

    directory: Path
    seed: int = 1
    now_ms: int = BORN_MS
    # Queue -> the messages at its offsets, and all that were stored, in the order of the log.
    queues: dict[tuple[str, int], list[Sent]] = field(default_factory=dict)
    stored: list[Sent] = field(default_factory=list)
    delayed: list[Sent] = field(default_factory=list)
    saved_index: int = 0
    end_position: int = 0
    _store: Store = field(init=False)
    _rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        VoteFile.open(self.directory, bootstrap=True, group=GROUP).close()
        self._store = Store.open(self.directory, group=GROUP, limits=LIMITS)
        self._rng = random.Random(self.seed)

    def send(self, *places: tuple[str, int], body_size: int = 60, visible: bool = True) -> list[Sent]:
        """One entry with a message for each of *places*; delayed ones are not *visible*."""
        self.now_ms += 1_000
        sent: list[Sent] = []
        rows, records = [], []
        for topic, queue in places:
            number = len(self.stored) + len(sent)
            body, tag = self._rng.randbytes(body_size), TAGS_SENT[number % len(TAGS_SENT)]
            properties = [(MESSAGE_ID, f"{number:032X}"), (KEYS, f"k{number}"), *([(TAGS, tag)] if tag else [])]
            record = encode_record(topic.encode(), queue, body, encode_properties(properties), born_ms=self.now_ms)
            crc = int.from_bytes(record[8:12], "big")
            tag_code = tag_hash(tag) if tag else 0
            rows.append(SEND_ROW.pack(len(record), TOPIC_IDS[topic], queue, 0, tag_code, crc, 0, NO_KEY, 0, 0))
            records.append(record)
            sent.append(Sent(topic, queue, sum(map(len, records[:-1])), len(record), tag, body, f"k{number}"))
        payload = [SEND_HEAD.pack(len(rows), 0), *rows, *records]
        entry = self._append([(CommandKind.SEND, payload)])
        at = entry.position + HEADER_SIZE_BYTES + ENTRY_HEAD.size + COMMAND_HEAD.size + SEND_HEAD.size
        at += len(rows) * SEND_ROW.size
        sent = [Sent(one.topic, one.queue, at + one.position, one.size, one.tag, one.body, one.key) for one in sent]
        self.stored += sent
        if visible:
            self._dispatch(entry, sent)
        else:
            self.delayed += sent
            self._store.timers.add(
                np.array(
                    [(self.now_ms + 60_000, len(self.stored) + n, *_timer(one)) for n, one in enumerate(sent)],
                    TIMER_ROWS,
                )
            )
        return sent

    def wait(self, sent: Sent, **wrong: int) -> None:
        """A timer for *sent*; *wrong*: what is added to its columns."""
        row = np.array([(self.now_ms + 60_000, 9_999, *_timer(sent))], TIMER_ROWS)
        for column, more in wrong.items():
            row[column] += more
        self._store.timers.add(row)

    def create_topic(self, topic: str) -> None:
        """An entry that carries no message."""
        self.now_ms += 1
        self._append([(CommandKind.CREATE_TOPIC, [encode_msgpack({"topic": topic, "queues": 2})])])

    def deliver(self, *sent: Sent) -> None:
        """Late messages become visible: queue entries that point back."""
        self.now_ms += 1
        self._dispatch(self._append([]), list(sent))

    def copy(self, sent: Sent, offset: int) -> Sent:
        """What retention does with a message that is still needed: it is stored again, and keeps its *offset*."""
        self.now_ms += 1
        record = self._store.log.read_records(np.array([sent.position]), np.array([sent.size]))
        row = (MOVED_MESSAGE, TOPIC_IDS[sent.topic], sent.queue, sent.size, offset, 0, self.tag_code(sent))
        rows = np.array([row], MOVE_ROWS).tobytes()
        entry = self._append([(CommandKind.COPY, [SEND_HEAD.pack(1, 0), rows, bytes(record)])])
        moved = replace(sent, position=entry.position + len(entry.raw) - sent.size)
        place = (moved.position, moved.size, self.tag_code(moved))
        self._store.moved.put(TOPIC_IDS[sent.topic], sent.queue, offset, place)
        self.queues.setdefault((sent.topic, sent.queue), [moved])[offset] = moved
        return moved

    def trim(self, *, boundary: bool = True) -> int:
        """What retention does with the first segment; the position at which the log then begins. Not after late messages."""
        log = self._store.log
        position = log.segment_bases[1]
        index = next(index for index in range(1, log.end_index + 1) if log.mark(index).position >= position)
        last = log.mark(index - 1)
        start = self._store.save_boundary(
            last, lambda: [b"a replay's start"], position=position, now_ms=self.now_ms, ends=[]
        )
        start.run()
        floors = []
        for (topic, queue), sent in self.queues.items():
            floors.append((TOPIC_IDS[topic], queue, sum(one.position < position for one in sent)))
        self._store.want_trim(last, floors)
        job = self._store.wanted_trim()
        assert job is not None, "a saved state lies behind the place"
        if not boundary:
            (self.directory / "state" / Boundary(position, self.now_ms).name).unlink()
        job.run()
        self._store.trimmed(job)
        return position

    def deliver_entry(self, topic: str, queue: int, entries: QueueEntries) -> None:
        """Queue entries as they are given, true or not."""
        self.now_ms += 1
        entry, key = self._append([]), (topic, queue)
        append = QueueAppend(TOPIC_IDS[topic], queue, len(self.queues.get(key, [])), entries)
        self._store.dispatch(entry, QueueAppends.of([append]), {TOPIC_IDS[topic]: topic.encode()}, self.now_ms)

    @staticmethod
    def tag_code(sent: Sent) -> int:
        """What a queue entry of this message has as its tag."""
        return tag_hash(sent.tag) if sent.tag else 0

    def seal_keys(self, number: int, count: int) -> None:
        """A table of *count* idempotency keys."""
        self._store.sent_keys.add(number, SealedKeys(fresh_keys(self._rng, count)), self.now_ms)

    def save(self) -> None:
        """A saved state of here."""
        save = self._store.save(self._store.log.mark(self._store.log.end_index), lambda: [b"the state machine's"])
        save.run()
        self._store.saved(save, is_saved=True)
        self.saved_index = save.mark.index

    def close(self, *, clean: bool = True) -> None:
        """Stop the node."""
        config = {
            "topicConfigTable": {
                name: {"topicName": name, "readQueueNums": 2, "attributes": {"+ternmq.topic.id": str(topic_id)}}
                for name, topic_id in TOPIC_IDS.items()
            }
        }
        small_files.write_config(self.directory, "topics.json", config, REAL_FILES)
        page = small_files.Checkpoint(newest_ms=self.now_ms, position=self._store.log.end_position)
        small_files.write_checkpoint(self.directory, page, REAL_FILES)
        self.end_position = self._store.log.end_position
        self._store.close()
        (self.directory / "lock").write_text("4711\n")
        if not clean:
            small_files.write_abort(self.directory, 4711, REAL_FILES)

    def _append(self, commands: list[tuple[CommandKind, list[bytes]]]) -> StoredEntry:
        parts = entry_parts(self.now_ms, commands)  # type: ignore[arg-type]
        return self._store.log.append(EntryKind.COMMANDS, self._store.log.end_index + 1, 1, parts, 1)

    def _dispatch(self, entry: StoredEntry, sent: list[Sent]) -> None:
        appends = []
        for place in dict.fromkeys((one.topic, one.queue) for one in sent):
            mine = [one for one in sent if (one.topic, one.queue) == place]
            entries = np.array(
                [(one.position, one.size, tag_hash(one.tag) if one.tag else 0) for one in mine], QUEUE_ENTRIES
            )
            queue = self.queues.setdefault(place, [])
            appends.append(QueueAppend(TOPIC_IDS[place[0]], place[1], len(queue), entries))
            queue += mine
        names = {topic_id: name.encode() for name, topic_id in TOPIC_IDS.items()}
        self._store.dispatch(entry, QueueAppends.of(appends), names, self.now_ms)


def filled(directory: Path, *, seed: int = 1, clean: bool = True) -> NodeDirectory:
    """A directory with some of everything."""
    node = NodeDirectory(directory, seed)
    rng = random.Random(seed)
    for topic in TOPIC_IDS:
        node.create_topic(topic)
    late: list[Sent] = []
    for number in range(60):
        places = [QUEUES[rng.randrange(3)] for _ in range(rng.randrange(1, 24))]
        if number % 7 == 3:
            late += node.send(*places[:3], visible=False)
        else:
            node.send(*places, body_size=rng.choice((1, 40, 400)))
        if number % 10 == 9:
            node.deliver(*late[:2])
            late = late[2:]
        if number in {30, 55}:
            node.seal_keys(number, 20 * number)
            node.save()
    node.save()
    node.close(clean=clean)
    return node


def digest(directory: Path) -> str:
    """Of the names and bytes of all files."""
    sha = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        sha.update(str(path.relative_to(directory)).encode())
        if path.is_file():
            sha.update(path.read_bytes())
    return sha.hexdigest()


def _timer(one: Sent) -> tuple[int, int, int, int, int, int]:
    return (one.position, one.size, TOPIC_IDS[one.topic], one.queue, 0, tag_hash(one.tag) if one.tag else 0)
